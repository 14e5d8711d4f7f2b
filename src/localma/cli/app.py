"""The program itself, without its commands."""

from __future__ import annotations

import os
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from localma._optional import optional
from localma.errors import LocalMAWarning
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
    folder = out.absolute().parent
    if not folder.is_dir():
        raise wrong_call(f"--out: there is no folder {str(out.parent)!r}; make it first.")
    if out.is_dir():
        raise wrong_call(f"--out must be a file, and {str(out)!r} is a folder; name a file in it.")
    if not os.access(folder, os.W_OK):
        raise wrong_call(f"--out: nobody may write in {str(out.parent)!r}; choose another folder.")
    if out.exists() and any(out.samefile(given) for given in inputs):
        raise wrong_call(f"--out would replace {str(out)!r}, which is read; choose another name.")


ModelFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A file that `localma fit` wrote.")
]
TableFile = Annotated[
    Path,
    typer.Argument(exists=True, dir_okay=False, help="A table: CSV, Parquet, Arrow, JSON Lines."),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Follow recipes of candidates that run code or open URLs.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
