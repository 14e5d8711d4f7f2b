"""
A pool that breaks
==================

Five models predict rents. One after another fails: it hangs, raises an error, or returns NaN. Each
answer comes within the deadline, and its record says what happened.
"""

# %%
# Five models, each good in another part of the city. Each can be broken from outside.
import time

import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMARegressor

broken = {}


def model_of(name, centre):
    """Make a model that is good near a distance from the centre."""

    def predict(X):
        trouble = broken.get(name)
        if trouble == "hangs":
            time.sleep(3600)
        if trouble == "raises":
            raise ConnectionError("no route to host")
        if trouble == "NaN":
            return np.full(len(X), np.nan)
        return 900 - 60 * X[:, 0] + 40 * (X[:, 0] - centre) ** 2

    return predict


rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(900, 2))  # distance from the centre, age
rent = 900 - 60 * X[:, 0] + 40 * rng.normal(size=900)
candidates = {f"model {k}": model_of(f"model {k}", 2.0 * k + 1.0) for k in range(5)}
model = LocalMARegressor(candidates, random_state=0, missing="renormalize", robust=True)
model.fit(X[:500], rent[:500])
print(model.verdict_)

# %%
# While all models work, an answer is a prediction with a record.
print(model.answer(X[500:], deadline=1.0))

# %%
# Now the models break, one after another. The answer still comes, and names the ones that failed.
troubles = {"model 0": "raises", "model 2": "NaN", "model 4": "hangs"}
risks, labels = [], []
for name, trouble in {"": "", **troubles}.items():
    if name:
        broken[name] = trouble
    answer = model.answer(X[500:], deadline=1.0)
    risks.append(np.mean((answer.prediction - rent[500:]) ** 2))
    labels.append(f"{name} {trouble}".strip() or "all work")
    print(f"{labels[-1]}: {answer.seconds:.2f} s, mean squared error {risks[-1]:.0f}")
print(answer)

# %%
# A candidate that keeps failing is left alone for a while.
for _ in range(5):
    model.answer(X[500:501], deadline=0.2)
print(model.health())

# %%
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.bar(labels, risks)
ax.set(ylabel="mean squared error", xlabel="what broke, from left to right")
plt.show()
