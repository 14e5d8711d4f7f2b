"""
Neighbouring rows: a gain that does not come true
=================================================

Errors of forecasts last: a model that is too high now is too high in the next hour. If rows are
shuffled before they are held out, the gate is judged between hours that it was trained on, and it
only has to remember. By default LocalMA looks for such rows and holds out whole blocks of them.
"""

# %%
# Three forecasts whose errors decay slowly, and inputs that change slowly too. The errors do not
# depend on the inputs, so no local weights are better than fixed weights in the hours that follow.
import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMARegressor

rng = np.random.default_rng(0)


def slow_series(n_hours, n_columns, memory=0.95):
    series = rng.normal(size=(n_hours, n_columns))
    for hour in range(1, n_hours):
        series[hour] = memory * series[hour - 1] + np.sqrt(1 - memory**2) * series[hour]
    return series


n_hours = 4000
weather = slow_series(n_hours, 3)
load = 2 * weather[:, 0] + weather[:, 1] + 0.5 * rng.normal(size=n_hours)
P = load[:, np.newaxis] + slow_series(n_hours, 3)
labelled, later = slice(0, 1000), slice(1000, n_hours)

# %%
# With shuffled rows the verdict claims a gain:
shuffled = LocalMARegressor(folds="shuffled", random_state=0)
shuffled.fit(weather[labelled], load[labelled], predictions=P[labelled])
print(shuffled.verdict_)

# %%
# By default the dependence is found, and the verdict is about new hours:
default = LocalMARegressor(random_state=0)
default.fit(weather[labelled], load[labelled], predictions=P[labelled])
print(default.verdict_)

# %%
# The claims, and the gains in the 3,000 hours that follow, in parts of the error of fixed weights:
fixed = LocalMARegressor(gate="global").fit(
    weather[labelled], load[labelled], predictions=P[labelled]
)


def mean_squared_error(model):
    return np.mean((load[later] - model.predict(weather[later], predictions=P[later])) ** 2)


models = {"shuffled rows": shuffled, "blocks (default)": default}
claimed = [m.locality_gain_.value / m.locality_gain_.global_risk for m in models.values()]
came_true = [1 - mean_squared_error(m) / mean_squared_error(fixed) for m in models.values()]
for name, claim, truth in zip(models, claimed, came_true, strict=True):
    print(f"local weights, {name}: claimed {claim:+.0%}, came true {truth:+.0%}")

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
places = np.arange(len(models))
ax.bar(places - 0.2, claimed, width=0.35, label="claimed")
ax.bar(places + 0.2, came_true, width=0.35, label="came true")
ax.axhline(0, color="grey", linewidth=1)
ax.set(xticks=places, xticklabels=models, ylabel="gain of local weights")
ax.yaxis.set_major_formatter("{x:+.0%}")
ax.legend(frameon=False)
plt.show()
