"""The program itself, without its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from localma._optional import optional

typer: Any = optional("typer", extra="cli")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _localma() -> None:
    """Combine models that are already trained, trusting each where it is right."""


def wrong_call(message: str) -> Exception:
    """Build the error that ends the program with the code 2: the call was wrong."""
    error: Exception = typer.BadParameter(message)
    return error


def check_folder(out: Path) -> None:
    """Refuse a file in a folder that is not there, before any work is done for it."""
    if not out.absolute().parent.is_dir():
        raise wrong_call(f"--out: there is no folder {str(out.parent)!r}; make it first.")


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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
