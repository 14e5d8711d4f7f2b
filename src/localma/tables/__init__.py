"""Tables in files: what a file is, how its cells are written, reading and writing it.

The modules of this room speak of files and columns, never of options or of Python, so that a
command line and a program can both pass on their messages.
"""
