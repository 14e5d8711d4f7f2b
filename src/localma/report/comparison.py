"""The table of the comparison: everybody on the same rows, ordered by loss, with a picture."""

from __future__ import annotations

from typing import Any

from localma.inspection.comparison import ComparisonDisplay, Entry
from localma.inspection.metrics import Difference, Measured
from localma.inspection.summary import Summary
from localma.report.scales import Scale, coordinate, for_losses, ticks, whisker
from localma.report.styles import Style, Styles, kind_style
from localma.wording import NONE, decimals_for, percent, with_error

MOST_CANDIDATES = 100
METRICS = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "accuracy": "Accuracy",
    "log_loss": "Log loss",
    "brier": "Brier",
}
SHARES = ("accuracy",)


def comparison(summary: Summary, styles: Styles) -> dict[str, Any] | None:
    """What the table shows, best first; candidates beyond the hundred best are counted only."""
    part = summary.comparison
    if part is None:
        return None
    kept, n_left_out = _kept(part.entries, part.best)
    entries = [part.entries[place] for place in kept]
    scale = for_losses(
        [entry.loss.value for entry in entries],
        [entry.loss.standard_error for entry in entries],
    )
    columns = _columns(part.metrics, entries)
    return {
        "loss": part.loss,
        "n_rows": part.n_rows,
        "n_groups": part.n_groups,
        "sentence": part.sentence,
        "claim": part.claim,
        "control": part.control,
        "n_left_out": n_left_out,
        "ticks": ticks(scale, 4),
        "metrics": [METRICS.get(name, name) for name in part.metrics],
        "rows": [
            _row(part, where, columns, scale, _style(part.entries[where], where, styles))
            for where in kept
        ],
    }


def _kept(entries: list[Entry], best: int) -> tuple[list[int], int]:
    """Places of the entries to show, by loss; whatever is no candidate is always shown."""
    ordered = sorted(range(len(entries)), key=lambda place: _order(entries[place], place))
    candidates = [place for place in ordered if entries[place].kind == "candidate"]
    dropped = set(candidates[MOST_CANDIDATES:]) - {best}
    return [place for place in ordered if place not in dropped], len(dropped)


def _order(entry: Entry, place: int) -> tuple[bool, float, int]:
    value = entry.loss.value
    return value is None, value or 0.0, place


def _style(entry: Entry, place: int, styles: Styles) -> Style:
    if entry.kind == "candidate":
        return styles.at(place)
    return kind_style(entry.kind, entry.name)


def _columns(metrics: list[str], entries: list[Entry]) -> dict[str, int]:
    """Decimals of each column of numbers."""
    decimals = {"loss": _decimals([entry.loss for entry in entries])}
    for name in metrics:
        decimals[name] = _decimals([entry.metrics[name] for entry in entries])
    return decimals


def _decimals(pairs: list[Measured]) -> int:
    return decimals_for((p.standard_error for p in pairs), (p.value for p in pairs))


def _row(
    part: ComparisonDisplay,
    where: int,
    columns: dict[str, int],
    scale: Scale,
    style: Style,
) -> dict[str, Any]:
    entry = part.entries[where]
    return {
        "style": style,
        "kind": entry.kind,
        "is_best": where == part.best,
        "loss": _cell(entry.loss, columns["loss"]),
        "picture": _picture(entry.loss, scale),
        "to_best": _difference(entry.to_best, columns["loss"], where == part.best),
        "metrics": [_metric(entry.metrics[name], name, columns[name]) for name in part.metrics],
    }


def _cell(pair: Measured, decimals: int) -> dict[str, Any]:
    value, error = with_error(pair.value, pair.standard_error, decimals)
    return {"sort": pair.value, "value": value, "error": error}


def _metric(pair: Measured, name: str, decimals: int) -> dict[str, Any]:
    if name not in SHARES:
        return _cell(pair, decimals)
    error = pair.standard_error
    return {
        "sort": pair.value,
        "value": NONE if pair.value is None else f"{pair.value:.1%}",
        "error": "" if error is None else f"± {percent(error)}",
    }


def _difference(pair: Difference, decimals: int, is_best: bool) -> dict[str, Any]:
    if is_best:
        return {"sort": 0.0, "value": "best", "error": "", "is_clear": True}
    value, error = with_error(pair.value, pair.standard_error, decimals, sign=True)
    return {"sort": pair.value, "value": value, "error": error, "is_clear": pair.is_clear}


def _picture(pair: Measured, scale: Scale) -> dict[str, Any] | None:
    value = pair.value
    if value is None:
        return None
    low, high = whisker(scale, value, pair.standard_error, 2.0)
    return {
        "at": coordinate(scale.at(value)),
        "low": low,
        "high": high,
        "is_beyond": scale.is_beyond(value),
    }
