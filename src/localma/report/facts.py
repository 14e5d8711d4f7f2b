"""The few numbers to read first, and what there is to know about model, data and versions."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

from localma.inspection.comparison import ComparisonDisplay, ConstantEntry, Entry
from localma.inspection.spread import Spread, Support
from localma.inspection.summary import DataSummary, ModelSummary, Summary
from localma.wording import count, number, percent, short

MOST_FEATURES = 60
MOST_CLASSES = 40


def key_numbers(summary: Summary) -> list[dict[str, str]]:
    """Tiles {value, label, note} below the verdict."""
    return [
        *_against_others(summary.comparison),
        *_effective(summary.spread),
        *_outside(summary.support),
        *_amount(summary),
    ][:4]


def facts(summary: Summary) -> dict[str, Any]:
    """Model and data as pairs of words, and the features as a table."""
    features = summary.data.features
    return {
        "model": _about_model(summary.model),
        "data": _about_data(summary.data),
        "features": features[:MOST_FEATURES],
        "n_left_out": max(0, len(features) - MOST_FEATURES),
        "has_missing": any(feature.n_missing for feature in features),
    }


def versions() -> list[dict[str, str]]:
    """What the page was made with."""
    packages = ("localma", "numpy", "scikit-learn")
    return [
        *({"name": name, "value": version(name)} for name in packages),
        {"name": "Python", "value": platform.python_version()},
    ]


def _against_others(part: ComparisonDisplay | None) -> list[dict[str, str]]:
    if part is None:
        return []
    entries = part.entries
    model = next(entry for entry in entries if entry.kind == "local")
    loss = model.loss
    tiles = [
        {
            "value": number(loss.value),
            "label": f"{part.loss.replace('_', ' ')} of {model.name}",
            "note": _plus_minus(loss.standard_error),
        }
    ]
    constant = part.constant
    if constant is not None and constant.is_idle:
        # Beside its candidates it may look good, and yet be of no use.
        return [*tiles, _against(constant, loss.value, constant.name)]
    best = entries[part.best_candidate]
    alone = sum(entry.kind == "candidate" for entry in entries) == 1
    name = short(best.name)
    others = [(best, name if alone else f"the best candidate, {name}")]
    others += [(entry, "global weights") for entry in entries if entry.kind == "global"]
    return tiles + [_against(entry, loss.value, words) for entry, words in others]


def _against(other: Entry | ConstantEntry, loss: float | None, words: str) -> dict[str, str]:
    """How far the model is below another entry; in percent where losses are positive."""
    gap, theirs = other.to_model, other.loss.value
    if gap.value is None or theirs is None or loss is None:
        return {"value": number(None), "label": f"against {words}", "note": ""}
    direction = "lower than" if gap.value > 0 else "higher than" if gap.value else "from"
    is_share = theirs > 0 and loss >= 0 and abs(gap.value) < 10 * theirs
    size = abs(gap.value)
    note = _plus_minus(gap.standard_error)
    doubt = "" if gap.is_clear or not gap.value else ", not clearly"
    return {
        "value": percent(size / theirs) if is_share else number(size),
        "label": f"{direction} {words}{doubt}",
        "note": f"{number(size)} {note}" if is_share else note,
    }


def _plus_minus(error: float | None) -> str:
    return "" if error is None else f"± {number(error, 2)}"


def _effective(spread: Spread | None) -> list[dict[str, str]]:
    if spread is None:
        return []
    effective = spread.effective
    low, high = number(effective.low, 2), number(effective.high, 2)
    return [
        {
            "value": f"{number(effective.mean, 2)} of {effective.n_candidates}",
            "label": "candidates have a say in a row, on average",
            "note": f"mostly {low} to {high}" if low != high else "",
        }
    ]


def _outside(support: Support | None) -> list[dict[str, str]]:
    if support is None or not support.guarded:
        return []
    return [
        {
            "value": percent(support.outside),
            "label": "of rows lie outside the labelled sample",
            "note": "",
        }
    ]


def _amount(summary: Summary) -> list[dict[str, str]]:
    features = summary.model.n_features
    return [
        {
            "value": f"{summary.data.n_rows:,}",
            "label": "rows looked at",
            "note": count(features, "feature"),
        }
    ]


def _about_model(model: ModelSummary) -> list[dict[str, str]]:
    pairs = [
        ("Estimator", model.estimator),
        ("Task", model.task),
        ("Loss", model.loss.replace("_", " ")),
        ("Gate", model.gate),
        ("Candidates", f"{len(model.candidates):,}"),
    ]
    if model.n_outputs is not None:
        pairs.append(("Outputs", f"{model.n_outputs:,}"))
    if model.classes:
        shown = ", ".join(short(label) for label in model.classes[:MOST_CLASSES])
        more = len(model.classes) - MOST_CLASSES
        pairs.append(("Classes", f"{shown} and {more} more" if more > 0 else shown))
    return _named(pairs)


def _about_data(data: DataSummary) -> list[dict[str, str]]:
    pairs = [("Rows", f"{data.n_rows:,}")]
    if data.n_sampled < data.n_rows:
        pairs.append(("Drawn for regions, effects and map", f"{data.n_sampled:,}"))
    pairs.append(("Labelled", "yes" if data.labelled else "no"))
    pairs.append(("Weighted", "yes" if data.weighted else "no"))
    pairs.append(("Features", f"{len(data.features):,}"))
    return _named(pairs)


def _named(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]
