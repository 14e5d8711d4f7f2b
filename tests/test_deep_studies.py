"""The studies of images and of texts in miniature: tiny images, and an encoder of one layer."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from localma.errors import InvalidInputError
from localma.gates import ImageGate, Labelled, MLPGate
from localma.losses import squared_error
from studies import cifar10, cifar10_data, classifying, toxicity, toxicity_data
from studies.__main__ import main
from studies.classifying import Trial, accuracy, gated
from studies.findings import NotRunError, Results
from studies.kept import Kept, checkpoints, digest_of
from studies.pairs import Comparison, clearly_better, difference, differences, table_against_best
from studies.prepare import prepare
from studies.running import Request, run
from studies.storage import Store
from studies.summary import results_of
from studies.tables import README, render
from tests.tiny_models import real_data

CACHED = (
    cifar10.world_of,
    cifar10._all_features,
    cifar10_data.all_images,
    cifar10_data.open_network,
    toxicity_data.read_language,
    toxicity_data.target_of,
)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A cache and a folder of data of this test alone; what was read before is forgotten."""
    for name, variable in {"cache": "LOCALMA_STUDY_CACHE", "data": "LOCALMA_DATA"}.items():
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    for function in CACHED:
        function.cache_clear()
    yield tmp_path
    for function in CACHED:
        function.cache_clear()


# --- what is kept --------------------------------------------------------------------------------


def test_an_array_is_made_once_for_the_same_settings(folders):
    made = []

    def make():
        made.append(1)
        return np.arange(3.0)

    for _ in range(2):
        assert Kept("topic", {"a": 1}).array("part", make).tolist() == [0.0, 1.0, 2.0]
    Kept("topic", {"a": 2}).array("part", make)
    assert len(made) == 2
    settings = (folders / "cache").glob("topic-*/settings.json")
    assert {json.loads(path.read_text())["a"] for path in settings} == {1, 2}


def test_a_computation_that_fails_leaves_nothing_behind(folders):
    kept = Kept("topic", {})
    with pytest.raises(ZeroDivisionError):
        kept.array("part", lambda: np.ones(1) * (1 // 0))
    assert not kept.has("part")


def test_checkpoints_go_only_when_training_ended_well(folders):
    def train(epochs):
        with checkpoints("state") as folder:
            folder.mkdir(exist_ok=True)
            (folder / "epochs").write_text(str(1 // epochs))
        return folder

    with pytest.raises(ZeroDivisionError):
        train(0)
    assert (folders / "cache" / "state").exists()
    assert not train(1).exists()


# --- gates over given probabilities --------------------------------------------------------------


def two_halves(n=400, seed=0):
    """The first candidate is right on the left, the second on the right; four classes."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, n), rng.integers(0, 4, n)
    wrong = (y + rng.integers(1, 4, n)) % 4
    sure = 0.9 * np.eye(4) + 0.025
    left = np.where((x < 0)[:, None], sure[y], sure[wrong])
    right = np.where((x > 0)[:, None], sure[y], sure[wrong])
    rows = np.arange(n)
    P = np.stack([left, right], axis=1)
    return Trial(x[:, None], P, y, rows[: n // 2], rows[n // 2 :], 0)


def test_a_local_gate_knows_where_each_candidate_is_right():
    trial = two_halves()
    gate = MLPGate((8,), n_steps=300)
    assert accuracy(trial, gated(trial, gate)) > 95
    assert accuracy(trial, gated(trial, "equal")) < 80


# A control is meant to be useless, and a warning rightly says so.
@pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")
@pytest.mark.parametrize("control", classifying.CONTROLLED)
def test_no_control_does_as_well_as_the_candidates(control):
    trial = two_halves()
    changed = classifying.CONTROLLED[control](trial)
    assert accuracy(changed, gated(changed, MLPGate((8,), n_steps=300))) < 45
    assert (changed.sample == trial.sample).all()


def test_shuffled_candidates_say_what_they_said_of_other_rows_of_the_same_part():
    trial = two_halves(40)
    changed = classifying.on_shuffled(trial)
    for part in (trial.sample, trial.test):
        before, after = (sorted(map(bytes, P[part])) for P in (trial.P, changed.P))
        assert before == after
    assert not np.array_equal(trial.P, changed.P)


def test_a_model_of_ones_own_joins_by_the_numbers_of_rows():
    trial = two_halves(200)
    informed = np.eye(4)[trial.y] + 0.1 * np.random.default_rng(1).normal(size=(200, 4))
    said = classifying.with_own_model(trial, LogisticRegression(), lambda rows: informed[rows])
    assert accuracy(trial, said) > 97
    alone = classifying.direct(trial, LogisticRegression(), lambda rows: informed[rows])
    assert accuracy(trial, alone) > 97


def test_where_all_candidates_are_wrong_no_weights_of_two_classes_are_right():
    rng = np.random.default_rng(0)
    P = rng.dirichlet((0.5, 0.5), (300, 3))
    y = rng.integers(0, 2, 300)
    trial = Trial(np.zeros((300, 1)), P, y, np.arange(0), np.arange(300), 0)
    best = np.take_along_axis(P, y[:, np.newaxis, np.newaxis], axis=2).max(axis=1)[:, 0]
    assert classifying.some_candidate_right(trial) == pytest.approx(100 * (best > 0.5).mean())
    assert accuracy(trial, P.mean(axis=1)) < classifying.some_candidate_right(trial) < 100


def test_a_class_that_the_sample_lacks_has_probability_zero():
    trial = two_halves(200)
    lacking = replace(trial, sample=trial.sample[trial.y[trial.sample] != 2])
    said = classifying.direct(lacking, LogisticRegression(), lambda rows: trial.inputs[rows])
    assert said.shape == (100, 4)
    assert (said[:, 2] == 0).all()


def some_results(**accuracies):
    rows = [
        ({"rho": 0.1}, {f"{name}:accuracy": values[r] for name, values in accuracies.items()})
        for r in range(3)
    ]
    return Results(rows)


def test_of_accuracies_the_error_rates_are_compared():
    results = some_results(a=[80.0, 70.0, 60.0], b=[79.0, 68.0, 57.0])
    found = difference(results, "accuracy", "a", "b", rho=0.1)
    assert found.mean == pytest.approx(-2.0)
    assert found.error == pytest.approx(1 / np.sqrt(3))
    assert found.risk == pytest.approx(32.0)
    assert found.is_allowed
    assert not found.is_clear  # three replicates are few
    assert not difference(results, "accuracy", "b", "a", rho=0.1).is_allowed
    labels = {"a": "A", "b": "B"}
    comparison = Comparison("accuracy", ("a",), ("a", "b"), labels, "rho", {"all": {}})
    lines = table_against_best(results, comparison)
    assert lines.startswith("**Error rate minus that of the best other method of the cell, in poi")
    assert lines.endswith("| A | all | -2.00 ± 0.58 B |")
    with pytest.raises(NotRunError):
        differences(results, "accuracy", "a", "b", "rho", heads="half")


def test_methods_are_compared_where_both_have_run():
    both, alone = {"a:accuracy": 80.0, "b:accuracy": 79.0}, {"a:accuracy": 85.0}
    results = Results([({"rho": 0.5}, both), ({"rho": 0.1}, both), ({"rho": 0.9}, alone)])
    assert list(differences(results, "accuracy", "a", "b", "rho")) == [0.1, 0.5]
    with pytest.raises(NotRunError):
        differences(results, "accuracy", "a", "c", "rho")
    with pytest.raises(NotRunError, match="two replicates"):
        clearly_better(results, "accuracy", "a", "b", "rho")


# --- images --------------------------------------------------------------------------------------


def tiny_images(n, rng):
    """Each class has a colour and a corner of its own, under noise."""
    y = np.arange(n) % 10
    pixels = rng.integers(0, 20, (n, 32, 32, 3))
    for row, label in enumerate(y):
        top, left = 16 * (label % 2), 16 * (label // 2 % 2)
        pixels[row, top : top + 16, left : left + 16, label % 3] += 100 + 15 * label
    return pixels.clip(0, 255).astype(np.uint8), y.astype(np.uint8)


@pytest.fixture
def tiny_cifar(folders, monkeypatch):
    """420 images and four networks with random weights, in the places of the real ones."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    safetensors = pytest.importorskip("safetensors.torch")
    from studies.mobile_networks import NETWORKS

    rng = np.random.default_rng(0)
    arrays = {}
    for part, n in {"train": 300, "test": 120}.items():
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = tiny_images(n, rng)
    (folders / "cache" / "cifar10").mkdir()
    np.savez(folders / "cache" / "cifar10" / "cifar10.npz", **arrays)
    (folders / "data" / "image_models").mkdir()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = NETWORKS["mobilenet_v1_025"](1000)
    weights = folders / "data" / "image_models" / "weights.safetensors"
    safetensors.save_file(network.state_dict(), weights)
    monkeypatch.setattr(cifar10_data, "STAND_INS", (("mobilenet_v1_025", weights.name),) * 4)
    monkeypatch.setattr(cifar10_data, "PIXELS", 32)
    monkeypatch.setattr(cifar10_data, "CHUNK", 100)
    monkeypatch.setattr(cifar10_data, "N_COMPONENTS", 16)
    monkeypatch.setattr(cifar10, "CNN_EPOCHS", 2)
    monkeypatch.setattr(cifar10, "CNN_IMAGES", 0)
    # Other tests of this process train in single precision, and a process can use only one.
    monkeypatch.setitem(cifar10.CNN, "mixed_precision", None)
    for name in ("full", "small"):
        monkeypatch.setitem(cifar10.SIZES, name, cifar10_data.Size(250, 120, 20))
    return folders


def metrics_of(study, folder, where=None, methods=None, replicates=1):
    """Run some cells here, render all that there is, and give the means by method and metric."""
    path = run(study.name, Request(replicates, where, methods, workers=0), folder)
    summary = json.loads(path.read_text())
    results = results_of(Store(folder, study.name).load())
    assert render(study, results, summary["runs"])
    if find_spec("matplotlib") is not None:
        import_module("matplotlib").use("agg")
        for draw in study.figures.values():
            assert all(file.exists() for file in draw(results, folder))
    return {(r["method"], r["metric"], r.get("rho")): r["value"] for r in summary["records"]}


def test_cifar10_in_miniature(tiny_cifar):
    methods = ("features", "path", "gw", "ewma", "direct", *cifar10.CONTROLS)
    found = metrics_of(cifar10.STUDY, tiny_cifar, {"size": ("small",), "rho": ("1.0",)}, methods)
    assert {method for method, *_ in found} == set(methods)
    assert found["features", "accuracy", 1.0] > found["features_shuffled", "accuracy", 1.0] + 20
    assert found["direct", "accuracy", 1.0] > 60


def test_cifar10_has_candidates_that_know_their_own_classes_and_a_gate_on_pixels(tiny_cifar):
    world = cifar10.world_of("full", "all")
    own = [cifar10_data.CLASSES.index(name) for name in cifar10_data.OWN_CLASSES[2]]
    inside = np.isin(world.y[world.test], own)
    right = world.P[world.test, 2].argmax(axis=1) == world.y[world.test]
    assert right[inside].mean() > right[~inside].mean() + 0.2
    assert world.P.sum(axis=2) == pytest.approx(1.0, abs=1e-5)
    found = metrics_of(
        cifar10.STUDY, tiny_cifar, {"rho": ("0.5", "None")}, ("cnn", "lite0", "any", "ewma")
    )
    assert found["any", "accuracy", None] >= found["lite0", "accuracy", None]
    assert 0 < found["cnn", "accuracy", 0.5] <= 100
    assert not list((tiny_cifar / "cache" / "cifar10").glob("checkpoints*"))


def test_disjoint_halves_share_no_image(tiny_cifar):
    first, second = cifar10_data.halves(cifar10.SIZES["full"])
    assert not set(first) & set(second)
    assert len(first) + len(second) == 250
    company = cifar10_data.companies()[0]
    mine = cifar10_data.collected_by(company, first, 7, seed=0)
    labels = cifar10_data.all_images().labels[mine]
    assert set(mine) <= set(first)
    assert (labels > 3).sum() == 7
    assert set(cifar10.world_of("full", "half").sample) == set(second)


def test_features_are_computed_once_chunk_by_chunk(tiny_cifar, monkeypatch, capsys):
    computed = []
    real = cifar10_data._compute

    def counting(company, chunk):
        computed.append(chunk)
        return real(company, chunk)

    monkeypatch.setattr(cifar10_data, "_compute", counting)
    company = cifar10_data.companies()[0]
    before = cifar10_data._features_by(company, np.array([5, 105, 110]))
    assert computed == [0, 1]
    prepare("cifar10", "small")
    # Chunk 4 has no image that is used; the four networks are one here, and share what is kept.
    assert sorted(computed) == [0, 1, 2, 3, 4]
    assert "images per second" in capsys.readouterr().err
    everything = cifar10_data.features(cifar10.SIZES["small"])
    assert everything.shape == (370, 4 * 256)
    assert (everything[[5, 105, 110], :256] == before).all()


def test_the_public_archive_is_read_without_unpickling(tmp_path):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 10, (6, 2, 3073)).astype(np.uint8)
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    with tarfile.open(tmp_path / "archive.tar.gz", "w:gz") as tar:
        for name, content in zip(names, records, strict=True):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = content.nbytes
            tar.addfile(member, io.BytesIO(content.tobytes()))
    arrays = cifar10_data.read_archive(tmp_path / "archive.tar.gz")
    assert arrays["train_images"].shape == (10, 32, 32, 3)
    assert arrays["test_labels"].tolist() == records[5, :, 0].tolist()
    # Green, second row, third column.
    assert arrays["train_images"][3, 1, 2, 1] == records[1, 1, 1 + 1024 + 32 + 2]


def test_images_that_are_nowhere_are_named_with_their_source(folders, monkeypatch):
    monkeypatch.setattr(cifar10_data, "PUBLIC_SOURCE", (folders / "none").as_uri())
    with pytest.raises(InvalidInputError, match=r"CIFAR-10 must be in .* Put cifar10.npz into"):
        cifar10_data.all_images()


# --- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "mobilenet_v1_025"])
def test_last_layer_follows_the_weights_file(name, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from studies.mobile_networks import NETWORKS, load_features, load_network

    file = tmp_path / "ten.safetensors"
    save_file(NETWORKS[name](10).state_dict(), file)
    network, features = load_network(name, file).eval(), load_features(name, file).eval()
    images = torch.rand(2, 3, 32, 32)
    head = network.fc if name == "mobilenet_v1_025" else network.classifier
    torch.testing.assert_close(head(features(images)), network(images))
    assert network(images).shape == (2, 10)


def test_weights_of_another_network_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from studies.mobile_networks import load_network

    file = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(2)}, file)
    with pytest.raises(InvalidInputError, match="does not fit the network 'mobilenet_v1_025'"):
        load_network("mobilenet_v1_025", file)
    with pytest.raises(InvalidInputError, match="did you mean 'mobilenet_v1_025'"):
        load_network("mobilenet_v1", file)


COMPARE = """
import sys, torch
from localma.pretrained import find_backbone
from studies.mobile_networks import MEAN, STD, load_network
torch.manual_seed(0)
for k in (0, 1, 2):
    name = f"tf_efficientnet_lite{k}"
    file = f"{sys.argv[1]}/{name}_fp16.safetensors"
    ours, timms = load_network(name, file).eval(), find_backbone(name)
    theirs = timms.load(file).eval()
    images = 2 * torch.rand(2, 3, 97, 129) - 1
    with torch.inference_mode():
        print(float((ours(images) - theirs(images)).abs().max()))
    assert (timms.heads, timms.mean, timms.std) == (("classifier",), MEAN, STD)
"""


@pytest.mark.slow
def test_logits_are_those_of_timm():
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    folder = real_data("image_models")
    if folder is None:
        pytest.skip("the weights of EfficientNet-Lite are not in LOCALMA_DATA")
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(folder)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert max(float(line) for line in done.stdout.split()) <= 2e-5


@pytest.mark.parametrize(
    ("name", "stem", "width"),
    [
        ("tf_efficientnet_lite0", "tf_efficientnet_lite0_fp16", 1280),
        ("mobilenet_v1_025", "mobilenet_v1_025_keras", 256),
    ],
)
def test_real_weights_tell_images_apart(name, stem, width):
    pytest.importorskip("accelerate")
    from studies.mobile_networks import load_features

    file = real_data("image_models", f"{stem}.safetensors")
    if file is None:
        pytest.skip(f"the weights of {name} are not in LOCALMA_DATA")
    rng = np.random.default_rng(0)
    plain = np.full((3, 40, 40, 3), 128) + rng.integers(-9, 9, (3, 1, 1, 3))
    noisy = rng.integers(0, 256, (3, 40, 40, 3))
    X = np.concatenate([plain, noisy]).astype(np.uint8)
    P = np.repeat(np.eye(2), 3, axis=0)[:, :, None]
    head = MLPGate((8,), n_steps=100)
    gate = ImageGate(load_features(name, file), frozen=True, size=64, head=head, random_state=0)
    gate.fit(Labelled.of(X, P, np.ones((6, 1)), loss=squared_error()))
    weights = gate.predict_weights(X)
    assert (weights.argmax(axis=1) == np.repeat([0, 1], 3)).all()
    assert gate.inner_.n_features_in_ == width


# --- texts ---------------------------------------------------------------------------------------


def tiny_texts(language, n, rng):
    """Toxic texts say "bad" in each company's language, and "w0" among the minorities."""
    toxic = np.arange(n) % 2
    own = {"en": 1, "zh": 2, "uk": 3, "ru": 4, "es": 5, "de": 6, "hi": 7, "he": 8, "fr": 9}[
        language
    ]
    word = "w0" if language in toxicity_data.MINORITY else "bad"
    texts = [
        f"w{own} {word if bad else 'good'} {'day ' * rng.integers(1, 6)} w{own} {row}"
        for row, bad in enumerate(toxic)
    ]
    return texts, toxic


@pytest.fixture
def tiny_toxicity(folders, monkeypatch):
    """Sixty texts in each of nine languages, one of them twice, and a small encoder."""
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    pyarrow = pytest.importorskip("pyarrow")
    from tests.tiny_models import write_encoder

    rng = np.random.default_rng(0)
    write_encoder(folders / "data" / "text_encoder")
    (folders / "data" / "toxicity").mkdir()
    tables = {"textdetox_9_languages": ["en", "zh", "uk", "ru", "es", "de", "hi"]}
    for name, languages in (tables | {"hebrew_olah": ["he"], "french_mlma": ["fr"]}).items():
        rows = [
            {"text": text, "toxic": int(bad), "lang": code}
            for code in languages
            for text, bad in zip(*tiny_texts(code, 60, rng), strict=True)
        ]
        rows += [rows[0]]
        path = folders / "data" / "toxicity" / f"{name}.parquet"
        import_module("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    tuning = toxicity_data.Tuning(max_length=16, n_epochs=8, learning_rate=0.01)
    monkeypatch.setitem(toxicity.SIZES, "small", toxicity_data.Size(50, tuning))
    return folders


@pytest.mark.parametrize("design", toxicity.DESIGNS)
def test_toxicity_in_miniature(tiny_toxicity, design):
    where = {"size": ("small",), "design": (design,)}
    methods = tuple(
        m for m in (*toxicity.MAIN, *toxicity.CONTROLS) if m not in ("auto", "auto_own")
    )
    found = metrics_of(toxicity.STUDY, tiny_toxicity, where, methods)
    assert {method for method, *_ in found} == set(methods)
    assert found["direct", "accuracy", 0.5] > 70
    groups = {metric for method, metric, _ in found if method == "frozen"}
    pooled = {"accuracy", "accuracy_known", "accuracy_minority"}
    assert groups == (pooled if design == "pooled" else {"accuracy"})
    if design == "pooled":
        assert found["tuned", "accuracy_known", 0.5] > 70
    assert not list((tiny_toxicity / "cache" / "toxicity" / "checkpoints").glob("*"))


def test_candidates_are_trained_on_no_text_of_the_target(tiny_toxicity):
    size = toxicity.SIZES["small"]
    for name, design in toxicity_data.DESIGNS.items():
        target = toxicity_data.target_of(name, size)
        for code in design.companies:
            training, held_out = toxicity_data.parts_of(design, code, size.rows)
            assert not set(training.texts) & set(target.texts)
            assert len(held_out.texts) == round(design.held_out * 50)
            assert (target.languages == code).sum() == len(held_out.texts)
        assert target.P.shape == (len(target.texts), len(design.companies), 2)


def test_texts_that_occur_twice_are_dropped(tiny_toxicity):
    corpus = toxicity_data.read_language("en")
    assert len(corpus.texts) == 60
    assert toxicity_data.first_of_each(["A b", "c", "a  B"]).tolist() == [0, 1]


def test_a_candidate_is_fine_tuned_once_for_the_same_settings(tiny_toxicity, monkeypatch):
    size = toxicity.SIZES["small"]
    before = toxicity_data.target_of("paper", size).P
    toxicity_data.target_of.cache_clear()
    monkeypatch.setattr(toxicity_data, "text_gate", lambda *_: pytest.fail("trained again"))
    again = toxicity_data.target_of("paper", size).P
    assert (again == before).all()


def test_a_fine_tuned_gate_over_two_constants_is_a_classifier(tiny_toxicity):
    size = toxicity.SIZES["small"]
    target = toxicity_data.target_of("paper", size)
    rows = np.arange(len(target.texts))
    trial = Trial(target.features, target.P, target.toxic, rows[::2], rows[1::2], 0)
    said = toxicity.WAYS["direct_tuned"](trial, target, size)
    assert said.sum(axis=1) == pytest.approx(1.0)
    assert accuracy(trial, said) > 70


def test_texts_that_are_nowhere_are_named_with_their_source(folders, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setattr(toxicity_data, "PUBLIC_SOURCE", str(folders / "none"))
    with pytest.raises(InvalidInputError, match=r"Texts in 'xx' must be in the folder 'toxicity'"):
        toxicity_data.read_language("xx")


# --- the command, and the page -------------------------------------------------------------------


def test_only_studies_with_parts_can_be_prepared(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["studies", "prepare", "simulations"])
    assert main() == 1
    assert "study with parts to prepare" in capsys.readouterr().err


@pytest.mark.parametrize("study", [cifar10.STUDY, toxicity.STUDY], ids=lambda study: study.name)
def test_quick_runs_are_small_and_the_page_has_a_place(study):
    quick = [cell for cell in study.cells if not cell.slow]
    assert quick
    assert all(cell.keys["size"] == "small" for cell in quick)
    page = README.read_text()
    assert f"<!-- {study.name}: begin -->" in page
    assert all(finding.verdict(Results([])) == "not run yet" for finding in study.findings)


def test_every_published_accuracy_has_its_place_beside_ours():
    keys = {cell.identity for cell in cifar10.STUDY.cells}
    table = next(t for t in cifar10.STUDY.tables if t.published == "Table 5")
    assert set(cifar10.RHOS) == set(table.where["rho"])
    assert {json.dumps({"rho": rho}) for rho in cifar10.RHOS} <= keys
    assert digest_of(["a"]) != digest_of(["b"])
