"""Gates over images: pixels and frozen features, files and arrays, saved and found again."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
PIL = pytest.importorskip("PIL.Image")

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load  # noqa: E402
from localma.equations import local_average  # noqa: E402
from localma.errors import (  # noqa: E402
    FileFormatError,
    InvalidInputError,
    MissingDependencyError,
    UntrustedFileError,
)
from localma.gates import (  # noqa: E402
    Augmentation,
    ImageGate,
    Job,
    Labelled,
    MLPGate,
    ShrunkGate,
)
from localma.gates.deep import features as frozen_features  # noqa: E402
from localma.gates.deep.encoders import NetworkSpec  # noqa: E402
from localma.images import ImageRows  # noqa: E402
from localma.losses import squared_error  # noqa: E402
from localma.pretrained import find_backbone, read_weights  # noqa: E402
from localma.storage.cache import cache_info  # noqa: E402
from tests.tiny_models import real_data, tiny_body  # noqa: E402

HEAD = MLPGate((8,), n_steps=100)
SMALL = "test_resnet"  # a small network of timm
needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="needs timm, of the extra vision")
QUICK = {"n_epochs": 8, "batch_size": 32, "learning_rate": 0.01, "patience": 8}


def problem(n=60, size=8, seed=0):
    """Dark images, of which the first candidate knows, and bright ones, which the second knows."""
    rng = np.random.default_rng(seed)
    light = rng.uniform(size=n)
    pixels = 200 * light[:, None, None, None] + rng.uniform(0, 55, (n, size, size, 3))
    P = np.stack([light < 0.5, light >= 0.5], axis=1)[:, :, None].astype(float)
    return pixels.astype(np.uint8), P, np.ones((n, 1))


def risk(gate, X, P, y):
    return float(((y - local_average(gate.predict_weights(X), P)) ** 2).mean())


def fit(gate, X, P, y, **keywords):
    return gate.fit(Labelled.of(X, P, y, loss=squared_error(), **keywords))


class Counting(torch.nn.Module):
    """Counts the images that it sees."""

    def __init__(self):
        super().__init__()
        self.body, self.seen = tiny_body(), 0

    def forward(self, images):
        self.seen += len(images)
        return self.body(images)


def opened(gate):
    """The frozen network that a fitted gate uses."""
    return gate._features.encoder.network.body


# Learning.


def test_cnn_on_pixels_learns_what_the_candidates_know():
    X, P, y = problem(100)
    settings = QUICK | {"learning_rate": 0.003, "n_epochs": 20}
    gate = fit(ImageGate(random_state=0, **settings), X, P, y)
    assert risk(gate, X, P, y) < 0.1
    assert gate.size_ == (8, 8)


def test_frozen_features_learn_it_too():
    X, P, y = problem()
    gate = fit(ImageGate(tiny_body, frozen=True, random_state=0), X, P, y)
    assert risk(gate, X, P, y) < 0.1


def test_fine_tuning_starts_at_the_weights_of_the_module():
    X, P, y = problem()
    body = tiny_body()
    before = body[0].weight.detach().clone()
    gate = ImageGate(body, shrinkage=1e9, random_state=0, n_epochs=1, learning_rate=1e-6)
    fit(gate, X, P, y)
    after = gate.inner_.network_.module.body[0].weight
    torch.testing.assert_close(after, before, atol=1e-4, rtol=0)
    torch.testing.assert_close(body[0].weight, before, atol=0, rtol=0)


def test_infinite_shrinkage_gives_the_global_weights():
    X, P, y = problem()
    for frozen in (False, True):
        gate = fit(ImageGate(tiny_body, frozen=frozen, shrinkage=np.inf), X, P, y)
        np.testing.assert_array_equal(
            gate.predict_weights(X), np.tile(gate.global_weights_, (60, 1))
        )


def test_layouts_and_kinds_of_numbers_mean_the_same():
    X, P, y = problem()
    gate = fit(ImageGate(tiny_body, frozen=True, head=HEAD, random_state=0), X, P, y)
    expected = gate.predict_weights(X)
    same = [
        X.transpose(0, 3, 1, 2),
        X / 255.0,
        list(X),
        torch.from_numpy(X),
        [PIL.fromarray(x) for x in X],
        torch.utils.data.TensorDataset(torch.from_numpy(X)),
        [{"image": x, "label": 0} for x in X],
    ]
    for other in same:
        np.testing.assert_allclose(gate.predict_weights(other), expected, atol=1e-5)


def test_no_rows_give_no_weights():
    X, P, y = problem()
    gate = fit(ImageGate(tiny_body, frozen=True, head=HEAD, random_state=0), X, P, y)
    assert gate.predict_weights(X[:0]).shape == (0, 2)


# Features once.


def test_features_are_computed_once_for_all_jobs_and_all_predictions():
    X, P, y = problem()
    gate = ImageGate(Counting(), frozen=True, head=HEAD)
    rows = [np.arange(0, 40), np.arange(20, 60), None]
    jobs = [Job(part, shrinkage, 0) for part in rows for shrinkage in (0.1, 0.001)]
    fitted = gate.fit_jobs(Labelled.of(X, P, y, loss=squared_error()), jobs)
    for job, one in zip(jobs, fitted, strict=True):
        assert one.shrinkage == job.shrinkage
        one.predict_weights(X)
    assert opened(gate).seen == len(X)
    alone = ImageGate(tiny_body, frozen=True, head=HEAD, shrinkage=0.1, random_state=0)
    fit(alone, X[:40], P[:40], y[:40])
    np.testing.assert_allclose(fitted[0].predict_weights(X), alone.predict_weights(X), atol=1e-4)


def test_same_images_are_read_once_by_equal_networks():
    X, P, y = problem()
    first = fit(ImageGate(Counting(), frozen=True, head=HEAD), X[:30], P[:30], y[:30])
    again = fit(ImageGate(Counting(), frozen=True, head=HEAD), X, P, y)
    assert opened(first) is opened(again)
    assert opened(again).seen == len(X)


def test_folder_keeps_features_beyond_the_process(tmp_path):
    pytest.importorskip("pyarrow")
    X, P, y = problem()
    gate = ImageGate(Counting(), frozen=True, head=HEAD, cache=tmp_path, random_state=0)
    fitted = fit(clone(gate), X, P, y)
    weights = fitted.predict_weights(X)
    (entry,) = cache_info(tmp_path)
    assert (entry.candidate, entry.task, entry.rows) == ("network='Counting'", "features", 60)
    later = frozen_features.FeatureCache(fitted._features.cache.shelf)  # as a new process has it
    digests = fitted._features.encoder.digests(ImageRows(X))
    np.testing.assert_array_equal(
        later.find(digests, lambda rows: 1 / 0), fitted._features(ImageRows(X))
    )
    np.testing.assert_array_equal(fit(clone(gate), X, P, y).predict_weights(X), weights)
    assert opened(fitted).seen == len(X)


def test_memory_stays_within_its_limit(monkeypatch):
    monkeypatch.setattr(frozen_features, "MEMORY_BYTES", 100)
    cache = frozen_features.FeatureCache(None)
    digests = [f"{row:016d}".encode() for row in range(20)]
    found = cache.find(digests, lambda rows: np.float32([[row] * 4 for row in rows]))
    np.testing.assert_array_equal(found[:, 0], np.arange(20))
    assert len(cache._in_memory) == 6


# Augmentation.


def test_augmentation_changes_images_within_its_bounds():
    images = torch.rand(50, 3, 12, 12)
    changed = Augmentation()(images, torch.Generator().manual_seed(0))
    assert changed.shape == images.shape
    assert ((changed >= 0) & (changed <= 1)).all()
    flips = Augmentation(degrees=0, brightness=0, contrast=0)(images)
    same = (flips == images).flatten(1).all(dim=1)
    mirrored = (flips == images.flip(3)).flatten(1).all(dim=1)
    assert (same ^ mirrored).all()
    assert 5 < int(same.sum()) < 45
    bright = Augmentation(flip=False, degrees=0, contrast=0)(torch.full((500, 3, 2, 2), 0.5))
    assert 0.4 <= float(bright.min()) < 0.42
    assert 0.58 < float(bright.max()) <= 0.6


def test_contrast_keeps_the_mean_grey_and_scales_around_it():
    images = 0.4 + 0.2 * torch.rand(20, 1, 6, 6).expand(-1, 3, -1, -1)
    changed = Augmentation(flip=False, degrees=0, brightness=0)(images)
    torch.testing.assert_close(changed.mean(dim=(1, 2, 3)), images.mean(dim=(1, 2, 3)))
    factor = changed.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))
    assert 0.8 - 1e-4 <= float(factor.min()) < float(factor.max()) <= 1.2 + 1e-4


def test_rotation_turns_by_its_angle_whatever_the_proportions():
    from localma.gates.deep.image import _rotated

    images = torch.rand(1, 3, 8, 8)
    quarter = _rotated(images, torch.tensor([np.pi / 2]))
    torch.testing.assert_close(quarter, torch.rot90(images, 1, (2, 3)), atol=1e-5, rtol=0)
    # A point at 10 pixels right of the centre of a wide image goes up, by 10 sin(0.1) pixels.
    wide = torch.zeros(1, 3, 21, 61)
    wide[:, :, 10, 40] = 1.0
    turned = _rotated(wide, torch.tensor([0.1]))[0, 0]
    where = (turned.sum(1) * torch.arange(21)).sum() / turned.sum()
    assert abs(abs(float(where) - 10) - 10 * np.sin(0.1)) < 0.1


def test_augmentation_is_for_training_alone():
    X, P, y = problem()
    gate = fit(ImageGate(random_state=0, **QUICK | {"n_epochs": 1}), X, P, y)
    np.testing.assert_array_equal(gate.predict_weights(X), gate.predict_weights(X))
    network = gate.inner_.network_.module.train()
    images = torch.stack([ImageRows(X)[row] for row in range(4)])
    assert not torch.equal(network(images), network.eval()(images))


@pytest.mark.parametrize("frozen", [False, True])
def test_candidates_are_asked_about_augmented_copies(frozen):
    X, P, y = problem(40)
    asked = []

    def candidates_on(images, rows):
        asked.append((images, rows))
        return P[rows]

    gate = ImageGate(
        tiny_body,
        frozen=frozen,
        candidates_on=candidates_on,
        n_copies=2,
        head=HEAD,
        random_state=0,
        **QUICK,
    )
    fit(gate, X, P, y)
    images = np.concatenate([images for images, _ in asked])
    rows = np.concatenate([rows for _, rows in asked])
    assert images.shape == (80, 8, 8, 3)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(np.sort(rows), np.repeat(np.arange(40), 2))
    assert not (images == X[rows]).all(axis=(1, 2, 3)).any()
    # Each is a changed copy of its own row: as bright as that, within the augmentation.
    ratio = images.mean(axis=(1, 2, 3)) / X[rows].mean(axis=(1, 2, 3))
    assert (np.abs(ratio - 0.97) < 0.26).all()
    assert gate.inner_.risks_ == [] if not frozen else risk(gate, X, P, y) < 0.15


def test_copies_go_with_their_rows_into_jobs():
    X, P, y = problem(30)
    rows = np.arange(10)
    spoilt = P.copy()
    spoilt[10:] = 5.0
    gates = [
        ImageGate(
            tiny_body,
            frozen=True,
            head=HEAD,
            n_copies=1,
            candidates_on=lambda _, rows, A=A: A[rows],
        ).fit_jobs(Labelled.of(X, A, y, loss=squared_error()), [Job(rows, 0.01, 0)])[0]
        for A in (P, spoilt)
    ]
    np.testing.assert_array_equal(gates[0].predict_weights(X), gates[1].predict_weights(X))


def test_candidates_on_must_answer_in_the_gates_own_shape():
    X, P, y = problem()
    gate = ImageGate(tiny_body, frozen=True, candidates_on=lambda images, rows: P[rows, :, 0])
    with pytest.raises(InvalidInputError, match=r"shape \(64, 2, 1\).*received shape \(64, 2\)"):
        fit(gate, X, P, y)
    with pytest.raises(InvalidInputError, match="augment is off"):
        fit(gate.set_params(augment=False), X, P, y)


# Files.


def write_images(folder, X):
    for row, pixels in enumerate(X):
        PIL.fromarray(pixels).save(folder / f"{row}.png")
    return [folder / f"{row}.png" for row in range(len(X))]


def test_paths_mean_their_pixels(tmp_path):
    X, P, y = problem(20)
    paths = write_images(tmp_path, X)
    gate = fit(ImageGate(tiny_body, frozen=True, head=HEAD, random_state=0), paths, P, y)
    np.testing.assert_allclose(gate.predict_weights(X), gate.predict_weights(paths), atol=1e-5)
    np.testing.assert_allclose(
        gate.predict_weights([str(path) for path in paths]), gate.predict_weights(paths)
    )


def test_any_mode_becomes_rgb(tmp_path):
    rgb = PIL.fromarray(np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8))
    grey, wide = rgb.convert("L"), PIL.fromarray(np.full((6, 6), 40000, dtype=np.uint16))
    transparent = rgb.convert("RGBA")
    transparent.putalpha(7)
    images = [rgb, transparent, rgb.convert("P"), grey, grey.convert("1"), wide]
    images[2].info["transparency"] = b"\x00" * 4
    for place, image in enumerate(images):
        image.save(tmp_path / f"{place}.png")
    rows = ImageRows([tmp_path / f"{place}.png" for place in range(len(images))])
    assert all(rows[place].shape == (3, 6, 6) for place in range(len(images)))
    torch.testing.assert_close(rows[1], rows[0])
    assert torch.equal(rows[3][0], rows[3][2])
    assert float(rows[5].mean()) == pytest.approx(40000 / 65535, abs=0.01)
    grey_array = ImageRows(np.asarray(grey)[None])
    torch.testing.assert_close(grey_array[0], rows[3])
    rgba_array = ImageRows(np.asarray(transparent)[None])
    torch.testing.assert_close(rgba_array[0], rows[0])


def test_images_are_resized_where_asked(tmp_path):
    X, P, y = problem(20)
    gate = fit(ImageGate(tiny_body, frozen=True, head=HEAD, size=(6, 10)), X, P, y)
    assert gate.size_ == (6, 10)
    larger = np.repeat(np.repeat(X, 2, axis=1), 2, axis=2)
    np.testing.assert_allclose(gate.predict_weights(larger), gate.predict_weights(X), atol=0.2)
    uneven = [X[0], X[1][:5]]
    assert ImageRows(uneven, (6, 6), resize=True)[1].shape == (3, 6, 6)
    with pytest.raises(InvalidInputError, match=r"here \(8, 8\); row 1 has \(5, 8\). Pass size="):
        ImageRows(uneven)[1]


def test_bad_files_are_named_with_their_row(tmp_path):
    X, P, y = problem(20)
    paths = write_images(tmp_path, X)
    gate = fit(ImageGate(tiny_body, frozen=True, head=HEAD), paths, P, y)
    cut = tmp_path / "cut.png"
    cut.write_bytes(paths[0].read_bytes()[:100])
    with pytest.raises(InvalidInputError, match=r"cut\.png' of row 2 cannot be read, or was cut"):
        gate.predict_weights([paths[0], paths[1], cut])
    with pytest.raises(InvalidInputError, match=r"gone\.png' of row 1 cannot be opened \(No such"):
        gate.predict_weights([paths[0], tmp_path / "gone.png"])
    (tmp_path / "text.png").write_text("no image")
    trained = ImageGate(random_state=0, **QUICK)
    with pytest.raises(InvalidInputError, match=r"text\.png' of row 7 cannot be read"):
        fit(trained, [*paths[:7], tmp_path / "text.png", *paths[8:]], P, y)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            np.zeros((3, 8, 8, 5), dtype=np.uint8),
            r"1, 3 or 4 channels; row 0 has shape \(8, 8, 5\)",
        ),
        (np.zeros((3, 8, 8, 3), dtype=np.int64), r"must be uint8.*row 0 has int64"),
        (np.full((3, 8, 8, 3), 200.0), r"between 0 and 1; row 0 ranges from 200 to 200"),
        (np.full((3, 8, 8, 3), np.nan), r"between 0 and 1; row 0 ranges from nan"),
        ([None, None, None], r"row 0 is NoneType"),
        ([{"a": 1, "b": 2}] * 3, r"one named 'image'; row 0 has \['a', 'b'\]"),
    ],
)
def test_what_is_no_image_is_refused(X, message):
    _, P, y = problem(3)
    with pytest.raises(InvalidInputError, match=message):
        fit(ImageGate(tiny_body, frozen=True), X, P, y)


# Parameters.


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"network": None}, "network of ImageGate must be 'cnn'"),
        ({"network": "cnn", "frozen": True}, "Pass weights= a file"),
        ({"network": "tf_efficientnet_lite0", "frozen": True}, "Pass weights= a file"),
        ({"network": "cnn", "weights": "a.safetensors"}, "Load the weights into the module"),
        pytest.param(
            {"network": SMALL, "weights": "gone.pt"}, "no weights file 'gone.pt'", marks=needs_timm
        ),
        ({"size": 0}, "size of ImageGate must be a positive integer"),
        ({"n_copies": 0}, "n_copies of ImageGate must be a positive integer"),
        ({"network": lambda: 3}, "must return a torch.nn.Module; it returned a int"),
    ],
)
def test_parameters_are_checked(parameters, message):
    X, P, y = problem(20)
    with pytest.raises(InvalidInputError, match=message):
        fit(ImageGate(**parameters), X, P, y)


def test_a_frozen_network_must_give_finite_vectors():
    X, P, y = problem(20)

    class Broken(torch.nn.Module):
        def forward(self, images):
            return images.flatten(1) * torch.nan

    with pytest.raises(InvalidInputError, match=r"those of row \d+ are not"):
        fit(ImageGate(Broken(), frozen=True), X, P, y)
    with pytest.raises(InvalidInputError, match="one vector of features per row"):
        fit(ImageGate(torch.nn.Flatten(0), frozen=True), X, P, y)
    maps = fit(ImageGate(torch.nn.Conv2d(3, 4, 3), frozen=True, head=HEAD), X, P, y)
    assert maps.inner_.n_features_in_ == 4


def test_images_that_are_too_small_for_a_network_are_refused():
    X, P, y = problem(20)
    large = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 20))
    with pytest.raises(InvalidInputError, match=r"failed on rows of shape \[\(20, 3, 8, 8\)\]"):
        fit(ImageGate(large, frozen=True), X, P, y)
    with pytest.raises(InvalidInputError, match=r"images of shape \(n, 3, 8, 8\); it failed"):
        fit(ImageGate(large), X, P, y)


def test_a_head_must_be_shrinkable():
    from localma.gates import EqualGate

    X, P, y = problem(20)
    with pytest.raises(InvalidInputError, match="head of ImageGate must be a gate with"):
        fit(ImageGate(tiny_body, frozen=True, head=EqualGate()), X, P, y)


# Saving.


@pytest.mark.parametrize("frozen", [False, True])
def test_state_comes_back_from_arrays(frozen):
    X, P, y = problem()
    gate = ImageGate(tiny_body, frozen=frozen, head=HEAD, random_state=0, **QUICK)
    fitted = fit(clone(gate), X, P, y)
    again = clone(gate).restore(fitted.arrays())
    np.testing.assert_array_equal(again.predict_weights(X), fitted.predict_weights(X))
    pickled = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(pickled.predict_weights(X), fitted.predict_weights(X), atol=1e-6)


def test_another_network_is_refused():
    X, P, y = problem()
    fitted = fit(ImageGate(tiny_body, frozen=True, head=HEAD), X, P, y)
    other = torch.nn.Sequential(*tiny_body())
    torch.nn.init.zeros_(other[0].weight)
    with pytest.raises(FileFormatError, match="network='Sequential' has changed since"):
        ImageGate(other, frozen=True, head=HEAD).restore(fitted.arrays())
    with pytest.raises(FileFormatError, match="must hold a height and a width"):
        clone(fitted).restore(fitted.arrays() | {"size": np.zeros(2)})


@needs_timm
@pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")  # of a toy
def test_weights_file_is_a_recipe_and_must_stay(tmp_path):
    from safetensors.torch import save_file

    X, P, y = problem(20, size=32)
    file = tmp_path / "weights.safetensors"
    save_file(find_backbone(SMALL).make(5).state_dict(), file)
    model = LocalMARegressor(
        {"dark": lambda X: P[: len(X), 0, 0], "bright": lambda X: P[: len(X), 1, 0]},
        gate=ImageGate(SMALL, weights=file, frozen=True, size=32, head=HEAD),
        random_state=0,
    ).fit(X, y.ravel())
    model.save(tmp_path / "model.localma")
    with pytest.raises(UntrustedFileError, match=r"opens weights='weights.safetensors'"):
        load(tmp_path / "model.localma", candidates={})
    again = load(tmp_path / "model.localma", candidates={}, trust=True)
    np.testing.assert_array_equal(again.predict_weights(X), model.predict_weights(X))
    assert str(tmp_path).encode() not in (tmp_path / "model.localma").read_bytes()
    moved = file.rename(tmp_path / "moved.safetensors")
    with pytest.raises(InvalidInputError, match=r"weights of .*ImageGate is not at 'weights\.safe"):
        load(tmp_path / "model.localma", candidates={}, trust=True)
    elsewhere = clone(model.gate).set_params(weights=moved)
    back = load(tmp_path / "model.localma", candidates={}, gate=elsewhere)
    np.testing.assert_array_equal(back.predict_weights(X), model.predict_weights(X))
    save_file(find_backbone(SMALL).make(5).state_dict(), file)
    with pytest.raises(FileFormatError, match=r"weights\.safetensors' has changed since"):
        load(tmp_path / "model.localma", candidates={}, trust=True)


@needs_timm
def test_a_trained_network_needs_its_weights_file_no_more(tmp_path):
    from safetensors.torch import save_file

    X, P, y = problem(20, size=32)
    file = tmp_path / "weights.safetensors"
    save_file(find_backbone(SMALL).make(5).state_dict(), file)
    gate = ImageGate(SMALL, weights=file, size=32, random_state=0, n_epochs=1)
    fitted = fit(clone(gate), X, P, y)
    file.unlink()
    again = clone(gate).restore(fitted.arrays())
    np.testing.assert_array_equal(again.predict_weights(X), fitted.predict_weights(X))


# Around it.


@pytest.mark.parametrize("frozen", [False, True])
def test_shrunk_gate_wraps_it(frozen):
    X, P, y = problem(80)
    network = Counting()
    base = ImageGate(network, frozen=frozen, head=HEAD, **QUICK | {"n_epochs": 4})
    shrunk = ShrunkGate(base, cv=2, strengths=(0.1,), n_restarts=1, random_state=0)
    fit(shrunk, X, P, y)
    assert risk(shrunk, X, P, y) < 0.2
    again = clone(shrunk).restore(shrunk.arrays())
    np.testing.assert_allclose(again.predict_weights(X), shrunk.predict_weights(X), atol=1e-6)
    if frozen:
        assert opened(shrunk.answer_.gates[0]).seen == len(X)


def test_classifier_over_images():
    X, _, _ = problem(80)
    labels = np.where(X[:, 0, 0, 0] % 2, "cat", "dog")  # a pixel's last bit, which noise decides

    def knows(side):
        """Sure, and right, on dark images or on bright ones; undecided on the others."""

        def probability_of_dog(images):
            here = (images.mean(axis=(1, 2, 3)) > 127) == side
            return np.where(here, np.where(images[:, 0, 0, 0] % 2, 0.05, 0.95), 0.5)

        return as_candidate(probability_of_dog, classes=["cat", "dog"])

    gate = ImageGate(tiny_body, frozen=True, random_state=0)
    candidates = {"dark": knows(False), "bright": knows(True)}
    model = LocalMAClassifier(candidates, gate=gate, random_state=0).fit(X, labels)
    weights, bright = model.predict_weights(X), X.mean(axis=(1, 2, 3)) > 127
    assert weights[bright, 1].mean() > 0.8
    assert weights[~bright, 0].mean() > 0.8
    assert model.score(X, labels) == 1.0


# Networks by name.


@needs_timm
def test_weights_of_another_network_are_refused(tmp_path):
    from safetensors.torch import save_file

    file = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(2)}, file)
    with pytest.raises(InvalidInputError, match="does not fit the network 'test_resnet'"):
        find_backbone(SMALL).load(file)


def test_unknown_weights_are_clearly_refused(tmp_path):
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"no tensors")
    with pytest.raises(InvalidInputError, match="cannot be read, or was cut short"):
        read_weights(file)
    torch.save({"a": torch.zeros(2)}, tmp_path / "w.pt")
    assert list(read_weights(tmp_path / "w.pt")) == ["a"]
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InvalidInputError, match="must contain named tensors"):
        read_weights(tmp_path / "list.pt")
    (tmp_path / "bad.pt").write_bytes(b"\x80\x04nonsense")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_weights(tmp_path / "bad.pt")


def test_networks_of_timm_are_asked_of_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingDependencyError, match=r"'resnet18' comes from timm, which is not"):
        find_backbone("resnet18")


@needs_timm
def test_an_unknown_name_is_refused():
    X, P, y = problem(20)
    with pytest.raises(InvalidInputError, match=r"Unknown network 'resnet19'; did you mean 'resne"):
        fit(ImageGate("resnet19"), X, P, y)


@needs_timm
@pytest.mark.parametrize("name", [SMALL, "deit_tiny_distilled_patch16_224"])
def test_last_layer_follows_the_weights_file(name, tmp_path):
    from safetensors.torch import save_file

    file, backbone = tmp_path / "ten.safetensors", find_backbone(name)
    save_file(backbone.make(10).state_dict(), file)
    network, features = backbone.load(file).eval(), backbone.features(file).eval()
    images = torch.rand(2, 3, backbone.size, backbone.size)
    logits, vectors = network(images), features(images)
    assert logits.shape == (2, 10)
    if len(backbone.heads) == 1:
        torch.testing.assert_close(network.get_submodule(backbone.head)(vectors), logits)
    else:  # the mean of the features of two tokens
        assert vectors.shape == (2, 192)


@needs_timm
def test_real_weights_tell_images_apart():
    name = "tf_efficientnet_lite0"
    file = real_data("image_models", f"{name}_fp16.safetensors")
    if file is None:
        pytest.skip(f"the weights of {name} are not in LOCALMA_DATA")
    rng = np.random.default_rng(0)
    plain = np.full((3, 40, 40, 3), 128) + rng.integers(-9, 9, (3, 1, 1, 3))
    noisy = rng.integers(0, 256, (3, 40, 40, 3))
    X = np.concatenate([plain, noisy]).astype(np.uint8)
    P = np.repeat(np.eye(2), 3, axis=0)[:, :, None]
    gate = ImageGate(name, weights=file, frozen=True, size=64, head=HEAD, random_state=0)
    weights = fit(gate, X, P, np.ones((6, 1))).predict_weights(X)
    assert (weights.argmax(axis=1) == np.repeat([0, 1], 3)).all()
    assert gate.inner_.n_features_in_ == 1280


def test_augmentation_of_ones_own():
    X, P, y = problem(20)
    mild = replace(Augmentation(), degrees=1.0)
    gate = fit(ImageGate(augment=mild, random_state=0, **QUICK | {"n_epochs": 1}), X, P, y)
    assert gate.inner_.network_.module.augmentation == mild


def test_networks_that_differ_in_a_layer_without_parameters_are_two():
    conv = torch.nn.Conv2d(3, 2, 3)
    specs = [
        NetworkSpec(torch.nn.Sequential(conv, layer), mean=np.zeros(3))
        for layer in (torch.nn.ReLU(), torch.nn.Tanh())
    ]
    one, two = (spec.fingerprint(with_parameters=True) for spec in specs)
    assert one != two
