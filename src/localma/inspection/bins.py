"""Bins of one feature: its values where they are few, else quantiles; categories by name.

Means over a few rows say little: values that hardly any row has are joined with others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localma.inspection.columns import MISSING, Feature

Array = NDArray[np.floating]

MOST_CATEGORIES = 12


@dataclass(frozen=True)
class Bins:
    """B bins of n rows.

    labels : B words; centres : (B,) means of the values, NaN for the missing ones, or None for
    categories; place : (n,) the bin of each row.
    """

    labels: tuple[str, ...]
    centres: Array | None
    place: NDArray[np.intp]

    def counts(self) -> NDArray[np.intp]:
        """Rows in each bin: (B,)."""
        return np.bincount(self.place, minlength=len(self.labels))

    def means(self, values: Array, sample_weight: Array) -> Array:
        """Weighted means over the rows of each bin: (n, C) -> (B, C); NaN without weight."""
        indicator = np.equal.outer(np.arange(len(self.labels)), self.place) * sample_weight
        with np.errstate(invalid="ignore"):
            return (indicator @ values) / indicator.sum(axis=1, keepdims=True)


def make_bins(feature: Feature, most: int) -> Bins:
    """Bin a feature into `most` bins of numbers; missing values have one more, at the end.

    >>> bins = make_bins(Feature("rooms", 0, "numeric", np.array([1.0, 2.0, 1.0])), most=5)
    >>> bins.labels, bins.place.tolist()
    (('1', '2'), [0, 1, 0])
    """
    missing = np.isnan(feature.values)
    if feature.kind == "categorical":
        labels, place = _by_category(feature, missing)
        centres = None
    else:
        labels, place = _by_value(feature, missing, most)
        centres = np.array(
            [feature.values[(place == b) & ~missing].mean() for b in range(len(labels))]
        )
    if not missing.any():
        return Bins(tuple(labels), centres, place)
    place = np.where(missing, len(labels), place)
    centres = None if centres is None else np.append(centres, np.nan)
    return Bins((*labels, MISSING), centres, place)


def _by_category(
    feature: Feature, missing: NDArray[np.bool_]
) -> tuple[list[str], NDArray[np.intp]]:
    """Name the most frequent categories, and sum the rest."""
    codes = np.where(missing, 0, feature.values).astype(np.intp)
    counts = np.bincount(codes[~missing], minlength=len(feature.categories))
    met = np.flatnonzero(counts)
    if len(met) > MOST_CATEGORIES:
        met = np.sort(met[np.argsort(-counts[met], kind="stable")[: MOST_CATEGORIES - 1]])
    n_rest = int((counts > 0).sum()) - len(met)
    labels = [feature.categories[code] for code in met]
    where = np.full(len(feature.categories) + 1, len(met))
    where[met] = np.arange(len(met))
    return labels + ([f"{n_rest} others"] if n_rest else []), where[codes]


def _by_value(
    feature: Feature, missing: NDArray[np.bool_], most: int
) -> tuple[list[str], NDArray[np.intp]]:
    values = np.where(missing, feature.present[:1].sum(), feature.values)
    counts = np.unique(values[~missing], return_counts=True)[1]
    if len(feature.present) <= most and 200 * counts.min(initial=len(values)) >= len(values):
        labels = [feature.show(value) for value in feature.present]
        return labels, np.searchsorted(feature.present, values)
    quantiles = np.quantile(values[~missing], np.linspace(0, 1, most + 1)[1:-1])
    # An edge is a value that is there, and belongs to the bin on its left.
    edges = feature.present[np.searchsorted(feature.present, quantiles, side="right") - 1]
    edges = np.unique(edges[edges < feature.present[-1]])
    place = np.searchsorted(edges, values, side="left")
    first = feature.present[np.append(0, np.searchsorted(feature.present, edges, side="right"))]
    last = np.append(edges, feature.present[-1])
    return [_span(feature, *ends) for ends in zip(first, last, strict=True)], place


def _span(feature: Feature, low: float, high: float) -> str:
    first, last = feature.show(low), feature.show(high)
    return first if first == last else f"{first} to {last}"
