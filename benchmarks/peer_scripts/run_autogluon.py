"""AutoGluon's weighted ensemble: its greedy selection, with the size that its models use."""

import numpy as np
from autogluon.core.metrics import log_loss, make_scorer, mean_absolute_error, mean_squared_error
from autogluon.core.models.greedy_ensemble.ensemble_selection import EnsembleSelection
from serving import serve
from sklearn.metrics import mean_gamma_deviance, mean_poisson_deviance

SIZE = 25
METRICS = {
    "squared_error": mean_squared_error,
    "absolute_error": mean_absolute_error,
    "huber": mean_absolute_error,
    "poisson": make_scorer("poisson", mean_poisson_deviance, optimum=0, greater_is_better=False),
    "gamma": make_scorer("gamma", mean_gamma_deviance, optimum=0, greater_is_better=False),
}


def prepare(arrays):
    P, P_new, y = arrays["P"], arrays["P_new"], arrays["y"]
    kind = "regression"
    if P.ndim == 3:
        kind = "binary" if P.shape[2] == 2 else "multiclass"
    if kind == "binary":
        P, P_new = P[:, :, 1], P_new[:, :, 1]

    def work():
        metric = METRICS.get(str(arrays["loss"]), log_loss)
        ensemble = EnsembleSelection(SIZE, kind, metric)
        ensemble.fit(list(P.swapaxes(0, 1)), y, sample_weight=arrays.get("weight"))
        answer = ensemble.predict_proba(list(P_new.swapaxes(0, 1)))
        if kind == "binary":
            return {"predictions": np.column_stack([1.0 - answer, answer])}
        return {"predictions": answer}

    return work


serve(prepare)
