"""PyTorch modules and torch.export files as candidates."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.candidates import TorchCandidate, from_recipe
from localma.errors import (
    CandidateError,
    FileFormatError,
    InvalidInputError,
    UntrustedFileError,
)

torch = pytest.importorskip("torch", reason="needs the extra torch")

random = np.random.default_rng(0)
X = random.normal(size=(60, 3))
Y = X[:, 0] - X[:, 1]
LABELS = np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + random.normal(size=60), [-1, 1])]
CLASSES = ["low", "mid", "top"]


def network(outputs: int = 1) -> Any:
    torch.manual_seed(outputs)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.Dropout(),
        torch.nn.Linear(8, outputs),
    )


def answer(module: Any, rows: Any = X) -> np.ndarray:
    with torch.no_grad():
        found = module.eval()(torch.tensor(rows, dtype=torch.float32))
    return found.numpy().astype(np.float64)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One network, exported for any number of rows, and for four."""
    folder = tmp_path_factory.mktemp("exported")
    shapes = {"any": ({0: torch.export.Dim.AUTO},), "four": None}
    for name, shape in shapes.items():
        program = torch.export.export(network(3).eval(), (torch.zeros(4, 3),), dynamic_shapes=shape)
        torch.export.save(program, folder / f"{name}.pt2")
    return {name: folder / f"{name}.pt2" for name in shapes}


# --- modules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_module_answers_in_evaluation_mode_and_stays_as_it_was(outputs: int) -> None:
    module = network(outputs).train()
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    predictions = as_candidate(module).predict(X, "regression")
    assert [part.training for part in module] == [True, False, True, True]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert_allclose(predictions, answer(module).reshape(predictions.shape), rtol=1e-6)


def test_the_mode_comes_back_after_an_error() -> None:
    module = network().train()
    with pytest.raises(CandidateError, match=r"'sequential' raised RuntimeError on rows 0 to 59"):
        as_candidate(module).predict(np.zeros((60, 7)), "regression")
    assert module.training


def test_rows_are_not_written_into() -> None:
    module = torch.nn.ReLU(inplace=True)
    rows = X[:, :1].astype(np.float32)
    tensor = torch.tensor(rows)
    as_candidate(module).predict(rows, "regression")
    as_candidate(module).predict(tensor, "regression")
    assert (rows < 0).any()
    assert_array_equal(tensor.numpy(), rows)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_rows_get_the_type_of_the_network(dtype: str) -> None:
    module = network().to(getattr(torch, dtype))
    predictions = as_candidate(module).predict(X, "regression")
    tolerance = {"float64": 1e-6, "float32": 1e-6, "bfloat16": 0.1}[dtype]
    assert predictions.dtype == np.float64
    assert_allclose(predictions, answer(network())[:, 0], atol=tolerance)


def test_frames_lists_and_tensors() -> None:
    module = network()
    expected = as_candidate(module).predict(X, "regression")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(word="north")
    by_name = as_candidate(module, inputs=["a", "b", "c"])
    assert_allclose(by_name.predict(frame, "regression"), expected)
    assert_allclose(as_candidate(module).predict(X.tolist(), "regression"), expected)
    assert_allclose(
        as_candidate(module).predict(torch.tensor(X, dtype=torch.float32), "regression"), expected
    )
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'sequential': a network takes numbers, but received values of dtype "
        r"object, such as .*: select its columns with inputs=, or .* with preprocess=\.",
    ):
        as_candidate(module, inputs=["word"]).predict(frame, "regression")


class TwoArguments(torch.nn.Module):
    def forward(self, left: Any, codes: Any) -> Any:
        return left[:, 0] + codes.float()


def as_tuple(rows: Any) -> Any:
    return rows[:, :1], torch.tensor(rows[:, 2] > 0).long()


def as_named(rows: Any) -> Any:
    left, codes = as_tuple(rows)
    return {"codes": codes, "left": left}


@pytest.mark.parametrize("preprocess", [as_tuple, as_named])
def test_preprocess_makes_the_arguments(preprocess: Any) -> None:
    candidate = TorchCandidate(TwoArguments(), preprocess=preprocess, batch_size=7)
    assert_allclose(candidate.predict(X, "regression"), X[:, 0] + (X[:, 2] > 0), atol=1e-6)


def test_memory_is_counted_for_what_the_network_sees() -> None:
    seen: list[int] = []

    def read(paths: list[str]) -> Any:
        seen.append(len(paths))
        return np.zeros((len(paths), 1000), dtype=np.float32)

    size = f"{10 * 48 * 4000} B"  # ten rows of 48 times 1000 numbers of four bytes
    candidate = TorchCandidate(torch.nn.Linear(1000, 1), preprocess=read, batch_size=size)
    candidate.predict(["a.png"] * 25, "regression")
    assert seen == [1, 10, 10, 5]


class Wrapped(torch.nn.Module):
    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, rows: Any) -> Any:
        return self.wrap(rows[:, :1])


def test_an_object_with_logits_is_understood_and_a_tuple_refused() -> None:
    class Output:
        def __init__(self, logits: Any) -> None:
            self.logits = logits

    assert_allclose(as_candidate(Wrapped(Output)).predict(X, "regression"), X[:, 0], rtol=1e-6)
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'wrapped': the network returned a tuple; a network must return one "
        r"tensor, \(n,\), \(n, 1\) or \(n, K\): wrap it in a module that returns only that "
        r"tensor\.",
    ):
        as_candidate(Wrapped(lambda rows: (rows, rows))).predict(X, "regression")


def test_another_device_runs_a_copy() -> None:
    module = network()
    candidate = TorchCandidate(module, device="meta")
    with pytest.raises(CandidateError, match=r"'sequential' raised NotImplementedError"):
        candidate.predict(X, "regression")  # tensors on "meta" hold no numbers to bring back
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}
    assert_allclose(
        TorchCandidate(module, device="cpu").predict(X, "regression"),
        TorchCandidate(module).predict(X, "regression"),
    )


def test_what_is_neither_module_nor_path_is_refused() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"TorchCandidate takes an nn\.Module or the path of a \.pt2 file; received int\.",
    ):
        TorchCandidate(3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activation": "relu"}, r"activation must be None, 'softmax' or 'sigmoid'; received 're"),
        (
            {"activation": "softmax", "temperature": 0},
            r"temperature must be a finite number above zero; received 0",
        ),
        ({"temperature": 2.0}, r"temperature= divides logits, so it needs activation='softmax'"),
        ({"batch_size": "lots"}, r"batch_size as a string is 'auto' or an amount of memory"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        TorchCandidate(network(), **options)


# --- classes and temperature -------------------------------------------------------------------


def test_a_wrong_number_of_classes_is_named_with_the_file(exported: dict[str, Path]) -> None:
    candidate = TorchCandidate(exported["any"], classes=["no", "yes"], activation="softmax")
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north' returned shape \(60, 3\); expected \(60, 2\), one column of "
        r"probabilities for each of its classes 'no', 'yes'.* The model is in '.*any\.pt2'\.",
    ):
        candidate.predict(X, "classification", name="north")


def test_classification_needs_classes_and_regression_has_none() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'sequential' is a TorchCandidate, which must state the classes of its "
        r"columns for a classification, in their order: classes=\['no', 'yes'\]\.",
    ):
        as_candidate(network(3)).predict(X, "classification")
    with pytest.raises(InvalidInputError, match=r"which a regression does not have: leave out cl"):
        as_candidate(network(3), classes=CLASSES).check_task("regression", "north")


def test_logits_taken_for_probabilities_are_refused() -> None:
    candidate = as_candidate(network(3), classes=CLASSES)
    with pytest.raises(CandidateError, match=r"turn scores into probabilities first, for example"):
        candidate.predict(X, "classification")


def test_a_calibrated_candidate_has_less_cross_entropy() -> None:
    sharp = TorchCandidate(
        torch.nn.Sequential(network(3), Scaled(8.0)), classes=CLASSES, activation="softmax"
    )
    fitted = sharp.calibrated(X, LABELS)
    assert fitted.temperature > 1.0 == sharp.temperature
    assert fitted.module is sharp.module
    codes = np.searchsorted(CLASSES, LABELS)

    def loss(candidate: TorchCandidate) -> float:
        chances = candidate.predict(X, "classification")
        return float(-np.log(chances[np.arange(60), codes]).mean())

    assert loss(fitted) < loss(sharp)
    with pytest.raises(
        InvalidInputError,
        match=r"Every label in y must be one of the candidate's classes 'low', 'mid', 'top'; "
        r"received 'huge': leave out those rows\.",
    ):
        sharp.calibrated(X[:2], ["low", "huge"])
    with pytest.raises(
        InvalidInputError,
        match=r"A temperature is fitted to logits of known classes: state activation='softmax' .*"
        r"received activation=None and classes=\['low', 'mid', 'top'\]\.",
    ):
        as_candidate(network(3), classes=CLASSES).calibrated(X, LABELS)


class Scaled(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Any) -> Any:
        return self.factor * logits


def test_one_module_at_two_temperatures_is_two_candidates() -> None:
    module = network(3)
    options = {"classes": CLASSES, "activation": "softmax"}
    plain, same = TorchCandidate(module, **options), TorchCandidate(module, **options)
    flat = TorchCandidate(module, temperature=3.0, **options)
    assert plain.identity() == same.identity() != flat.identity()


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["any", "four"])
@pytest.mark.parametrize("n", [1, 4, 11])
def test_an_exported_network_equals_the_module(
    exported: dict[str, Path], name: str, n: int
) -> None:
    candidate = as_candidate(exported[name])
    assert candidate.label == name
    assert_allclose(
        candidate.predict(X[:n], "regression"), answer(network(3), X[:n]), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_named(
    exported: dict[str, Path], share: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = exported["any"].read_bytes()
    path = tmp_path / "cut.pt2"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north': '.*cut\.pt2' is not a torch\.export file, or was cut short "
        r"\(.*\): export the module again\.$",
    ):
        as_candidate(path).predict(X, "regression", name="north")
    assert "Traceback" not in capfd.readouterr().err


def test_another_archive_is_refused_without_noise(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pt2")
    with pytest.raises(CandidateError, match=r"is not a torch\.export file, or was cut short"):
        as_candidate(tmp_path / "weights.pt2").predict(X, "regression")
    assert "Traceback" not in capfd.readouterr().err


def test_a_file_is_pickled_as_its_path(exported: dict[str, Path]) -> None:
    candidate = as_candidate(exported["any"])
    expected = candidate.predict(X, "regression")
    dumped = pickle.dumps(candidate)
    assert len(dumped) < 2000
    assert_array_equal(pickle.loads(dumped).predict(X, "regression"), expected)


def test_the_recipe_has_every_option(exported: dict[str, Path]) -> None:
    candidate = TorchCandidate(
        exported["any"],
        classes=CLASSES,
        activation="softmax",
        temperature=1.5,
        preprocess=np.asarray,
        inputs=[0, 1, 2],
        cost=3,
        batch_size="1 MiB",
        device="cpu",
    )
    recipe = candidate.recipe()
    assert recipe is not None
    assert recipe.preprocess == "numpy:asarray"
    rebuilt = from_recipe(recipe)
    assert rebuilt.recipe() == recipe
    assert_array_equal(rebuilt.predict(X, "classification"), candidate.predict(X, "classification"))
    assert TorchCandidate(exported["any"], preprocess=lambda rows: rows).recipe() is None
    assert TorchCandidate(exported["any"], inputs=lambda rows: rows).recipe() is None
    assert TorchCandidate(network()).recipe() is None


def test_a_saved_classifier_comes_back_whole(exported: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "network.pt2"
    path.write_bytes(exported["any"].read_bytes())
    model = LocalMAClassifier(
        candidates={
            "first": TorchCandidate(path, classes=CLASSES, activation="softmax"),
            "flat": TorchCandidate(path, classes=CLASSES, activation="softmax", temperature=5),
        },
        gate="global",
    ).fit(X, LABELS)
    model.save(tmp_path / "model.localma")
    with pytest.raises(UntrustedFileError, match=r"'first', 'flat' are made from 'network.pt2'"):
        load(tmp_path / "model.localma")
    # Both files move together: the recipe's path is relative to the saved model.
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    restored = load(moved / "model.localma", trust=True)
    assert_array_equal(restored.predict_proba(X), model.predict_proba(X))
    (moved / "network.pt2").write_bytes(b"another network")
    with pytest.raises(
        FileFormatError,
        match=r"Candidate 'first': The recipe .* cannot be followed: .*network\.pt2' is not the "
        r"file that was used before: its sha256 was .*Restore the old file",
    ):
        load(moved / "model.localma", trust=True)
    (moved / "network.pt2").unlink()
    with pytest.raises(
        FileFormatError, match=r"no 'network\.pt2' in it: put the file next to the saved model"
    ):
        load(moved / "model.localma", trust=True)


def test_a_module_in_memory_is_given_again(tmp_path: Path) -> None:
    module = network()
    model = LocalMARegressor(
        candidates={"network": module, "zero": lambda X: np.zeros(len(X))}, gate="global"
    ).fit(X, Y)
    model.save(tmp_path / "model.localma")
    with pytest.raises(InvalidInputError, match=r"'network', 'zero' are not saved in the file"):
        load(tmp_path / "model.localma", trust=True)
    candidates = {"network": module, "zero": lambda X: np.zeros(len(X))}
    restored = load(tmp_path / "model.localma", candidates)
    assert_allclose(restored.predict(X), model.predict(X), rtol=1e-9)


FORK = """
import os, time, numpy as np, torch
from localma import as_candidate
torch.set_num_threads(2)
candidate = as_candidate(torch.nn.Sequential(torch.nn.Linear(100, 1000), torch.nn.Linear(1000, 1)))
X = np.ones((5000, 100))
candidate.predict(X, "regression")
child = os.fork()
if child == 0:
    candidate.predict(X, "regression")
    os._exit(0)
for _ in range(600):
    if os.waitpid(child, os.WNOHANG)[0]:
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
    raise SystemExit("the forked process waits for threads that it does not have")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_not_wait_for_ever() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", FORK], check=True, env=environment)


# --- real weights ------------------------------------------------------------------------------

DATA = Path(os.environ.get("LOCALMA_DATA", Path(__file__).parents[2] / "shared" / "data"))
WEIGHTS = DATA / "image_models" / "resnet20_cifar10.safetensors"


class Block(torch.nn.Module):
    """Two convolutions and a shortcut that drops every other pixel where the stage changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(channels)
        self.stride, self.added = stride, channels - channels_in

    def forward(self, x: Any) -> Any:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.added:
            sides = (0, 0, 0, 0, self.added // 2, self.added // 2)
            x = torch.nn.functional.pad(x[:, :, :: self.stride, :: self.stride], sides)
        return torch.relu(inner + x)


class ResNet(torch.nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        stages = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        for stage, (before, after, stride) in enumerate(stages, start=1):
            rest = [Block(after, after, 1) for _ in range(blocks - 1)]
            layer = torch.nn.Sequential(Block(before, after, stride), *rest)
            setattr(self, f"layer{stage}", layer)
        self.linear = torch.nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


def normalised(images: Any) -> Any:
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    scaled = (np.asarray(images, dtype=np.float32) / 255 - mean) / deviation
    return scaled.transpose(0, 3, 1, 2).astype(np.float32)


@pytest.mark.slow
@pytest.mark.skipif(not WEIGHTS.exists(), reason="needs shared/data (LOCALMA_DATA)")
def test_a_real_network_in_memory_and_in_a_file(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    module = ResNet(3)
    module.load_state_dict(load_file(WEIGHTS))
    images = np.random.default_rng(0).integers(0, 256, size=(300, 32, 32, 3), dtype=np.uint8)
    options: dict[str, Any] = {"classes": list(range(10)), "activation": "softmax"}
    here = TorchCandidate(module, preprocess=normalised, **options)
    chances = here.predict(images, "classification")
    assert_allclose(chances, torch.tensor(answer(module, normalised(images))).softmax(1), atol=1e-4)
    rows = ({0: torch.export.Dim.AUTO},)
    example = (torch.zeros(4, 3, 32, 32),)
    program = torch.export.export(module.eval(), example, dynamic_shapes=rows)
    torch.export.save(program, tmp_path / "resnet20.pt2")
    file = TorchCandidate(tmp_path / "resnet20.pt2", preprocess=normalised, **options)
    assert_allclose(file.predict(images, "classification"), chances, atol=1e-4)


def test_threads_do_not_switch_each_others_mode() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1))
    candidate = TorchCandidate(net)
    X = np.random.default_rng(0).normal(size=(200, 3))
    expected = candidate.predict(X, "regression")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: candidate.predict(X, "regression"), range(40)))
    for prediction in found:
        np.testing.assert_array_equal(prediction, expected)
    assert net.training
