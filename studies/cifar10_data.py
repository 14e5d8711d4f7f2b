"""CIFAR-10: its images, their features by four frozen networks, and the four companies.

Images come from the folder of real data (its script ``cifar10/fetch`` downloads them), or from
their public source. All computed arrays are stored in the cache of `studies.kept`. A computation
can be stopped at any time: features are written a thousand images at a time.

The paper's networks are ResNet18, DenseNet121, GoogLeNet and EfficientNet_B0 with torchvision's
weights. If those are not available, EfficientNet-Lite 0, 1 and 2 and MobileNetV1 (a quarter of its
width) replace them, in this order. With LOCALMA_CIFAR10_NETWORKS=torchvision the paper's networks
are used, and torchvision downloads their weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlretrieve

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.storage.fingerprints import fingerprint
from studies.classifying import columns_of
from studies.kept import Kept, alone_in, cache_folder
from studies.safety_data import data_folder

Float32 = NDArray[np.float32]
Rows = NDArray[np.intp]

PUBLIC_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CHUNK = 1000
"""Number of images whose features are computed and written together."""

PIXELS = 64
"""Height and width to which images of 32 pixels are enlarged, bicubically."""

BATCH = 64
N_COMPONENTS = 256
HEAD_C = 0.003
"""Inverse strength of the L2 penalty of logistic regressions, on standardised features."""


@dataclass(frozen=True)
class Company:
    """A company: its frozen network, and the classes whose images it collects.

    network : name in `studies.mobile_networks`, with a weights file; or a name in torchvision.
    """

    network: str
    classes: tuple[str, ...]
    weights: str | None = None


OWN_CLASSES = (
    ("airplane", "automobile", "bird", "cat"),
    ("bird", "cat", "deer", "dog"),
    ("deer", "dog", "frog", "horse"),
    ("frog", "horse", "ship", "truck"),
)
CLASSES = tuple(dict.fromkeys(name for own in OWN_CLASSES for name in own))
"""All ten, in the order of their labels."""

STAND_INS = (
    ("tf_efficientnet_lite0", "tf_efficientnet_lite0_fp16.safetensors"),
    ("tf_efficientnet_lite1", "tf_efficientnet_lite1_fp16.safetensors"),
    ("tf_efficientnet_lite2", "tf_efficientnet_lite2_fp16.safetensors"),
    ("mobilenet_v1_025", "mobilenet_v1_025_keras.safetensors"),
)
PAPERS_OWN = ("resnet18", "densenet121", "googlenet", "efficientnet_b0")


def companies() -> tuple[Company, ...]:
    """The four companies, with the selected networks."""
    if os.environ.get("LOCALMA_CIFAR10_NETWORKS") == "torchvision":
        pairs = zip(PAPERS_OWN, OWN_CLASSES, strict=True)
        return tuple(Company(network, classes) for network, classes in pairs)
    stand_ins = zip(STAND_INS, OWN_CLASSES, strict=True)
    return tuple(Company(network, classes, file) for (network, file), classes in stand_ins)


@dataclass(frozen=True)
class Size:
    """Number of images that are used: the first ones of each part.

    others : images of other classes that a company has, in total.
    """

    n_train: int = 50_000
    n_test: int = 10_000
    others: int = 50


@dataclass(frozen=True)
class Images:
    """Training images, then test images: pixels (n, 32, 32, 3) of dtype uint8, labels (n,).

    content : digest of their file.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.intp]
    n_train: int
    content: str


# --- the images ----------------------------------------------------------------------------------


@cache
def all_images() -> Images:
    """Every image, training images first."""
    file = find_images()
    with np.load(file, allow_pickle=False) as parts:
        pixels = np.concatenate([parts["train_images"], parts["test_images"]])
        labels = np.concatenate([parts["train_labels"], parts["test_labels"]]).astype(np.intp)
        n_train = len(parts["train_labels"])
    return Images(pixels, labels, n_train, fingerprint(file))


def find_images() -> Path:
    """Find the file of all images in the cache; download it first if needed."""
    file = cache_folder() / "cifar10" / "cifar10.npz"
    if not file.exists():
        with alone_in(file.parent):
            if not file.exists():  # another worker may have downloaded it meanwhile
                _fetch(file)
    return file


def _fetch(file: Path) -> None:
    script = data_folder() / "cifar10" / "fetch"
    if script.exists():
        subprocess.run([sys.executable, script, file.parent], check=True, stdout=sys.stderr)
    else:
        _download(file)


def _download(file: Path) -> None:
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "cifar10.tar.gz"
        try:
            urlretrieve(PUBLIC_SOURCE, archive)
        except OSError as error:
            raise InvalidInputError(
                f"CIFAR-10 must be in {str(file.parent)!r}, in the folder of real data that "
                f"LOCALMA_DATA names, or at its public source {PUBLIC_SOURCE}, which did not "
                f"answer ({error}). Put cifar10.npz into the first of these."
            ) from error
        arrays = read_archive(archive)
    partial = file.with_suffix(".partial.npz")
    np.savez_compressed(partial, **arrays)
    partial.replace(file)


def read_archive(archive: Path) -> dict[str, NDArray[np.uint8]]:
    """Read the public archive: records of a label and 3,072 bytes, red, green, blue."""
    names = {"train": [f"data_batch_{k}.bin" for k in range(1, 6)], "test": ["test_batch.bin"]}
    arrays = {}
    with tarfile.open(archive) as tar:
        members = {Path(member.name).name: member for member in tar.getmembers()}
        for part, files in names.items():
            content = b"".join(tar.extractfile(members[name]).read() for name in files)  # type: ignore[union-attr]
            records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3073)
            pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            arrays |= {f"{part}_images": pixels, f"{part}_labels": records[:, 0]}
    return arrays


# --- features ------------------------------------------------------------------------------------


def rows_of(size: Size) -> tuple[Rows, Rows]:
    """Indices of the training and test images that are used."""
    images = all_images()
    test = np.arange(images.n_train, len(images.labels))
    return np.arange(images.n_train)[: size.n_train], test[: size.n_test]


def features(size: Size) -> Float32:
    """Features of the images by all networks, side by side: (n_train + n_test, d)."""
    parts = [_features_by(company, np.concatenate(rows_of(size))) for company in companies()]
    return np.concatenate(parts, axis=1)


def _features_by(company: Company, rows: Rows) -> Float32:
    """Features of images in increasing order of their indices: (n, d)."""
    return np.concatenate(
        [_chunk_by(company, c)[rows[rows // CHUNK == c] % CHUNK] for c in np.unique(rows // CHUNK)]
    )


def _chunk_by(company: Company, chunk: int) -> Float32:
    return kept_features(company).array(f"{chunk:03d}", lambda: _compute(company, chunk))


def kept_features(company: Company) -> Kept:
    """The stored features of one network, one array per chunk of images."""
    weights = _weights_file(company)
    return Kept(
        f"cifar10/features-{company.network}",
        {
            "images": all_images().content,
            "network": company.network,
            "weights": "torchvision" if weights is None else fingerprint(weights),
            "pixels": PIXELS,
            "chunk": CHUNK,
        },
    )


def _compute(company: Company, chunk: int) -> Float32:
    """Features of one chunk of images: (images, d)."""
    torch = optional("torch", extra="torch")
    network, mean, std = open_network(company)
    pixels = all_images().pixels[chunk * CHUNK : (chunk + 1) * CHUNK]
    parts = []
    with torch.inference_mode():
        for first in range(0, len(pixels), BATCH):
            batch = torch.from_numpy(pixels[first : first + BATCH]).permute(0, 3, 1, 2) / 255.0
            large = torch.nn.functional.interpolate(batch, size=(PIXELS, PIXELS), mode="bicubic")
            parts.append(network((large.clamp(0.0, 1.0) - mean) / std).float().numpy())
    return np.concatenate(parts)


@cache
def open_network(company: Company) -> tuple[Any, Any, Any]:
    """A frozen network without its last layer, and the mean and spread of its pixels."""
    torch = optional("torch", extra="torch")
    weights = _weights_file(company)
    if weights is None:
        network = _from_torchvision(company.network, weights="IMAGENET1K_V1")
        mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    else:
        from studies.mobile_networks import MEAN, STD, load_features

        network, mean, std = load_features(company.network, weights), MEAN, STD
    columns = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (mean, std))
    return network.float().eval(), *columns


def _from_torchvision(name: str, weights: str | None) -> Any:
    torch, models = (optional(m, extra="vision") for m in ("torch", "torchvision.models"))
    network = models.get_model(name, weights=weights)
    last = {"resnet18": "fc", "googlenet": "fc"}.get(name, "classifier")
    setattr(network, last, torch.nn.Identity())
    return network


def _weights_file(company: Company) -> Path | None:
    return None if company.weights is None else data_folder() / "image_models" / company.weights


# --- heads and components ------------------------------------------------------------------------


def new_head() -> Pipeline:
    """An unfitted multinomial logistic regression with L2 penalty on standardised features."""
    # Features of a chunk of images are always a copy, which may be overwritten.
    return make_pipeline(
        StandardScaler(copy=False), LogisticRegression(C=HEAD_C, max_iter=1000, tol=1e-3)
    )


def halves(size: Size) -> tuple[Rows, Rows]:
    """Two random halves of the training images, always the same."""
    train, _ = rows_of(size)
    order = np.random.default_rng(0).permutation(train)
    return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


def collected_by(company: Company, rows: Rows, others: int, seed: int) -> Rows:
    """Images that a company collects: all of its classes, and a few others at random."""
    own = np.isin(all_images().labels[rows], [CLASSES.index(name) for name in company.classes])
    more = np.random.default_rng(seed).permutation(rows[~own])[:others]
    return np.sort(np.concatenate([rows[own], more]))


def probabilities(size: Size, heads: str = "all") -> Float32:
    """Predictions of the four companies for every image: (n_train + n_test, 4, 10).

    heads : "all" if companies collect in all training images, as in the paper; "half" if they
    collect in the first of two halves.
    """
    train, test = rows_of(size)
    available = halves(size)[0] if heads == "half" else train
    kept = _derived(size)
    places = np.concatenate([train, test])
    parts = []
    for k, company in enumerate(companies()):
        mine = collected_by(company, available, size.others, seed=k)

        def make(company: Company = company, mine: Rows = mine) -> Float32:
            given = _features_by(company, places)
            head = new_head().fit(given[np.searchsorted(places, mine)], all_images().labels[mine])
            said = head.predict_proba(given)
            return columns_of(said, head.classes_, len(CLASSES)).astype(np.float32)

        parts.append(kept.array(f"probabilities-{heads}-{k}", make))
    return np.stack(parts, axis=1)


def components(size: Size) -> Float32:
    """Principal components of the standardised features of the images: (n_train + n_test, c).

    They are computed on all training images that are used, without labels.
    """

    def make() -> Float32:
        everything = features(size)
        return principal_components(everything, np.arange(len(rows_of(size)[0])))

    return _derived(size).array("components", make)


def principal_components(everything: Float32, fitted_on: Rows) -> Float32:
    """Project rows onto the first principal components of some of the rows, after standardising.

    All are divided by one number, so that those rows have mean square one.
    """
    n = min(N_COMPONENTS, len(fitted_on) - 1, everything.shape[1])
    steps = make_pipeline(StandardScaler(), PCA(n, svd_solver="randomized", random_state=0))
    found = steps.fit(everything[fitted_on]).transform(everything)
    return (found / np.sqrt((found[fitted_on] ** 2).mean())).astype(np.float32)


def _derived(size: Size) -> Kept:
    settings = {
        "features": [kept_features(company).folder.name for company in companies()],
        "size": vars(size),
        "C": HEAD_C,
        "components": N_COMPONENTS,
    }
    return Kept("cifar10/derived", settings)


def prepare(size: Size) -> Iterator[str]:
    """Compute the data that replicates need, and report the speed after each chunk."""
    rows = np.concatenate(rows_of(size))
    for company in companies():
        start, computed = time.monotonic(), 0
        for chunk in np.unique(rows // CHUNK):
            if not kept_features(company).has(f"{chunk:03d}"):
                computed += len(_chunk_by(company, chunk))
                speed = computed / (time.monotonic() - start)
                yield f"{company.network}: chunk {chunk}, {speed:.0f} images per second"
    for heads in ("all", "half"):
        probabilities(size, heads)
        yield f"heads trained on {heads} training images"
    components(size)
    yield f"{N_COMPONENTS} principal components"
