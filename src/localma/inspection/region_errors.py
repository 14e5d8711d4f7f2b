"""Error by region: each candidate against the mixture, where the weights differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.inspection.comparison import Entry, make_entries
from localma.inspection.observed import Observed
from localma.inspection.plain import plain
from localma.inspection.regions import Regions
from localma.inspection.shown import most_trusted


def region_errors(seen: Observed, found: Regions) -> dict[str, Any]:
    """Loss of everybody in every region, paired with the model; part "region_errors"."""
    if seen.y is None:
        raise InvalidInputError("Errors by region need the targets of the rows; y is None.")
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    entries = make_entries(seen)
    kept = [entries[place] for place in shown.places] + entries[len(seen.names) :]
    place = found.of(seen.features, len(seen))
    regions = []
    for k in range(len(found.bounds)):
        rows = np.flatnonzero((place == k) & (seen.sample_weight > 0))
        if len(rows):
            where = found.where(k) or "everywhere"
            regions.append({"where": where, **_errors(seen, kept, rows)})
    return plain(
        {
            "loss": seen.model.loss_.name,
            "entries": [{"kind": entry.kind, "name": entry.name} for entry in kept],
            "regions": regions,
        }
    )


def _errors(seen: Observed, entries: list[Entry], rows: NDArray[np.intp]) -> dict[str, Any]:
    model = entries[-1]
    risks = [seen.mean_and_error(entry.losses[rows], rows) for entry in entries]
    gaps = [seen.mean_and_error((entry.losses - model.losses)[rows], rows) for entry in entries]
    return {
        "n": len(rows),
        "best": int(np.argmin([risk for risk, _ in risks])),
        "loss": [risk for risk, _ in risks],
        "standard_error": [error for _, error in risks],
        "to_model": [gap for gap, _ in gaps],
        "to_model_error": [error for _, error in gaps],
    }
