"""Numbers as people write them: with thousands separators, percent and currency signs.

A comma may separate thousands or decimals. `number_forms` tells which readings fit all cells of a
column; the caller chooses if both do.

>>> forms = number_forms(pa.array(["$1,234.50", "$7"]))
>>> forms.points, forms.commas
(True, False)
>>> to_numbers(pa.array(["$1,234.50", "$7"]), ".").to_pylist()
[1234.5, 7.0]
>>> to_numbers(pa.array(["1.234,5 €", "12%"]), ",").to_pylist()
[1234.5, 0.12]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localma._optional import optional

pa: Any = optional("pyarrow", extra="cli")
pc: Any = optional("pyarrow.compute", extra="cli")

MARKS = [
    "-", "--", "---", "–", "—", ".", "..", "...", "?", "*", "na", "n/a", "n.a.", "nan", "none",
    "null", "nil", "missing", "unknown", "not available", "#n/a", "#div/0!", "#value!", "#ref!",
    "#num!", "#name?", "#null!",
]  # fmt: skip
"""Cells that mean a missing value in a column of numbers, in any case of letters."""

TRIED_FIRST = 100
CODES = (
    "USD|EUR|GBP|JPY|CNY|RMB|CHF|CAD|AUD|NZD|INR|KRW|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|SGD|HKD|"
    "TWD|TRY|RUB|THB|ILS|AED|SAR"
)
CURRENCY = rf"(?:(?:US|A|C|HK|NT|R)?\$|[€£¥₹₩₽₺฿元円]|zł|kr\.?|{CODES})"
SPACE = r"[ \x{a0}\x{202f}\x{2009}'’]"
"""What may separate thousands and is never a decimal mark."""
EXPONENT = r"(?:[eE][+-]?\d+)?"
INFINITE = r"(?i:inf|infinity)"
PLAIN = rf"^[+-]?(?:(?:\d+\.?\d*|\.\d+){EXPONENT}|{INFINITE})$"
"""A number as programs write it."""
PLAIN_COMMA = r"^[+-]?\d+(?:,\d+)?$"
"""A number that differs from it by its decimal comma alone."""
WHOLE = r"^[+-]?\d+$"
CODE = r"^[+-]?0\d+$"
"""Digits that begin with zero: a code, such as a postal code, and not an amount."""
LONG = r"^[+-]?\d{16,}$"
"""Digits that floating numbers cannot tell apart: an id."""


def _pattern(decimal: str, thousands: str) -> str:
    """Numbers with one of the two decimal marks, thousands grouped or not."""
    grouped = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{2,3}})*{thousands}\d{{3}}"
    spaced = rf"[1-9]\d{{0,2}}(?:{SPACE}\d{{3}})+"
    finite = rf"(?:(?:\d+|{grouped}|{spaced})(?:{decimal}\d*)?|{decimal}\d+){EXPONENT}"
    return rf"^[+-]?(?:{finite}|{INFINITE})$"


PATTERNS = {".": _pattern(r"\.", ","), ",": _pattern(",", r"\.")}


@dataclass(frozen=True)
class NumberForms:
    """How the cells of a column can be read as numbers.

    points : with a decimal point; commas : with a decimal comma; separated : whether any cell has
    a point or comma at all; percent : whether all cells have a percent sign.
    """

    points: bool
    commas: bool
    separated: bool
    percent: bool

    @property
    def only(self) -> str | None:
        """The decimal mark, if only one is possible."""
        if self.points == self.commas:
            return None
        return "." if self.points else ","


def number_forms(cells: Any) -> NumberForms | None:
    """Look at cells without missing ones: (n,) texts; None if they are not all numbers.

    Signs must agree: percent in all cells or in none, one currency at most.
    """
    if all_match(cells, PLAIN):
        commas = all_match(cells, PATTERNS[","])
        return NumberForms(True, commas, not commas or _any_match(cells, r"\."), False)
    percents = pc.ends_with(pc.utf8_trim_whitespace(cells), "%")
    percent = pc.any(percents).as_py()
    if percent and not pc.all(percents).as_py():
        return None
    if len(_currencies(cells)) > 1:
        return None
    bare = _bare(cells)
    points, commas = (all_match(bare, PATTERNS[mark]) for mark in ".,")
    if not points and not commas:
        return None
    return NumberForms(points, commas, _any_match(bare, "[.,]"), bool(percent))


def are_numbers(cells: Any) -> Any:
    """Whether each cell reads as a number, whatever its marks: (n,) truth values."""
    bare = _bare(cells)
    either = [pc.match_substring_regex(bare, pattern) for pattern in PATTERNS.values()]
    return pc.or_(*either)


def to_numbers(cells: Any, decimal: str) -> Any:
    """Numbers of cells that all read as such, with a decimal mark: (n,); 12% is 0.12."""
    percents = pc.ends_with(pc.utf8_trim_whitespace(cells), "%")
    bare = pc.replace_substring_regex(_bare(cells), SPACE, "")
    bare = pc.replace_substring(bare, "," if decimal == "." else ".", "")
    numbers = pc.cast(pc.replace_substring(bare, decimal, "."), pa.float64())
    return pc.if_else(percents, pc.divide(numbers, 100.0), numbers)


def is_mark(cells: Any) -> Any:
    """Whether each cell is a mark for a missing number: (n,) truth values."""
    trimmed = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
    return pc.is_in(trimmed, value_set=pa.array(["", *MARKS]))


def _bare(cells: Any) -> Any:
    """Cells without blanks around them, percent and currency signs; minus signs as in programs."""
    cells = pc.replace_substring(pc.utf8_trim_whitespace(cells), "−", "-")
    cells = pc.replace_substring_regex(cells, r"^\((.*)\)$", r"-\1")  # as accountants write it
    cells = pc.replace_substring_regex(cells, r"\s*%$", "")
    cells = pc.replace_substring_regex(cells, rf"^([+-]?)\s*{CURRENCY}\s*", r"\1")
    return pc.replace_substring_regex(cells, rf"\s*{CURRENCY}$", "")


def _currencies(cells: Any) -> list[str]:
    signs = pc.extract_regex(cells, rf"(?P<sign>{CURRENCY})")
    return [sign.as_py() for sign in pc.unique(pc.struct_field(signs, "sign")).drop_null()]


def all_match(cells: Any, pattern: str) -> bool:
    """Whether all cells match a pattern; the first ones are tried first, since they often tell."""
    for some in (cells[:TRIED_FIRST], cells[TRIED_FIRST:]):
        if not pc.all(pc.match_substring_regex(some, pattern), min_count=0).as_py():
            return False
    return True


def _any_match(cells: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
