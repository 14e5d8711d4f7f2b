"""Two classifiers that know different classes, combined by label."""

import warnings

from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from localma import LocalMAClassifier

X, y = load_wine(return_X_y=True)
theirs, X, labels, y = train_test_split(X, y, train_size=0.5, stratify=y, random_state=0)
labelled, new, known, truth = train_test_split(X, y, train_size=0.5, stratify=y, random_state=0)

some = labels != 2
candidates = {
    "knows 0 and 1": make_pipeline(StandardScaler(), LogisticRegression()).fit(
        theirs[some], labels[some]
    ),
    "knows all, badly": RandomForestClassifier(3, max_depth=1, random_state=0).fit(theirs, labels),
}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = LocalMAClassifier(candidates, cv=3, random_state=0).fit(labelled, known)
print(caught[0].message)
for name, candidate in candidates.items():
    print(f"{name}: accuracy {candidate.score(new, truth):.2f}")
print(f"combined: accuracy {model.score(new, truth):.2f}")
print(model.verdict_)
