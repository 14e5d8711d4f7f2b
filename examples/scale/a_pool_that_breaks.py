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
# For comparison: the average of the models that still work, and the best of them alone.
troubles = {"model 0": "raises", "model 2": "NaN", "model 4": "hangs"}
errors = {"this answer": [], "equal weights of the rest": [], "best of the rest alone": []}
labels = []


def root_mean_squared(prediction):
    """Error of a prediction in euros."""
    return np.sqrt(np.mean((prediction - rent[500:]) ** 2))


for name, trouble in {"all": "work", **troubles}.items():
    if name in candidates:
        broken[name] = trouble
    labels.append(f"{name}\n{trouble}")
    answer = model.answer(X[500:], deadline=1.0)
    rest = [candidates[other](X[500:]) for other in candidates if other not in broken]
    errors["this answer"].append(root_mean_squared(answer.prediction))
    errors["equal weights of the rest"].append(root_mean_squared(np.mean(rest, axis=0)))
    errors["best of the rest alone"].append(min(map(root_mean_squared, rest)))
    print(f"{name} {trouble}: {answer.seconds:.2f} s, error {errors['this answer'][-1]:.0f} euros")
print(answer)

# %%
# A candidate that keeps failing is left alone for a while.
for _ in range(5):
    model.answer(X[500:501], deadline=0.2)
print(model.health())

# %%
# All rows are answered within a second, also while three of the five models fail.
fig, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
for key, values in errors.items():
    ax.plot(labels, values, "o-", label=key)
ax.set(ylabel="root mean squared error, euros", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
