"""
A table with one column per model
=================================

You need no model objects. If the predictions are columns of a table, ``Column`` uses them as they
are. Needs pandas.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from localma import Column, LocalMARegressor
from localma.inspection import summarize

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

# %%
# Weights of single rows, as a data frame:
weights = model.set_output(transform="pandas").predict_weights(table[300:])
print(weights.assign(centre=table["centre"]).sort_values("centre").round(2).iloc[::20])

# %%
# A summary describes in words where each model is trusted, and draws it.
summary = summarize(model, table[300:], rent[300:], control=False)
for region in summary.regions.regions:
    print(region.sentence)
summary.effects.plot()
plt.show()
