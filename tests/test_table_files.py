"""Tables in files: what a file is, how its cells are written, reading and writing it."""

from __future__ import annotations

import datetime
import gzip
import subprocess
import sys
import zipfile

import pytest

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from localma.errors import InvalidInputError  # noqa: E402
from localma.tables import files  # noqa: E402
from localma.tables.cells import Known  # noqa: E402
from localma.tables.files import open_table, read_table, write_table, writing  # noqa: E402
from localma.tables.sniffing import TableFileError, TextOptions  # noqa: E402


@pytest.fixture
def opened(tmp_path):
    """A function that writes a file and opens it as a table."""

    def write(content, name="t.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_table(path, TextOptions(**options))

    return write


def column(reader, name="x", known=None):
    return reader.read(known or Known())[name]


def of_cells(*cells):
    """A file with a column of cells, each quoted, and another column."""
    return "x,other\n" + "".join(f'"{cell}",a\n' for cell in cells)


# --- numbers as people write them ---


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["12", "-", "n/a", "7"], [12, None, None, 7]),
        (["1.5", "?", "Unknown", "#DIV/0!"], [1.5, None, None, None]),
        (["12%", "5.5 %"], [0.12, 0.055]),
        (["$1,234.50", "$7", "-$3"], [1234.5, 7, -3]),
        (["1.234,50 €", "7 €"], [1234.5, 7]),
        (["EUR 12", "EUR 13.5"], [12, 13.5]),
        (["1,234,567", "1,000"], [1234567, 1000]),
        (["1.234.567", "5.000"], [1234567, 5000]),
        (["1 234", "12"], [1234, 12]),
        (["1\u202f234,5", "2,25"], [1234.5, 2.25]),
        (["1'234.5", "7"], [1234.5, 7]),
        (["12,5", "1,25"], [12.5, 1.25]),
        (["0,123", "0,456"], [0.123, 0.456]),
        (["(12)", "3"], [-12, 3]),
        (["−5", "+3"], [-5, 3]),
        ([" 12 ", "1e3"], [12, 1000]),
        (["12,34,567", "1,000"], [1234567, 1000]),
        (["inf", "-inf", "2"], [float("inf"), float("-inf"), 2]),
    ],
)
def test_numbers_as_people_write_them(opened, cells, values):
    assert column(opened(of_cells(*cells))).to_pylist() == pytest.approx(values)


@pytest.mark.parametrize(
    "cells",
    [
        ["007", "12"],
        ["1234567890123456789", "12"],
        ["12345678901234567890", "3"],
        ["2024.01.31", "2024.02.01"],
        ["31.12.2023", "1.2.2024"],
        ["$5", "€6"],
        ["12%", "5"],
        ["12 km", "3 km"],
        ["10-20", "20-30"],
        ["1.5", "2,5"],
        ["-", "?"],
        ["a", "-"],
        ["2024-02-31", "2024-01-01"],
    ],
)
def test_what_is_not_a_number_stays_as_written(opened, cells):
    read = column(opened(of_cells(*cells)))
    assert str(read.type) == "string"
    assert read.to_pylist() == cells


def test_whole_numbers_truth_values_and_dates(opened):
    reader = opened(
        "n,truth,day,moment,zoned\n"
        "1,true,2024-05-31,2024-05-31 12:30,2024-05-31T12:30:05Z\n"
        ",False,,2024-06-01,2024-05-31T12:30:05+02:00\n"
    )
    table = reader.read()
    assert [str(c.type) for c in table.columns] == [
        "int64", "bool", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]",
    ]  # fmt: skip
    assert table["day"].to_pylist() == [datetime.date(2024, 5, 31), None]
    assert reader.remarks == []


def test_each_converted_column_has_one_remark(opened):
    reader = opened('a,b,c\n"$1,200",12%,-\n$7,-,5\n$8,3%,6\n')
    reader.read()
    assert [remark.text for remark in reader.remarks] == [
        "Column 'a' is read as numbers: '$1,200' is 1200.",
        "Column 'b' is read as numbers: '12%' is 0.12; 1 cell counts as missing: '-'.",
        "Column 'c' is read as numbers; 1 cell counts as missing: '-'.",
    ]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1", "2", "ask"], "1 of 3 cells are not numbers, such as 'ask'"),
        (["007", "12"], "the digits of '007' start with zero"),
        (["1234567890123456789", "1"], "has more digits than a number can hold exactly"),
        (["12%", "5"], "not all written in the same way, such as '12%' and '5'"),
    ],
)
def test_numbers_that_are_read_as_text_are_told(opened, cells, words):
    reader = opened(of_cells(*cells))
    reader.read()
    (remark,) = reader.remarks
    assert remark.text.startswith("Column 'x' is read as text")
    assert words in remark.text
    assert remark.stray == ("ask" if "ask" in cells else None)


def test_words_need_no_remark(opened):
    reader = opened("city,code\nXuhui,a1\nPudong,b2\n1,c3\n")
    reader.read()
    assert reader.remarks == []


def test_cells_that_mean_missing_can_be_stated(opened):
    reader = opened(of_cells("1", "ask", "-999"), missing=("ask", "-999"))
    assert column(reader).to_pylist() == [1, None, None]


# --- 1,234: thousands or decimals ---


@pytest.mark.parametrize(
    ("text", "options", "expected", "other"),
    [
        ('x,y\n"1,234",a\n', {}, 1234, ","),
        ("x;y\n1,234;a\n", {}, 1.234, "."),
        ('x,y\n"1,234",a\n', {"decimal": ","}, 1.234, "."),
        ("x;y\n1,234;a\n", {"decimal": "."}, 1234, ","),
        ("x;y\n1,234;0.5\n", {}, 1234, ","),
        ('x,y\n"1,234","0,5"\n', {}, 1.234, "."),
        ("x;y\n1.234;0,5\n", {}, 1234, "."),
        ("x;y\n1.234;7\n", {}, 1.234, None),
    ],
)
def test_a_number_with_two_readings_goes_by_the_file(opened, text, options, expected, other):
    reader = opened(text, **options)
    assert column(reader).to_pylist() == [expected]
    told = [remark.other_decimal for remark in reader.remarks if "'x'" in remark.text]
    assert told == ([] if other is None else [other])


def test_decimal_commas_of_a_file_are_told_once(opened):
    reader = opened("x;y;z\n1,5;2,5;3\n4,25;5,5;6\n")
    assert reader.read().to_pydict() == {"x": [1.5, 4.25], "y": [2.5, 5.5], "z": [3, 6]}
    assert [remark.text for remark in reader.remarks] == [
        "Numbers such as '1,5' have a decimal comma."
    ]
    assert reader.decimal == ","


def test_the_mark_of_the_labelled_table_decides_where_the_file_does_not(opened):
    known = Known({"x": pa.float64()}, decimal=",")
    assert column(opened('x,y\n"1,234",a\n'), known=known).to_pylist() == [1.234]
    assert column(opened('x,y\n"1,234",0.5\n'), known=known).to_pylist() == [1234]


# --- what is known of columns ---


def test_a_cell_that_is_not_a_number_is_named_with_its_line(opened):
    reader = opened('x,note\n1,"two\nlines"\n\n2,a\noops,b\n')
    with pytest.raises(TableFileError, match=r"'oops' in column 'x' of t\.csv, line 6, is not"):
        reader.read(Known({"x": pa.float64()}))


@pytest.mark.parametrize(
    ("kind", "words"),
    [(pa.bool_(), "true or false"), (pa.timestamp("us"), "a date such as 2024-05-31")],
)
def test_a_cell_with_blanks_around_it_is_named_with_its_line(opened, kind, words):
    valid = {pa.bool_(): "true", pa.timestamp("us"): "2024-05-31"}[kind]
    reader = opened(f"x,y\n {valid} ,a\n oops ,b\n")
    with pytest.raises(
        TableFileError, match=f"'oops' in column 'x' of t.csv, line 3, is not {words}"
    ):
        reader.read(Known({"x": kind}))


def test_percent_signs_are_as_when_the_model_was_fitted(opened):
    types = {"x": pa.float64()}
    with_signs = Known(types, percents=frozenset({"x"}))
    without = Known(types, percents=frozenset())
    assert column(opened(of_cells("12%")), known=with_signs).to_pylist() == [0.12]
    with pytest.raises(TableFileError, match=r"'12' .* is not a number with a percent sign"):
        column(opened(of_cells("12")), known=with_signs)
    with pytest.raises(TableFileError, match=r"'12%' .* is not a number without a sign"):
        column(opened(of_cells("12%")), known=without)


def test_categories_keep_what_would_be_a_missing_number(opened):
    known = Known({"x": pa.string()})
    assert column(opened(of_cells("1", "-", "007")), known=known).to_pylist() == ["1", "-", "007"]


def test_parts_are_read_as_the_first_one_was(opened, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 60)
    rows = ["12%"] * 20 + ["-", "7%"]
    reader = opened("x,y\n" + "".join(f"{cell},a\n" for cell in rows))
    parts = [values for values, _ in reader.blocks()]
    assert len(parts) > 2
    values = [value for part in parts for value in part["x"].to_pylist()]
    assert values == pytest.approx([0.12] * 20 + [None, 0.07])
    late = opened("x,y\n" + "1,a\n" * 40 + "oops,b\n", name="late.csv")
    with pytest.raises(TableFileError, match=r"'oops' in column 'x' of late\.csv, line 42"):
        list(late.blocks())


def test_columns_as_written_beside_their_values(opened):
    reader = opened('x,y\n"1,234",007\n')
    ((values, written),) = reader.blocks(Known(), ["x"], ["x", "y"])
    assert values["x"].to_pylist() == [1234]
    assert written.to_pydict() == {"x": ["1,234"], "y": ["007"]}


# --- headers, separators, encodings ---


@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n1,2,x\n",
        "a;b;c\n1;2;x\n",
        "a\tb\tc\n1\t2\tx\n",
        "a|b|c\n1|2|x\n",
        "sep=;\na;b;c\n1;2;x\n",
        "a;b;c\n1,2,x\n",
        "a,b,c\n1;2;x\n",
        "a,b,c\r\n1,2,x\r\n",
        " a , b,c\n1, 2,x\n",
        "\ufeffa,b,c\n1,2,x\n",
        '"a","b",c\n1,2,"x"\n',
        "\n\na,b,c\n\n1,2,x\n\n",
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt"])
def test_separators_are_found_out(opened, text, name):
    assert opened(text, name=name).read().to_pydict() == {"a": [1], "b": [2], "c": ["x"]}


def test_a_header_with_another_separator_is_told(opened):
    reader = opened("a;b\n1,2\n3,4\n")
    assert "header of t.csv separates columns with semicolons, its rows with commas" in (
        reader.remarks[0].text
    )


def test_separators_can_be_stated(opened):
    assert opened("a:b\n1:2\n", separator=":").read().to_pydict() == {"a": [1], "b": [2]}


def test_a_line_with_other_columns_is_named(opened):
    reader = opened('a,b\n1,"x\ny"\n\n2,3,4\n')
    with pytest.raises(TableFileError, match=r"Line 5 of t\.csv has 3 columns, and the header has"):
        reader.read()


def test_columns_of_one_name(opened):
    reader = opened("a,b,a,a\n1,2,3,4\n")
    assert reader.read().to_pydict() == {"a": [1], "b": [2], "a (2)": [3], "a (3)": [4]}
    assert reader.repeated == {"a"}
    assert "several columns named 'a'" in reader.remarks[0].text
    assert "'a (2)', 'a (3)'" in reader.remarks[0].text


def test_encodings(opened):
    text = "city,x\nZürich,1\n"
    expected = {"city": ["Zürich"], "x": [1]}
    assert opened(text.encode("cp1252"), encoding="cp1252").read().to_pydict() == expected
    assert opened(text.encode("utf-16")).read().to_pydict() == expected
    with pytest.raises(TableFileError, match=r"t\.csv is not written in UTF-8: it has the byte"):
        opened(text.encode("cp1252"))
    late = ("city,x\n" + "a,1\n" * 5000 + "Zürich,1\n").encode("cp1252")
    with pytest.raises(TableFileError, match="not written in UTF-8"):
        opened(late).read()
    with pytest.raises(InvalidInputError, match="no encoding 'nonsense'"):
        opened(text, encoding="nonsense")


def test_nothing_to_read(opened):
    with pytest.raises(InvalidInputError, match=r"t\.csv is empty"):
        opened("")
    header = opened("a,b\n").read()
    assert header.column_names == ["a", "b"]
    assert header.num_rows == 0


# --- what a file is, whatever its name ---

TABLE = {"id": ["1234567890123456789", "007"], "x": [1.5, None], "city": ["Zürich", "a,b"]}


@pytest.fixture
def table():
    return pa.table(TABLE)


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet", ".arrow", ".jsonl"])
def test_a_table_under_the_name_of_another_format(tmp_path, table, suffix):
    if suffix == ".xlsx":
        pytest.importorskip("python_calamine")
        pytest.importorskip("xlsxwriter")
    with writing(tmp_path / f"t{suffix}") as write:
        write(table)
    (tmp_path / f"t{suffix}").rename(tmp_path / "t.csv")
    reader = open_table(tmp_path / "t.csv")
    assert reader.read().to_pydict() == TABLE
    assert "t.csv is a table in the format" in reader.remarks[0].text


def test_json_lines_under_the_name_of_a_binary_format(opened):
    reader = opened('{"a": 1}\n', name="t.parquet")
    assert reader.read().to_pydict() == {"a": [1]}
    assert "t.parquet is a table in the format JSON Lines" in reader.remarks[0].text


def test_packed_text_without_the_suffix(opened):
    assert opened(gzip.compress(b"a,b\n1,2\n")).read().to_pydict() == {"a": [1], "b": [2]}


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "t.csv", r"old Excel \(\.xls\)"),
        (b"<!DOCTYPE html><html>", "t.csv", "a web page or an XML file"),
        (b'[{"a": 1}]', "t.csv", "one JSON array"),
        (b"a,b\n1,2\n", "t.parquet", "not a table in the format Parquet"),
        (b"a,b\n1,2\n", "t.xlsx", "not a table in the format Excel"),
        (gzip.compress(b"a,b\n1,2\n"), "t.xlsx", "not a table in the format Excel"),
    ],
)
def test_files_that_are_no_tables_are_named(opened, content, name, words):
    with pytest.raises(InvalidInputError, match=words):
        opened(content, name=name)


def test_an_archive_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.csv", "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"t\.csv is a ZIP archive"):
        open_table(tmp_path / "t.csv")


# --- reading and writing in one call ---


def test_read_table_takes_the_settings_of_a_text_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("city:x:y\nZürich:1,5:9\nask:2,5:9\n".encode("cp1252"))
    table = read_table(
        str(path), columns=["x", "city"], separator=":", encoding="cp1252", missing=["ask"]
    )
    assert table.to_pydict() == {"x": [1.5, 2.5], "city": ["Zürich", None]}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"separator": "::"}, "separator must be one character; received '::'"),
        ({"decimal": ";"}, "decimal mark must be '.' or ','; received ';'"),
    ],
)
def test_settings_are_checked(tmp_path, setting, words):
    with pytest.raises(InvalidInputError, match=words):
        read_table(tmp_path / "t.csv", **setting)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow", ".jsonl"])
def test_write_table_takes_any_frame(tmp_path, library, suffix):
    values = {"id": ["007", "x"], "n": [1, 2], "truth": [True, False]}
    if library == "pyarrow":
        frame = pa.table(values)
    elif library == "polars":
        frame = pytest.importorskip("polars").DataFrame(values)
    else:
        frame = pytest.importorskip("pandas").DataFrame(values, index=[5, 3])
    path = tmp_path / f"t{suffix}"
    write_table(frame, path)
    assert read_table(path).to_pydict() == values


def test_tables_are_written_unpacked(tmp_path, table):
    with pytest.raises(
        InvalidInputError, match=r"written unpacked; received the name 't\.csv\.gz'"
    ):
        write_table(table, tmp_path / "t.csv.gz")
    assert list(tmp_path.iterdir()) == []


# --- Excel ---


@pytest.fixture
def workbook(tmp_path):
    """A function that writes sheets of rows to a workbook."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")

    def write(sheets, name="t.xlsx"):
        book = xlsxwriter.Workbook(str(tmp_path / name), {"default_date_format": "yyyy-mm-dd"})
        for title, rows in sheets.items():
            sheet = book.add_worksheet(title)
            for number, row in rows:
                sheet.write_row(number, 0, row)
        book.close()
        return tmp_path / name

    return write


def test_a_sheet_is_read_with_its_types(workbook):
    day = datetime.date(2024, 5, 31)
    rows = [["n", "x", "day", "truth", "mixed"], [1, 1.5, day, True, 3], [2, None, day, False, "-"]]
    reader = open_table(workbook({"rents": list(enumerate(rows)), "notes": [(0, ["hello"])]}))
    table = reader.read()
    assert table.to_pydict() == {
        "n": [1, 2], "x": [1.5, None], "day": [day, day], "truth": [True, False],
        "mixed": [3, None],
    }  # fmt: skip
    assert [str(c.type) for c in table.columns][:2] == ["int64", "double"]
    told = [remark.text for remark in reader.remarks]
    assert told[0] == "The first sheet of t.xlsx is read, 'rents', and not 'notes'."
    assert told[1].startswith("Column 'mixed' is read as numbers")


def test_rows_of_a_sheet_have_its_numbers(workbook):
    reader = open_table(workbook({"a": [(2, ["x", "y"]), (3, [1, 2]), (6, [3, 4])]}))
    assert reader.read().num_rows == 2
    assert reader.numbers([0, 1]) == [4, 7]
    assert reader.row_word == "row"


def test_a_written_sheet_is_the_table(tmp_path):
    pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    values = {
        "id": ["00501", "=1+1"],
        "long": [1234567890123456789, 2],
        "x": [0.1, None],
        "day": [datetime.date(2024, 5, 31), None],
        "moment": [datetime.datetime(2024, 5, 31, 12, 30), None],
        "truth": [True, False],
    }
    with writing(tmp_path / "t.xlsx") as write:
        write(pa.table(values).slice(0, 1))
        write(pa.table(values).slice(1, 1))
    read = open_table(tmp_path / "t.xlsx").read().to_pydict()
    changed = {"id": ["00501", "'=1+1"], "long": ["1234567890123456789", "2"]}
    assert read == {**values, **changed}


def test_a_workbook_that_is_broken_is_named(opened):
    pytest.importorskip("python_calamine")
    with pytest.raises(InvalidInputError, match=r"t\.xlsx is a ZIP archive"):
        opened(b"PK\x03\x04 cut short", name="t.xlsx")


# --- files and cells of people you do not trust ---


def packed(content):
    """A few bytes that unpack to much: gzip of repeated content."""
    return gzip.compress(content, compresslevel=9)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz"])
def test_one_endless_line_costs_little(tmp_path, name):
    start = b"x,y\n1,2\n" if name == "t.csv.gz" else b'{"x": 1}\n{"x": "'
    (tmp_path / name).write_bytes(packed(start + b"7" * 2**30))
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from localma.errors import InvalidInputError\n"
        "from localma.tables.files import open_table\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    open_table(Path(sys.argv[1])).read()\n"
        "except InvalidInputError as error:\n"
        "    print(error)\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(grown // 1024, 'MiB')\n"
    )
    command = [sys.executable, "-c", script, tmp_path / name]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    assert "has a line of more than 16,777,216 characters" in lines[0]
    assert int(lines[-1].split()[0]) < 200


def test_many_rows_in_a_small_file_are_refused(opened):
    content = b"x,y\n" + b"1,2\n" * (2**26 // 4)
    with pytest.raises(InvalidInputError, match=r"t.csv.gz unpacks to more than 200 times its"):
        opened(packed(content), "t.csv.gz").read()


def test_a_workbook_that_unpacks_to_much_is_refused(tmp_path):
    pytest.importorskip("python_calamine")
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b" " * (2**26 + 1))
    with pytest.raises(InvalidInputError, match="unpacks to more than 200 times"):
        open_table(tmp_path / "t.xlsx")


def test_a_packed_file_that_was_cut_is_refused(opened):
    content = packed(b"x,y\n" + b"".join(b"%d,2\n" % k for k in range(20_000)))
    with pytest.raises(InvalidInputError, match="damaged: it cannot be unpacked"):
        opened(content[: len(content) // 2], "t.csv.gz").read()


CELLS = {
    "=1+1": "'=1+1",
    "+cmd|' /C calc'!A0": "'+cmd|' /C calc'!A0",
    "-2+3": "'-2+3",
    "@SUM(A1)": "'@SUM(A1)",
    "\t=1": "'\t=1",
    "-5.2": "-5.2",
    "+1,234.5 %": "+1,234.5 %",
    "-": "-",
    "-1.5e-3": "-1.5e-3",
    "plain": "plain",
    "": "",
}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "xlsx"])
def test_no_spreadsheet_runs_a_cell(tmp_path, suffix):
    if suffix == "xlsx":
        pytest.importorskip("xlsxwriter")
        pytest.importorskip("python_calamine")
    table = pa.table({"=name": list(CELLS), "n": list(range(len(CELLS)))})
    for raw, expected in [(False, CELLS.values()), (True, CELLS)]:
        path = tmp_path / f"raw{raw}.{suffix}"
        with writing(path, raw_cells=raw) as write:
            write(table)
        reader = open_table(path)
        assert reader.names[0] == ("=name" if raw else "'=name")
        cells = [cell or "" for cell in reader.read()[reader.names[0]].to_pylist()]
        assert [cell.strip() for cell in cells] == [cell.strip() for cell in expected]


def test_categories_are_guarded_and_other_formats_are_not(tmp_path):
    table = pa.table({"x": pa.array(["=1+1", "a"]).dictionary_encode()})
    for suffix, expected in [("csv", "'=1+1"), ("parquet", "=1+1"), ("jsonl", "=1+1")]:
        with writing(tmp_path / f"t.{suffix}") as write:
            write(table)
        assert open_table(tmp_path / f"t.{suffix}").read()["x"].to_pylist()[0] == expected
