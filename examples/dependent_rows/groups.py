"""
Groups: several rows from one patient
=====================================

Rows of one patient are alike. If they are in several folds, the gate learns patients by heart and
the verdict claims a gain that no new patient will see. Pass ``groups`` and whole patients are
held out. By default LocalMA also looks for dependent rows by itself, but it cannot find all of
them.
"""

# %%
# Each of 60 patients has ten rows. One device is more accurate for some patients than for others,
# but nothing about a *new* patient says which.
import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMARegressor

rng = np.random.default_rng(1)
n_patients, n_visits = 60, 10
patient = np.repeat(np.arange(n_patients), n_visits)
features = rng.normal(size=(n_patients, 4))[patient] + 0.01 * rng.normal(size=(len(patient), 4))
truth = rng.normal(size=len(patient))
prefers_first = rng.random(n_patients)[patient] < 0.5
P = np.column_stack(
    [
        truth + np.where(prefers_first, 0.2, 1.0) * rng.normal(size=len(patient)),
        truth + np.where(prefers_first, 1.0, 0.2) * rng.normal(size=len(patient)),
    ]
)

# %%
# With shuffled rows the verdict is wrong: it claims a gain from rows of the same patients.
shuffled = LocalMARegressor(folds="shuffled", random_state=0).fit(features, truth, predictions=P)
print("shuffled rows: ", shuffled.verdict_)

# %%
# With groups it is right:
grouped = LocalMARegressor(random_state=0).fit(features, truth, predictions=P, groups=patient)
print("whole patients:", grouped.verdict_)

# %%
gains = {"shuffled rows": shuffled.locality_gain_, "whole patients": grouped.locality_gain_}
fig, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
for position, gain in enumerate(gains.values()):
    ax.errorbar(gain.value, position, xerr=2 * gain.standard_error, marker="o", capsize=3)
ax.axvline(0, color="grey", linewidth=1)
ax.set(yticks=range(2), yticklabels=gains, ylim=(-0.5, 1.5))
ax.set_xlabel("estimated gain of local weights, ± two standard errors")
plt.show()
