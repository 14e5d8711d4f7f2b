"""The program, its shared options, and how commands report wrong calls and errors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from importlib.metadata import version
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, TypeAlias, get_type_hints

import typer
from typer import Argument, Context, Option
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from localma.cli.terminal import OPTIONS, plain_message, show_warning
from localma.errors import InvalidInputError, LocalMAError, LocalMAWarning
from localma.formatting import printable
from localma.tables.roles import RoleError
from localma.tables.sniffing import STANDARD, TextOptions, named_format

TASK_HINTS = {"Set the task to": "Add --task", "set the task to": "add --task"}
SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}

OptionValue: TypeAlias = "bool | int | float | str | Path | list[str] | None"

COMMANDS = {
    "fit": "fit",
    "predict": "predict",
    "evaluate": "evaluate",
    "weights": "explain",
    "explain": "explain",
    "report": "report",
    "serve": "serve",
    "monitor": "monitor",
    "drop": "change",
    "add": "change",
    "inspect": "maintain",
    "cache": "maintain",
    "warm-up": "maintain",
    "demo": "maintain",
}
"""The module of each command, which is imported when the command is called."""

MAY_BE_EMPTY = {"--ray"}
"""Options that may stand without a value: at the end of a call, or before another option."""


class Commands(TyperGroup):
    """The commands of the program, each made when it is needed."""

    def list_commands(self, ctx: Context) -> list[str]:  # type: ignore[override]
        """List the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Return a command. For an unknown name all are made, so that one can be suggested."""
        for name in {cmd_name} & COMMANDS.keys() or COMMANDS:
            if name not in self.commands:
                module = import_module(f"localma.cli.{COMMANDS[name]}")
                self.add_command(_make_command(getattr(module, name.replace("-", "_"))))
        command: TyperCommand | None = self.commands.get(cmd_name)  # type: ignore[assignment]
        return command


_program = partial(
    typer.Typer, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
app = _program(cls=Commands, no_args_is_help=True)


class WrongCallError(typer.BadParameter):
    """The options of a call are wrong; the program ends with exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message, "\n"))

    def format_message(self) -> str:
        """Give the message without a prefix, since it names the option itself."""
        return self.message


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"localma {version('localma')}")
        raise typer.Exit


@app.callback()
def _localma(
    print_version: Annotated[
        bool,
        Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Combine trained models: learn from labelled rows which model to trust for which row."""
    # Every command prints the cautions of a model itself, without a line of Python.
    warnings.simplefilter("ignore", LocalMAWarning)


def option(
    metavar: str, text: str, *, min: float | None = None, max: float | None = None
) -> OptionInfo:
    """Describe an option by a word for its value, a help text and limits."""
    info: OptionInfo = Option(metavar=metavar, help=text, min=min, max=max)
    return info


@dataclass(frozen=True)
class OptionGroup:
    """Base class of options that several commands share; every field has a default."""


class Command(TyperCommand):
    """A command in which some options need no value."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse a call, after options without a value got an empty one."""
        following = [*args, "-"][1:]
        given = [
            f"{arg}=" if arg in MAY_BE_EMPTY and after.startswith("-") else arg
            for arg, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, given)


def _make_command(command: Callable[..., None]) -> TyperCommand:
    """Make a command of the program from a function.

    Its parameters become arguments and options. An `OptionGroup` stands for its fields.
    """
    groups = {name: kind for name, kind in get_type_hints(command).items() if _is_group(kind)}

    def run(**values: OptionValue) -> None:
        options = set(values)
        shared = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            try:
                command(**values, **shared)
            except LocalMAError as error:
                reworded = _in_plain_words(error, options)
                if reworded is error:
                    raise
                raise reworded from error

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = Signature(list(_options(command)))  # type: ignore[attr-defined]
    program = _program()
    program.command(cls=Command)(run)
    single: TyperCommand = typer.main.get_command(program)  # type: ignore[assignment]
    return single


def _is_group(kind: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, OptionGroup)


def _options(command: Callable[..., None]) -> Iterator[Parameter]:
    """List the parameters of a command, including those of its groups."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in signature(command).parameters.items():
        kind = hints[name]
        if not _is_group(kind):
            yield parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)
            continue
        for option in signature(kind, eval_str=True).parameters.values():
            yield option.replace(kind=Parameter.KEYWORD_ONLY)


def _in_plain_words(error: LocalMAError, options: Collection[str]) -> Exception:
    """Word an error in terms of files, columns and the options of the command."""
    if not isinstance(error, RoleError):
        text = plain_message(error)
        return error if text == str(error) else InvalidInputError(text)
    text = error.plain
    if error.parameter not in options:
        reason = text.removeprefix(f"{error.parameter}: ")
        return InvalidInputError(reason[0].upper() + reason[1:])
    text = f"--{text}"
    for phrase, hint in TASK_HINTS.items():
        text = text.replace(phrase, hint)
    if error.cell is not None:
        text += " " + OPTIONS["missing"].format(value=error.cell)
    return WrongCallError(text)


def check_out(out: Path, *inputs: Path, name: str = "--out") -> None:
    """Refuse an output file that cannot be written, or that is an input, before any work."""
    if out == STANDARD:
        raise WrongCallError(
            f"{name}: only `localma predict` can write to standard output; name a file."
        )
    folder = out.absolute().parent
    if not folder.is_dir():
        raise WrongCallError(
            f"{name}: the folder {str(out.parent)!r} does not exist; create it first."
        )
    if out.is_dir():
        raise WrongCallError(f"{name}: {str(out)!r} is a folder; name a file in it.")
    if not os.access(folder, os.W_OK):
        raise WrongCallError(f"{name}: cannot write to {str(out.parent)!r}; choose another folder.")
    if out.exists() and any(out.samefile(path) for path in inputs if path != STANDARD):
        raise WrongCallError(
            f"{name}: {str(out)!r} is an input of this command and would be replaced; choose "
            "another name."
        )


def check_table_out(out: Path, *inputs: Path) -> None:
    """Refuse an output table that cannot be written; "-" is standard output."""
    if out == STANDARD:
        return
    with naming_option("--out: "):
        named_format(out)
    if out.suffix.lower() == ".gz":
        raise WrongCallError(
            f"--out: tables are written without compression; remove .gz from {out.name!r}."
        )
    check_out(out, *inputs)


@contextmanager
def naming_option(prefix: str = "") -> Iterator[None]:
    """Turn an error into one about an option of the call."""
    try:
        yield
    except InvalidInputError as error:
        raise WrongCallError(prefix + error.plain) from error


def check_table(path: Path | None) -> Path | None:
    """Refuse a table that does not exist; typer itself does not know "-"."""
    if path is not None and path != STANDARD:
        if not path.is_file():
            raise WrongCallError(f"The file {str(path)!r} does not exist.")
        with naming_option():
            named_format(path)
    return path


ModelFile = Annotated[
    Path, Argument(exists=True, dir_okay=False, help="A model file that `localma fit` wrote.")
]
TableFile = Annotated[
    Path,
    Argument(
        dir_okay=False,
        callback=check_table,
        help="A table: CSV, Excel, Parquet, Arrow or JSON Lines; - is standard input.",
    ),
]
Trust = Annotated[
    bool, Option("--trust", help="Allow candidates that run code, or open files or addresses.")
]
Seed = Annotated[int, option("NUMBER", "Seed of the random numbers.", min=0, max=2**32 - 1)]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of text.")]


@dataclass(frozen=True)
class TextFlags(OptionGroup):
    """Options that state how a table in a text file is written."""

    sep: Annotated[
        str | None, option("CHARACTER", "Separator of columns, or tab; default: detected.")
    ] = None
    encoding: Annotated[
        str | None, option("NAME", "Encoding of text; default: UTF-8 or UTF-16.")
    ] = None
    na: Annotated[
        list[str] | None,
        option("CELLS", "More cells that mean a missing value, separated by commas."),
    ] = None
    decimal: Annotated[str | None, option("CHARACTER", "Decimal mark, if 1,234 is ambiguous.")] = (
        None
    )

    def options(self) -> TextOptions:
        """Check the options, for the reader of tables."""
        separator = SEPARATORS.get(self.sep or "", self.sep)
        if separator is not None and len(separator) != 1:
            raise WrongCallError(f"--sep must be one character, or tab; received {self.sep!r}.")
        if self.decimal not in (None, ".", ","):
            raise WrongCallError(f"--decimal must be . or ,; received {self.decimal!r}.")
        missing = [cell for text in self.na or () for cell in (text, *text.split(","))]
        return TextOptions(separator, self.encoding, tuple(dict.fromkeys(missing)), self.decimal)
