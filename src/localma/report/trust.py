"""Regions in words, and the features that move the weights."""

from __future__ import annotations

from typing import Any

from localma.inspection.importance import FeatureImportance
from localma.inspection.regions import RegionsDisplay
from localma.report.bars import stacked
from localma.report.scales import Scale, coordinate, whisker
from localma.report.styles import Styles
from localma.wording import percent

MOST_FEATURES = 12
MOST_LISTED = 200


def regions(part: RegionsDisplay | None, styles: Styles) -> dict[str, Any] | None:
    """Each region with its sentence and its weights, the largest first."""
    if part is None or not part.regions:
        return None
    series = styles.of(part)
    return {
        "series": series,
        "sentence": part.sentence,
        "regions": [
            {
                "sentence": _in_two(region.sentence, region.most_trusted),
                "n": region.n,
                "share": percent(region.share),
                "bar": stacked(region.weights, series),
            }
            for region in part.regions
        ],
    }


def importance(part: list[FeatureImportance]) -> dict[str, Any] | None:
    """A bar per feature, the dozen that matter most first, the others apart."""
    if not part:
        return None
    scale = Scale(0.0, max([row.value or 0.0 for row in part] + [1e-9]) * 1.12)
    bars = [_bar(row, scale) for row in part[:MOST_LISTED]]
    return {
        "first": bars[:MOST_FEATURES],
        "rest": bars[MOST_FEATURES:],
        "n_left_out": len(part) - len(bars),
    }


def _in_two(sentence: str, name: str) -> dict[str, str]:
    """The name at the beginning of a sentence, to be set in bold, and what follows."""
    if sentence.startswith(name):
        return {"name": name, "rest": sentence[len(name) :]}
    return {"name": "", "rest": sentence[:1].upper() + sentence[1:]}


def _bar(row: FeatureImportance, scale: Scale) -> dict[str, str]:
    value = row.value or 0.0
    low, high = whisker(scale, value, row.standard_error)
    return {
        "feature": row.feature,
        "value": percent(row.value),
        "width": coordinate(scale.at(value)),
        "low": low,
        "high": high,
    }
