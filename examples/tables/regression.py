"""
Tabular regression: two models, each good in one region
=======================================================

Two rent models were trained in different parts of a town. A sample of 300 flats with known rents
shows which model to trust where. Nothing is refitted: the models are used as they are.
"""

# %%
# The models
# ----------
# Each company trained its model on flats in its own part of the town.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

from localma import LocalMARegressor
from localma.inspection import evaluate

rng = np.random.default_rng(0)
n_flats = 2_000
distance = rng.uniform(0, 10, n_flats)  # kilometres from the centre
area = rng.uniform(20, 150, n_flats)  # square metres
X = np.column_stack([distance, area])
rent = area * (8 + 22 * np.exp(-distance / 3)) + 60 * rng.normal(size=n_flats)

first, labelled, new = slice(0, 800), slice(800, 1_100), slice(1_100, None)
central = distance[first] < 4
candidates = {
    "city": RandomForestRegressor(random_state=0).fit(X[first][central], rent[first][central]),
    "suburbs": LinearRegression().fit(X[first][~central], rent[first][~central]),
}

# %%
# The combination
# ---------------
# ``fit`` learns the weights from the labelled sample. The verdict says whether weights that depend
# on the flat are better than fixed weights, and by how much.
model = LocalMARegressor(candidates, random_state=0).fit(X[labelled], rent[labelled])
print(model.verdict_)

# %%
# All methods on new flats, with standard errors:
comparison = evaluate(model, X[new], rent[new], control=False)
print(comparison)

# %%
# The weights
# -----------
# The weight of the city model falls with the distance from the centre.
weights = model.predict_weights(X[new])
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
points = ax.scatter(distance[new], weights[:, 0], c=area[new], s=8)
ax.set(xlabel="distance from the centre (km)", ylabel="weight of the city model", ylim=(0, 1))
fig.colorbar(points, label="area (square metres)")
plt.show()
