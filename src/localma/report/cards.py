"""A card per candidate: what it is, how far it is trusted, and how good it is alone."""

from __future__ import annotations

from typing import Any

from localma.inspection.summary import CandidateSummary, Summary
from localma.report.comparison import MOST_CANDIDATES
from localma.report.scales import coordinate
from localma.report.styles import Style, Styles
from localma.wording import decimals_for, fixed, percent, with_error

FIRST = 12


def cards(summary: Summary, styles: Styles) -> dict[str, Any]:
    """Cards in the order of mean weight; a dozen first, the others apart."""
    candidates = summary.model.candidates
    risks = _risks(summary, len(candidates))
    order = sorted(range(len(candidates)), key=lambda m: (-(candidates[m].mean_weight or 0), m))
    made = [_card(candidates[m], styles.at(m), risks[m]) for m in order[:MOST_CANDIDATES]]
    return {
        "first": made[:FIRST],
        "rest": made[FIRST:],
        "n_left_out": len(order) - len(made),
    }


def _risks(summary: Summary, n: int) -> list[str | None]:
    """Own loss of each candidate, with its error; the comparison lists them in the pool's order."""
    if summary.comparison is None:
        return [None] * n
    losses = [entry.loss for entry in summary.comparison.entries[:n]]
    decimals = decimals_for((x.standard_error for x in losses), (x.value for x in losses))
    return [" ".join(with_error(loss.value, loss.standard_error, decimals)) for loss in losses]


def _card(candidate: CandidateSummary, style: Style, risk: str | None) -> dict[str, Any]:
    return {
        "style": style,
        "kind": candidate.kind,
        "cost": None if candidate.cost is None else f"{candidate.cost:g}",
        "risk": risk,
        "most_trusted": percent(candidate.most_trusted),
        "weights": [
            _meter("mean weight", candidate.mean_weight, "mean"),
            _meter("global weight", candidate.global_weight, "global"),
        ],
    }


def _meter(label: str, weight: float | None, kind: str) -> dict[str, str]:
    return {
        "label": label,
        "value": fixed(weight, 2),
        "width": coordinate(100 * (weight or 0.0)),
        "kind": kind,
    }
