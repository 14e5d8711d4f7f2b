"""Columns of text cells become numbers, truth values or dates, or stay text.

Each column is decided once, from the cells of the first rows that are read. If its numbers are not
written as programs write them, a remark says how they were read: people write thousands separators,
percent and currency signs. A comma may separate thousands or decimals. `number_forms` tells which
readings fit all cells of a column.

>>> forms = number_forms(pa.array(["$1,234.50", "$7"]))
>>> forms.points, forms.commas
(True, False)
>>> to_numbers(pa.array(["$1,234.50", "$7"]), ".").to_pylist()
[1234.5, 7.0]
>>> to_numbers(pa.array(["1.234,5 €", "12%"]), ",").to_pylist()
[1234.5, 0.12]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from localma._optional import optional
from localma.tables.sniffing import Remark

pa: Any = optional("pyarrow", extra="cli")
pc: Any = optional("pyarrow.compute", extra="cli")

DATE = r"^\d{4}-\d{2}-\d{2}"
MOSTLY = 0.5
"""A column with this share of numbers was probably meant to hold numbers."""
MARKS_SHOWN = 3
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


@dataclass(frozen=True)
class Known:
    """What is known of the columns before they are read.

    types : Arrow types by column; decimal : the mark of numbers that can be read with either;
    percents : columns that are written with percent signs, None if that is unknown.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    decimal: str | None = None
    percents: frozenset[str] | None = None


class BadCellError(Exception):
    """A cell that cannot be read as the values of its column are.

    column : its name; row : counted from zero in the table at hand; value : what it holds;
    wanted : what it should be.
    """

    def __init__(self, column: str, row: int, value: str, wanted: str) -> None:
        super().__init__(f"column {column!r}, row {row}: {value!r} is not {wanted}")
        self.column, self.row, self.value, self.wanted = column, row, value, wanted


@dataclass(frozen=True)
class ColumnPlan:
    """How the cells of one column become values: an Arrow type, and how numbers are written."""

    type: Any
    decimal: str = "."
    percent: bool = False


@dataclass(frozen=True)
class Cells:
    """The different cells of a column that hold something."""

    name: str
    column: Any

    @cached_property
    def distinct(self) -> Any:
        """Different cells, missing ones left out."""
        return pc.unique(self.column.drop_null())

    @cached_property
    def values(self) -> Any:
        """Different cells that are not marks for a missing number, without blanks around."""
        return pc.utf8_trim_whitespace(self.distinct.filter(pc.invert(is_mark(self.distinct))))

    @cached_property
    def is_plain(self) -> bool:
        """Whether all values are written as programs write numbers."""
        return self.all(PLAIN)

    @cached_property
    def marks(self) -> Any:
        """Cells that are marks for a missing number."""
        if len(self.values) == len(self.distinct):
            return self.column[:0]
        return self.column.filter(is_mark(self.column)).drop_null()

    @cached_property
    def forms(self) -> NumberForms | None:
        """How the values read as numbers, if all of them do."""
        return number_forms(self.values) if len(self.values) else None

    def all(self, pattern: str) -> bool:
        """Whether all values match."""
        return all_match(self.values, pattern)

    def first(self, pattern: str) -> str | None:
        """The first value that matches."""
        matching = self.values.filter(pc.match_substring_regex(self.values, pattern))
        return matching[0].as_py() if len(matching) else None

    def first_other(self, pattern: str) -> str | None:
        """The first value that does not match."""
        other = self.values.filter(pc.invert(pc.match_substring_regex(self.values, pattern)))
        return other[0].as_py() if len(other) else None

    def row_of(self, value: str) -> int:
        """The first row that holds a value, blanks around it or not."""
        return int(pc.index(pc.utf8_trim_whitespace(self.column), value).as_py())


class TextColumns:
    """Reads the columns of a text file, part by part.

    known : what is known of them; remarks : the list that remarks go to; stated_decimal : the mark
    of numbers that can be read with either; default_decimal : that mark if none is stated and no
    number of the file tells it.
    """

    def __init__(
        self,
        known: Known,
        remarks: list[Remark],
        *,
        stated_decimal: str | None,
        default_decimal: str,
    ) -> None:
        self._known, self.remarks = known, remarks
        self._default = known.decimal or default_decimal
        self._plans: dict[str, ColumnPlan] = {}
        self._commas_told = False
        self.decimal = stated_decimal
        self.percents: set[str] = set()

    def convert(self, table: Any) -> Any:
        """Turn a table of texts into one of values; `BadCellError` if a cell does not fit."""
        new = [name for name in table.column_names if name not in self._plans]
        cells = [Cells(name, table[name]) for name in new]
        if self.decimal is None:
            self.decimal = _mark_of_file(each.forms for each in cells)
        for each in cells:
            plan = self._plan(each)
            if plan is not None:
                self._plans[each.name] = plan
        for position, name in enumerate(table.column_names):
            values = _values(Cells(name, table[name]), self._plans.get(name))
            table = table.set_column(position, name, values)
        return table

    def _plan(self, cells: Cells) -> ColumnPlan | None:
        """Decide a column; None while all of its cells are missing."""
        stated = self._known.types.get(cells.name)
        if stated is not None and stated != pa.float64():
            return ColumnPlan(stated)
        if len(cells.distinct) == 0:
            return None if stated is None else ColumnPlan(stated)
        if stated is None and (cells.forms is None or _is_code(cells)):
            return self._plan_of_text(cells)
        if cells.forms is None:
            return ColumnPlan(stated, self._mark(None))
        plan = self._plan_of_numbers(cells, cells.forms, stated)
        self._remark_on_numbers(cells, cells.forms, plan)
        return plan

    def _plan_of_numbers(self, cells: Cells, forms: NumberForms, stated: Any) -> ColumnPlan:
        if forms.percent:
            self.percents.add(cells.name)
        whole = stated is None and not forms.percent and cells.all(WHOLE)
        kind = pa.int64() if whole else pa.float64()
        mark = self._mark(forms)
        if forms.only is None and cells.is_plain:
            # 1.234 is a plain number, unless other columns write decimals with a comma.
            mark = self.decimal or "."
        percent = forms.percent
        if self._known.percents is not None:
            percent = cells.name in self._known.percents
        return ColumnPlan(kind, mark if forms.separated else ".", percent)

    def _mark(self, forms: NumberForms | None) -> str:
        certain = None if forms is None else forms.only
        return certain or self.decimal or self._default

    def _plan_of_text(self, cells: Cells) -> ColumnPlan:
        for kind, pattern in (
            (pa.bool_(), "(?i)^(?:true|false)$"),
            (pa.date32(), DATE),
            (pa.timestamp("us"), DATE),
            (pa.timestamp("us", "UTC"), DATE),
        ):
            if len(cells.values) and cells.all(pattern) and _casts(cells.values, kind):
                return ColumnPlan(kind)
        self._remark_on_text(cells)
        return ColumnPlan(pa.string())

    def _remark_on_numbers(self, cells: Cells, forms: NumberForms, plan: ColumnPlan) -> None:
        marks = cells.marks
        if forms.only == "," and not len(marks) and cells.all(PLAIN_COMMA):
            self._remark_on_commas(cells)
            return
        unusual = None if cells.is_plain else cells.first_other(PLAIN)
        if unusual is None and plan.decimal == ",":
            unusual = cells.first(r"\.")
        if unusual is None and not len(marks):
            return
        sentence = f"Column {cells.name!r} is read as numbers"
        if unusual is not None:
            number = to_numbers(pa.array([unusual]), plan.decimal)[0].as_py()
            sentence += f": {unusual!r} is {number:.15g}"
        if len(marks):
            different = [str(mark) for mark in pc.unique(marks).to_pylist()]
            shown = ", ".join(repr(mark) for mark in different[:MARKS_SHOWN])
            more = ", ..." if len(different) > MARKS_SHOWN else ""
            counted = "1 cell counts" if len(marks) == 1 else f"{len(marks):,} cells count"
            sentence += f"; {counted} as missing: {shown}{more}"
        ambiguous = forms.separated and forms.only is None and unusual is not None
        other = {".": ",", ",": "."}[plan.decimal] if ambiguous else None
        self.remarks.append(Remark(f"{sentence}.", other_decimal=other))

    def _remark_on_commas(self, cells: Cells) -> None:
        """Say once that the file has decimal commas: they are in all of its columns."""
        if not self._commas_told:
            self._commas_told = True
            example = cells.first(",")
            self.remarks.append(Remark(f"Numbers such as {example!r} have a decimal comma."))

    def _remark_on_text(self, cells: Cells) -> None:
        """Say it of a column that looks like numbers and is not read as such."""
        if len(cells.values) == 0:
            return
        if cells.all(WHOLE):
            long = cells.first(LONG)
            why = f"the digits of {cells.first(CODE)!r} start with zero"
            if long is not None:
                why = f"{long!r} has more digits than a number can hold exactly"
            self.remarks.append(Remark(f"Column {cells.name!r} is read as text: {why}."))
            return
        filled = cells.column.filter(pc.invert(is_mark(cells.column))).drop_null()
        numbers = are_numbers(filled)
        n_numbers = pc.sum(numbers).as_py()
        if n_numbers < MOSTLY * len(filled):
            return
        n_strays = len(filled) - n_numbers
        if n_strays == 0:
            self.remarks.append(
                Remark(
                    f"Column {cells.name!r} is read as text: its numbers are not all written in "
                    f"the same way, such as {' and '.join(map(repr, _two(cells.values)))}. Write "
                    "them alike."
                )
            )
            return
        stray = filled.filter(pc.invert(numbers))[0].as_py()
        self.remarks.append(
            Remark(
                f"Column {cells.name!r} is read as text: {n_strays:,} of {len(filled):,} cells "
                f"are not numbers, such as {stray!r}.",
                stray=stray,
            )
        )


def _is_code(cells: Cells) -> bool:
    """Whether whole numbers are codes or ids, which arithmetic would change."""
    return cells.all(WHOLE) and (cells.first(CODE) or cells.first(LONG)) is not None


def _mark_of_file(forms: Iterable[NumberForms | None]) -> str | None:
    """The decimal mark that columns with only one possible reading agree on."""
    certain = {each.only for each in forms if each is not None and each.only is not None}
    return certain.pop() if len(certain) == 1 else None


def _two(values: Any) -> list[str]:
    """Two values that are written differently: the first, and the first of another form."""
    first = values[0].as_py()
    shape = pc.replace_substring_regex(values, r"\d+", "0")
    other = values.filter(pc.not_equal(shape, shape[0]))
    return [first, other[0].as_py()] if len(other) else [first]


def _casts(values: Any, kind: Any) -> bool:
    try:
        pc.cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _values(cells: Cells, plan: ColumnPlan | None) -> Any:
    """The values of a column, as planned."""
    if plan is None:
        return pa.nulls(len(cells.column))
    if plan.type == pa.string():
        return cells.column
    if plan.type in (pa.int64(), pa.float64()):
        return _numbers(cells, plan)
    trimmed = pc.utf8_trim_whitespace(cells.column)
    wanted = "true or false" if plan.type == pa.bool_() else "a date such as 2024-05-31"
    try:
        return pc.cast(trimmed, plan.type)
    except pa.ArrowInvalid:
        stray = next(v for v in cells.distinct if not _casts(pa.array([v.as_py()]), plan.type))
        raise _bad(cells, stray.as_py(), wanted) from None


def _numbers(cells: Cells, plan: ColumnPlan) -> Any:
    if plan.decimal == "." and not plan.percent:
        try:
            return pc.cast(cells.column, plan.type)
        except pa.ArrowInvalid:
            pass  # blanks, marks or signs: the long way
    present = pc.if_else(is_mark(cells.column), None, cells.column)
    cells = Cells(cells.name, present)
    stray = _stray(cells, plan)
    if stray is not None:
        raise _bad(cells, stray, "a number")
    signs = pc.ends_with(cells.values, "%")
    if len(cells.values) and not pc.all(pc.equal(signs, plan.percent)).as_py():
        odd = cells.values.filter(pc.not_equal(signs, plan.percent))[0].as_py()
        wanted = "a number with a percent sign" if plan.percent else "a number without a sign"
        raise _bad(cells, odd, wanted)
    return pc.cast(to_numbers(present, plan.decimal), plan.type)


def _stray(cells: Cells, plan: ColumnPlan) -> str | None:
    """The first value that is not a number with the decimal mark of its column."""
    if len(cells.values) == 0:
        return None
    forms = number_forms(cells.values)
    if forms is not None and (forms.points if plan.decimal == "." else forms.commas):
        return None
    for value in cells.values:
        forms = number_forms(pa.array([value.as_py()]))
        if forms is None or not (forms.points if plan.decimal == "." else forms.commas):
            return str(value)
    return None


def _bad(cells: Cells, value: str, wanted: str) -> BadCellError:
    return BadCellError(cells.name, cells.row_of(value), value, wanted)


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
