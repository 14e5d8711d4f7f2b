"""Tables: rows and columns of X, their encoding for the gate, and tables in files.

Messages of this package speak of files and columns, so that the command line can show them.
"""
