"""What the labelled sample looked like at the fit, in a few quantiles, for later comparisons.

A variable is one number of a row: an input of the gate, the loss of a candidate or of the
combination, the disagreement between candidates, or a weight. Its values in the sample, in order,
have gaps between them. A new row of the same kind falls into each gap with the same probability,
whatever the distribution is. So a few quantiles, with the number of gaps between them, are all
that a test needs. Equal values are put in order at random.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, get_args

import numpy as np

from localma._types import Array, Float32, Float64, Integers, RowMask, Rows
from localma.equations import row_losses
from localma.errors import FileFormatError
from localma.evidence import effective_number, mean_and_error
from localma.folds import count_groups, evenly_spaced
from localma.gates import Gate, Labelled
from localma.storage.array_file import Arrays, Json, shown
from localma.tables.frames import take_rows

Kind = Literal["input", "loss", "combination", "disagreement", "weight"]

LEVELS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.95)
"""Levels of the quantiles between the bins."""
LEAST_ROWS = 30
"""Fewer values of a variable are no reference."""
MOST_ROWS = 5_000
"""The reference is measured on at most this many rows, evenly spaced."""
MOST_INPUTS = 64
"""Of more inputs, as many are compared, evenly spaced."""
OVERLAP = 2.25
"""Losses of held-out rows, and weights of the sample, count as this many times fewer rows.

Their gates were trained on the same rows. It is the square of the factor of 1.5 by which
overlapping training rows widen a standard error of five folds; see `fold_overlap`.
"""
LARGEST = float(np.finfo(np.float32).max)
GOLDEN = (5**0.5 - 1) / 2
"""Shift of the order of equal values from one variable to the next."""


class Variable(NamedTuple):
    """One number of a row: its kind, and the name of the input or of the candidate."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class Reference:
    """Quantiles of V variables in the labelled sample.

    Parameters
    ----------
    candidates : names of the candidates at the fit
    variables : the V variables
    columns : (I,) positions of the inputs among those of the gate, in the order of the variables
    cuts : (V, B - 1) the quantiles between the bins
    breaks : (V, B - 1) where, among equal values, the bins are cut: numbers from 0 to 1
    gaps : (V, B) numbers of gaps of the sample in each bin, effective ones if rows depend
    means, errors : (V,) means in the sample, and their standard errors

    Examples
    --------
    >>> reference = Reference.measured(("a",), {Variable("loss", "a"): np.arange(99.0)})
    >>> reference.gaps[0].round(6).tolist()
    [13.0, 12.0, 13.0, 12.0, 13.0, 12.0, 13.0, 7.0, 5.0]
    >>> reference.place(np.array([[-1.0], [50.0], [1e9], [np.nan]]), np.zeros(4)).ravel().tolist()
    [0, 4, 8, -1]
    """

    candidates: tuple[str, ...]
    variables: tuple[Variable, ...]
    columns: Integers
    cuts: Float32
    breaks: Float32
    gaps: Float64
    means: Float64
    errors: Float64

    @classmethod
    def of(
        cls,
        data: Labelled,
        gate: Gate,
        candidates: Sequence[str],
        inputs: Sequence[str],
        predictions: Array,
        *,
        fitted: Collection[str] = (),
        known: RowMask | None = None,
    ) -> Self | None:
        """Measure a labelled sample; None if it is too small.

        candidates, inputs : their names
        predictions : (n, M) or (n, M, K), all probabilities of classes
        fitted : candidates that were fitted on the sample, whose predictions are out of fold
        known : (n, M) which predictions the candidates made; None for all
        """
        rows = evenly_spaced(np.flatnonzero(data.sample_weight > 0), MOST_ROWS)
        values: dict[Variable, Array] = {}
        X = take_rows(data.X, rows)
        columns = np.empty(0, dtype=np.intp)
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
            columns = evenly_spaced(np.arange(X.shape[1]), MOST_INPUTS)
            values |= {Variable("input", inputs[k]): X[:, k] for k in columns.tolist()}
        P, y = np.array(data.P[rows], dtype=np.float64), data.y[rows]
        every = np.array(predictions[rows], dtype=np.float64).reshape(*P.shape[:2], -1)
        if known is not None:
            P[~known[rows]] = every[~known[rows]] = np.nan
        losses = losses_of(data, y, P)
        values |= {Variable("loss", name): losses[:, m] for m, name in enumerate(candidates)}
        values[Variable("disagreement", "")] = disagreement(every)
        weights = gate.predict_weights(X)
        values |= {Variable("weight", name): weights[:, m] for m, name in enumerate(candidates)}
        combination = Variable("combination", "")
        judged = getattr(gate, "held_out_rows_", None)
        if judged is not None:
            losses = np.full(len(data.y), np.nan)
            losses[judged] = gate.held_out_losses_
            values[combination] = losses[rows]
        elif gate.is_constant:
            values[combination] = losses_of(data, y, _mixture(weights, data.P[rows]))[:, 0]
        groups = None if data.groups is None else data.groups[rows]
        overlapping = {combination, *(Variable("loss", name) for name in fitted)}
        return cls.measured(
            candidates,
            values,
            sample_weight=np.asarray(data.sample_weight[rows], dtype=np.float64),
            groups=groups,
            columns=columns,
            overlapping=overlapping,
        )

    @classmethod
    def measured(
        cls,
        candidates: Sequence[str],
        values: dict[Variable, Array],
        *,
        sample_weight: Array | None = None,
        groups: Rows | None = None,
        columns: Integers | None = None,
        overlapping: Collection[Variable] = (),
    ) -> Self | None:
        """Measure named values (n,) of a sample; NaN are left out. None without any variable.

        overlapping : variables, besides weights, whose models were trained on the same rows
        """
        columns = np.empty(0, dtype=np.intp) if columns is None else columns
        kept: dict[Variable, tuple[Float32, Float32, Float64, float, float]] = {}
        used = []
        for k, (variable, column) in enumerate(values.items()):
            weight = np.ones(len(column)) if sample_weight is None else sample_weight
            found = _quantiles(np.asarray(column, dtype=np.float64), weight, groups, k)
            if found is None:
                continue
            if variable.kind == "weight" or variable in overlapping:
                found = (*found[:2], found[2] / OVERLAP, found[3], found[4] * OVERLAP**0.5)
            kept[variable] = found
            if variable.kind == "input":
                used.append(columns[k])
        if not kept:
            return None
        cuts, breaks, gaps, means, errors = zip(*kept.values(), strict=True)
        return cls(
            tuple(candidates),
            tuple(kept),
            np.array(used, dtype=np.intp),
            np.stack(cuts),
            np.stack(breaks),
            np.stack(gaps),
            np.array(means),
            np.array(errors),
        )

    def for_candidates(self, names: Sequence[str]) -> Self | None:
        """The part that holds for a pool with these candidates; None if nothing is left.

        The losses of a candidate stay true if others come and go. Weights, the disagreement and
        the losses of the combination do not.
        """
        same = tuple(names) == self.candidates
        kept = [
            v
            for v, variable in enumerate(self.variables)
            if variable.kind == "input"
            or same
            or (variable.kind == "loss" and variable.name in names)
        ]
        if not kept:
            return None
        return type(self)(
            tuple(names),
            tuple(self.variables[v] for v in kept),
            self.columns,
            self.cuts[kept],
            self.breaks[kept],
            self.gaps[kept],
            self.means[kept],
            self.errors[kept],
        )

    def place(self, values: Array, order: Array) -> Integers:
        """Bin of each value, from 0 to B - 1; -1 for NaN.

        values : (n, V); order : (n,) random numbers from 0 to 1 that put equal values in order.
        """
        x = np.clip(values, -LARGEST, LARGEST).astype(np.float32)[:, :, np.newaxis]
        shifts = GOLDEN * np.arange(len(self.variables))
        among = ((order[:, np.newaxis] + shifts) % 1.0).astype(np.float32)[:, :, np.newaxis]
        beyond = (x > self.cuts) | ((x == self.cuts) & (among > self.breaks))
        return np.where(np.isnan(x[:, :, 0]), -1, beyond.sum(axis=2)).astype(np.intp)

    def arrays(self) -> Arrays:
        """The numbers, for a file."""
        names = ("columns", "cuts", "breaks", "gaps", "means", "errors")
        return {name: getattr(self, name) for name in names}

    def recipe(self) -> Json:
        """The names, in JSON."""
        return {
            "candidates": list(self.candidates),
            "variables": [[variable.kind, variable.name] for variable in self.variables],
        }

    @classmethod
    def restore(cls, recipe: Json, arrays: Arrays) -> Self:
        """Restore from a file, and refuse what no fit has made."""
        if not isinstance(recipe, dict) or set(recipe) != {"candidates", "variables"}:
            raise _unknown_form(recipe)
        names, pairs = recipe["candidates"], recipe["variables"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _unknown_form(names)
        if not isinstance(pairs, list) or not pairs or not all(map(_is_variable, pairs)):
            raise _unknown_form(pairs)
        variables = tuple(Variable(*pair) for pair in pairs)
        inputs = sum(variable.kind == "input" for variable in variables)
        V, C = len(variables), len(LEVELS)
        types = {
            "columns": ("i", (inputs,)), "cuts": ("f", (V, C)), "breaks": ("f", (V, C)),
            "gaps": ("f", (V, C + 1)), "means": ("f", (V,)), "errors": ("f", (V,)),
        }  # fmt: skip
        received = {name: (array.dtype.kind, array.shape) for name, array in arrays.items()}
        if received != types or len(set(variables)) < V:
            raise _unknown_form(received)
        cuts, breaks = (arrays[name].astype(np.float32) for name in ("cuts", "breaks"))
        gaps, means, errors = (
            arrays[name].astype(np.float64) for name in ("gaps", "means", "errors")
        )
        columns = arrays["columns"].astype(np.intp)
        numbers = (cuts, breaks, gaps, means, errors)
        is_sound = (
            all(np.isfinite(array).all() for array in numbers)
            and (gaps > 0).all()
            and (gaps < 2.0**53).all()
            and (np.diff(cuts, axis=1) >= 0).all()
            and ((breaks >= 0) & (breaks <= 1)).all()
            and (columns >= 0).all()
        )
        if not is_sound:
            raise FileFormatError(
                "The reference of a model must have finite quantiles in order, and positive "
                "numbers of gaps. Save the model again."
            )
        return cls(tuple(names), variables, columns, cuts, breaks, gaps, means, errors)


def _is_variable(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and pair[0] in get_args(Kind)
        and isinstance(pair[1], str)
    )


def _unknown_form(saved: object) -> FileFormatError:
    return FileFormatError(f"The reference of a model has an unknown form: {shown(saved)}.")


def losses_of(data: Labelled, y: Array, P: Array) -> Float64:
    """Loss of each candidate in each row: (n, K), (n, M, K) -> (n, M); NaN without a prediction."""
    with np.errstate(all="ignore"):
        losses = [row_losses(data.loss, y, predictions) for predictions in P.swapaxes(0, 1)]
    return np.stack(losses, axis=1)


def disagreement(P: Array) -> Float64:
    """Difference between the largest and the smallest prediction: (n, M, K) -> (n,).

    With several outputs it is the mean over them. NaN predictions are left out.

    >>> disagreement(np.array([[[1.0], [np.nan], [3.0]]])).tolist()
    [2.0]
    """
    known = ~np.isnan(P)
    high = np.where(known, P, -np.inf).max(axis=1)
    low = np.where(known, P, np.inf).min(axis=1)
    with np.errstate(all="ignore"):
        gap = (high - low).mean(axis=1)
    return np.asarray(np.where((known.sum(axis=1) > 1).all(axis=1), gap, np.nan))


def _mixture(weights: Array, P: Array) -> Array:
    return np.einsum("nm,nmk->nk", weights, P)[:, np.newaxis]


def _quantiles(
    values: Float64, weight: Array, groups: Rows | None, seed: int
) -> tuple[Float32, Float32, Float64, float, float] | None:
    """Cuts, breaks, gaps, mean and standard error of values (n,); None of too few."""
    kept = ~np.isnan(values) & (weight > 0)
    if kept.sum() < LEAST_ROWS:
        return None
    values, weight = np.clip(values[kept], -LARGEST, LARGEST), weight[kept]
    groups = None if groups is None else groups[kept]
    n = effective_number(weight)
    single = values.astype(np.float32)
    among = np.random.default_rng(seed).random(len(values)).astype(np.float32)
    order = np.lexsort((among, single))
    below = np.cumsum(weight[order]) / weight.sum() * n
    levels = np.array(LEVELS) * (n + 1.0)
    at = np.minimum(np.searchsorted(below, levels - 1e-9 * n), len(values) - 1)
    gaps = np.diff(np.concatenate([[0.0], below[at], [n + 1.0]]))
    if (gaps <= 0.0).any():
        return None
    n_groups = count_groups(groups, weight)
    if n_groups is not None:
        gaps *= min(1.0, (n_groups + 1.0) / (n + 1.0))
    mean, error = mean_and_error(values, weight, groups=groups)
    cuts, breaks = single[order][at], among[order][at]
    return cuts, breaks, gaps, mean, float(np.nan_to_num(error))
