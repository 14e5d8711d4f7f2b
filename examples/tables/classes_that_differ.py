"""
Classifiers that know different classes
=======================================

Candidates are aligned by the names of their classes, not by the position of a column. A
classifier that has never met a class gives it probability zero, and the gate learns where that
costs accuracy.
"""

# %%
# One classifier knows two of the three wines. The other one knows all three, but it is weak.
import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from localma import LocalMAClassifier

X, y = load_wine(return_X_y=True)
X_first, X, y_first, y = train_test_split(X, y, train_size=0.5, stratify=y, random_state=0)
X_labelled, X_new, y_labelled, y_new = train_test_split(
    X, y, train_size=0.5, stratify=y, random_state=0
)

two_classes = y_first != 2
candidates = {
    "knows 0 and 1": make_pipeline(StandardScaler(), LogisticRegression()).fit(
        X_first[two_classes], y_first[two_classes]
    ),
    "knows all": RandomForestClassifier(3, max_depth=1, random_state=0).fit(X_first, y_first),
}

# %%
# ``fit`` warns that a class is missing from one candidate. This is expected here.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = LocalMAClassifier(candidates, cv=3, random_state=0).fit(X_labelled, y_labelled)
print(caught[0].message)
print(model.verdict_)

# %%
# The combination is better than either candidate.
accuracy = {name: candidate.score(X_new, y_new) for name, candidate in candidates.items()}
accuracy["combined"] = model.score(X_new, y_new)
fig, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
bars = ax.barh(list(accuracy), list(accuracy.values()))
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(xlabel="accuracy on new rows", xlim=(0, 1.1))
plt.show()
