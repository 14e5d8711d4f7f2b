"""Gates as ONNX graphs give what they give here, within 1e-5."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, export_onnx, load
from localma.candidates import OnnxCandidate
from localma.equations import local_average
from localma.errors import InvalidInputError
from localma.gates import (
    EqualGate,
    Gate,
    GlobalGate,
    Labelled,
    MLPGate,
    ShrunkGate,
    TorchGate,
    TreeGate,
)
from localma.losses import get_loss

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
SQUARED = get_loss("squared_error")
GATES = {
    "equal": EqualGate(),
    "global": GlobalGate(),
    "linear": MLPGate((), n_steps=40, random_state=0),
    "mlp": MLPGate((8, 5), n_steps=40, n_restarts=2, random_state=0),
    "factored": MLPGate((2,), activation="identity", n_steps=40, random_state=0),
    "bounded": MLPGate((6,), logit_bound=1.5, n_steps=40, random_state=0),
    "constant": MLPGate(shrinkage=np.inf),
    "trees": TreeGate(random_state=0),
    "no_trees": TreeGate(shrinkage=np.inf),
    "shrunk": ShrunkGate(cv=2, n_restarts=2, random_state=0),
    "unguarded": ShrunkGate(MLPGate((4,), n_steps=60), cv=2, guard=False, random_state=0),
}


def problem(n, p, M, K, seed):
    """Candidates that are right in different places."""
    rng = np.random.default_rng(seed)
    X = rng.normal(loc=rng.normal(scale=10), size=(n, p))
    y = X[:, :1] + np.arange(K)
    error = np.stack([np.abs(X[:, :1] - X[:, 0].mean() - c) for c in np.linspace(-1, 1, M)], axis=1)
    return X, y[:, None] + error * rng.choice([-1.0, 1.0], size=(n, M, 1)), y


def run(path, X, P=None):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {"x": X} if P is None else {"x": X, "predictions": P}
    return session.run(None, given), session


@pytest.mark.parametrize("name", GATES)
@settings(max_examples=5, deadline=None)
@given(
    n=st.integers(6, 40), p=st.integers(1, 6), M=st.integers(1, 5), K=st.integers(1, 3),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_weights_and_average_agree(name, tmp_path_factory, n, p, M, K, seed):
    path = tmp_path_factory.mktemp("onnx") / "gate.onnx"
    X, P, y = problem(n, p, M, K, seed)
    gate = GATES[name].fit(Labelled.of(X, P, y, loss=SQUARED))
    for several in (True, False):
        export_onnx(gate, path, several_outputs=several)
        predictions = P if several else P[:, :, 0]
        for away in (1.0, 3.0, 1e6):  # in the sample, at its edge, where only the guard counts
            weights = gate.predict_weights(X * away)
            (W, prediction), _ = run(path, X * away, predictions)
            np.testing.assert_allclose(W, weights, atol=1e-5)
            expected = local_average(weights, predictions)
            np.testing.assert_allclose(prediction, expected, rtol=1e-5, atol=1e-4)


def test_the_path_of_the_test_is_local_and_guarded(tmp_path):
    X, P, y = problem(200, 2, 3, 1, 0)
    gate = ShrunkGate(cv=2, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
    assert gate.answer_.gates
    edge = np.linspace(X.min() - 9, X.max() + 9, 400)[:, None] * np.ones((1, 2))
    support = gate.support(edge)
    assert ((support > 0.05) & (support < 0.95)).any()
    export_onnx(gate, tmp_path / "gate.onnx", include_combination=False)
    (W,), session = run(tmp_path / "gate.onnx", edge)
    np.testing.assert_allclose(W, gate.predict_weights(edge), atol=1e-5)
    assert [value.name for value in session.get_inputs()] == ["x"]


@pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")  # of a toy
def test_a_regressor(tmp_path):
    X, _, y = problem(80, 3, 2, 1, 0)
    pool = {"up": lambda X: X[:, 0] + 1.0, "down": lambda X: X[:, 0] - 1.0}
    model = LocalMARegressor(pool, gate="local", gate_features=[0, 2], random_state=0)
    model.fit(X, y[:, 0])
    export_onnx(model, tmp_path / "model.onnx")
    (_, prediction), session = run(
        tmp_path / "model.onnx", X[:, [0, 2]], model.candidate_predictions(X)
    )
    np.testing.assert_allclose(prediction, model.predict(X), rtol=1e-5, atol=1e-5)
    words = session.get_modelmeta().custom_metadata_map
    assert json.loads(words["candidates"]) == ["up", "down"]


def test_a_classifier(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.array(["a", "b", "c"])[rng.integers(3, size=90)]
    pool = {
        name: as_candidate(
            lambda X, s=s: (
                np.exp(s * X[:, :1] * np.arange(3))
                / np.exp(s * X[:, :1] * np.arange(3)).sum(1, keepdims=True)
            ),
            classes=["a", "b", "c"],
        )
        for name, s in (("up", 1.0), ("down", -1.0))
    }
    model = LocalMAClassifier(pool, random_state=0).fit(X, y)
    export_onnx(model, tmp_path / "model.onnx")
    (_, probabilities), session = run(tmp_path / "model.onnx", X, model.candidate_predictions(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-5)
    words = session.get_modelmeta().custom_metadata_map
    assert json.loads(words["classes"]) == ["a", "b", "c"]


class TestTorch:
    @pytest.fixture
    def nn(self):
        pytest.importorskip("accelerate")
        return pytest.importorskip("torch").nn

    def test_a_network_and_one_with_a_layer_on_top(self, nn, tmp_path):
        X, P, y = problem(60, 3, 2, 1, 0)
        for top in (nn.Identity(), nn.Tanh()):
            module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2), top)
            gate = TorchGate(module, n_epochs=10, learning_rate=0.05, random_state=0)
            path = ShrunkGate(gate, cv=2, strengths=(0.1,), n_restarts=1, random_state=0)
            for one in (gate, path):
                one.fit(Labelled.of(X, P, y, loss=SQUARED))
                export_onnx(one, tmp_path / "gate.onnx", several_outputs=True)
                (W, _), _ = run(tmp_path / "gate.onnx", X, P)
                np.testing.assert_allclose(W, one.predict_weights(X), atol=1e-5)

    def test_images(self, nn, tmp_path):
        X, P, y = problem(40, 16, 2, 1, 0)
        images = X.reshape(40, 1, 4, 4)
        module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
        gate = TorchGate(module, n_epochs=5, learning_rate=0.05, random_state=0)
        gate.fit(Labelled.of(images, P, y, loss=SQUARED))
        export_onnx(clone_of(gate), tmp_path / "gate.onnx")
        (W, _), session = run(tmp_path / "gate.onnx", images, P[:, :, 0])
        np.testing.assert_allclose(W, gate.predict_weights(images), atol=1e-5)
        assert session.get_inputs()[0].shape == ["n", 1, 4, 4]

    def test_inputs_that_are_no_tensor_are_named(self, nn, tmp_path):
        X, P, y = problem(40, 2, 2, 1, 0)
        gate = TorchGate(
            lambda M: nn.Sequential(nn.Embedding(5, M), nn.Flatten(), nn.Linear(2 * M, M))
        )
        gate.set_params(n_epochs=2, random_state=0)
        gate.fit(Labelled.of((X > 0).astype(int), P, y, loss=SQUARED))
        with pytest.raises(InvalidInputError, match="one tensor of floating numbers"):
            export_onnx(gate, tmp_path / "gate.onnx")


def clone_of(gate):
    """The gate as it comes back from a file."""
    return type(gate)(**gate.get_params(deep=False)).restore(gate.arrays())


def test_a_gate_of_ones_own_is_named(tmp_path):
    class Own(GlobalGate):
        pass

    X, P, y = problem(40, 2, 2, 1, 0)
    own: Gate = Own().fit(Labelled.of(X, P, y, loss=SQUARED))
    with pytest.raises(InvalidInputError, match=r"EqualGate, GlobalGate, .*; received a Own"):
        export_onnx(own, tmp_path / "gate.onnx")


def test_far_outside_the_sample_too(tmp_path):
    X, P, y = problem(300, 3, 3, 1, 0)
    gate = ShrunkGate(cv=2, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
    export_onnx(gate, tmp_path / "gate.onnx", include_combination=False)
    middle = X.mean(axis=0)
    far = np.concatenate([middle + stretch * (X - middle) for stretch in (1.5, 3.0, 10.0, 1e6)])
    (weights,), _ = run(tmp_path / "gate.onnx", far)
    assert gate.support(far).min() < 0.01
    np.testing.assert_allclose(weights, gate.predict_weights(far), atol=1e-5)


def test_a_path_over_images(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1, 4, 4)).astype(np.float32)
    brightness = 5.0 * X.mean(axis=(1, 2, 3))[:, None].astype(float)
    P, y = np.stack([brightness, -brightness], axis=1), np.abs(brightness)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2)
    )
    base = TorchGate(module, n_epochs=60, learning_rate=0.02, random_state=0)
    gate = ShrunkGate(base, cv=2, strengths=(0.1,), random_state=0).fit(
        Labelled.of(X, P, y, loss=SQUARED)
    )
    assert gate.answer_.gates
    export_onnx(gate, tmp_path / "gate.onnx", include_combination=False)
    (weights,), _ = run(tmp_path / "gate.onnx", X.astype(np.float64))
    np.testing.assert_allclose(weights, gate.predict_weights(X), atol=1e-5)


def test_the_number_of_outputs_is_known(tmp_path):
    X, P, y = problem(40, 2, 3, 2, 0)
    model = LocalMARegressor(gate="global").fit(X, y, predictions=P)
    path = tmp_path / "model.onnx"
    model.save(tmp_path / "model.localma")
    for one in (model, load(tmp_path / "model.localma", candidates={})):
        export_onnx(one, path)
        (_, prediction), _ = run(path, X, P)
        np.testing.assert_allclose(prediction, model.predict(X, predictions=P), atol=1e-6)
    export_onnx(model, path, several_outputs=False)
    assert run(path, X, P[:, :, 0])[1].get_inputs()[1].shape == ["n", "M"]
    del model.n_outputs_  # as in a model that was saved before it was recorded
    export_onnx(model, path)
    assert run(path, X, P[:, :, 0])[1].get_inputs()[1].shape == ["n", "M"]


class TestWithCandidates:
    """One graph with ONNX candidates predicts the same numbers in plain onnxruntime."""

    def onnx_pool(self, folder, models, p, *, opsets=(17,), **options):
        skl2onnx = pytest.importorskip("skl2onnx")
        from skl2onnx.common.data_types import FloatTensorType

        pool = {}
        for k, (name, model) in enumerate(models.items()):
            kind = [("X", FloatTensorType([None, p]))]
            made = skl2onnx.to_onnx(
                model,
                initial_types=kind,
                target_opset={"": opsets[k % len(opsets)], "ai.onnx.ml": 3},
                **options,
            )
            (folder / f"{name}.onnx").write_bytes(made.SerializeToString())
            pool[name] = OnnxCandidate(folder / f"{name}.onnx")
        return pool

    def run(self, path, X):
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        assert [entry.name for entry in session.get_inputs()] == ["X"]
        return session.run(["weights", "prediction"], {"X": X})

    @pytest.mark.parametrize("opsets", [(17,), (15, 18)])
    @pytest.mark.parametrize("gate_features", [None, [0, 2]])
    def test_regression(self, tmp_path, opsets, gate_features):
        from sklearn.ensemble import GradientBoostingRegressor
        from sklearn.linear_model import Ridge

        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, size=(900, 3))
        y = np.abs(X[:, 0]) + 0.2 * rng.standard_normal(900)
        models = {
            "low": Ridge().fit(X[:300][X[:300, 0] < 0], y[:300][X[:300, 0] < 0]),
            "trees": GradientBoostingRegressor(n_estimators=5).fit(X[:300], y[:300]),
        }
        pool = self.onnx_pool(tmp_path, models, 3, opsets=opsets)
        model = LocalMARegressor(pool, gate_features=gate_features, random_state=0)
        model.fit(X[300:], y[300:])
        export_onnx(model, tmp_path / "whole.onnx", include_candidates=True)
        weights, prediction = self.run(tmp_path / "whole.onnx", X)
        np.testing.assert_allclose(weights, model.predict_weights(X), atol=1e-5)
        np.testing.assert_allclose(prediction, model.predict(X), rtol=1e-5, atol=1e-6)

    def test_classes(self, tmp_path):
        from sklearn.linear_model import LogisticRegression

        rng = np.random.default_rng(0)
        X = rng.standard_normal((600, 2))
        y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
        models = {
            "two": LogisticRegression().fit(X[:200][y[:200] != "mid"], y[:200][y[:200] != "mid"]),
            "three": LogisticRegression(C=0.01).fit(X[:200], y[:200]),
        }
        options = {"options": {"zipmap": False}}
        pool = self.onnx_pool(tmp_path, models, 2, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LocalMAClassifier(pool, gate="local", random_state=0).fit(X[200:], y[200:])
            export_onnx(model, tmp_path / "whole.onnx", include_candidates=True)
            expected = model.predict_proba(X)
        _, probabilities = self.run(tmp_path / "whole.onnx", X)
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)

    def test_other_candidates_are_refused(self, tmp_path):
        X = np.random.default_rng(0).uniform(1, 2, size=(100, 2))
        model = LocalMARegressor({"a": lambda X: X[:, 0], "b": lambda X: X[:, 1]}, gate="equal")
        model.fit(X, X.mean(axis=1) + 0.1 * np.sin(9 * X[:, 0]))
        with pytest.raises(InvalidInputError, match="'a' is a FunctionCandidate"):
            export_onnx(model, tmp_path / "whole.onnx", include_candidates=True)
        with pytest.raises(InvalidInputError, match="needs a model"):
            export_onnx(model.gate_, tmp_path / "whole.onnx", include_candidates=True)
        assert not (tmp_path / "whole.onnx").exists()
