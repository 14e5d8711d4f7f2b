"""LightGBM with its defaults on inputs and predictions; the processor time of every fit."""

from time import process_time

import lightgbm
import numpy as np
from serving import serve


def prepare(arrays):
    X, y = arrays["X"], arrays["y"]
    seconds = []

    def fit():
        start = process_time()
        lightgbm.LGBMRegressor(n_jobs=int(arrays["threads"]), verbose=-1).fit(X, y)
        seconds.append(process_time() - start)
        return {"seconds": np.array(seconds[1:])}

    fit()  # loads and warms up
    return fit


serve(prepare)
