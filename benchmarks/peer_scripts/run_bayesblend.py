"""BayesBlend's stacking, which needs the log predictive density of each labelled row.

Probabilities and Poisson means have one. For squared errors it is a normal density, with the mean
squared error of each candidate as variance. Factors of a row that all candidates share are left
out, because no weight depends on them.
"""

import numpy as np
from bayesblend import MleStacking
from serving import serve


def log_densities(loss, P, y, weight):
    if P.ndim == 3:
        densities = np.log(np.maximum(P[np.arange(len(y)), :, y], 1e-15))
    elif loss == "poisson":
        densities = y[:, np.newaxis] * np.log(P) - P
    elif loss == "squared_error":
        squares = (y[:, np.newaxis] - P) ** 2
        variance = np.average(squares, axis=0, weights=weight)
        densities = -0.5 * (squares / variance + np.log(variance))
    else:
        raise ValueError(f"No density for {loss}.")
    densities = densities if weight is None else weight[:, np.newaxis] * densities
    return densities - densities.max(axis=1, keepdims=True)


def prepare(arrays):
    P, P_new = arrays["P"], arrays["P_new"]

    def work():
        densities = log_densities(str(arrays["loss"]), P, arrays["y"], arrays.get("weight"))
        named = {f"m{m}": column for m, column in enumerate(densities.T)}
        fitted = MleStacking.from_lpd(named).fit()
        weights = np.array([fitted.weights[name].item() for name in named])
        return {"predictions": np.einsum("m,nm...->n...", weights, P_new)}

    return work


serve(prepare)
