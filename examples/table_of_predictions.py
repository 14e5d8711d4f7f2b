"""A table with a column per model: who is trusted where, without any model. Needs pandas."""

import numpy as np
import pandas as pd

from localma import Column, LocalMARegressor

rng = np.random.default_rng(0)
area, centre = rng.uniform(20, 150, 400), rng.uniform(0, 1, 400)
rent = 30 * area * (1 + centre) + 200 * rng.normal(size=400)
table = pd.DataFrame(
    {
        "area": area,
        "centre": centre,
        "pred_suburb": 30 * area,  # right at the edge of the town
        "pred_city": 60 * area,  # right in its middle
    }
)

model = LocalMARegressor({"all": Column("pred_*")}, random_state=0).fit(table[:300], rent[:300])
print(model.verdict_)
weights = model.set_output(transform="pandas").predict_weights(table[300:])
print(weights.assign(centre=table["centre"]).sort_values("centre").round(2).iloc[::20])
