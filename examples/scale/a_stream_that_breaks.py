"""
A stream that breaks
====================

A model meets 6,000 rows. First all is well. Then an input drifts, and later one of the candidates
becomes worse. A monitor looks after each batch, and says when to act, and on what.
"""

# %%
# Three models predict the demand for electricity, each good at another temperature.
import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMARegressor
from localma.production import Monitor

rng = np.random.default_rng(0)


def draw(n, warmer=0.0):
    """Draw temperatures and hours, the demand, and the predictions of the three models."""
    X = np.column_stack([rng.normal(12.0 + warmer, 8.0, n), rng.uniform(0, 24, n)])
    demand = 50 + 0.05 * (X[:, 0] - 15) ** 2 + 8 * np.sin(X[:, 1] / 24 * 2 * np.pi)
    centres = {"cold": 0.0, "mild": 12.0, "hot": 24.0}
    P = {
        name: demand + 0.2 * np.abs(X[:, 0] - centre) * rng.normal(size=n)
        for name, centre in centres.items()
    }
    return X, demand + 2 * rng.normal(size=n), P


X, demand, P = draw(600)
model = LocalMARegressor(random_state=0).fit(X, demand, predictions=P)
print(model.verdict_)

# %%
# After 2,000 rows it becomes warmer by half a standard deviation. After 4,000 rows "mild" becomes
# worse. Labels come at once here; they could also come later, by key.
monitor = Monitor(model, random_state=0)
evidence, said = [], []
for batch in range(60):
    X, demand, P = draw(100, warmer=4.0 if batch >= 20 else 0.0)
    if batch >= 40:
        P["mild"] = P["mild"] + 3.0 * rng.normal(size=100)
    monitor.observe(X, P, demand)
    report = monitor.report()
    evidence.append(report.evidence)
    if (report.action, report.is_alarm) not in said:
        said.append((report.action, report.is_alarm))
        print(f"After {report.rows} rows: {report.sentence}\n")

# %%
# The drift of the temperature is found, but no loss rises, because the weights follow the
# temperature. So there is nothing to do. When "mild" becomes worse, there is.
print(report)

# %%
# The sum of the evidence, and the mean loss of each block of rows.
figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 5))
above.semilogy(100 * np.arange(1, 61), np.clip(evidence, 1e-2, 1e6))
above.axhline(20, color="0.5", linestyle="--")
above.set_ylabel("evidence, cut off at $10^6$")
starts = [100 * block.start for block in report.blocks]
for m, name in enumerate(model.candidate_names_):
    below.plot(starts, [block.candidate_losses[m] for block in report.blocks], label=name)
below.plot(starts, [block.loss for block in report.blocks], "k", label="combination")
below.set_xlabel("rows")
below.set_ylabel("mean squared error")
below.legend()
plt.show()
