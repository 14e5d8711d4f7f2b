"""deskit by exact nearest neighbours: KNORA-U on probabilities, DEWS-I in regression."""

import numpy as np
from deskit.des.dewsi import DEWSI
from deskit.des.knorau import KNORAU
from serving import serve

METRICS = {
    "squared_error": "mse",
    "absolute_error": "mae",
    "huber": "mae",
    "poisson": lambda y, mean: mean - y * np.log(mean),
    "gamma": lambda y, mean: y / mean + np.log(mean),
}


def by_name(P):
    return {f"m{m}": P[:, m] for m in range(P.shape[1])}


def prepare(arrays):
    if arrays["P"].ndim == 3:
        router = KNORAU(task="classification", metric="log_loss", mode="min", k=10)
    else:
        metric = METRICS[str(arrays["loss"])]
        router = DEWSI(task="regression", metric=metric, mode="min")
    router.fit(arrays["X"], arrays["y"], by_name(arrays["P"]))
    X, predictions = arrays["X_new"], by_name(arrays["P_new"])
    router.predict(X[:10], {name: P[:10] for name, P in predictions.items()})
    return lambda: {"predictions": router.predict(X, predictions)}


serve(prepare)
