"""
Shared errors: correct what all candidates get wrong
====================================================

Three simulations of a river were calibrated in wetter years, so all of them predict too much water.
No weights can remove that. Models that learn from the labelled days can.
"""

# %%
# The candidates
# --------------
# Each simulation has its own errors. The offset and the scale are wrong in all of them.
import numpy as np

from localma import LocalMARegressor
from localma.inspection import evaluate

rng = np.random.default_rng(0)
n_days = 1_500
X = rng.uniform(0, 1, (n_days, 3))  # rain of the day, rain of the week, temperature
flow = np.exp(1.5 * X[:, 0] + X[:, 1] - 0.8 * X[:, 2])
measured = flow * rng.gamma(20, 1 / 20, n_days)
candidates = {
    "upland": lambda X: 1.9 * np.exp(1.0 * X[:, 0] + 0.8 * X[:, 1] - 0.6 * X[:, 2]),
    "valley": lambda X: 1.8 * np.exp(1.2 * X[:, 0] + 0.5 * X[:, 1] - 0.4 * X[:, 2]),
    "delta": lambda X: 2.0 * np.exp(0.9 * X[:, 0] + 0.9 * X[:, 1] - 0.9 * X[:, 2]),
}
labelled, new = slice(0, 300), slice(300, None)

# %%
# The verdict
# -----------
# With these candidates alone, the verdict ends with a remark.
model = LocalMARegressor(candidates, loss="gamma", random_state=0)
model.fit(X[labelled], measured[labelled])
print(model.verdict_)

# %%
# The correction
# --------------
# ``own="auto"`` adds three cross-fitted candidates. Their corrections are factors here, because
# the gamma deviance is for positive amounts.
corrected = LocalMARegressor(candidates, loss="gamma", own="auto", random_state=0)
corrected.fit(X[labelled], measured[labelled])
for name, weight in zip(corrected.candidate_names_, corrected.mean_weights_, strict=True):
    print(f"{name:20} {weight:.2f}")

# %%
# Mean deviance on the days that were not labelled:
for fitted in (model, corrected):
    print(evaluate(fitted, X[new], measured[new], control=False))
