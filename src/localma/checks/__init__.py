"""Checks of a fit: reasons to doubt its data, its candidates or its result."""
