"""The motivating example of the paper: two models, each right on one half of x^3.

The truth is ``x^3`` on [-2, 2]. Company 1 fitted a line to 1,000 observations on [-2, -0.5],
company 2 to 1,000 observations on [0.5, 2]. The example combines the two with 200 labelled points.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.linear_model import LinearRegression

from localma._optional import optional
from localma._types import Array
from localma.estimators.regressor import LocalMARegressor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISE = 0.5
COLOURS = {"Company 1": "#0072B2", "Company 2": "#D55E00", "equal": "#999999", "local": "#009E73"}


def truth(x: Array) -> Array:
    """Return the regression function of the example, ``f0(x) = x^3``."""
    return x**3


def observe(low: float, high: float, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw n observations of the truth on [low, high], with noise N(0, 0.5^2)."""
    x = rng.uniform(low, high, n)
    return x[:, None], truth(x) + NOISE * rng.normal(size=n)


@dataclass(frozen=True)
class Example:
    """One replicate of the example, with its fitted models.

    Attributes
    ----------
    candidates : the line of each company
    X, y : the labelled sample, (n, 1) and (n,)
    grid : (G, 1) equally spaced inputs on [-2, 2]
    mixtures : the fitted estimator of each method
    """

    candidates: dict[str, LinearRegression]
    X: Array
    y: Array
    grid: Array
    mixtures: dict[str, LocalMARegressor]

    def errors(self) -> dict[str, float]:
        """Mean squared error against the truth on the grid, of every candidate and mixture."""
        f0 = truth(self.grid[:, 0])
        models = self.candidates | self.mixtures
        return {
            name: float(np.mean((f0 - model.predict(self.grid)) ** 2))
            for name, model in models.items()
        }


def motivating_example(n: int = 200, seed: int = 0) -> Example:
    """Draw the data, fit the lines of the companies, and combine them in three ways.

    Parameters
    ----------
    n : int
        The size of the labelled sample.
    seed : int

    Returns
    -------
    Example

    Examples
    --------
    >>> errors = motivating_example(seed=1).errors()
    >>> errors["local"] < 0.5 * errors["global"]
    True
    """
    rng = np.random.default_rng(seed)
    candidates = {
        "Company 1": LinearRegression().fit(*observe(-2.0, -0.5, 1000, rng)),
        "Company 2": LinearRegression().fit(*observe(0.5, 2.0, 1000, rng)),
    }
    X, y = observe(-2.0, 2.0, n, rng)
    mixtures = {
        name: LocalMARegressor(candidates, gate=gate, random_state=seed).fit(X, y)
        for name, gate in {"equal": "equal", "global": "global", "local": "auto"}.items()
    }
    return Example(candidates, X, y, np.linspace(-2, 2, 801)[:, None], mixtures)


def draw(example: Example, folder: Path) -> list[Path]:
    """Write the two pictures of Figure 1 of the paper to a folder, and return their paths."""
    pyplot = optional("matplotlib.pyplot", extra="plot")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw_picture in {"estimates": _draw_estimates, "weights": _draw_weights}.items():
        figure, axes = pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")
        draw_picture(example, axes)
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=150)
        pyplot.close(figure)
        written.append(path)
    return written


def _draw_estimates(example: Example, axes: Axes) -> None:
    x = example.grid[:, 0]
    axes.plot(example.X[:, 0], example.y, ".", color="0.75", markersize=4, label="labelled sample")
    axes.plot(x, truth(x), color="black", linewidth=1.2, label="truth, $x^3$")
    for name, model in example.candidates.items():
        axes.plot(x, model.predict(example.grid), ":", color=COLOURS[name], label=name)
    for name, dashes in {"equal": "--", "local": "-"}.items():
        prediction = example.mixtures[name].predict(example.grid)
        label = {"equal": "equal weights", "local": "localized average"}[name]
        axes.plot(x, prediction, dashes, color=COLOURS[name], linewidth=2.2, label=label)
    axes.set(xlabel="x", ylabel="prediction", title="Each company is right on its own half")
    axes.legend(frameon=False)


def _draw_weights(example: Example, axes: Axes) -> None:
    weights = example.mixtures["local"].predict_weights(example.grid)
    for (name, colour), column, dashes in zip(
        list(COLOURS.items())[:2], weights.T, ("-", "--"), strict=True
    ):
        axes.plot(example.grid[:, 0], column, dashes, color=colour, linewidth=2.2, label=name)
    for low, high, name in ((-2, -0.5, "Company 1"), (0.5, 2, "Company 2")):
        axes.axvspan(low, high, color=COLOURS[name], alpha=0.07)
    axes.set(xlabel="x", ylabel="weight", ylim=(0, 1), title="Which model to trust, by input")
    axes.legend(frameon=False)
