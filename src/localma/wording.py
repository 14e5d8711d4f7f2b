"""Numbers and names as people read them: on the terminal, in plots and on the page."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from math import floor, isfinite, log10
from unicodedata import category

UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that a terminal obeys or that change the order of a line."""
JOINERS = "\u200c\u200d"
"""Persian and Indic names need these; they change nothing outside of their word."""

NONE = "–"
"""Stands for a number that does not exist."""
MOST_DECIMALS = 6
MOST_LISTED = 6
NOTHING = 1e-12
"""Smaller numbers are rounding errors."""


def readable(value: float, digits: int = 3) -> str:
    """Write a number with some significant digits, and no exponent where it can be helped.

    >>> readable(516123.4), readable(0.0001234), readable(-11.02, 2), readable(1.5e12)
    ('516,000', '0.000123', '-11', '1.5e+12')
    """
    short = f"{value + 0.0:.{digits}g}"  # of minus zero this makes zero
    if not 1e-5 <= abs(value) < 1e9:
        return short
    return f"{Decimal(short):,f}"


def number(value: object, digits: int = 3) -> str:
    """Write a number as in `readable`, with a true minus sign; write other values as they are.

    >>> number(0.123456), number(-1234567), number(1e-9), number(None), number("dog")
    ('0.123', '−1,234,567', '1e−09', '–', 'dog')
    """
    if value is None:
        return NONE
    if isinstance(value, list):
        listed = ", ".join(number(item, digits) for item in value[:MOST_LISTED])
        return f"{listed}, … ({len(value)} in all)" if len(value) > MOST_LISTED else listed
    if isinstance(value, float):
        return _signed(readable(value, digits))
    if isinstance(value, int) and not isinstance(value, bool):
        return _signed(f"{value:,}")
    return str(value)


def fixed(value: float | None, decimals: int, *, sign: bool = False) -> str:
    """Write a number with this many decimals, as the columns of tables have them.

    Negative decimals round to tens, hundreds and so on.

    >>> fixed(0.12345, 3), fixed(-0.5, 2, sign=True), fixed(2e-9, 6), fixed(1.5e9, 2)
    ('0.123', '−0.50', '2e−09', '1.5e9')
    >>> fixed(955661.3, -3)
    '956,000'
    """
    if value is None:
        return NONE
    plus = "+" if sign else ""
    if abs(value) < NOTHING:
        value = 0.0
    if value and not 10.0**-MOST_DECIMALS <= abs(value) < 1e7:
        return _signed(f"{value:{plus}.3g}".replace("e+0", "e").replace("e+", "e"))
    if decimals < 0:
        value = round(value, decimals)
    return _signed(f"{value:{plus},.{max(0, decimals)}f}")


def with_error(
    value: float | None, error: float | None, decimals: int, *, sign: bool = False
) -> tuple[str, str]:
    """Write a value and its "± error" with the decimals of its column, or more if it is small.

    >>> with_error(0.123456, 0.00071, 2)
    ('0.12346', '± 0.00071')
    """
    if error is None:
        return fixed(value, decimals, sign=sign), ""
    if error > NOTHING:
        decimals = max(decimals, min(MOST_DECIMALS, decimals_of(error)))
    return fixed(value, decimals, sign=sign), f"± {fixed(error, decimals)}"


def percent(share: float | None) -> str:
    """Write a share, with a decimal if it is small.

    >>> percent(0.25), percent(0.034), percent(0.0002), percent(0.0), percent(None)
    ('25%', '3.4%', '0.02%', '0%', '–')
    """
    if share is None:
        return NONE
    size = abs(share)
    decimals = 2
    if size >= 0.0995 or size == 0:
        decimals = 0
    elif size >= 0.00095:
        decimals = 1
    return _signed(f"{share:.{decimals}%}")


def count(n: int, noun: str) -> str:
    """Write a number of things.

    >>> count(1, "row"), count(3500, "row")
    ('1 row', '3,500 rows')
    """
    plural = "" if n == 1 else "s"
    return f"{n:,} {noun}{plural}"


def short(text: object, most: int = 28) -> str:
    """Write a name on one line, cut if it is long.

    >>> short("a very long name indeed", 10)
    'a very lo…'
    """
    words = " ".join(str(text).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _signed(text: str) -> str:
    return text.replace("-", "−")


def decimals_of(size: float, digits: int = 2) -> int:
    """Decimals that show some significant digits of a number, such as a standard error.

    Negative ones stand for tens, hundreds and so on.

    >>> decimals_of(0.0123), decimals_of(2500.0)
    (3, -2)
    """
    if not isfinite(size) or size == 0:
        return digits
    return digits - 1 - floor(log10(abs(size)))


def decimals_for(errors: Iterable[float | None], values: Iterable[float | None]) -> int:
    """Decimals of a column: two digits of a typical error; without one, three of a typical value.

    >>> decimals_for([0.0123, 0.0028, 0.005], [0.4, 0.07, 0.2]), decimals_for([None], [12.0])
    (4, 1)
    """
    for sizes, digits in ((errors, 2), (values, 3)):
        ordered = sorted(abs(size) for size in sizes if size)
        if ordered:
            return min(MOST_DECIMALS, decimals_of(ordered[len(ordered) // 2], digits))
    return 2


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
    return "".join(_escaped(letter) if letter not in allowed else letter for letter in text)


def _escaped(letter: str) -> str:
    if category(letter) not in UNPRINTABLE or letter in JOINERS:
        return letter
    return letter.encode("unicode_escape").decode("ascii")
