"""One row explained: who was asked, what they said, and how much it counted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.plain import plain
from localma.inspection.regions import Regions, describe_regions, find_regions

Array = NDArray[np.floating]


def explain(
    model: Model, X: Any, row: int, *, predictions: Any = None, random_state: int = 0
) -> dict[str, Any]:
    """Explain the prediction of one row of X, with the region that it lies in among all rows of X.

    Parameters
    ----------
    model : fitted
    X : n rows; the more, the better the region is known
    row : position of the row to explain, counted from zero; negative from the end
    predictions : what the candidates say about X, where they are not to be run here
    random_state : of the regions

    Returns
    -------
    dict, described in `localma.inspection.summary`

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> told = explain(model.set_params(random_state=0).fit(X, np.abs(X[:, 0])), X, 0)
    >>> told["region"]
    'left is trusted most where x0 <= 0'
    """
    seen = observe(model, X, predictions=predictions)
    if not isinstance(row, int | np.integer) or not -len(seen) <= row < len(seen):
        raise InvalidInputError(
            f"X has no row {row!r}; it has {len(seen)} rows, whose positions are 0 to "
            f"{len(seen) - 1}."
        )
    some = seen.sample(random_state=random_state)
    return explain_row(seen, row % len(seen), some, find_regions(some, random_state=random_state))


def explain_row(seen: Observed, row: int, described: Observed, found: Regions) -> dict[str, Any]:
    """Explain a row, with regions found already in the rows `described`."""
    one = seen.take(np.array([row]))
    place = int(found.of(one.features, 1)[0])
    regions = describe_regions(described, found)["regions"]
    region = regions[place]["sentence"] if regions else None
    names, weights = seen.names, one.weights[0]
    low, high = (band[0] for band in one.band) if one.band is not None else (None, None)
    known = one.has_predictions
    contributions = _contributions(one) if known else [None] * len(names)
    candidates = [
        {
            "name": name,
            "weight": weights[m],
            "low": None if low is None else low[m],
            "high": None if high is None else high[m],
            "global_weight": seen.model.global_weights_[m],
            "prediction": _said(one, one.predictions[0, m]) if known else None,
            "probabilities": _probabilities(one, one.predictions[0, m]) if known else None,
            "contribution": contributions[m],
        }
        for m, name in enumerate(names)
    ]
    return plain(
        {
            "row": row,
            "prediction": _said(one, one.mixture[0]) if known else None,
            "probabilities": _probabilities(one, one.mixture[0]) if known else None,
            "support": one.support[0],
            "region": region,
            "candidates": candidates,
            "sentence": _sentence(one),
        }
    )


def _contributions(one: Observed) -> Any:
    """Weight times prediction: (M,) or (M, K); of the predicted class for classification."""
    P, weights = one.predictions[0], one.weights[0]
    if one.is_classification:
        return weights * P[:, int(one.mixture[0].argmax())]
    return weights * P if P.ndim == 1 else weights[:, np.newaxis] * P


def _said(one: Observed, output: Any) -> Any:
    """A prediction as people see it: the label of the most probable class, or numbers."""
    return one.model.classes_[int(output.argmax())] if one.is_classification else output


def _probabilities(one: Observed, output: Any) -> dict[str, float] | None:
    """Probabilities of the classes, by name; None for a regression."""
    if not one.is_classification:
        return None
    return dict(zip(map(str, one.model.classes_.tolist()), output.tolist(), strict=True))


def _sentence(one: Observed) -> str:
    """Whom this row is entrusted to, in words."""
    weights = one.weights[0]
    first = int(weights.argmax())
    usual = one.model.global_weights_[first]
    support = float(one.support[0])
    said = (
        f"{one.names[first]} has {weights[first]:.0%} of the say here, and {usual:.0%} under "
        "global weights"
    )
    if support < 0.99:
        return f"{said}; the row is unlike the labelled sample (support {support:.2f})."
    return f"{said}."
