"""Own models compared with stacking and boosting, on simulated errors of several kinds.

``python -m benchmarks.own squared_error,poisson 100,300,1000 4`` needs LightGBM. A line is a cell:
the risk of each method relative to global weights in percent, the share of fits whose verdict
mentions a shared error, and processor seconds.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from time import process_time

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV, RidgeCV, TweedieRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from localma import LocalMAClassifier, LocalMARegressor
from localma.gates import Labelled
from localma.gates.constant import find_global_weights
from localma.losses import get_loss

Array = NDArray[np.float64]

KINDS = ("nothing", "unequal", "offset", "scale", "bias", "local", "weak")
M, P_INPUTS, N_NEW = 5, 6, 3_000
OBJECTIVES = {
    "squared_error": "regression",
    "poisson": "poisson",
    "gamma": "gamma",
    "cross_entropy": "binary",
}


def simulate(kind: str, loss: str, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Inputs (n, p), predictions (n, M) or (n, M, 2), and targets (n,)."""
    X = rng.uniform(-1, 1, (n, P_INPUTS))
    truth = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] ** 2
    errors = 0.4 * rng.normal(size=(n, M)) + 0.2 * rng.normal(size=(n, 1))
    bias = 1.2 * (np.abs(X[:, 3]) > 0.5) * np.sign(X[:, 4])
    near = X[:, :1] * (np.arange(M) % 2 * 2 - 1) > 0
    scores = truth[:, None] + {
        "offset": errors + 0.8,
        "scale": 0.5 * (errors - truth[:, None]),
        "bias": errors + bias[:, None],
        "unequal": errors * np.linspace(0.3, 3, M),
        "local": np.where(near, 0.3, 2.0) * errors,
        "weak": 1.5 * errors - 0.7 * truth[:, None],
    }.get(kind, errors)
    if loss == "squared_error":
        return X, scores, truth + 0.7 * rng.normal(size=n)
    if loss == "poisson":
        return X, np.exp(scores), rng.poisson(np.exp(truth)).astype(float)
    if loss == "gamma":
        return X, np.exp(scores), np.exp(truth) * rng.gamma(2, 0.5, n)
    second = 1 / (1 + np.exp(-1.5 * scores))
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-1.5 * truth))).astype(float)
    return X, np.stack([1 - second, second], axis=2), y


def boosted(loss: str, X: Array, y: Array, new: Array) -> Array:
    """Predictions of LightGBM, with the number of trees from five folds."""
    import lightgbm

    leaf = max(3, min(20, len(y) // 20))
    options = {"objective": OBJECTIVES[loss], "learning_rate": 0.05, "num_leaves": 15}
    options |= {"min_data_in_leaf": leaf, "verbose": -1, "num_threads": 1}
    stop = lightgbm.early_stopping(20, verbose=False)
    table = lightgbm.Dataset(X, y)
    folds = lightgbm.cv(options, table, 300, nfold=5, stratified=False, callbacks=[stop])
    rounds = len(next(iter(folds.values())))
    model = lightgbm.train(options, lightgbm.Dataset(X, y), rounds)
    return np.asarray(model.predict(new))


def stacked(loss: str, P: Array, y: Array, new: Array) -> Array:
    """Predictions of a ridge stack on the scale of the loss; P, new : (n, M) scores."""
    if loss == "squared_error":
        return np.asarray(RidgeCV(np.logspace(-3, 4, 15)).fit(P, y).predict(new))
    if loss == "cross_entropy":
        model = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=6, cv=4))
        return np.asarray(model.fit(P, y).predict_proba(new)[:, 1])
    power = {"poisson": 1, "gamma": 2}[loss]
    tweedie = TweedieRegressor(power=power, link="log", max_iter=1000)
    grid = {"tweedieregressor__alpha": [1e-4, 1e-2, 1e-1, 1]}
    search = GridSearchCV(make_pipeline(StandardScaler(), tweedie), grid, cv=4)
    return np.asarray(search.fit(P, y).predict(new))


def scores_of(loss: str, P: Array) -> Array:
    """Predictions on the scale of the loss: (n, M)."""
    if loss == "squared_error":
        return P
    if loss == "cross_entropy":
        return np.log(np.maximum(P[:, :, 1], 1e-3) / np.maximum(P[:, :, 0], 1e-3))
    return np.log(np.maximum(P, 1e-3))


def replicate(kind: str, loss: str, n: int, seed: int) -> dict[str, float]:
    """Risks on new rows by method, processor times, and whether the verdict has the remark."""
    X, P, y = simulate(kind, loss, n + N_NEW, np.random.default_rng([seed, n, 7]))
    is_class = loss == "cross_entropy"
    named = get_loss("bernoulli" if is_class else loss)
    means = P[:, :, 1] if is_class else P
    train, new = slice(0, n), slice(n, None)

    def risk(prediction: Array) -> float:
        return float(named.value(y[new], np.asarray(prediction)).mean())

    sample = Labelled.of(X[train], means[train][:, :, None], y[train][:, None], loss=named)
    scores = scores_of(loss, P)
    best = sample.best_candidate(None)
    table = np.hstack([X, means])
    start = process_time()
    found = {"lightgbm": risk(boosted(loss, table[train], y[train], table[new]))}
    found["seconds lightgbm"] = process_time() - start
    found |= {
        "global": risk(means[new] @ find_global_weights(sample)),
        "equal": risk(means[new].mean(axis=1)),
        "best": risk(means[new][:, best]),
        "direct": risk(boosted(loss, X[train], y[train], X[new])),
        "ridge": risk(stacked(loss, scores[train], y[train], scores[new])),
    }
    estimator = LocalMAClassifier if is_class else LocalMARegressor
    for own in (None, "auto"):
        model = estimator(loss=loss, own=own, random_state=seed)
        start = process_time()
        model.fit(X[train], y[train], predictions=P[train])
        name = "auto" if own is None else "auto + own"
        found[f"seconds {name}"] = process_time() - start
        if is_class:
            found[name] = risk(model.predict_proba(X[new], predictions=P[new])[:, 1])
        else:
            found[name] = risk(model.predict(X[new], predictions=P[new]))
        if own is None:
            found["remark"] = float(model.shared_error_ is not None)
    return found


def main(losses: str, sizes: str, replicates: str) -> None:
    """Print one line for each cell, then the mean and the worst cell."""
    warnings.simplefilter("ignore")
    behind = {}
    rivals = ("global", "equal", "best", "direct", "ridge", "lightgbm")
    for loss in losses.split(","):
        for kind in KINDS:
            for n in map(int, sizes.split(",")):
                columns = defaultdict(list)
                for seed in range(int(replicates)):
                    for name, value in replicate(kind, loss, n, seed).items():
                        columns[name].append(value)
                mean = {name: float(np.mean(values)) for name, values in columns.items()}
                best = min(mean[name] for name in rivals)
                behind[loss, kind, n] = 100 * (mean["auto + own"] / best - 1)
                relative = (
                    f"{name} {100 * (mean[name] / mean['global'] - 1):+.1f}"
                    for name in (*rivals[1:], "auto", "auto + own")
                )
                seconds = (f"{k} {v:.2f}" for k, v in mean.items() if k.startswith("seconds"))
                print(
                    loss, kind, n, *relative, f"remark {mean['remark']:.2f}", *seconds, flush=True
                )
    worst = max(behind, key=lambda cell: behind[cell])
    print(f"mean {np.mean(list(behind.values())):+.1f} %, worst {worst} {behind[worst]:+.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
