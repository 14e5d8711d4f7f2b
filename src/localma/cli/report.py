"""``localma report``: one HTML page about a saved model on labelled rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from localma.cli.app import ModelFile, Seed, TableFile, TextFlags, Trust, check_out, option
from localma.cli.tables import LabelFlags, read_labelled
from localma.cli.terminal import say, say_advice
from localma.inspection import summarize


def report(
    model: ModelFile,
    table: TableFile,
    *,
    labels: LabelFlags,
    out: Annotated[Path, Option(help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, option("TEXT", "Title of the page.")] = None,
    text: TextFlags,
    seed: Seed = 0,
    trust: Trust = False,
) -> None:
    """Write an HTML page about a model on labelled rows.

    Example: localma report rent.localma test.csv --out report.html
    """
    from localma.report import write  # needs the extra report

    check_out(out, model, table)
    sample = read_labelled(model, table, labels, text, trust)
    summary = sample.examine(summarize, control=labels.control, seed=seed)
    if summary.rows is not None:
        # Rows are numbered as in the file, as `localma explain` counts them.
        rows = replace(summary.rows, index=sample.rows[summary.rows.index].tolist())
        summary = replace(summary, rows=rows)
    write(summary, out, title=title or f"{model.stem} on {sample.reader.name}")
    say_advice(summary.advice, summary.cautions)
    comparison = summary.comparison
    if comparison is not None and comparison.claim not in summary.verdict:
        claim = comparison.claim[0].lower() + comparison.claim[1:]
        say(f"On {comparison.n_rows:,} rows of {sample.reader.name}: {claim}")
    say(f"wrote {out}")
