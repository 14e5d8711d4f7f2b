"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from localma._optional import optional
from localma.demo import draw, motivating_example

typer: Any = optional("typer", extra="cli")
rich_console: Any = optional("rich.console", extra="cli")
rich_table: Any = optional("rich.table", extra="cli")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _localma() -> None:
    """Combine models that are already trained, trusting each where it is right."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
) -> None:
    """Run the paper's motivating example: two lines, each right on its own half of x^3.

    Example: localma demo --out demo
    """
    console = rich_console.Console()
    example = motivating_example(seed=seed)
    errors = example.errors()
    table = rich_table.Table(title="x^3 on [-2, 2] from two linear models and 200 labelled points")
    table.add_column("prediction by")
    table.add_column("MSE against the truth", justify="right")
    best = min(errors, key=errors.__getitem__)
    for name, error in errors.items():
        table.add_row(name, f"{error:.3f}", style="bold green" if name == best else None)
    console.print(table)
    console.print(example.mixtures["local"].verdict_)
    for path in draw(example, out):
        console.print(f"wrote {path}")
