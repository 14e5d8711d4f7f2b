"""Numbers and names as people read them in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import floor, isfinite, log10
from unicodedata import category

UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that a terminal obeys or that change the order of a line."""
JOINERS = "\u200c\u200d"
"""Persian and Indic names need these; they change nothing outside of their word."""


def readable(value: float, digits: int = 3) -> str:
    """Write a number with some significant digits, and no exponent where it can be helped.

    >>> readable(516123.4), readable(0.0001234), readable(-11.02, 2), readable(1.5e12)
    ('516,000', '0.000123', '-11', '1.5e+12')
    """
    short = f"{value + 0.0:.{digits}g}"  # of minus zero this makes zero
    if not 1e-5 <= abs(value) < 1e9:
        return short
    return f"{Decimal(short):,f}"


def printable(text: str, allowed: str = "") -> str:
    r"""Write control characters as escapes, so that a terminal shows them and does not obey them.

    Parameters
    ----------
    text : words from anywhere: a file, a server, another person's table.
    allowed : characters to leave as they are, such as a line break.

    >>> print(printable("north\x1b[2J"))
    north\x1b[2J
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(letter) if letter not in allowed else letter for letter in text)


def _shown(letter: str) -> str:
    if category(letter) not in UNPRINTABLE or letter in JOINERS:
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def decimals_of(size: float, digits: int = 2) -> int:
    """Decimals that show some significant digits of a number, such as a standard error.

    Negative ones stand for tens, hundreds and so on.

    >>> decimals_of(0.0123), decimals_of(2500.0)
    (3, -2)
    """
    if not isfinite(size) or size == 0:
        return digits
    return digits - 1 - floor(log10(abs(size)))


def listed_names(names: Sequence[str]) -> str:
    """Write names in quotes, with commas and an "and".

    >>> listed_names(["a"]), listed_names(["a", "b", "c"])
    ("'a'", "'a', 'b' and 'c'")
    """
    *first, last = map(repr, names)
    return f"{', '.join(first)} and {last}" if first else last
