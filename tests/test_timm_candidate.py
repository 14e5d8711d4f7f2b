"""Image classifiers by architecture and weights file: random ones, and the real EfficientNet."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from localma import LocalMAClassifier, as_candidate, load
from localma.candidates import Pool, Recipe, from_recipe
from localma.candidates.files.timm import TimmCandidate
from localma.errors import (
    CandidateError,
    FileFormatError,
    InvalidInputError,
)
from tests.tiny_candidates import ARCHITECTURE, random_image_network, write_image_weights
from tests.tiny_models import real_data

if find_spec("timm") is None:
    pytest.skip("needs timm, of the extra vision", allow_module_level=True)
torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

CLASSES = ["cat", "dog", "rent"]
SIZE = 32
IMAGES = np.random.default_rng(0).integers(0, 256, size=(6, SIZE, SIZE, 3), dtype=np.uint8)
LITE = real_data("image_models", "tf_efficientnet_lite0_fp16.safetensors")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image_weights(tmp_path_factory.mktemp("weights") / "north.safetensors")


def network(weights: Path, **options: Any) -> TimmCandidate:
    return TimmCandidate(ARCHITECTURE, weights, **({"classes": CLASSES, "size": SIZE} | options))


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """Probabilities by PyTorch alone, an image at a time."""
    scaled = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        logits = torch.cat([random_image_network(3)((image[None] - 0.5) / 0.5) for image in scaled])
    return torch.softmax(logits.double(), dim=1).numpy()


def failure(candidate: TimmCandidate, X: Any) -> str:
    with pytest.raises(CandidateError) as caught:
        candidate.predict(X, "classification", name="net")
    return str(caught.value)


def written(folder: Path, images: Any = IMAGES) -> list[Path]:
    paths = [folder / f"{place}.png" for place in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


# --- images ------------------------------------------------------------------------------------


def frame_of(library: str, folder: Path) -> Any:
    paths = [str(path) for path in written(folder)]
    return pytest.importorskip(library).DataFrame({"id": range(6), "path": paths})


class Labelled(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return IMAGES[row], 0


CONTAINERS: dict[str, Any] = {
    "arrays": (lambda folder: IMAGES, None),
    "channels first": (lambda folder: IMAGES.transpose(0, 3, 1, 2), None),
    "floats": (lambda folder: IMAGES.astype(np.float64) / 255, None),
    "list of arrays": (lambda folder: list(IMAGES), None),
    "tensors": (lambda folder: [torch.from_numpy(image) for image in IMAGES], None),
    "PIL": (lambda folder: [Image.fromarray(image) for image in IMAGES], None),
    "paths": (written, None),
    "strings": (lambda folder: [str(path) for path in written(folder)], None),
    "array of strings": (lambda folder: np.array([str(p) for p in written(folder)]), None),
    "pandas": (lambda folder: frame_of("pandas", folder), "path"),
    "polars": (lambda folder: frame_of("polars", folder), "path"),
    "pandas series": (lambda folder: frame_of("pandas", folder)["path"], None),
    "torch Dataset": (lambda folder: Labelled(), None),
    "Hugging Face": (
        lambda folder: pytest.importorskip("datasets").Dataset.from_dict(
            {"image": [str(path) for path in written(folder)], "id": [*range(6)]}
        ),
        None,
    ),
}


@pytest.mark.parametrize("batch_size", ["auto", 4])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_images_of_every_kind(
    weights: Path, expected: np.ndarray, tmp_path: Path, kind: str, batch_size: Any
) -> None:
    make, inputs = CONTAINERS[kind]
    candidate = network(weights, inputs=inputs, batch_size=batch_size)
    predicted = candidate.predict(make(tmp_path), "classification")
    assert_allclose(predicted, expected, rtol=1e-4, atol=1e-6)


def test_the_images_tell_the_predictions_apart(expected: np.ndarray) -> None:
    assert len(np.unique(expected[:, 0].round(4))) == len(IMAGES)


def test_grey_and_transparent_images(weights: Path, tmp_path: Path) -> None:
    grey = IMAGES[0, :, :, 0]
    rgb = np.repeat(grey[:, :, None], 3, axis=2)
    rgba = np.concatenate([rgb, np.full((SIZE, SIZE, 1), 200, np.uint8)], axis=2)
    paths = [tmp_path / name for name in ("grey.png", "rgba.png", "rgb.png")]
    for path, pixels in zip(paths, (grey, rgba, rgb), strict=True):
        Image.fromarray(pixels).save(path)
    for images in ([grey, rgba, rgb], paths):
        predicted = network(weights).predict(images, "classification")
        assert_allclose(predicted, predicted[[2, 2, 2]], rtol=1e-5)


def test_images_of_other_sizes_are_resized(weights: Path) -> None:
    flat = [np.full((height, 50, 3), 90, np.uint8) for height in (20, 64, SIZE)]
    predicted = network(weights).predict(flat, "classification")
    assert_allclose(predicted, predicted[[2, 2, 2]], rtol=1e-4)


def test_mean_and_std_are_applied(weights: Path) -> None:
    shifted = network(weights, mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0])
    assert (shifted.mean, shifted.std) == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    scaled = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        logits = random_image_network(3)(scaled)
    assert_allclose(
        shifted.predict(IMAGES, "classification"),
        torch.softmax(logits.double(), dim=1).numpy(),
        rtol=1e-4,
        atol=1e-6,
    )


def test_defaults_are_those_of_the_architecture(weights: Path) -> None:
    candidate = TimmCandidate(ARCHITECTURE, weights)
    assert candidate.size == (160, 160)
    assert candidate.mean == candidate.std == (0.5, 0.5, 0.5)
    assert candidate.classes is None


@pytest.mark.parametrize("batch_size", ["auto", 2])
def test_a_truncated_image_is_named_with_its_row(
    weights: Path, tmp_path: Path, batch_size: Any
) -> None:
    paths = written(tmp_path)
    content = paths[3].read_bytes()
    paths[3].write_bytes(content[: len(content) // 2])
    words = failure(network(weights, batch_size=batch_size), paths)
    assert words.startswith(
        f"Candidate 'net', row 3: The image file '{paths[3]}' cannot be read, or was cut short ("
    )
    assert str(weights) in words


def test_batches_before_a_bad_image_are_kept(
    weights: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    paths = written(tmp_path)
    paths[2].write_bytes(b"no image")
    pieces = network(weights, batch_size=2).in_batches(paths, "classification", name="net")
    assert_allclose(next(pieces), expected[:2], rtol=1e-4, atol=1e-6)
    with pytest.raises(CandidateError, match=r"row 2: The image file '.*2\.png' cannot be read"):
        next(pieces)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("nowhere.png", "The image file 'nowhere.png' cannot be opened (No such file"),
        (np.zeros((8, 8, 5), np.uint8), "with 1, 3 or 4 channels; it has shape (8, 8, 5)."),
        (np.zeros((8, 8, 3), np.int64), "floating-point numbers between 0 and 1; it has int64."),
        (np.full((8, 8, 3), 255.0), "must lie between 0 and 1; it ranges from 255 to 255."),
        (7, "An image must be a path, a PIL image, an array or a tensor; it is int: '7'."),
    ],
)
def test_bad_images_are_named_with_their_row(weights: Path, bad: Any, words: str) -> None:
    said = failure(network(weights, batch_size=2), [*IMAGES[:3], bad])
    assert said.startswith("Candidate 'net', row 3: ")
    assert words in said


# --- weights -----------------------------------------------------------------------------------


def test_half_precision_runs_in_single(tmp_path: Path, expected: np.ndarray) -> None:
    candidate = network(write_image_weights(tmp_path / "half.safetensors", half=True))
    module = candidate._network.get().module
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert_allclose(candidate.predict(IMAGES, "classification"), expected, atol=0.02)


def test_a_state_dict_of_pytorch(tmp_path: Path, expected: np.ndarray) -> None:
    path = tmp_path / "north.pt"
    torch.save(random_image_network(3).state_dict(), path)
    assert_allclose(network(path).predict(IMAGES, "classification"), expected, rtol=1e-4, atol=1e-6)


class Opens:
    """Pickled code that would leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    torch.save({"weight": Opens(tmp_path / "trace")}, tmp_path / "bad.pt")
    with pytest.raises(InvalidInputError, match=r"bad\.pt' cannot be read, or was cut short"):
        network(tmp_path / "bad.pt")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["cut.safetensors", "cut.pt"])
def test_weights_that_were_cut_short(weights: Path, tmp_path: Path, name: str) -> None:
    torch.save(random_image_network(3).state_dict(), tmp_path / "cut.pt")
    (tmp_path / "cut.safetensors").write_bytes(weights.read_bytes())
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(InvalidInputError) as caught:
        network(path)
    assert f"The weights file '{path}' cannot be read, or was cut short (" in str(caught.value)


def test_weights_of_another_network(weights: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TimmCandidate("tf_efficientnet_lite0", weights)
    words = str(caught.value)
    assert words.startswith(
        f"The weights file '{weights}' does not fit the architecture 'tf_efficientnet_lite0': "
    )
    assert " tensors of the network are missing, such as conv_stem.weight, " in words
    assert " tensors in the file do not belong to the network, such as " in words
    assert words.endswith("Name the architecture that the file was made for.")


def test_weights_of_another_shape(weights: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(weights)
    key = next(key for key in state if state[key].ndim == 4)
    save_file(state | {key: torch.zeros(1, 2, 3, 4)}, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInputError) as caught:
        network(tmp_path / "other.safetensors")
    assert f"tensors have other shapes, such as {key} (1, 2, 3, 4) in place of (" in str(
        caught.value
    )
    assert f"1 of {len(state)} tensors have" in str(caught.value)


def test_wrong_number_of_classes(weights: Path) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"classes= must name the 3 outputs of the weights file '.*north\.safetensors', each "
        r"once and in their order; received 2: 'cat', 'dog'\.",
    ):
        network(weights, classes=["cat", "dog"])


def test_one_output_is_a_regression_or_a_logit(tmp_path: Path) -> None:
    path = write_image_weights(tmp_path / "one.safetensors", outputs=1)
    values = network(path, classes=None).predict(IMAGES, "regression")
    second = network(path, classes=["no", "yes"]).predict(IMAGES, "classification")
    assert_allclose(second[:, 1], 1 / (1 + np.exp(-values)), rtol=1e-5)


def test_classes_must_be_stated(weights: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"Candidate 'net' is a TimmCandidate, which must"):
        network(weights, classes=None).predict(IMAGES, "classification", name="net")


def test_no_such_file() -> None:
    with pytest.raises(InvalidInputError, match=r"There is no file or folder 'nowhere\.pt'"):
        network(Path("nowhere.pt"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, r"size must be a number of pixels, or two, height and width.*received 0\."),
        ({"size": (3, 4, 5)}, r"size must be a number of pixels, or two.*received \(3, 4, 5\)"),
        ({"size": "big"}, r"size must be a number of pixels"),
        ({"mean": [0.5]}, r"mean must hold 3 finite numbers, one for each of red, green and blue"),
        ({"mean": 0.5}, r"mean must hold 3 finite numbers.*received 0\.5"),
        ({"std": [1.0, np.nan, 1.0]}, r"std must hold 3 finite numbers"),
        ({"std": [1.0, 0.0, 1.0]}, r"std must be above zero; received \(1\.0, 0\.0, 1\.0\)"),
    ],
)
def test_options_are_checked(weights: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        network(weights, **options)


# --- recipes, pools and saved models -----------------------------------------------------------


def test_the_recipe_brings_everything_back(weights: Path) -> None:
    candidate = network(weights, size=(SIZE, 40), mean=[0.1, 0.2, 0.3], temperature=2.0)
    recipe = Recipe.from_json(json.loads(json.dumps(candidate.recipe().to_json())))
    assert recipe.needs_trust
    again = from_recipe(recipe)
    assert again.recipe() == recipe
    assert again.identity() == candidate.identity()
    assert_array_equal(
        again.predict(IMAGES, "classification"), candidate.predict(IMAGES, "classification")
    )


def test_weights_that_changed_are_refused(tmp_path: Path) -> None:
    path = write_image_weights(tmp_path / "north.safetensors")
    recipe = network(path).recipe()
    write_image_weights(path, half=True)
    with pytest.raises(FileFormatError, match=r"is not the file that was used before"):
        from_recipe(recipe)


def test_pickled_it_reads_the_file_again(weights: Path, expected: np.ndarray) -> None:
    pickled = pickle.dumps(network(weights))
    assert len(pickled) < 5000
    restored = pickle.loads(pickled)
    assert_allclose(restored.predict(IMAGES, "classification"), expected, rtol=1e-4, atol=1e-6)


def test_the_same_weights_twice_are_one_candidate(weights: Path) -> None:
    with pytest.raises(InvalidInputError, match="Candidates 'a' and 'b' are the same"):
        Pool({"a": network(weights), "b": network(weights)}, task="classification")
    Pool({"a": network(weights), "b": network(weights, size=64)}, task="classification")


def mostly_cats(X: Any) -> np.ndarray:
    return np.tile([0.6, 0.3, 0.1], (len(X), 1))


def brightness(X: Any) -> np.ndarray:
    return np.asarray(X, dtype=float).mean(axis=(1, 2))


def test_a_saved_model_comes_back_whole(weights: Path, tmp_path: Path) -> None:
    X, y = np.tile(IMAGES, (4, 1, 1, 1)), np.tile(["cat", "dog", "rent"], 8)
    candidates = {
        "net": network(weights),
        "cats": as_candidate(mostly_cats, classes=CLASSES),
    }
    model = LocalMAClassifier(candidates, gate="global", gate_features=brightness).fit(X, y)
    model.save(tmp_path / "pets.localma")
    again = load(
        tmp_path / "pets.localma",
        candidates={"cats": candidates["cats"]},
        gate_features=brightness,
        trust=True,
    )
    assert isinstance(again.pool_.candidates[0], TimmCandidate)
    assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-6)


# --- timm itself -------------------------------------------------------------------------------


TIMM = """
from localma.pretrained import import_timm
timm = import_timm()  # whichever torch the torchvision here was built for
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from localma.candidates.files.timm import TimmCandidate
from localma.errors import InvalidInputError

torch.manual_seed(0)
images = np.random.default_rng(0).integers(0, 256, size=(3, 64, 64, 3), dtype=np.uint8)


def check(candidate, model, mean, std):
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    scaled = (scaled - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    with torch.no_grad():
        logits = model.eval()(scaled).double().numpy()
    ours = candidate.predict(images, "regression")
    assert np.abs(logits).max() > 1e-3
    np.testing.assert_allclose(ours, logits, rtol=1e-3, atol=1e-4)
"""


def run_with_timm(code: str, *arguments: Any) -> None:
    """In a process of its own, where any warning is an error."""
    pytest.importorskip("safetensors")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TIMM + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr


BROKEN = """
import sys
from localma.candidates.files.timm import TimmCandidate
from localma.errors import MissingDependencyError
try:
    TimmCandidate("resnet18", sys.argv[1])
except MissingDependencyError as error:
    print(error)
"""


def test_a_torchvision_that_cannot_be_imported(weights: Path, tmp_path: Path) -> None:
    """A rule, a reason, a way out."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('libcudart is old')")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, str(weights)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    words = done.stdout.strip()
    assert "The network 'resnet18' comes from timm, which cannot be imported" in words
    assert "(libcudart is old). timm needs a torchvision that was built for this torch" in words
    assert words.endswith("pass the nn.Module: TorchCandidate(module).")


def test_networks_of_timm(tmp_path: Path) -> None:
    """A random one; and, where its weights are, the real one by both of its names."""
    code = """
import sys
path = sys.argv[1]
model = timm.create_model("test_resnet", num_classes=3)
save_file(model.state_dict(), path)
settings = timm.get_pretrained_cfg("test_resnet")
candidate = TimmCandidate("test_resnet", path, size=64)
assert candidate.mean == tuple(settings.mean) and candidate.std == tuple(settings.std)
check(candidate, model, settings.mean, settings.std)
again = candidate.recipe().make()
check(again, model, settings.mean, settings.std)
try:
    TimmCandidate("resnet19", path)
except InvalidInputError as error:
    words = str(error)
    assert words.startswith("Unknown architecture 'resnet19'; did you mean 'resnet1"), words
    assert "'resnet18'" in words and len(words) < 300, words
else:
    raise AssertionError("an unknown architecture")
for real in sys.argv[2:]:
    state = {key: value.float() for key, value in load_file(real).items()}
    for name in ("efficientnet_lite0", "tf_efficientnet_lite0"):
        model = timm.create_model(name)
        model.load_state_dict(state, strict=False)
        candidate = TimmCandidate(name, real, size=64, mean=[0.5] * 3, std=[0.5] * 3)
        check(candidate, model, [0.5] * 3, [0.5] * 3)
"""
    run_with_timm(code, tmp_path / "random.safetensors", *([] if LITE is None else [LITE]))


@pytest.mark.skipif(LITE is None, reason="needs the weights of EfficientNet-Lite0")
def test_the_real_efficientnet() -> None:
    grey = np.full((2, 300, 200, 3), 127, dtype=np.uint8)
    candidate = TimmCandidate("tf_efficientnet_lite0", LITE, classes=range(1000))
    predicted = candidate.predict(grey, "classification")
    assert predicted.shape == (2, 1000)
    assert_allclose(predicted[0], predicted[1], rtol=1e-4)
