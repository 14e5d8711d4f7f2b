"""``localma demo``: the paper's motivating example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from localma.cli.app import Seed, typer
from localma.cli.showing import say, show_table
from localma.demo import draw, motivating_example


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Run the paper's motivating example.

    Two lines, each right on its own half of x^3, and the weights that are learnt for them.

    Example: localma demo --out demo
    """
    example = motivating_example(seed=seed)
    errors = example.errors()
    show_table(
        "x^3 on [-2, 2] from two linear models and 200 labelled points",
        ["prediction by", "MSE against the truth"],
        [[name, f"{error:.3f}"] for name, error in errors.items()],
        best=list(errors.values()).index(min(errors.values())),
    )
    say(example.mixtures["local"].verdict_)
    for path in draw(example, out):
        say(f"wrote {path}")
