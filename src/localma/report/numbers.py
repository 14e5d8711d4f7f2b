"""Numbers as a reader wants them: as many digits as their error allows, and a true minus sign."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, log10
from typing import Any

NONE = "–"
MOST_DECIMALS = 6
NOTHING = 1e-12
"""What is smaller is a rounding error."""


def number(value: Any, digits: int = 3) -> str:
    """A number with a few significant digits; what is no number, as it is.

    >>> number(0.123456), number(-1234567.0), number(1e-9), number(None), number("dog")
    ('0.123', '−1,234,567', '1e−09', '–', 'dog')
    """
    if value is None:
        return NONE
    if isinstance(value, list):
        return _several(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == 0 or isinstance(value, int):
        return _signed(f"{value:,}" if isinstance(value, int) else "0")
    if not 1e-4 <= abs(value) < 1e15:
        return _signed(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    return _signed(f"{value:,.{decimals}f}")


def fixed(value: float | None, decimals: int, *, sign: bool = False) -> str:
    """A number with this many decimals, as the columns of tables have them.

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
    rounded = round(value, decimals) if decimals < 0 else value
    return _signed(f"{rounded:{plus},.{max(0, decimals)}f}")


def decimals_for(errors: Iterable[float | None], values: Iterable[float | None]) -> int:
    """Decimals of a column: two digits of a typical error; without one, three of a typical value.

    >>> decimals_for([0.0123, 0.0028, 0.005], [0.4, 0.07, 0.2]), decimals_for([None], [12.0])
    (4, 1)
    """
    known = sorted(abs(error) for error in errors if error)
    if known:
        return _decimals(known[len(known) // 2], 2)
    sizes = sorted(abs(value) for value in values if value)
    return _decimals(sizes[len(sizes) // 2], 3) if sizes else 2


def with_error(pair: dict[str, Any], decimals: int, *, sign: bool = False) -> tuple[str, str]:
    """A value and its "± error", with the decimals of its column, or more where it is small.

    >>> with_error({"value": 0.123456, "standard_error": 0.00071}, 2)
    ('0.12346', '± 0.00071')
    """
    value, error = pair["value"], pair["standard_error"]
    if error and error > NOTHING:
        decimals = max(decimals, _decimals(error, 2))
    said = "" if error is None else f"± {fixed(error, decimals)}"
    return fixed(value, decimals, sign=sign), said


def count(n: int, what: str) -> str:
    """A number of things.

    >>> count(1, "row"), count(3500, "row")
    ('1 row', '3,500 rows')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share, with a decimal where it is small.

    >>> percent(0.25), percent(0.034), percent(0.0002), percent(0.0), percent(None)
    ('25%', '3.4%', '0.02%', '0%', '–')
    """
    if share is None:
        return NONE
    size = abs(share)
    decimals = 0 if size >= 0.0995 or size == 0 else 1 if size >= 0.00095 else 2
    return _signed(f"{share:.{decimals}%}")


def place(value: float) -> str:
    """A coordinate or a length in a picture.

    >>> place(12.3456), place(50.0)
    ('12.35', '50')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def short(text: Any, most: int = 28) -> str:
    """A name, cut where it is long.

    >>> short("a very long name indeed", 10)
    'a very lo…'
    """
    words = " ".join(str(text).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _decimals(size: float, digits: int) -> int:
    return min(MOST_DECIMALS, digits - 1 - floor(log10(size)))


def _signed(text: str) -> str:
    return text.replace("-", "−")


def _several(values: list[Any], most: int = 6) -> str:
    shown = ", ".join(number(value) for value in values[:most])
    return f"{shown}, … ({len(values)} in all)" if len(values) > most else shown
