"""The program itself, without its commands."""

from __future__ import annotations

import os
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from localma._optional import optional
from localma.errors import InvalidInputError, LocalMAWarning
from localma.tables.sniffing import STANDARD, TextOptions, named_format
from localma.wording import printable

typer: Any = optional("typer", extra="cli")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"localma {version('localma')}")
        raise typer.Exit


@app.callback()
def _localma(
    tell: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Combine models that are already trained, trusting each where it is right."""
    # Every command prints the cautions of a model itself, without a line of Python.
    warnings.simplefilter("ignore", LocalMAWarning)


def wrong_call(message: str) -> Exception:
    """Build the error that ends the program with the code 2: the call was wrong."""
    error: Exception = typer.BadParameter(printable(message, "\n"))
    return error


def check_out(out: Path, *inputs: Path) -> None:
    """Refuse a file that cannot be written, or that is read, before any work is done for it."""
    if out == STANDARD:
        raise wrong_call("--out: only `localma predict` writes to standard output; name a file.")
    folder = out.absolute().parent
    if not folder.is_dir():
        raise wrong_call(f"--out: there is no folder {str(out.parent)!r}; make it first.")
    if out.is_dir():
        raise wrong_call(f"--out must be a file, and {str(out)!r} is a folder; name a file in it.")
    if not os.access(folder, os.W_OK):
        raise wrong_call(f"--out: cannot write to {str(out.parent)!r}; choose another folder.")
    if out.exists() and any(out.samefile(path) for path in inputs if path != STANDARD):
        raise wrong_call(f"--out would replace {str(out)!r}, which is read; choose another name.")


def check_table_out(out: Path, *inputs: Path) -> None:
    """Refuse a table that cannot be written; "-" is standard output."""
    if out == STANDARD:
        return
    _check_table_name(out)
    if out.suffix.lower() == ".gz":
        raise wrong_call(f"--out: tables are written unpacked; leave out .gz of {out.name!r}.")
    check_out(out, *inputs)


def _check_table_name(path: Path) -> None:
    try:
        named_format(path)
    except InvalidInputError as error:
        raise wrong_call(error.plain) from error


def _check_table(path: Path) -> Path:
    """Refuse a table that is not there; typer itself does not know "-"."""
    if path != STANDARD:
        if not path.is_file():
            raise wrong_call(f"file {str(path)!r} does not exist.")
        _check_table_name(path)
    return path


def text_options(
    separator: str | None, encoding: str | None, missing: list[str] | None, decimal: str | None
) -> TextOptions:
    """How tables in text files are written, from the options of a command."""
    signs = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    sign = None if separator is None else signs.get(separator, separator)
    if sign is not None and len(sign) != 1:
        raise wrong_call(f"--sep must be one character, or tab; received {separator!r}.")
    if decimal not in (None, ".", ","):
        raise wrong_call(f"--decimal must be . or ,; received {decimal!r}.")
    cells = tuple(cell for text in missing or () for cell in (text, *text.split(",")))
    return TextOptions(sign, encoding, tuple(dict.fromkeys(cells)), decimal)


ModelFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A file that `localma fit` wrote.")
]
TableFile = Annotated[
    Path,
    typer.Argument(
        dir_okay=False,
        callback=_check_table,
        help="A table: CSV, Excel, Parquet, Arrow or JSON Lines; - reads standard input.",
    ),
]
Sep = Annotated[
    str | None, typer.Option("--sep", help="What separates columns of text; default: found out.")
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of text; default: UTF-8 or UTF-16.")
]
Na = Annotated[
    list[str] | None,
    typer.Option("--na", help="Further cells that mean a missing value, commas between."),
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="Decimal mark, where 1,234 can be read both ways.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Follow recipes of candidates that run code or open URLs.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
