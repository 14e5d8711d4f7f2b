"""
Counts with exposure: Poisson loss and weights
==============================================

Insurance claims are counts over different lengths of time. Predict the rate per year under the
Poisson loss, and pass the exposure as ``sample_weight``. An in-house model joins the pool with
``CrossFitted``: it is fitted on the labelled sample itself, out of fold.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import PoissonRegressor

from localma import CrossFitted, LocalMARegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 2))
exposure = rng.uniform(0.1, 1.0, 2000)  # years
rate = np.exp(
    0.5 * X[:, 0] * (X[:, 1] > 0)
)  # the first input matters only if the second is positive
claims = rng.poisson(rate * exposure)
first, labelled, new = slice(0, 800), slice(800, 1400), slice(1400, None)


def fit_rate_model(row_mask):
    """Fit claims per year on some of the first 800 policies."""
    rows = np.flatnonzero(row_mask[first])
    target = claims[rows] / exposure[rows]
    return PoissonRegressor(alpha=1e-3).fit(X[rows], target, sample_weight=exposure[rows])


candidates = {
    "upper half": fit_rate_model(X[:, 1] > 0),
    "lower half": fit_rate_model(X[:, 1] <= 0),
    "in-house": CrossFitted(PoissonRegressor(alpha=1e-3)),
}
model = LocalMARegressor(candidates, loss="poisson", random_state=0)
model.fit(X[labelled], claims[labelled] / exposure[labelled], sample_weight=exposure[labelled])
print(model.verdict_)

# %%
# The true rate is known in this simulation, so the predictions can be compared with it directly.
P = model.pool_.predict(X[new])
predictions = {name: P[:, m] for m, name in enumerate(model.candidate_names_)}
predictions["combined"] = model.predict(X[new])
for name, prediction in predictions.items():
    print(f"{name}: mean squared error of the rate {np.mean((prediction - rate[new]) ** 2):.3f}")

# %%
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.scatter(rate[new], predictions["combined"], s=8)
ax.axline((1, 1), slope=1, color="grey", linewidth=1)
ax.set(xlabel="true claims per year", ylabel="predicted claims per year")
plt.show()
