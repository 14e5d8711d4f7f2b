"""``localma evaluate``: compare a saved model with its candidates on labelled rows."""

from __future__ import annotations

from localma import inspection
from localma.cli.app import AsJson, ModelFile, Seed, TableFile, TextFlags, Trust
from localma.cli.tables import LabelFlags, read_labelled
from localma.cli.terminal import column_of, note_cautions, print_json, say, show_table
from localma.inspection import ComparisonDisplay
from localma.tables.files import TableReader


def evaluate(
    model: ModelFile,
    table: TableFile,
    labels: LabelFlags,
    text: TextFlags,
    seed: Seed = 0,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Compare a model with its candidates on labelled rows.

    The table also shows equal weights, global weights and the control.

    Example: localma evaluate rent.localma test.csv
    """
    sample = read_labelled(model, table, labels, text, trust)
    comparison = sample.examine(inspection.evaluate, control=labels.control, seed=seed)
    if as_json:
        print_json(comparison.to_dict())
        note_cautions(comparison.cautions)
    else:
        _show(comparison, sample.reader)


def _show(comparison: ComparisonDisplay, reader: TableReader) -> None:
    if comparison.is_doubtful:
        say(comparison.sentence)
    entries, metrics = comparison.entries, comparison.metrics
    columns = [
        [entry.name for entry in entries],
        column_of([entry.loss for entry in entries]),
        column_of([entry.to_best for entry in entries]),
        *(column_of([entry.metrics[name] for entry in entries], errors=False) for name in metrics),
    ]
    body = [list(row) for row in zip(*columns, strict=True)]
    head = ["", f"mean loss ({comparison.loss})", "more than the best", *metrics]
    show_table(f"{comparison.n_rows:,} rows of {reader.name}", head, body, best=comparison.best)
    if comparison.n_groups == 1:
        say("All rows belong to one group, so standard errors between groups are not available.")
    elif comparison.n_groups:
        say(f"Standard errors are at least those between {comparison.n_groups:,} groups of rows.")
    if not comparison.is_doubtful:
        say(comparison.sentence)
    say(comparison.control.sentence)
    if comparison.incomplete:
        say(comparison.incomplete)
