"""
Large samples on disk
=====================

The sample may be larger than memory: arrays that are mapped from files are read in chunks. The
time of a fit grows slowly with the number of rows.
"""

# %%
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMARegressor

folder = tempfile.TemporaryDirectory()


def map_sample(n_rows):
    """Write a sample to disk, and map it: inputs (n, 10), predictions (n, 3), targets (n,)."""
    rng = np.random.default_rng(0)
    shapes = {"X": (n_rows, 10), "P": (n_rows, 3), "y": (n_rows,)}
    X, P, y = (
        np.lib.format.open_memmap(Path(folder.name) / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in shapes.items()
    )
    X[:] = rng.normal(size=X.shape)
    P[:] = X[:, :3] + X[:, 3:6] ** 2
    best = np.argmax(X[:, 6:9], axis=1)
    y[:] = P[np.arange(n_rows), best] + 0.5 * rng.normal(size=n_rows)
    return X, P, y


# %%
sizes, seconds = [1_000, 10_000, 100_000, 400_000], []
for n_rows in sizes:
    X, P, y = map_sample(n_rows)
    start = time.perf_counter()
    model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
    seconds.append(time.perf_counter() - start)
print(model.verdict_)

# %%
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.loglog(sizes, seconds, marker="o")
ax.set(xlabel="number of labelled rows", ylabel="seconds to fit", ylim=(0.01, 100))
plt.show()
del X, P, y
folder.cleanup()
