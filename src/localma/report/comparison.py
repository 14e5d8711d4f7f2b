"""The table of the comparison: everybody on the same rows, ordered by loss, with a picture."""

from __future__ import annotations

from typing import Any

from localma.report.numbers import NONE, decimals_for, percent, place, with_error
from localma.report.scales import Scale, for_losses, ticks, whisker
from localma.report.styles import Styles, kind_style

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


def comparison(summary: dict[str, Any], styles: Styles) -> dict[str, Any] | None:
    """What the table shows, best first; candidates beyond the hundred best are counted only."""
    part = summary["comparison"]
    if part is None:
        return None
    kept, n_left_out = _kept(part["entries"], part["best"])
    entries = [part["entries"][place] for place in kept]
    scale = for_losses(
        [entry["loss"]["value"] for entry in entries],
        [entry["loss"]["standard_error"] for entry in entries],
    )
    columns = _columns(part["metrics"], entries)
    return {
        "loss": part["loss"],
        "n_rows": part["n_rows"],
        "n_groups": part["n_groups"],
        "sentence": part["sentence"],
        "claim": part.get("claim", part["sentence"]),
        "control": part["control"],
        "n_left_out": n_left_out,
        "ticks": ticks(scale, 4),
        "metrics": [METRICS.get(name, name) for name in part["metrics"]],
        "rows": [
            _row(part, where, columns, scale, _style(part["entries"][where], where, styles))
            for where in kept
        ],
    }


def _kept(entries: list[dict[str, Any]], best: int) -> tuple[list[int], int]:
    """Places of the entries to show, by loss; whatever is no candidate is always shown."""
    ordered = sorted(range(len(entries)), key=lambda place: _order(entries[place], place))
    candidates = [place for place in ordered if entries[place]["kind"] == "candidate"]
    dropped = set(candidates[MOST_CANDIDATES:]) - {best}
    return [place for place in ordered if place not in dropped], len(dropped)


def _order(entry: dict[str, Any], place: int) -> tuple[bool, float, int]:
    value = entry["loss"]["value"]
    return value is None, value or 0.0, place


def _style(entry: dict[str, Any], place: int, styles: Styles) -> dict[str, str]:
    if entry["kind"] == "candidate":
        return styles.at(place)
    return kind_style(entry["kind"], entry["name"])


def _columns(metrics: list[str], entries: list[dict[str, Any]]) -> dict[str, int]:
    """Decimals of each column of numbers."""
    decimals = {"loss": _decimals([entry["loss"] for entry in entries])}
    for name in metrics:
        decimals[name] = _decimals([entry["metrics"][name] for entry in entries])
    return decimals


def _decimals(pairs: list[dict[str, Any]]) -> int:
    return decimals_for((p["standard_error"] for p in pairs), (p["value"] for p in pairs))


def _row(
    part: dict[str, Any],
    where: int,
    columns: dict[str, int],
    scale: Scale,
    style: dict[str, str],
) -> dict[str, Any]:
    entry = part["entries"][where]
    return {
        "style": style,
        "kind": entry["kind"],
        "is_best": where == part["best"],
        "loss": _cell(entry["loss"], columns["loss"]),
        "picture": _picture(entry["loss"], scale),
        "to_best": _difference(entry["to_best"], columns["loss"], where == part["best"]),
        "metrics": [
            _metric(entry["metrics"][name], name, columns[name]) for name in part["metrics"]
        ],
    }


def _cell(pair: dict[str, Any], decimals: int) -> dict[str, Any]:
    value, error = with_error(pair, decimals)
    return {"sort": pair["value"], "value": value, "error": error}


def _metric(pair: dict[str, Any], name: str, decimals: int) -> dict[str, Any]:
    if name not in SHARES:
        return _cell(pair, decimals)
    error = pair["standard_error"]
    return {
        "sort": pair["value"],
        "value": NONE if pair["value"] is None else f"{pair['value']:.1%}",
        "error": "" if error is None else f"± {percent(error)}",
    }


def _difference(pair: dict[str, Any], decimals: int, is_best: bool) -> dict[str, Any]:
    if is_best:
        return {"sort": 0.0, "value": "best", "error": "", "is_clear": True}
    value, error = with_error(pair, decimals, sign=True)
    return {"sort": pair["value"], "value": value, "error": error, "is_clear": pair["is_clear"]}


def _picture(pair: dict[str, Any], scale: Scale) -> dict[str, Any] | None:
    value = pair["value"]
    if value is None:
        return None
    low, high = whisker(scale, value, pair["standard_error"], 2.0)
    return {
        "at": place(scale.at(value)),
        "low": low,
        "high": high,
        "is_beyond": scale.is_beyond(value),
    }
