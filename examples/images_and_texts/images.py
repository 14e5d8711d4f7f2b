"""
Images: a gate that reads pixels
================================

Two classifiers of images: one works at night, one by day. ``ImageGate`` learns from the pixels
which one to trust. Needs torch.
"""

# %%
# Made-up images: a bright or a dark background, and a pattern that is the class. The candidates
# stand in for trained networks. Each knows the answer in its own light only.
import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMAClassifier
from localma.gates import ImageGate

rng = np.random.default_rng(0)
n_images = 120
light = rng.uniform(size=n_images)
label = rng.integers(0, 2, n_images)
pixels = 200 * light[:, None, None, None] + rng.uniform(0, 55, (n_images, 16, 16, 3))
images = pixels.astype(np.uint8)
right_answer = np.where(label, 0.9, 0.1)
night = np.where(light < 0.5, right_answer, 0.5)
day = np.where(light >= 0.5, right_answer, 0.5)
probabilities = {
    "night": np.column_stack([1 - night, night]),
    "day": np.column_stack([1 - day, day]),
}
labelled, new = slice(0, 80), slice(80, None)

# %%
gate = ImageGate("cnn", n_epochs=15, batch_size=16, learning_rate=0.003)
model = LocalMAClassifier(gate=gate, random_state=0)
model.fit(
    images[labelled],
    label[labelled],
    predictions={name: p[labelled] for name, p in probabilities.items()},
)
weights = model.predict_weights(images[new])
print("Local weights follow the light: the weight of 'day' is")
print(f"{weights[light[new] < 0.3, 1].mean():.2f} in the dark,", end=" ")
print(f"{weights[light[new] > 0.7, 1].mean():.2f} in bright images.")

# %%
fig, axes = plt.subplots(1, 5, figsize=(8, 2), layout="constrained")
for ax, row in zip(axes, np.argsort(light[new])[:: len(weights) // 5], strict=False):
    ax.imshow(images[new][row])
    ax.set_title(f"day: {weights[row, 1]:.2f}")
    ax.axis("off")
plt.show()
