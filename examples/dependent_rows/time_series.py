"""
Time series: forecasts that are good at different hours
=======================================================

The rows are in the order of time and the future is to be predicted. Use a splitter that always
judges on later rows, so that the verdict is about the future too.
"""

# %%
# Two forecasters of an hourly load: one repeats yesterday, one follows the temperature.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from localma import LocalMARegressor

rng = np.random.default_rng(0)
hours = np.arange(24 * 400)
hour_of_day = hours % 24
noise = np.zeros(len(hours))
for t in range(1, len(hours)):
    noise[t] = 0.8 * noise[t - 1] + rng.normal()
temperature = 10 * np.sin(2 * np.pi * hours / (24 * 365)) + noise
daylight = (hour_of_day >= 7) & (hour_of_day < 19)
load = 50 + 8 * daylight - temperature * daylight + rng.normal(size=len(hours))

yesterday = np.roll(load, 24)
by_temperature = 58 - temperature
P = np.column_stack([yesterday, by_temperature])
X = np.column_stack(
    [np.sin(2 * np.pi * hour_of_day / 24), np.cos(2 * np.pi * hour_of_day / 24), temperature]
)
labelled, new = slice(24, 24 * 300), slice(24 * 300, None)

# %%
# ``cv`` takes any splitter of scikit-learn. Each fold is judged on the rows that follow its
# training rows.
model = LocalMARegressor(cv=TimeSeriesSplit(5), random_state=0)
model.fit(X[labelled], load[labelled], predictions=P[labelled])
print(model.verdict_)

# %%
# The temperature model is trusted during the day. At night the load does not depend on the
# temperature.
weights = model.predict_weights(X[new])
by_hour = [weights[hour_of_day[new] == hour, 1].mean() for hour in range(24)]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.step(range(24), by_hour, where="mid")
ax.set(xlabel="hour of the day", ylabel="mean weight of the temperature model", ylim=(0, 1))
plt.show()

# %%
# Mean squared error on the later rows:
fixed = LocalMARegressor(gate="global").fit(X[labelled], load[labelled], predictions=P[labelled])
for name, fitted in {"fixed weights": fixed, "local weights": model}.items():
    error = load[new] - fitted.predict(X[new], predictions=P[new])
    print(f"{name}: {np.mean(error**2):.2f}")
