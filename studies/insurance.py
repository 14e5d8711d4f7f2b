"""Motor insurance: the losses of generalised linear models, which the paper allows for, on data.

The paper has no such study; this is ours. Candidates are built one per region, Poisson, gamma or
Tweedie regressions with splines, or gradient boosting. Half of the policies tests, three tenths
build candidates, and from the rest come the n that learn weights. 20 replicates.

- Claims of `beMTPL97` (Belgium; a region is the first digit of the postcode) and of `pg15training`
  (pricing game; a region is `Group2`): claims per year insured, Poisson deviance, weighted by
  exposure.
- Amounts of Belgium: the average amount of policies with a claim, in thousands and cut at 20, gamma
  deviance, weighted by the number of claims. Amounts of the pricing game: material damage per year
  insured, in thousands, zero for most, Tweedie deviance of power 1.5, weighted by exposure.

Gates, candidates and DirectModel see the same inputs, among them where a policy is: longitude and
latitude in Belgium, the region in the pricing game. Boosting has no Tweedie loss in scikit-learn;
there it is fitted with Poisson's, which aims at the mean just as well. The penalty of GLMs (of six)
and the number of trees (of four) are those with the smallest deviance of candidates in their own
region, on a split that is none of the replicates; no average was looked at. Amounts of Belgium
hardly depend on the inputs: in their own regions the candidates are no better than one constant.

LocalMA (paper, scaled) has the weight decay of the paper's gate in units of the loss (see
`studies.regressing`). "Home candidate" is that of the policy's own region. BestPTM is the best
candidate on the test part, which it has seen; "BestPTM of the sample" is chosen where weights are
learnt.
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
    """How a target is judged and fitted, and the sizes of the samples that learn weights.

    loss : its name.
    power, alpha : of the variance of a GLM, and its L2 penalty.
    boosting, trees : loss of gradient boosting, and its number of trees.
    controlled : the size at which controls are run.
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
    """Give an unfitted GLM with logarithmic link: splines of the numbers, and the flags."""
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
    """Give unfitted gradient boosting of trees with four leaves."""
    return HistGradientBoostingRegressor(
        loss=target.boosting,
        max_iter=target.trees,
        max_leaf_nodes=4,
        min_samples_leaf=50,
        early_stopping=False,
        random_state=seed,
    )


KINDS = {"GLM": glm, "boosting": boosting}
"""Key "candidates" of a cell -> what is built on each region."""

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


DRAWN = ("paper_scaled", "auto", "auto_own", "ewma", "direct", "best_test", "home")


def draw_figure(results: Results, folder: Path) -> list[Path]:
    """Deviance beside that of GW along n, a panel per target and kind of candidates."""
    panels = {", ".join(panel.values()): panel for panel in PANELS}
    named = {method: LABELS[method] for method in DRAWN}
    figure = draw_panels(
        results,
        panels,
        named,
        "deviance",
        "n",
        beside="gw",
        xlabel="n",
        xscale="log",
        ylabel="deviance more than GW (%)",
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
        Table("Mean deviance on the half that is held out", "deviance", ROWS, METHODS, digits=4),
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
