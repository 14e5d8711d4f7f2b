"""Tables 1, 2 and 3 and the weight functions: the paper's two scenarios, 500 replicates each.

Scenario 1 has true weights: local in S1, constant in S2 and S3. In scenario 2 the truth is not an
average of the candidates. "S1, M=2" is new: S1 with only the first two candidates, for which the
weights are identified. With three candidates and one output, different weights give the same
prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from studies import markdown
from studies.drawing import save, subplots
from studies.findings import Finding, NotRunError, Results, decreasing
from studies.harness import Keys, Metrics, Study, Table, grid
from studies.methods import LABELS, PUBLISHED_AS, fit
from studies.published import find, load_published
from studies.scenarios import N_INPUTS, draw, true_weights
from studies.summary import agree, z_value

N_TEST = 5000
SIZES = (100, 300, 600, 900)
SCENARIO_1 = ("S1", "S2", "S3")
SCENARIO_2 = "scenario 2"
TWO = "S1, M=2"
METHODS = ("paper", "auto", "gw", "ewma")

CEILINGS = {
    "S1": (0.24, 0.065, 0.03, 0.02),
    "S2": (0.045, 0.012, 0.006, 0.004),
    "S3": (0.045, 0.015, 0.006, 0.004),
    SCENARIO_2: (5.4, 3.65, 3.3, 3.2),
}
"""Largest allowed mean MSE of `gate="auto"`, at each size."""

LARGEST_Z = 1.5
"""Largest allowed root-mean-square z of LocalMA (paper) against the published figures."""

TITLES = {"mse": "MSE", "c1": "C1(w)"}


def run(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """MSE against the truth on 5,000 new points, and C1(w) if there are true weights."""
    for_sample, for_test, for_gates = seed.spawn(3)
    setting, n = str(keys["setting"]), int(keys["n"])
    rng = np.random.default_rng(for_sample)
    sample = draw(setting, n, rng)
    y = sample.truth + rng.standard_normal(n)
    test = draw(setting, N_TEST, np.random.default_rng(for_test))
    metrics = {}
    for method in methods:
        weights = fit(method, sample.X, sample.P, y, for_gates).predict_weights(test.X)
        metrics[f"{method}:mse"] = test.mse(weights)
        if test.weights is not None:
            metrics[f"{method}:c1"] = test.c1(weights)
    return metrics


def _ratio(results: Results, method: str, setting: str, n: int) -> float:
    """MSE of a method divided by that of the better of global and equal weights."""
    others = (results.mean(other, "mse", setting=setting, n=n) for other in ("gw", "ewma"))
    return results.mean(method, "mse", setting=setting, n=n) / min(others)


def _excess(results: Results, method: str, setting: str) -> dict[int, float]:
    """MSE of a method minus that of global weights, along n."""
    return {
        n: results.mean(method, "mse", setting=setting, n=n)
        - results.mean("gw", "mse", setting=setting, n=n)
        for n in SIZES
    }


def _paper_findings(method: str) -> list[Finding]:
    """The paper's statements about LocalMA, checked for one of our gates."""
    label = LABELS[method]
    constant = ("S2", "S3")
    return [
        Finding(
            f"S1: {label} has at most a tenth of the MSE of GW and of EWMA, at every n",
            "Section 4.1 (substantial improvement)",
            lambda results: all(_ratio(results, method, "S1", n) <= 0.1 for n in SIZES),
        ),
        Finding(
            f"S2, S3: {label} is not below GW, at any n",
            "Section 4.1",
            lambda results: all(
                excess >= 0 for s in constant for excess in _excess(results, method, s).values()
            ),
        ),
        Finding(
            f"S2, S3: {label} gets closer to GW with every n",
            "Section 4.1",
            lambda results: all(
                decreasing({n: abs(gap) for n, gap in _excess(results, method, s).items()})
                for s in constant
            ),
        ),
        Finding(
            f"S1, S2, S3: C1(w) of {label} decreases with n",
            "Section 4.1, Table 2",
            lambda results: all(
                decreasing(results.series(method, "c1", "n", setting=s)) for s in SCENARIO_1
            ),
        ),
        Finding(
            f"Scenario 2: {label} has at most half of the MSE of GW and of EWMA, at every n",
            "Section 4.2 (significantly better)",
            lambda results: all(_ratio(results, method, SCENARIO_2, n) <= 0.5 for n in SIZES),
        ),
    ]


def _published_cells(method: str, metric: str) -> list[tuple[Any, dict[str, Any]]]:
    """Published figures of a method, with the keys of their cells."""
    cells = [{"setting": s, "n": n} for s in (*SCENARIO_1, SCENARIO_2) for n in SIZES]
    name = PUBLISHED_AS[method]
    figures = [(find(load_published(), method=name, metric=metric, **c), c) for c in cells]
    return [(figure, cell) for figure, cell in figures if figure is not None]


def z_values(results: Results, metric: str) -> dict[str, float]:
    """Distance of LocalMA (paper) from each published figure, in standard errors; see `z_value`."""
    return {
        f"{cell['setting']}, n = {cell['n']}": z_value(
            figure, results.values("paper", metric, **cell)
        )
        for figure, cell in _published_cells("paper", metric)
    }


def root_mean_square(z: Mapping[str, float]) -> float:
    """Root of the mean square of z over cells.

    >>> round(root_mean_square({"S1": 1.0, "S2": -2.0}), 3)
    1.581
    """
    return float(np.sqrt(np.mean(np.square(list(z.values())))))


def z_table(results: Results) -> str:
    """The z of every published figure of LocalMA, in Markdown; empty if the gate has not run."""
    with suppress(NotRunError):
        columns = {metric: z_values(results, metric) for metric in TITLES}
        body = [
            [cell, *(f"{z[cell]:+.1f}" if cell in z else "" for z in columns.values())]
            for cell in columns["mse"]
        ]
        head = ["cell", *(f"z of the {title}" for title in TITLES.values())]
        title = "LocalMA (paper) minus LocalMA, published, in standard errors"
        return f"**{title}**\n\n{markdown.table(head, body)}"
    return ""


def z_notes(results: Results) -> list[str]:
    """Root-mean-square z of LocalMA (paper), and how it is computed."""
    lines = []
    with suppress(NotRunError):
        for metric, title in TITLES.items():
            z = z_values(results, metric)
            worst = max(z, key=lambda cell: abs(z[cell]))
            lines.append(
                f"LocalMA (paper) and the published LocalMA: root-mean-square z of the {title} "
                f"over {len(z)} cells {root_mean_square(z):.2f}, largest {z[worst]:+.1f} ({worst})"
            )
        lines.append(
            "z is the difference of the two means, divided by its standard error. The variance is "
            "that of both means over their replicates, with the larger of the two spreads, plus a "
            "third of the square of half a unit of the last printed digit, for rounding."
        )
    return lines


def _agrees_everywhere(results: Results, method: str) -> bool:
    return all(
        agree(figure, results.values(method, "mse", **cell))
        for figure, cell in _published_cells(method, "mse")
    )


def _at_or_below_published(results: Results, metric: str) -> bool:
    return all(
        results.mean("auto", metric, **cell) <= figure.value + figure.rounding
        for figure, cell in _published_cells("auto", metric)
    )


def _under_ceiling(results: Results, setting: str) -> bool:
    return all(
        results.mean("auto", "mse", setting=setting, n=n) <= ceiling
        for n, ceiling in zip(SIZES, CEILINGS[setting], strict=True)
    )


AIMS = [
    Finding(
        f"{LABELS[method]} agrees with the paper in every cell, within three Monte Carlo standard "
        "errors and rounding",
        "aim",
        lambda results, method=method: _agrees_everywhere(results, method),
    )
    for method in ("gw", "ewma")
] + [
    Finding(
        f"LocalMA (auto) has {title} at or below the published LocalMA in every cell",
        "aim",
        lambda results, metric=metric: _at_or_below_published(results, metric),
    )
    for metric, title in {"mse": "an MSE", "c1": "a C1(w)"}.items()
]

PAPER_AIM = Finding(
    "LocalMA (paper) has a root-mean-square z of the MSE of at most 1.5 against the published "
    "figures",
    "aim",
    lambda results: root_mean_square(z_values(results, "mse")) <= LARGEST_Z,
)

CEILING_AIMS = [
    Finding(
        f"{setting}: LocalMA (auto) has an MSE of at most {', '.join(map(str, ceilings))} at "
        f"n = {', '.join(map(str, SIZES))}",
        "aim",
        lambda results, setting=setting: _under_ceiling(results, setting),
    )
    for setting, ceilings in CEILINGS.items()
] + [
    Finding(
        "S1 with two candidates, where weights are identified: C1(w) of LocalMA (auto) decreases",
        "aim",
        lambda results: decreasing(results.series("auto", "c1", "n", setting=TWO)),
    )
]


def draw_weight_functions(_: Results, folder: Path) -> list[Path]:
    """Figure 2: weights in S1 along each covariate, with the others at zero (n = 900)."""
    for_sample, _, for_gates = STUDY.seed({"setting": "S1", "n": 900}, 0).spawn(3)
    rng = np.random.default_rng(for_sample)
    sample = draw("S1", 900, rng)
    y = sample.truth + rng.standard_normal(900)
    fitted = {m: fit(m, sample.X, sample.P, y, for_gates) for m in ("paper", "auto")}
    figure, panels = subplots(2, 3, sharey=True)
    for j, axes in enumerate(panels.flat[:N_INPUTS]):
        _draw_one_covariate(axes, j, fitted)
    panels.flat[-1].axis("off")
    panels.flat[-1].legend(*panels.flat[0].get_legend_handles_labels(), frameon=False, loc="center")
    return save(figure, folder, "weight_functions")


def _draw_one_covariate(axes: Any, j: int, fitted: dict[str, Any]) -> None:
    X = np.zeros((201, N_INPUTS))
    X[:, j] = np.linspace(-2.5, 2.5, len(X))
    curves = {"true": true_weights("S1", X)}
    curves |= {method: model.predict_weights(X) for method, model in fitted.items()}
    styles = {"true": "-", "paper": ":", "auto": "--"}
    for curve, weights in curves.items():
        for m, colour in enumerate(("#0072B2", "#D55E00", "#009E73")):
            label = f"{LABELS.get(curve, curve)}, candidate {m + 1}"
            axes.plot(X[:, j], weights[:, m], styles[curve], color=colour, label=label)
    axes.set(xlabel=f"$X_{j + 1}$", ylim=(0, 1), ylabel="weight" if j in (0, 3) else "")


STUDY = Study(
    name="simulations",
    title="Simulations: scenarios 1 and 2",
    cells=grid(METHODS, 500, setting=(*SCENARIO_1, SCENARIO_2), n=SIZES)
    + grid(METHODS, 500, setting=(TWO,), n=SIZES),
    run=run,
    tables=(
        Table(
            "MSE in scenario 1",
            "mse",
            ("setting", "n"),
            METHODS,
            {"setting": SCENARIO_1},
            "Table 1",
        ),
        Table(
            "C1(w), mean L1 distance to the true weights, in scenario 1",
            "c1",
            ("setting", "n"),
            ("paper", "auto"),
            {"setting": SCENARIO_1},
            "Table 2",
        ),
        Table(
            "MSE in scenario 2 (no weight function goes below 2.587)",
            "mse",
            ("n",),
            METHODS,
            {"setting": (SCENARIO_2,)},
            "Table 3",
        ),
        Table("MSE in S1 with two candidates", "mse", ("n",), METHODS, {"setting": (TWO,)}),
        Table(
            "C1(w) in S1 with two candidates, where weights are identified",
            "c1",
            ("n",),
            METHODS,
            {"setting": (TWO,)},
        ),
    ),
    labels=LABELS,
    published_as=PUBLISHED_AS,
    findings=(
        *_paper_findings("paper"),
        PAPER_AIM,
        *_paper_findings("auto"),
        *AIMS,
        *CEILING_AIMS,
    ),
    overview=z_table,
    notes=z_notes,
    figures={"weight_functions": draw_weight_functions},
)
