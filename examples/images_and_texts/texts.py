"""
Texts: a gate that reads words
==============================

Two filters for comments: one was trained on comments about sports, one on comments about cooking.
The gate reads the text. Here it uses features that you compute, such as embeddings; ``TextGate``
reads a transformer from a folder and can fine-tune it.
"""

# %%
# The gate learns from any features of a text. Counts of words are enough for this example.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from localma import LocalMAClassifier

rng = np.random.default_rng(0)
polite = ["thanks", "please", "kind", "welcome", "nice"]
rude = ["stupid", "awful", "hate", "idiot", "trash"]
sports, cooking = ["goal", "match", "team", "league"], ["oven", "salt", "recipe", "dough"]


def write(topic, toxic):
    """Write a made-up comment about a topic."""
    words = [*rng.choice(topic, 6), *rng.choice(rude if toxic else polite, 2)]
    return " ".join(rng.permutation(words))


toxic = rng.integers(0, 2, 400)
is_sports = rng.integers(0, 2, 400)
texts = np.array(
    [write(sports if s else cooking, t) for s, t in zip(is_sports, toxic, strict=True)]
)
# Each filter is confident in its own topic, and guesses in the other one.
in_topic = np.where(toxic, 0.95, 0.05)
P = {
    "sports filter": np.where(is_sports, in_topic, rng.uniform(0.3, 0.7, 400)),
    "cooking filter": np.where(is_sports, rng.uniform(0.3, 0.7, 400), in_topic),
}
P = {name: np.column_stack([1 - p, p]) for name, p in P.items()}
labelled, new = slice(0, 250), slice(250, None)

# %%
features = make_pipeline(TfidfVectorizer(), TruncatedSVD(5, random_state=0)).fit(texts[labelled])
model = LocalMAClassifier(random_state=0)
model.fit(
    features.transform(texts[labelled]),
    toxic[labelled],
    predictions={name: p[labelled] for name, p in P.items()},
)
print(model.verdict_)

# %%
weights = model.predict_weights(features.transform(texts[new]))
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.hist([weights[is_sports[new] == s, 0] for s in (0, 1)], bins=20, label=["cooking", "sports"])
ax.set(xlabel="weight of the sports filter", ylabel="number of texts")
ax.legend(title="topic of the text")
plt.show()
