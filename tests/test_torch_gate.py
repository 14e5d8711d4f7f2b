"""TorchGate: its objective, its inputs, checkpoints, and the way of raw inputs to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.errors import (
    FileFormatError,
    InvalidInputError,
    MissingDependencyError,
    UntrustedFileError,
)
from localma.gates import GlobalGate, Labelled, MLPGate, ShrunkGate, TorchGate
from localma.gates.constant import anchor_and_scale, floored
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.engine import compile_loss
from localma.gates.fused.networks import Network
from localma.gates.fused.trainer import Progress, Training, Visit
from localma.losses import Loss, get_loss

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
from torch import nn  # noqa: E402

from localma.gates.deep import training  # noqa: E402
from localma.gates.deep.networks import Inputs, as_batch, start_network  # noqa: E402

SQUARED = get_loss("squared_error")
QUICK = {"n_epochs": 30, "learning_rate": 0.05, "random_state": 0}


def two_layers(n_candidates):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, n_candidates))


def problem(n=120, seed=0):
    """Two candidates; the first is right where the first input is negative."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    right = X[:, :1] < 0
    y = rng.normal(size=(n, 1))
    P = np.stack([np.where(right, y, y + 2.0), np.where(right, y - 2.0, y)], axis=1)
    return X, P, y + 0.05 * rng.normal(size=(n, 1))


def texts_of(X):
    return ["left " * (3 if x < 0 else 1) + "right " * (1 if x < 0 else 3) for x in X[:, 0]]


class CountWords(nn.Module):
    """Reads texts as they are: counts two words, then a linear layer."""

    def __init__(self, n_candidates):
        super().__init__()
        self.output = nn.Linear(2, n_candidates)

    def forward(self, texts):
        counts = [[text.count("left"), text.count("right")] for text in texts]
        return self.output(torch.tensor(counts, dtype=torch.float32))


def is_right(weights, X):
    """Whether the candidate that is right has the larger weight, nearly everywhere."""
    return (weights.argmax(axis=1) == (X[:, 0] >= 0)).mean() > 0.9


class TestObjective:
    def trainer(self, data, gate, weights):
        network, output = start_network(gate.module, data.X, np.arange(2), weights, 0)
        return network, training.Trainer(gate, network, output.bias, data, 0, 1.0)

    @pytest.mark.parametrize("loss", ["squared_error", "poisson", "absolute_error"])
    def test_gradient_is_that_of_the_fused_kernel(self, loss):
        X, P, y = problem()
        P, y, loss = np.abs(P) + 0.5, np.abs(y) + 0.5, get_loss(loss)
        weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
        data = Labelled.of(X, P, y, loss=loss, sample_weight=weight)
        anchor, scale = anchor_and_scale(data, None, None)
        shrinkage, rng = 0.01, np.random.default_rng(2)
        shape = Network((3, 8, 2))
        theta = (0.5 * rng.normal(size=shape.n_parameters)).astype(np.float32)
        decay = np.full(shape.n_parameters, 2 * shrinkage, dtype=np.float32)
        decay[shape.output_bias] = 0.0
        chunks = Chunks.of(data, None, 192, standardize=False, whole=True)
        order, progress = chunks.layout.candidates, Progress.at(theta, decay)
        fused = MLPGate(tol=0.0)
        fused.loss_scale_ = scale
        rates = np.zeros(1, dtype=np.float32)
        run = Training(fused, 0, shape, chunks, None, progress, rates).run
        run(Visit.of_all_rows(chunks, 1), compile_loss(loss.derivative))
        slope = progress.gradient[: len(theta)]
        # The kernel orders candidates, and gives the gradient of the loss without its shrinkage.
        slope = shape.reorder_candidates(slope, order) + decay * (
            moved := shape.reorder_candidates(theta, order)
        )

        sample = replace(data, X=Inputs(X), sample_weight=weight / weight.sum())
        gate = TorchGate(two_layers, shrinkage=shrinkage, learning_rate=0.1)
        gate.loss_scale_ = scale
        network, trainer = self.trainer(sample, gate, anchor)
        layers = [network.module[0], network.module[2]]
        with torch.no_grad():
            for layer, (W, b) in zip(layers, shape.layers(moved), strict=True):
                layer.weight.copy_(torch.as_tensor(W.copy()))
                layer.bias.copy_(torch.as_tensor(b.copy()))
            layers[1].bias.sub_(torch.as_tensor(np.log(floored(anchor))).float())
        trainer.step(np.arange(len(X)), 1)
        for layer, (W, b) in zip(layers, shape.layers(slope), strict=True):
            np.testing.assert_allclose(layer.weight.grad.numpy(), W, atol=1e-4)
            np.testing.assert_allclose(layer.bias.grad.numpy(), b, atol=1e-4)

    def test_trained_weights_are_near_those_of_the_fused_gate(self):
        X, P, y = problem(300)
        ours = TorchGate(
            lambda M: nn.Linear(3, M), n_epochs=400, batch_size=10**6, learning_rate=0.05,
            shrinkage=0.01, validation_fraction=0.0, random_state=0,
        )  # fmt: skip
        fused = MLPGate((), n_steps=400, learning_rate=0.05, shrinkage=0.01, standardize=False)
        a, b = (
            gate.fit(Labelled.of(X, P, y, loss=SQUARED)).predict_weights(X)
            for gate in (ours, fused)
        )
        np.testing.assert_allclose(a, b, atol=5e-3)

    @pytest.mark.parametrize(
        "module",
        [
            two_layers,
            lambda M: nn.Sequential(nn.Linear(3, M), nn.Softmax(dim=1)),  # gets a layer on top
            lambda M: nn.Sequential(nn.Linear(3, M, bias=False)),
        ],
        ids=["linear", "activation", "no_bias"],
    )
    def test_starts_at_the_global_weights(self, module):
        X, _, _ = problem()
        inputs = Inputs(X)
        weights = np.array([0.7, 0.3])
        network, _ = start_network(module, inputs, np.arange(2), weights, 0)
        accelerator = training.make_accelerator(None, None)
        logits = training.logits_of(network, inputs, np.arange(len(X)), 50, accelerator)
        np.testing.assert_allclose(np.exp(logits), np.tile(floored(weights), (len(X), 1)), 1e-6)

    def test_a_layer_on_top_learns_too(self):
        X, P, y = problem(200)
        gate = TorchGate(lambda M: nn.Sequential(nn.Linear(3, M), nn.Tanh()), **QUICK)
        gate.fit(Labelled.of(X, P, y, loss=SQUARED))
        assert is_right(gate.predict_weights(X), X)
        again = clone(gate).restore(gate.arrays())
        np.testing.assert_array_equal(again.predict_weights(X), gate.predict_weights(X))

    @pytest.mark.parametrize("shrink_to", ["zero", "start"])
    def test_strong_shrinkage_is_nearly_the_global_gate(self, shrink_to):
        X, P, y = problem()
        settings = {**QUICK, "n_epochs": 100, "validation_fraction": 0.0}
        gate = TorchGate(two_layers, shrinkage=100.0, shrink_to=shrink_to, **settings)
        weights = gate.fit(Labelled.of(X, P, y, loss=SQUARED)).predict_weights(X)
        assert np.ptp(weights, axis=0).max() < 0.02

    def test_shrinking_to_the_start_keeps_what_the_module_knew(self):
        X, P, y = problem()
        module = two_layers(2)
        before = module[0].weight.detach().clone()
        kept, pulled = (
            TorchGate(module, shrinkage=1.0, shrink_to=to, validation_fraction=0.0, **QUICK).fit(
                Labelled.of(X, P, y, loss=SQUARED)
            )
            for to in ("start", "zero")
        )
        distance = [
            float((gate.network_.module[0].weight.detach() - before).norm())
            for gate in (kept, pulled)
        ]
        assert distance[0] < 0.5 * distance[1]

    def test_frozen_parameters_and_the_users_module_stay(self):
        X, P, y = problem()
        module = two_layers(2)
        module[0].requires_grad_(False)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        gate = TorchGate(module, **QUICK).fit(Labelled.of(X, P, y, loss=SQUARED))
        assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)
        assert torch.equal(gate.network_.module[0].weight, before["0.weight"])
        assert not torch.equal(gate.network_.module[2].weight, before["2.weight"])

    def test_a_loss_that_only_numpy_can_evaluate(self):
        def slope(y, mu):
            return np.multiply(2.0, np.subtract(np.asarray(mu), np.asarray(y)))

        own = Loss("own", lambda y, mu: (mu - y) ** 2, slope)
        X, P, y = problem()
        a, b = (
            TorchGate(two_layers, **QUICK).fit(Labelled.of(X, P, y, loss=loss))
            for loss in (own, SQUARED)
        )
        np.testing.assert_allclose(a.predict_weights(X), b.predict_weights(X), atol=1e-5)


class TestTraining:
    def test_early_stopping_keeps_the_best_epoch(self):
        X, P, y = problem(300)
        y = np.random.default_rng(5).normal(size=y.shape)  # nothing to learn
        gate = TorchGate(two_layers, n_epochs=60, learning_rate=0.05, patience=3, random_state=0)
        gate.fit(Labelled.of(X, P, y, loss=SQUARED))
        assert len(gate.risks_) - 1 == gate.n_epochs_ + 3 < 60
        assert gate.risks_[gate.n_epochs_] == min(gate.risks_)

    def test_no_rows_are_held_out_of_a_small_sample(self):
        X, P, y = problem(60)
        gate = TorchGate(two_layers, **QUICK).fit(Labelled.of(X, P, y, loss=SQUARED))
        assert (gate.risks_, gate.n_epochs_) == ([], 30)

    def test_batch_normalisation_and_dropout(self):
        def make(M):
            return nn.Sequential(
                nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, M)
            )

        X, P, y = problem(129)  # one more than two batches of 64
        gate = TorchGate(make, **QUICK).fit(Labelled.of(X, P, y, loss=SQUARED))
        again = TorchGate(make, **QUICK).fit(Labelled.of(X, P, y, loss=SQUARED))
        restored = clone(gate).restore(gate.arrays())
        np.testing.assert_array_equal(gate.predict_weights(X), again.predict_weights(X))
        np.testing.assert_array_equal(gate.predict_weights(X), restored.predict_weights(X))

    def test_the_callers_random_numbers_are_left_alone(self):
        X, P, y = problem()
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        TorchGate(two_layers, n_epochs=2, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        assert torch.equal(torch.rand(2), expected)

    def test_divergence_is_named(self):
        X, P, y = problem()
        gate = TorchGate(two_layers, learning_rate=1e30, n_epochs=20, random_state=0)
        with pytest.raises(InvalidInputError, match=r"[Ll]ower learning_rate"):
            gate.fit(Labelled.of(1e6 * X, P, y, loss=SQUARED))

    def test_other_precision_in_one_process_is_named(self):
        X, P, y = problem()
        training.make_accelerator(None, None)
        gate = TorchGate(two_layers, mixed_precision="bf16", **QUICK)
        with pytest.raises(InvalidInputError, match="one device and precision per process"):
            gate.fit(Labelled.of(X, P, y, loss=SQUARED))

    def test_a_device_that_accelerate_has_not_is_named(self):
        X, P, y = problem()
        with pytest.raises(InvalidInputError, match="received 'mps', and accelerate uses 'cpu'"):
            TorchGate(two_layers, device="mps").fit(Labelled.of(X, P, y, loss=SQUARED))


LOW_PRECISION = """
import numpy as np
import torch
from localma.gates import ImageGate, Labelled, TextGate
from localma.losses import squared_error
from tests.tiny_models import tiny_encoder

good = np.random.default_rng(0).uniform(size=60) < 0.5
P = np.stack([good, ~good], axis=1)[:, :, None].astype(float)
data = {
    TextGate: ["good day" if one else "bad day" for one in good],
    ImageGate: np.ones((60, 8, 8, 3)) * good[:, None, None, None],
}
networks = {TextGate: (tiny_encoder(),), ImageGate: ()}
settings = {
    TextGate: {"n_epochs": 8, "batch_size": 32, "learning_rate": 0.01, "patience": 8},
    ImageGate: {"n_epochs": 20, "batch_size": 8, "learning_rate": 0.003, "shrinkage": 0.0},
}
products = set()

class Recorded(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.__name__.partition(".")[0] in ("mm", "addmm", "linear"):
            products.add(args[1].dtype)
        return function(*args, **(kwargs or {}))

for make, X in data.items():
    gate = make(*networks[make], mixed_precision="bf16", random_state=0, **settings[make])
    products.clear()
    with Recorded():
        gate.fit(Labelled.of(X, P, np.ones((60, 1)), loss=squared_error()))
    assert torch.bfloat16 in products, products
    products.clear()
    with Recorded():
        weights = gate.predict_weights(X)
    assert products == {torch.float32}, products
    assert (weights.argmax(axis=1) == ~good).mean() > 0.95
    again = gate.__sklearn_clone__().restore(gate.arrays())
    np.testing.assert_array_equal(again.predict_weights(X), weights)
"""


def test_text_and_image_gates_train_in_half_precision_and_predict_in_single():
    pytest.importorskip("transformers")
    # A new process: accelerate keeps one precision per process.
    done = subprocess.run(
        [sys.executable, "-c", LOW_PRECISION], cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


KILLED = """
import sys, time
import numpy as np
sys.path.insert(0, {folder!r})
from test_torch_gate import SQUARED, problem, two_layers
from localma.gates import Labelled, TorchGate
from localma.gates.deep.training import Checkpoint

write = Checkpoint.write
def slowly(self, history):
    write(self, history)
    print("epoch", history.epoch, flush=True)
    time.sleep({pause})
Checkpoint.write = slowly
X, P, y = problem()
gate = TorchGate(two_layers, n_epochs=12, patience=12, checkpoint={checkpoint!r}, random_state=0)
gate.fit(Labelled.of(X, P, y, loss=SQUARED))
"""


class TestCheckpoint:
    def test_a_killed_process_resumes_to_the_same_result(self, tmp_path):
        X, P, y = problem()
        settings = {"n_epochs": 12, "patience": 12, "random_state": 0}
        whole = TorchGate(two_layers, **settings).fit(Labelled.of(X, P, y, loss=SQUARED))
        code = KILLED.format(folder=os.path.dirname(__file__), pause=30, checkpoint=str(tmp_path))
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert child.stdout.readline() == "epoch 1\n"
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
        child.stdout.close()
        (file,) = tmp_path.glob("*.pt")
        assert torch.load(file, weights_only=True)["epoch"] == 1
        resumed = TorchGate(two_layers, checkpoint=tmp_path, **settings).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        np.testing.assert_array_equal(resumed.predict_weights(X), whole.predict_weights(X))
        assert resumed.risks_ == whole.risks_
        assert torch.load(file, weights_only=True)["finished"]

    def test_a_finished_training_is_read_back(self, tmp_path):
        X, P, y = problem()
        gate = TorchGate(two_layers, checkpoint=tmp_path, **QUICK)
        first = gate.fit(Labelled.of(X, P, y, loss=SQUARED)).predict_weights(X)
        began = time.perf_counter()
        second = gate.fit(Labelled.of(X, P, y, loss=SQUARED)).predict_weights(X)
        np.testing.assert_array_equal(first, second)
        assert len(list(tmp_path.iterdir())) == 1
        assert time.perf_counter() - began < 5

    def test_other_data_or_parameters_start_afresh(self, tmp_path):
        X, P, y = problem()
        gate = TorchGate(two_layers, n_epochs=2, checkpoint=tmp_path, random_state=0)
        gate.fit(Labelled.of(X, P, y, loss=SQUARED))
        gate.fit(Labelled.of(X, P, y + 1.0, loss=SQUARED))
        clone(gate).set_params(shrinkage=0.5).fit(Labelled.of(X, P, y, loss=SQUARED))
        clone(gate).set_params(preprocess=lambda row: row + 1.0).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        assert len(list(tmp_path.iterdir())) == 4

    def test_a_broken_checkpoint_is_named(self, tmp_path):
        X, P, y = problem()
        gate = TorchGate(two_layers, n_epochs=2, checkpoint=tmp_path, random_state=0)
        gate.fit(Labelled.of(X, P, y, loss=SQUARED))
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[:100])
        with pytest.raises(FileFormatError, match=r"cannot be read .* Delete it"):
            gate.fit(Labelled.of(X, P, y, loss=SQUARED))


class Pairs(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row].astype(np.float32)


def as_dict_network(M):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(3, M)

        def forward(self, x):
            return self.output(x)

    return Named()


def hugging_face(X):
    return pytest.importorskip("datasets").Dataset.from_dict({"x": X.tolist()})


class TestInputs:
    @pytest.mark.parametrize(
        ("of", "module"),
        [
            (lambda X: X, two_layers),
            (lambda X: torch.as_tensor(X), two_layers),
            (lambda X: X.tolist(), two_layers),
            (lambda X: list(torch.as_tensor(X)), two_layers),
            (Pairs, two_layers),
            (hugging_face, as_dict_network),
            (texts_of, CountWords),
            (lambda X: np.array(texts_of(X)), CountWords),
            (lambda X: X[:, :, None, None], lambda M: nn.Sequential(nn.Flatten(), two_layers(M))),
        ],
        ids=["array", "tensor", "list", "tensors", "dataset", "hf", "texts", "words", "images"],
    )
    def test_every_kind_of_input_alone_and_in_a_path(self, of, module):
        X, P, y = problem(160)
        base = TorchGate(module, **{**QUICK, "n_epochs": 15})
        weights = base.fit(Labelled.of(of(X), P, y, loss=SQUARED)).predict_weights(of(X))
        assert is_right(weights, X)
        path = ShrunkGate(base, cv=2, strengths=(0.1,), n_restarts=1, random_state=0)
        path.fit(Labelled.of(of(X), P, y, loss=SQUARED))
        assert path.raw_inputs
        assert ("linear" in path.path_["gate"]) == isinstance(of(X), np.ndarray) * (
            np.ndim(of(X)) == 2
        )
        assert is_right(path.predict_weights(of(X)), X)
        np.testing.assert_array_equal(path.support(of(X)), 1.0)
        again = clone(path).restore(path.arrays())
        np.testing.assert_array_equal(again.predict_weights(of(X)), path.predict_weights(of(X)))

    def test_preprocess_each_row_and_collate_a_batch(self, tmp_path):
        X, P, y = problem(60)
        paths = [tmp_path / f"{row}.npy" for row in range(len(X))]
        for path, row in zip(paths, X, strict=True):
            np.save(path, row)
        read = TorchGate(two_layers, preprocess=np.load, **QUICK).fit(
            Labelled.of(paths, P, y, loss=SQUARED)
        )
        stacked = TorchGate(
            two_layers, collate=lambda rows: torch.as_tensor(np.array(rows)).float(), **QUICK
        ).fit(Labelled.of(list(X), P, y, loss=SQUARED))
        plain = TorchGate(two_layers, **QUICK).fit(Labelled.of(X, P, y, loss=SQUARED))
        expected = plain.predict_weights(X)
        # Numbers among the inputs help to order the rows, so the batches are not the same.
        np.testing.assert_allclose(read.predict_weights(paths), expected, atol=0.05)
        np.testing.assert_allclose(stacked.predict_weights(list(X)), expected, atol=0.05)

    def test_a_row_that_cannot_be_read_is_named(self, tmp_path):
        _, P, y = problem(60)
        with pytest.raises(InvalidInputError, match=r"row \d+ is not \(FileNotFoundError"):
            TorchGate(two_layers, preprocess=np.load).fit(
                Labelled.of([tmp_path / "no.npy"] * 60, P, y, loss=SQUARED)
            )

    def test_integers_stay_integers(self):
        assert as_batch(np.array([[1, 2]], dtype=np.int32)).dtype == torch.int64
        assert as_batch([{"a": 1.0}, {"a": 2.0}])["a"].dtype == torch.float32
        assert [part.tolist() for part in as_batch([(1, 2.0), (3, 4.0)])] == [[1, 3], [2.0, 4.0]]

    @pytest.mark.parametrize(
        ("module", "words"),
        [
            (
                nn.Linear(3, 5),
                r"2 candidates the shape \(2, 2\); received a Tensor of shape \(2, 5\)",
            ),
            (
                nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)),
                r"shape \(2, 2\); received a Tensor of shape \(4,\)",
            ),
            (lambda: nn.Linear(4, 2), r"failed on a Tensor of shape \(2, 3\) and torch.float32"),
            (lambda: "no module", r"must return a torch.nn.Module; it returned a str"),
            (None, r"must be a torch.nn.Module, or a function that makes one; received None"),
        ],
    )
    def test_a_wrong_module_is_named(self, module, words):
        X, P, y = problem()
        with pytest.raises(InvalidInputError, match=words):
            TorchGate(module, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))

    def test_logits_that_are_not_finite_are_named(self):
        X, P, y = problem()
        X[5] = np.nan
        gate = TorchGate(two_layers, random_state=0, n_epochs=1)
        with pytest.raises(InvalidInputError, match=r"must be finite|must stay finite"):
            gate.fit(Labelled.of(X, P, y, loss=SQUARED))

    def test_rows_without_predictions_are_named(self):
        X, P, y = problem()
        with pytest.raises(InvalidInputError, match=r"received 119 inputs, P \(120, 2, 1\)"):
            TorchGate(two_layers).fit(Labelled.of(X[1:], P, y, loss=SQUARED))

    @pytest.mark.parametrize(
        ("parameter", "words"),
        [
            ({"shrinkage": -1.0}, "shrinkage of TorchGate must be at least 0"),
            ({"n_epochs": 0}, "n_epochs of TorchGate must be a positive integer; received 0"),
            ({"validation_fraction": 1.0}, "must be at least 0 and below 1; received 1.0"),
            ({"schedule": "cosin"}, "did you mean 'cosine'"),
            ({"shrink_to": "stat"}, "did you mean 'start'"),
        ],
    )
    def test_parameters_are_checked(self, parameter, words):
        X, P, y = problem()
        with pytest.raises(InvalidInputError, match=words):
            TorchGate(two_layers, **parameter).fit(Labelled.of(X, P, y, loss=SQUARED))

    def test_the_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingDependencyError, match=r"localma\[torch\]"):
            TorchGate(two_layers)


def candidates(read=list):
    """Two candidates, each sure of its own word; `read` gets the texts from X."""

    def spoken(word):
        def probability(X):
            return np.array([0.9 if text.count(word) == 3 else 0.5 for text in read(X)])

        return as_candidate(probability, classes=["no", "yes"])

    return {"left": spoken("left"), "right": spoken("right")}


def made_by_name(n_candidates):
    """A factory that a saved model can name."""
    return CountWords(n_candidates)


class TestEstimators:
    def sample(self, n=120):
        X, _, _ = problem(n)
        return texts_of(X), np.where(np.random.default_rng(0).random(n) < 0.9, "yes", "no")

    def model(self, gate):
        return LocalMAClassifier(candidates(), gate=gate, cv=2, random_state=0)

    def path(self, module=CountWords):
        base = TorchGate(module, n_epochs=15, learning_rate=0.1)
        return ShrunkGate(base, strengths=(0.1,), n_restarts=1)

    @pytest.mark.parametrize("gate", ["torch", "path", "global", "equal"])
    def test_texts_go_through_untouched(self, gate):
        texts, y = self.sample()
        chosen = {"torch": TorchGate(CountWords, **QUICK), "path": self.path()}.get(gate, gate)
        model = self.model(chosen).fit(texts, y)
        assert model.predict_proba(texts).shape == (120, 2)
        assert model.predict_weights(texts[:1]).shape == (1, 2)
        assert not hasattr(model, "n_features_in_")

    def test_weights_follow_the_texts(self):
        texts, y = self.sample()
        model = self.model(self.path()).fit(texts, y)
        left = np.array([text.count("left") == 3 for text in texts])
        weights = model.predict_weights(texts)
        assert weights[left, 0].min() > weights[~left, 0].max()
        assert model.locality_gain_.value > 0
        assert np.isfinite(cross_val_score(model, texts, y, cv=2)).all()

    def test_other_gates_still_refuse_texts(self):
        texts, y = self.sample()
        with pytest.raises(ValueError, match=r"could not convert string|Expected 2D array"):
            self.model("local").fit(texts, y)

    def test_hugging_face_data_and_a_function_of_it(self):
        texts, y = self.sample()
        data = pytest.importorskip("datasets").Dataset.from_dict({"text": texts})
        pool = candidates(lambda rows: rows["text"])
        model = LocalMAClassifier(
            pool, gate=self.path(), gate_features=lambda rows: list(rows["text"]), cv=2,
            random_state=0,
        )  # fmt: skip
        plain = self.model(self.path()).fit(texts, y)
        np.testing.assert_allclose(
            model.fit(data, y).predict_weights(data), plain.predict_weights(texts), atol=1e-6
        )

    def test_one_text_column_of_a_frame(self):
        pandas = pytest.importorskip("pandas")
        texts, y = self.sample()
        frame = pandas.DataFrame({"text": texts, "number": np.arange(len(texts))})
        pool = candidates(lambda rows: rows["text"])
        model = LocalMAClassifier(
            pool, gate=TorchGate(CountWords, **QUICK), gate_features="text", random_state=0
        )
        plain = self.model(TorchGate(CountWords, **QUICK)).fit(texts, y)
        np.testing.assert_allclose(
            model.fit(frame, y).predict_weights(frame), plain.predict_weights(texts), atol=1e-6
        )

    @pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")  # of a toy
    def test_a_table_is_checked_as_ever(self):
        X, _, y = problem()
        pool = {"a": lambda X: X[:, 0], "b": lambda X: X[:, 1]}
        model = LocalMARegressor(pool, gate=TorchGate(two_layers, **QUICK), random_state=0)
        model.fit(X, y[:, 0])
        assert model.n_features_in_ == 3
        assert model.predict(X.tolist()).shape == (120,)
        with pytest.raises(ValueError, match="NaN"):
            model.predict(np.full((1, 3), np.nan))
        with pytest.raises(ValueError, match="expecting 3 features"):
            model.predict(X[:, :2])

    @pytest.mark.parametrize("gate", ["torch", "path"])
    def test_saved_and_loaded(self, gate, tmp_path):
        texts, y = self.sample()
        made = {"torch": TorchGate(CountWords(2), **QUICK), "path": self.path(CountWords(2))}[gate]
        model = self.model(made).fit(texts, y)
        file = tmp_path / "model.localma"
        model.save(file)
        with pytest.raises(InvalidInputError, match=r"module of this file's TorchGate is not sav"):
            load(file, candidates())
        expected = model.predict_proba(texts)
        for given in (CountWords(2), CountWords, made):
            again = load(file, candidates(), gate=given)
            np.testing.assert_array_equal(again.predict_proba(texts), expected)
        with pytest.raises(FileFormatError, match="must have the parameters that were saved"):
            load(file, candidates(), gate=nn.Linear(7, 2))
        with pytest.raises(InvalidInputError, match=r"gate= is a GlobalGate"):
            load(file, candidates(), gate=GlobalGate())

    def test_a_factory_comes_back_by_name_if_trusted(self, tmp_path, monkeypatch):
        module = type(sys)("my_factories")
        made_by_name.__module__, module.made_by_name = "my_factories", made_by_name
        monkeypatch.setitem(sys.modules, "my_factories", module)
        texts, y = self.sample()
        model = self.model(TorchGate(made_by_name, **QUICK)).fit(texts, y)
        model.save(tmp_path / "model.localma")
        with pytest.raises(UntrustedFileError, match="my_factories:made_by_name"):
            load(tmp_path / "model.localma", candidates())
        again = load(tmp_path / "model.localma", candidates(), trust=True)
        np.testing.assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))

    def test_cloning_shares_the_module(self):
        module = CountWords(2)
        gate = ShrunkGate(TorchGate(module, collate=list))
        assert clone(gate).base.module is module
        assert clone(self.model(gate)).gate.base.module is module


def test_a_checkpoint_belongs_to_one_network(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    P = np.stack([y, -y], axis=1)

    def trained(layer, checkpoint):
        net = nn.Sequential(nn.Linear(2, 4), layer, nn.Linear(4, 2))
        gate = TorchGate(net, n_epochs=4, checkpoint=checkpoint, random_state=0)
        return gate.fit(Labelled.of(X, P, y, loss=get_loss("squared_error"))).predict_weights(X)

    torch.manual_seed(0)
    trained(nn.ReLU(), tmp_path)
    torch.manual_seed(0)
    resumed = trained(nn.Tanh(), tmp_path)
    torch.manual_seed(0)
    np.testing.assert_array_equal(resumed, trained(nn.Tanh(), None))


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_the_loss_is_a_mean_over_the_rows_that_train(monkeypatch, fraction):
    """Otherwise shrinkage would mean more, the more rows are held out."""
    totals = []
    fit = training.Trainer.fit

    def recorded(self, train, *more):
        totals.append(self.data.sample_weight[train].sum())
        return fit(self, train, *more)

    monkeypatch.setattr(training.Trainer, "fit", recorded)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    gate = TorchGate(nn.Linear(2, 2), n_epochs=2, validation_fraction=fraction, random_state=0)
    gate.fit(Labelled.of(X, np.stack([y, -y], axis=1), y, loss=get_loss("squared_error")))
    assert totals == [pytest.approx(1.0)]
