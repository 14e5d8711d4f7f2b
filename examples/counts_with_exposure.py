"""Claim counts with exposure: Poisson loss, sample weights, a model of one's own in the pool."""

import numpy as np
from sklearn.linear_model import PoissonRegressor

from localma import CrossFitted, LocalMARegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 2))
exposure = rng.uniform(0.1, 1.0, 2000)
rate = np.exp(0.5 * X[:, 0] * (X[:, 1] > 0))  # the first input matters in one half only
claims = rng.poisson(rate * exposure)
theirs, ours, new = slice(0, 800), slice(800, 1400), slice(1400, None)


def fitted(rows):
    """A rate model of the claims per exposure of some of the first 800 policies."""
    chosen = np.flatnonzero(rows[theirs])
    target = claims[chosen] / exposure[chosen]
    return PoissonRegressor(alpha=1e-3).fit(X[chosen], target, sample_weight=exposure[chosen])


candidates = {
    "upper half": fitted(X[:, 1] > 0),
    "lower half": fitted(X[:, 1] <= 0),
    "ours": CrossFitted(PoissonRegressor(alpha=1e-3)),
}
model = LocalMARegressor(candidates, loss="poisson", random_state=0)
model.fit(X[ours], claims[ours] / exposure[ours], sample_weight=exposure[ours])
print(model.verdict_)
for name, prediction in {
    **{name: model.pool_.predict(X[new])[:, m] for m, name in enumerate(model.candidate_names_)},
    "combined": model.predict(X[new]),
}.items():
    print(f"{name}: mean squared error of the rate {np.mean((prediction - rate[new]) ** 2):.3f}")
