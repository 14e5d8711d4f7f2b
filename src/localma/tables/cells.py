"""Columns of text cells as numbers, truth values, dates or text.

The type of a column is decided once, by the first rows that are read. People write numbers with
thousands separators, percent signs and currency signs, and a comma may separate thousands or
decimals. `number_forms` returns the readings that fit all cells of a column. A remark says how the
numbers were read, unless they are written as programs write them.

>>> number_forms(pa.array(["$1,234.50", "$7"])).decimals
'.'
>>> to_numbers(pa.array(["$1,234.50", "$7"]), ".").to_pylist()
[1234.5, 7.0]
>>> to_numbers(pa.array(["1.234,5 €", "12%"]), ",").to_pylist()
[1234.5, 0.12]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from localma._optional import optional
from localma.tables.sniffing import Remark

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = optional("pyarrow", extra="cli")
    pc = optional("pyarrow.compute", extra="cli")

TRUTH = r"(?i)^(?:true|false)$"
DATE = r"^\d{4}-\d{2}-\d{2}"
MOSTLY = 0.5
"""A column with this share of numbers was probably meant to hold numbers."""
MARKS_SHOWN = 3
MARKS = [
    "-", "--", "---", "–", "—", ".", "..", "...", "?", "*", "na", "n/a", "n.a.", "nan", "none",
    "null", "nil", "missing", "unknown", "not available", "#n/a", "#div/0!", "#value!", "#ref!",
    "#num!", "#name?", "#null!",
]  # fmt: skip
"""Cells that mean a missing value in a column of numbers, in upper or lower case."""

CHECKED_FIRST = 100
CODES = (
    "USD|EUR|GBP|JPY|CNY|RMB|CHF|CAD|AUD|NZD|INR|KRW|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|SGD|HKD|"
    "TWD|TRY|RUB|THB|ILS|AED|SAR"
)
CURRENCY = rf"(?:(?:US|A|C|HK|NT|R)?\$|[€£¥₹₩₽₺฿元円]|zł|kr\.?|{CODES})"
SPACE = r"[ \x{a0}\x{202f}\x{2009}'’]"
"""Characters that may separate thousands and are never a decimal mark."""
EXPONENT = r"(?:[eE][+-]?\d+)?"
INFINITE = r"(?i:inf|infinity)"
PLAIN = rf"^[+-]?(?:(?:\d+\.?\d*|\.\d+){EXPONENT}|{INFINITE})$"
"""A number as programs write it."""
PLAIN_COMMA = r"^[+-]?\d+(?:,\d+)?$"
"""A plain number, except that it has a decimal comma."""
WHOLE = r"^[+-]?\d+$"
CODE = r"^[+-]?0\d+$"
"""Digits that start with zero: a code, such as a postal code, and not an amount."""
LONG = r"^[+-]?\d{16,}$"
"""More digits than a floating number can hold: an id."""
OTHER_MARK = {".": ",", ",": "."}


@dataclass(frozen=True)
class Known:
    """Facts about the columns that are known before they are read.

    types : Arrow types by column; decimal : the mark of numbers that can be read with either;
    percents : columns that are written with percent signs, None if that is unknown.
    """

    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    decimal: str | None = None
    percents: frozenset[str] | None = None


class BadCellError(Exception):
    """A cell that does not have the type of its column.

    row : its row in the present table, counted from zero; expected : a description of valid cells.
    """

    def __init__(self, column: str, row: int, value: str, expected: str) -> None:
        super().__init__(f"column {column!r}, row {row}: {value!r} is not {expected}")
        self.column, self.row, self.value, self.expected = column, row, value, expected


@dataclass(frozen=True)
class ColumnPlan:
    """The Arrow type of a column, and how its numbers are written."""

    type: pa.DataType
    decimal: str = "."
    percent: bool = False


@dataclass(frozen=True)
class Cells:
    """The cells of a column, and the distinct ones among them."""

    name: str
    column: pa.ChunkedArray

    @cached_property
    def distinct(self) -> pa.Array:
        """Distinct cells that are not missing."""
        return pc.unique(self.column.drop_null())

    @cached_property
    def values(self) -> pa.Array:
        """Distinct cells without marks for missing numbers and without blanks around them."""
        return pc.utf8_trim_whitespace(self.distinct.filter(pc.invert(is_mark(self.distinct))))

    @cached_property
    def is_plain(self) -> bool:
        """Whether all values are written as programs write numbers."""
        return self.all(PLAIN)

    @cached_property
    def marks(self) -> pa.ChunkedArray:
        """Cells that are marks for missing numbers."""
        if len(self.values) == len(self.distinct):
            return self.column[:0]
        return self.column.filter(is_mark(self.column)).drop_null()

    @cached_property
    def forms(self) -> NumberForms | None:
        """How the values can be read as numbers; None if some are not numbers."""
        return number_forms(self.values) if len(self.values) else None

    @property
    def is_code(self) -> bool:
        """Whether whole numbers are codes or ids, which arithmetic would change."""
        return self.all(WHOLE) and (self.first_match(CODE) or self.first_match(LONG)) is not None

    def all(self, pattern: str) -> bool:
        """Whether all values match."""
        return all_match(self.values, pattern)

    def first_match(self, pattern: str) -> str | None:
        """Return the first value that matches."""
        return _first_value(self.values.filter(pc.match_substring_regex(self.values, pattern)))

    def first_mismatch(self, pattern: str) -> str | None:
        """Return the first value that does not match."""
        matches = pc.match_substring_regex(self.values, pattern)
        return _first_value(self.values.filter(pc.invert(matches)))

    def check(self, values: pa.Array, valid: pa.Array, expected: str) -> None:
        """Raise `BadCellError` for the first value that is not valid."""
        bad = _first_value(values.filter(pc.invert(valid)))
        if bad is not None:
            row = pc.index(pc.utf8_trim_whitespace(self.column), bad).as_py()
            raise BadCellError(self.name, row, bad, expected)


class TextColumns:
    """Reads the columns of a text file, block by block.

    remarks : the list to which remarks are appended; decimal : the mark of numbers that can be read
    with either, None to take it from the file; default_decimal : that mark if the file does not
    decide it either.
    """

    def __init__(self, remarks: list[Remark], decimal: str | None, default_decimal: str) -> None:
        self._remarks, self._default = remarks, default_decimal
        self._plans: dict[str, ColumnPlan] = {}
        self._remarked_on_commas = False
        self.decimal = decimal
        self.percents: set[str] = set()

    def convert(self, table: pa.Table, hints: Known) -> pa.Table:
        """Convert a table of texts to values; `BadCellError` if a cell does not fit."""
        columns = [Cells(name, table[name]) for name in table.column_names]
        undecided = [cells for cells in columns if cells.name not in self._plans]
        if self.decimal is None:
            self.decimal = _decimal_of_file(cells.forms for cells in undecided)
        for cells in undecided:
            plan = self._plan(cells, hints)
            if plan is not None:
                self._plans[cells.name] = plan
        values = [_values(cells, self._plans.get(cells.name)) for cells in columns]
        return pa.table(values, names=table.column_names)

    def _plan(self, cells: Cells, hints: Known) -> ColumnPlan | None:
        """Decide the type of a column; None while all of its cells are missing."""
        hinted = hints.types.get(cells.name)
        is_empty = len(cells.distinct) == 0
        if hinted is not None and (is_empty or hinted != pa.float64()):
            return ColumnPlan(hinted)
        if is_empty:
            return None
        if hinted is None and (cells.forms is None or cells.is_code):
            return self._plan_of_text(cells)
        if cells.forms is None:
            return ColumnPlan(hinted, self.decimal or hints.decimal or self._default)
        if cells.forms.percent:
            self.percents.add(cells.name)
        plan = self._plan_of_numbers(cells, cells.forms, hints)
        self._remark_on_numbers(cells, cells.forms, plan)
        return plan

    def _plan_of_numbers(self, cells: Cells, forms: NumberForms, hints: Known) -> ColumnPlan:
        percent = forms.percent
        if hints.percents is not None:
            percent = cells.name in hints.percents
        if cells.name not in hints.types and not forms.percent and cells.all(WHOLE):
            return ColumnPlan(pa.int64(), percent=percent)
        decimal = "."
        if forms.has_marks and forms.only is None and cells.is_plain:
            # 1.234 is a plain number, unless other columns have decimal commas.
            decimal = self.decimal or "."
        elif forms.has_marks:
            decimal = forms.only or self.decimal or hints.decimal or self._default
        return ColumnPlan(pa.float64(), decimal, percent)

    def _plan_of_text(self, cells: Cells) -> ColumnPlan:
        for kind, pattern in (
            (pa.bool_(), TRUTH),
            (pa.date32(), DATE),
            (pa.timestamp("us"), DATE),
            (pa.timestamp("us", "UTC"), DATE),
        ):
            if len(cells.values) and cells.all(pattern) and _casts(cells.values, kind):
                return ColumnPlan(kind)
        remark = _remark_on_text(cells)
        if remark is not None:
            self._remarks.append(remark)
        return ColumnPlan(pa.string())

    def _remark_on_numbers(self, cells: Cells, forms: NumberForms, plan: ColumnPlan) -> None:
        if forms.only == "," and not len(cells.marks) and cells.all(PLAIN_COMMA):
            # One remark for the file: its columns are written alike.
            if not self._remarked_on_commas:
                self._remarked_on_commas = True
                example = cells.first_match(",")
                self._remarks.append(Remark(f"Numbers such as {example!r} have a decimal comma."))
            return
        unusual = None
        if not cells.is_plain:
            unusual = cells.first_mismatch(PLAIN)
        elif plan.decimal == ",":
            unusual = cells.first_match(r"\.")
        sentence = f"Column {cells.name!r} is read as numbers"
        other_decimal = None
        if unusual is not None:
            number = to_numbers(pa.array([unusual]), plan.decimal)[0].as_py()
            sentence += f": {unusual!r} is {number:.15g}"
            if forms.has_marks and forms.only is None:
                other_decimal = OTHER_MARK[plan.decimal]
        if len(cells.marks):
            sentence += _missing_in_words(cells.marks)
        elif unusual is None:
            return
        self._remarks.append(Remark(f"{sentence}.", other_decimal=other_decimal))


def _missing_in_words(marks: pa.ChunkedArray) -> str:
    """Say which cells count as missing, and the number of them."""
    distinct = pc.unique(marks).to_pylist()
    listed = [repr(mark) for mark in distinct[:MARKS_SHOWN]]
    if len(distinct) > MARKS_SHOWN:
        listed.append("...")
    count = "1 cell counts" if len(marks) == 1 else f"{len(marks):,} cells count"
    return f"; {count} as missing: {', '.join(listed)}"


def _remark_on_text(cells: Cells) -> Remark | None:
    """Explain why a column that looks like numbers is read as text."""
    if len(cells.values) == 0:
        return None
    start = f"Column {cells.name!r} is read as text:"
    if cells.all(WHOLE):
        long = cells.first_match(LONG)
        if long is not None:
            return Remark(f"{start} {long!r} has more digits than a number can hold exactly.")
        return Remark(f"{start} the digits of {cells.first_match(CODE)!r} start with zero.")
    filled = cells.column.filter(pc.invert(is_mark(cells.column))).drop_null()
    numeric = are_numbers(filled)
    n_numbers = pc.sum(numeric).as_py()
    if n_numbers < MOSTLY * len(filled):
        return None
    stray = _first_value(filled.filter(pc.invert(numeric)))
    if stray is None:
        examples = " and ".join(map(repr, _unlike_values(cells.values)))
        return Remark(
            f"{start} its numbers are not all written in the same way, such as {examples}. Write "
            "all of them in one way."
        )
    n_strays = len(filled) - n_numbers
    return Remark(
        f"{start} {n_strays:,} of {len(filled):,} cells are not numbers, such as {stray!r}.", stray
    )


def _decimal_of_file(forms: Iterable[NumberForms | None]) -> str | None:
    """Return the decimal mark on which the columns with only one reading agree."""
    certain = {form.only for form in forms if form is not None} - {None}
    return certain.pop() if len(certain) == 1 else None


def _unlike_values(values: pa.Array) -> list[str]:
    """Return the first value, and the first that is written differently."""
    shapes = pc.replace_substring_regex(values, r"\d+", "0")
    unlike = values.filter(pc.not_equal(shapes, shapes[0]))
    return [value.as_py() for value in (*values[:1], *unlike[:1])]


def _first_value(values: pa.Array) -> str | None:
    return next((value.as_py() for value in values[:1]), None)


def _casts(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _values(cells: Cells, plan: ColumnPlan | None) -> pa.ChunkedArray:
    """Convert the cells of a column as planned."""
    if plan is None:
        return pa.nulls(len(cells.column))
    if plan.type == pa.string():
        return cells.column
    if plan.type in (pa.int64(), pa.float64()):
        return _numbers(cells, plan)
    trimmed = pc.utf8_trim_whitespace(cells.column)
    try:
        return pc.cast(trimmed, plan.type)
    except pa.ArrowInvalid:
        distinct = pc.unique(trimmed.drop_null())
        valid = [_casts(distinct[k : k + 1], plan.type) for k in range(len(distinct))]
        expected = "true or false" if plan.type == pa.bool_() else "a date such as 2024-05-31"
        cells.check(distinct, pa.array(valid), expected)
        raise


def _numbers(cells: Cells, plan: ColumnPlan) -> pa.ChunkedArray:
    if plan.decimal == "." and not plan.percent:
        try:
            return pc.cast(cells.column, plan.type)
        except pa.ArrowInvalid:
            pass  # blanks, marks or signs: the slow way
    valid = pc.match_substring_regex(_bare(cells.values), PATTERNS[plan.decimal])
    cells.check(cells.values, valid, "a number")
    signs = pc.equal(pc.ends_with(cells.values, "%"), plan.percent)
    expected = "a number with a percent sign" if plan.percent else "a number without a sign"
    cells.check(cells.values, signs, expected)
    present = pc.if_else(is_mark(cells.column), None, cells.column)
    return pc.cast(to_numbers(present, plan.decimal), plan.type)


def _pattern(decimal: str, thousands: str) -> str:
    """Build the pattern of numbers with a decimal mark, whether thousands are grouped or not."""
    grouped = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{2,3}})*{thousands}\d{{3}}"
    spaced = rf"[1-9]\d{{0,2}}(?:{SPACE}\d{{3}})+"
    finite = rf"(?:(?:\d+|{grouped}|{spaced})(?:{decimal}\d*)?|{decimal}\d+){EXPONENT}"
    return rf"^[+-]?(?:{finite}|{INFINITE})$"


PATTERNS = {".": _pattern(r"\.", ","), ",": _pattern(",", r"\.")}


@dataclass(frozen=True)
class NumberForms:
    """How the cells of a column can be read as numbers.

    decimals : the decimal marks with which all cells are numbers: ".", "," or both; has_marks :
    whether any cell has a point or a comma; percent : whether all cells have a percent sign.
    """

    decimals: str
    has_marks: bool
    percent: bool

    @property
    def only(self) -> str | None:
        """The decimal mark, if only one is possible."""
        return self.decimals if len(self.decimals) == 1 else None


def number_forms(cells: pa.Array) -> NumberForms | None:
    """Return how cells can be read as numbers: (n,) texts; None if some are not numbers.

    Signs must agree: percent in all cells or in none, and at most one currency.
    """
    if all_match(cells, PLAIN):
        decimals = "." + "," * all_match(cells, PATTERNS[","])
        return NumberForms(decimals, decimals == "." or _any_match(cells, r"\."), False)
    percents = pc.ends_with(pc.utf8_trim_whitespace(cells), "%")
    percent = bool(pc.any(percents).as_py())
    if (percent and not pc.all(percents).as_py()) or _n_currencies(cells) > 1:
        return None
    bare = _bare(cells)
    decimals = "".join(mark for mark in PATTERNS if all_match(bare, PATTERNS[mark]))
    if not decimals:
        return None
    return NumberForms(decimals, _any_match(bare, "[.,]"), percent)


def are_numbers(cells: pa.Array) -> pa.Array:
    """Whether each cell reads as a number with either decimal mark: (n,) truth values."""
    bare = _bare(cells)
    return pc.or_(*(pc.match_substring_regex(bare, pattern) for pattern in PATTERNS.values()))


def to_numbers(cells: pa.Array, decimal: str) -> pa.Array:
    """Convert cells that are all numbers with a decimal mark: (n,); 12% is 0.12."""
    percents = pc.ends_with(pc.utf8_trim_whitespace(cells), "%")
    bare = pc.replace_substring_regex(_bare(cells), SPACE, "")
    bare = pc.replace_substring(bare, OTHER_MARK[decimal], "")
    numbers = pc.cast(pc.replace_substring(bare, decimal, "."), pa.float64())
    return pc.if_else(percents, pc.divide(numbers, 100.0), numbers)


def is_mark(cells: pa.Array) -> pa.Array:
    """Whether each cell is a mark for a missing number: (n,) truth values."""
    trimmed = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
    return pc.is_in(trimmed, value_set=pa.array(["", *MARKS]))


def _bare(cells: pa.Array) -> pa.Array:
    """Remove blanks around cells, percent and currency signs; write minus signs as programs do."""
    cells = pc.replace_substring(pc.utf8_trim_whitespace(cells), "−", "-")
    cells = pc.replace_substring_regex(cells, r"^\((.*)\)$", r"-\1")  # as accountants write it
    cells = pc.replace_substring_regex(cells, r"\s*%$", "")
    cells = pc.replace_substring_regex(cells, rf"^([+-]?)\s*{CURRENCY}\s*", r"\1")
    return pc.replace_substring_regex(cells, rf"\s*{CURRENCY}$", "")


def _n_currencies(cells: pa.Array) -> int:
    signs = pc.extract_regex(cells, rf"(?P<sign>{CURRENCY})")
    return len(pc.unique(pc.struct_field(signs, "sign")).drop_null())


def all_match(cells: pa.Array, pattern: str) -> bool:
    """Whether all cells match a pattern; a few cells are checked first, since they often decide."""
    return all(
        pc.all(pc.match_substring_regex(block, pattern), min_count=0).as_py()
        for block in (cells[:CHECKED_FIRST], cells[CHECKED_FIRST:])
    )


def _any_match(cells: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
