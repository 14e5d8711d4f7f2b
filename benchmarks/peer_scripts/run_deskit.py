"""deskit's KNORA-U, by exact nearest neighbours, on given probabilities."""

from deskit.des.knorau import KNORAU
from serving import serve


def by_name(P):
    return {f"m{m}": P[:, m] for m in range(P.shape[1])}


def prepare(arrays):
    router = KNORAU(task="classification", metric="log_loss", mode="min", k=10)
    router.fit(arrays["X"], arrays["y"], by_name(arrays["P"]))
    X, predictions = arrays["X_new"], by_name(arrays["P_new"])
    router.predict(X[:10], {name: P[:10] for name, P in predictions.items()})
    return lambda: {"probabilities": router.predict(X, predictions)}


serve(prepare)
