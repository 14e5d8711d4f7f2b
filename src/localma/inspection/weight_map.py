"""The map of weights over two features: who is trusted most in each cell, and how far."""

from __future__ import annotations

from typing import Any

import numpy as np

from localma.inspection.bins import Bins, make_bins
from localma.inspection.columns import Feature
from localma.inspection.observed import Observed
from localma.inspection.plain import plain
from localma.inspection.shown import most_trusted

MAP_BINS = 8


def weight_map(
    seen: Observed, first: Feature, second: Feature, *, bins: int = MAP_BINS
) -> dict[str, Any]:
    """Mean weights of the rows in each cell; the part "map" of a summary.

    The first feature runs along x, the second along y. Cells without rows are None.
    """
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    across, up = make_bins(first, bins), make_bins(second, bins)
    width, height = len(across.labels), len(up.labels)
    cells = Bins(("",) * (width * height), None, up.place * width + across.place)
    means = cells.means(seen.weights, seen.sample_weight)
    empty = np.isnan(means[:, 0])
    most = np.where(empty, np.nan, np.argmax(np.where(np.isnan(means), -1.0, means), axis=1))
    return plain(
        {
            "features": [first.name, second.name],
            "kinds": [first.kind, second.kind],
            "candidates": shown.labels,
            "n_others": shown.n_others,
            "labels": [across.labels, up.labels],
            "centres": [across.centres, up.centres],
            "counts": cells.counts().reshape(height, width),
            "weights": shown.of(means).T.reshape(-1, height, width),
            "most_trusted": [
                [None if np.isnan(place) else int(place) for place in row]
                for row in most.reshape(height, width)
            ],
        }
    )
