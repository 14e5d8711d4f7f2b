"""Motor insurance: the losses of generalised linear models, on real data.

The paper allows for these losses but has no study of them. One candidate is built per region:
Poisson, gamma or Tweedie regressions with splines, or gradient boosting. Half of the policies are
for testing, three tenths build candidates, and weights are learnt from n of the rest. There are 20
replicates.

- Claims of `beMTPL97` (Belgium; a region is the first digit of the postcode) and of `pg15training`
  (pricing game; a region is `Group2`): claims per insured year, Poisson deviance, weighted by
  exposure.
- Amounts of Belgium: the average amount of policies with a claim, in thousands and cut at 20,
  gamma deviance, weighted by the number of claims.
- Amounts of the pricing game: material damage per insured year, in thousands, zero for most
  policies, Tweedie deviance of power 1.5, weighted by exposure.

Gates, candidates and DirectModel have the same inputs, including the location: longitude and
latitude in Belgium, the region in the pricing game. Boosting has no Tweedie loss in scikit-learn,
so it is fitted with the Poisson loss, which also estimates the mean. The penalty of GLMs (of six)
and the number of trees (of four) are those with the smallest deviance of candidates in their own
region, on a split that is not one of the replicates. No average was used to choose them. Amounts
of Belgium hardly depend on the inputs: in their own regions the candidates are not better than one
constant.

"Home candidate" is that of the policy's own region. BestPTM is the best
candidate on the test part, chosen with its targets. "BestPTM of the sample" is chosen on the
labelled sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import TweedieRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from localma.losses import get_loss
from studies.aims import COMPARED, against_best, aims, mean_lines
from studies.drawing import draw_panels, save
from studies.findings import Results
from studies.harness import Cell, Keys, Metrics, Study, Table
from studies.insurance_data import N_NUMBERS, load, split
from studies.regressing import (
    CONTROLLED_METHODS,
    CONTROLS,
    LABELS,
    METHODS,
    compare,
    make_trial,
    one_thread,
)

REPLICATES = 20
QUICK_SIZE = 1_000


@dataclass(frozen=True)
class Target:
    """The loss and the models of a target, and the sizes of its labelled samples.

    loss : its name.
    power, alpha : power of the variance of a GLM, and its L2 penalty.
    boosting, trees : loss and number of trees of gradient boosting.
    controlled : the sample size of the controls.
    """

    loss: str
    power: float
    alpha: float
    boosting: str
    trees: int
    sizes: tuple[int, ...] = (1_000, 5_000, 20_000)
    controlled: int = 5_000


TARGETS = {
    "Belgium, claims": Target("poisson", 1.0, 0.1, "poisson", 20),
    "Belgium, amounts": Target("gamma", 2.0, 3.0, "gamma", 10, (1_000, 3_000), 3_000),
    "Pricing game, claims": Target("poisson", 1.0, 0.03, "poisson", 100),
    "Pricing game, amounts": Target("tweedie", 1.5, 0.3, "poisson", 50),
}


def glm(seed: int, *, target: Target) -> Pipeline:
    """Build an unfitted GLM with logarithmic link, on splines of the numbers and the flags."""
    splines = ("splines", SplineTransformer(n_knots=4), list(range(N_NUMBERS)))
    return make_pipeline(
        ColumnTransformer([splines], remainder="passthrough"),
        StandardScaler(),
        TweedieRegressor(
            power=target.power,
            link="log",
            alpha=target.alpha,
            solver="newton-cholesky",
            max_iter=300,
        ),
    )


def boosting(seed: int, *, target: Target) -> HistGradientBoostingRegressor:
    """Build unfitted gradient boosting of trees with four leaves."""
    return HistGradientBoostingRegressor(
        loss=target.boosting,
        max_iter=target.trees,
        max_leaf_nodes=4,
        min_samples_leaf=50,
        early_stopping=False,
        random_state=seed,
    )


KINDS = {"GLM": glm, "boosting": boosting}
"""Key "candidates" of a cell -> function that builds the model of each region."""

PANELS = tuple({"data": data, "candidates": kind} for data in TARGETS for kind in KINDS)


def run(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Mean deviance of each method on the test part of one split."""
    for_split, for_models = seed.spawn(2)
    target = TARGETS[str(keys["data"])]
    policies = load(str(keys["data"]))
    parts = split(policies, int(keys["n"]), np.random.default_rng(for_split))
    kind = partial(KINDS[str(keys["candidates"])], target=target)
    with one_thread():
        trial = make_trial(policies, parts, kind, get_loss(target.loss), for_models)
        return {f"{method}:deviance": risk for method, risk in compare(trial, methods).items()}


DRAWN = ("paper", "auto", "auto_own", "ewma", "direct", "best_test", "home")


def draw_figure(results: Results, folder: Path) -> list[Path]:
    """Deviance relative to that of GW along n, a panel per target and kind of candidates."""
    panels = {", ".join(panel.values()): panel for panel in PANELS}
    named = {method: LABELS[method] for method in DRAWN}
    figure = draw_panels(
        results,
        panels,
        named,
        "deviance",
        "n",
        relative_to="gw",
        xlabel="n",
        xscale="log",
        ylabel="deviance above GW (%)",
    )
    return save(figure, folder, "insurance")


def _cell(panel: Mapping[str, str], n: int) -> Cell:
    controls = CONTROLS if n == TARGETS[panel["data"]].controlled else ()
    return Cell({**panel, "n": n}, METHODS + controls, REPLICATES, slow=n > QUICK_SIZE)


ROWS = ("data", "candidates", "n")

STUDY = Study(
    name="insurance",
    title="Motor insurance, a candidate per region",
    cells=tuple(_cell(panel, n) for panel in PANELS for n in TARGETS[panel["data"]].sizes),
    run=run,
    tables=(
        Table("Mean deviance on the held-out half", "deviance", ROWS, METHODS, digits=4),
        *(
            Table(
                f"{data}: deviance on candidates, on two constants, and on shuffled candidates",
                "deviance",
                ("candidates", "n"),
                CONTROLLED_METHODS,
                {"data": (data,), "n": (target.controlled,)},
                digits=4,
            )
            for data, target in TARGETS.items()
        ),
    ),
    labels=LABELS,
    findings=aims("deviance"),
    notes=lambda results: mean_lines(results, "deviance", ("gw", "ewma", "direct", "home")),
    comparison=against_best("deviance", "n", PANELS, (*COMPARED, "home")),
    figures={"insurance": draw_figure},
)
