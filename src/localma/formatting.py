"""Numbers and names as text, for the terminal, plots and the page."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from math import floor, isfinite, log10
from unicodedata import category

UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that control a terminal or change the order of a line."""
JOINERS = "\u200c\u200d"
"""Persian and Indic names need these characters, which affect only their word."""

NONE = "–"
"""Replaces a number that does not exist."""
MOST_DECIMALS = 6
MOST_LISTED = 6
NOTHING = 1e-12
"""Smaller numbers are rounding errors."""


def readable(value: float, digits: int = 3) -> str:
    """Write a number with some significant digits, without an exponent unless it is extreme.

    >>> readable(516123.4), readable(0.0001234), readable(-11.02, 2), readable(1.5e12)
    ('516,000', '0.000123', '-11', '1.5e+12')
    """
    short = f"{value + 0.0:.{digits}g}"  # of minus zero this makes zero
    if not 1e-5 <= abs(value) < 1e9:
        return short
    return f"{Decimal(short):,f}"


def number(value: object, digits: int = 3) -> str:
    """Write a number as in `readable`, with a minus sign instead of a hyphen; or another value.

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
    """Write a number with a fixed number of decimals, as in the columns of tables.

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


def resolved(value: float, spread: float) -> str:
    """Write a value of a column with a resolution of a thousandth of the column's spread.

    Such values are compared and typed, so they have no commas.

    >>> resolved(121.46652, 0.8), resolved(4500.0, 20000.0), resolved(0.00012, 0.0)
    ('121.4665', '4500', '0.00012')
    """
    if value == round(value) and abs(value) < 1e15:
        return str(round(value))
    decimals = max(0, decimals_of(spread / 1000, 1)) if 0 < spread < 1e15 else 13
    if decimals > 12:
        return f"{value:.4g}"
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"  # never minus zero
    return text.rstrip("0").rstrip(".") if "." in text else text


def tick_label(value: float) -> str:
    """Write a round number on an axis, as short as possible.

    >>> tick_label(0.25), tick_label(-1500.0), tick_label(2.5e6), tick_label(1e-5)
    ('0.25', '−1,500', '2.5e6', '1e−5')
    """
    if value and not 1e-4 <= abs(value) < 1e6:
        return _signed(f"{value:.3g}").replace("e−0", "e−").replace("e+0", "e")
    return number(value, 7)


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


def percent(share: float | None, decimals: int | None = None) -> str:
    """Write a share, with a decimal if it is small.

    >>> percent(0.25), percent(0.034), percent(0.0002), percent(0.0), percent(None)
    ('25%', '3.4%', '0.02%', '0%', '–')
    >>> percent(0.25, 1)
    '25.0%'
    """
    if share is None:
        return NONE
    if decimals is None:
        decimals = 2
        if abs(share) >= 0.0995 or share == 0:
            decimals = 0
        elif abs(share) >= 0.00095:
            decimals = 1
    return _signed(f"{share:.{decimals}%}")


LOSS_NAMES = {
    "squared_error": "squared error",
    "absolute_error": "absolute error",
    "huber": "Huber loss",
    "cross_entropy": "cross-entropy",
    "brier": "Brier score",
    "bernoulli": "Bernoulli deviance",
    "poisson": "Poisson deviance",
    "gamma": "gamma deviance",
    "inverse_gaussian": "inverse Gaussian deviance",
    "tweedie": "Tweedie deviance",
}


def mean_loss(name: str, start: str = "mean") -> str:
    """Write the name of a mean loss; start it with "Mean" at the beginning of a sentence.

    >>> mean_loss("poisson", "Mean"), mean_loss("pinball"), mean_loss("late_fee")
    ('Mean Poisson deviance', 'mean pinball loss', 'mean late fee loss')
    """
    default = f"{name.replace('_', ' ').removesuffix(' loss')} loss"
    return f"{start} {LOSS_NAMES.get(name, default)}"


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
    """Return the decimals that show some significant digits of a number, such as an error.

    Negative decimals mean tens, hundreds and so on.

    >>> decimals_of(0.0123), decimals_of(2500.0)
    (3, -2)
    """
    if not isfinite(size) or size == 0:
        return digits
    return digits - 1 - floor(log10(abs(size)))


def decimals_for(errors: Iterable[float | None], values: Iterable[float | None]) -> int:
    """Return the decimals of a column: two digits of a typical error, or three of a typical value.

    >>> decimals_for([0.0123, 0.0028, 0.005], [0.4, 0.07, 0.2]), decimals_for([None], [12.0])
    (4, 1)
    """
    for sizes, digits in ((errors, 2), (values, 3)):
        ordered = sorted(abs(size) for size in sizes if size)
        if ordered:
            return min(MOST_DECIMALS, decimals_of(ordered[len(ordered) // 2], digits))
    return 2


def printable(text: str, allowed: str = "") -> str:
    r"""Write control characters as escapes, so that they do not control the terminal.

    Parameters
    ----------
    text : str
        A text from an untrusted source, such as a file or a server.
    allowed : str
        Characters to leave as they are, such as a line break.

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
