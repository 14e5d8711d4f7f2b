"""``localma weights`` and ``explain``: which candidates a model trusts, and why."""

from __future__ import annotations

from typing import Annotated

from localma import inspection
from localma.cli.app import (
    AsJson,
    ModelFile,
    Seed,
    TableFile,
    TextFlags,
    Trust,
    WrongCallError,
    option,
)
from localma.cli.tables import note_support, read_rows
from localma.cli.terminal import naming_rows, print_json, say, share, show_table
from localma.formatting import number, percent
from localma.inspection import Explanation
from localma.inspection.explanation import CandidateShare
from localma.tables.files import TableReader

MAX_CLASSES = 5
"""With more classes, only the probability of the predicted class is printed."""


def weights(
    model: ModelFile,
    table: TableFile,
    text: TextFlags,
    trust: Trust = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show which candidates are trusted for which rows.

    Example: localma weights rent.localma test.csv
    """
    fitted, X, reader = read_rows(model, table, text, trust)
    with naming_rows(reader):
        summary = inspection.summarize(fitted, X, control=False, random_state=seed)
    note_support(fitted, X)
    if as_json:
        contents = summary.to_dict()
        print_json({name: contents[name] for name in ("model", "regions", "importance", "spread")})
        return
    body = [
        [
            candidate.name,
            share(candidate.global_weight),
            share(candidate.mean_weight),
            percent(candidate.most_trusted),
        ]
        for candidate in summary.model.candidates
    ]
    head = ["candidate", "global weight", "mean weight", "most trusted in"]
    show_table(f"{summary.data.n_rows:,} rows of {reader.name}", head, body)
    if summary.regions is not None:
        for region in summary.regions.regions:
            say(f"- {region.sentence} ({percent(region.share)} of rows)")
        say(summary.regions.sentence)


def explain(
    model: ModelFile,
    table: TableFile,
    row: Annotated[int, option("NUMBER", "The row, counted from 0; negative from the end.")],
    text: TextFlags,
    trust: Trust = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Explain the prediction for one row.

    Example: localma explain rent.localma test.csv --row 17
    """
    fitted, X, reader = read_rows(model, table, text, trust)
    if not -X.num_rows <= row < X.num_rows:
        raise WrongCallError(
            f"--row must be between {-X.num_rows} and {X.num_rows - 1}, since the table has "
            f"{X.num_rows} rows; received {row}."
        )
    with naming_rows(reader):
        explanation = inspection.explain(fitted, X, row, random_state=seed)
    note_support(fitted, X)
    if as_json:
        print_json(explanation.to_dict())
    else:
        _show(explanation, reader)


def _show(explanation: Explanation, reader: TableReader) -> None:
    predicted, probabilities = explanation.prediction, explanation.probabilities
    classes = _displayed_classes(explanation)
    heads, total, contributes = ["prediction"], number(predicted), "contributes"
    if probabilities is not None:
        heads = [f"p({label})" for label in classes]
        total = share(probabilities[str(predicted)])
        contributes = f"contributes to p({predicted})"
    body = [
        [
            candidate.name,
            *_outputs(candidate, classes),
            share(candidate.weight),
            share(candidate.global_weight),
            _contribution(candidate),
        ]
        for candidate in explanation.candidates
    ]
    body.append(["combined", *_outputs(explanation, classes), "1.000", "1.000", total])
    head = ["candidate", *heads, "weight here", "global weight", contributes]
    title = f"{_row_name(explanation.row, reader)}: {number(predicted)}"
    show_table(title, head, body, best=len(body) - 1)
    say(explanation.sentence)
    if explanation.region:
        say(explanation.region)


def _row_name(row: int, reader: TableReader) -> str:
    (number_in_file,) = reader.numbers([row])
    if reader.row_word == "line" or number_in_file != row:
        return f"Row {row} ({reader.row_word} {number_in_file} of {reader.name})"
    return f"Row {row}"


def _displayed_classes(explanation: Explanation) -> list[str]:
    classes = list(explanation.probabilities or ())
    return classes if len(classes) <= MAX_CLASSES else [str(explanation.prediction)]


def _outputs(predicted: Explanation | CandidateShare, classes: list[str]) -> list[str]:
    """Write the prediction, or the probabilities of classes."""
    if predicted.probabilities is None:
        return [number(predicted.prediction)] * max(1, len(classes))
    return [share(predicted.probabilities[label]) for label in classes]


def _contribution(candidate: CandidateShare) -> str:
    if candidate.probabilities is not None and isinstance(candidate.contribution, float):
        return share(candidate.contribution)
    return number(candidate.contribution)
