"""Own models: what they learn, in every loss, and what a fit does with them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.linear_model import LinearRegression

import localma
from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor
from localma.equations import row_losses
from localma.errors import (
    CandidateError,
    FileFormatError,
    InvalidInputError,
    InvalidParameterError,
    LeftOutWarning,
)
from localma.losses import LOSSES, get_loss
from localma.onnx_export import export_onnx
from localma.own.companions import OWN_MODELS
from localma.own.models import Direct, Recalibrated, Residual

N, M = 300, 3
LOSS_NAMES = [name for name in LOSSES if name not in ("cross_entropy", "brier")]


def problem(loss: str, n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, predictions (n, M) with a shared error, and targets in the domain of the loss."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 2))
    truth = 1.5 * X[:, 0]
    scores = 0.5 * truth[:, None] + 0.5 + 0.2 * random.normal(size=(n, M))
    if loss == "bernoulli":
        return X, expit(scores), (random.uniform(size=n) < expit(truth)).astype(float)
    if get_loss(loss).prediction.low == 0.0:
        y = np.exp(truth) * random.gamma(5.0, 0.2, n)
        return X, np.exp(scores), random.poisson(y).astype(float) if loss == "poisson" else y
    return X, scores, truth + 0.3 * random.normal(size=n)


def labelled(n: int = N, labels: Any = ("no", "yes")) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, overconfident probabilities (n, M, K) and labels."""
    random = np.random.default_rng(1)
    K = len(labels)
    X = random.uniform(-1, 1, (n, 2))
    scores = np.stack([2 * X[:, 0] * k for k in range(K)], axis=1)
    codes = (scores + random.gumbel(size=(n, K))).argmax(axis=1)
    noisy = 3.0 * scores[:, None] + random.normal(size=(n, M, K))
    P = np.exp(noisy - noisy.max(axis=2, keepdims=True))
    return X, P / P.sum(axis=2, keepdims=True), np.array(labels)[codes]


def fitted(kind: str, loss: str, X: Any, P: Any, y: Any, **further: Any) -> Any:
    model = OWN_MODELS[kind](get_loss(loss), P.shape[1])
    return model.fit(np.hstack([X, P]), y, **further)


# --- the models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OWN_MODELS)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_every_loss_is_lowered_within_its_domain(kind: str, loss: str) -> None:
    X, P, y = problem(loss, 2 * N)
    model = fitted(kind, loss, X[:N], P[:N], y[:N])
    values = model.predict(np.hstack([X, P])[N:])
    assert get_loss(loss).prediction.contains(values).all()
    risk, equal = (
        row_losses(get_loss(loss), y[N:], p).mean() for p in (values, P[N:].mean(axis=1))
    )
    assert risk < (1.0 if loss == "bernoulli" else 0.97) * equal


@pytest.mark.parametrize("kind", OWN_MODELS)
@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_probabilities_of_classes(kind: str, labels: Any) -> None:
    X, P, y = labelled(2 * N, labels)
    Z = np.hstack([X, P.reshape(len(P), -1)])
    model = OWN_MODELS[kind](get_loss("cross_entropy"), M, np.array(labels)).fit(Z[:N], y[:N])
    p = model.predict_proba(Z[N:])
    assert_allclose(p.sum(axis=1), 1.0)
    observed = np.searchsorted(labels, y[N:])[:, None]
    risk, equal = (
        -np.log(np.take_along_axis(q, observed, axis=1)).mean() for q in (p, P[N:].mean(axis=1))
    )
    assert risk < 0.9 * equal
    assert_array_equal(model.predict(Z[N:]), model.classes_[p.argmax(axis=1)])


@pytest.mark.parametrize("kind", ["recalibrated", "residual"])
def test_a_shared_offset_is_removed_to_near_the_noise(kind: str) -> None:
    random = np.random.default_rng(0)
    X, truth = random.uniform(size=(500, 2)), random.normal(size=500)
    P = truth[:, None] + 5.0 + 0.01 * random.normal(size=(500, M))
    model = fitted(kind, "squared_error", X, P, truth + 0.1 * random.normal(size=500))
    error = model.predict(np.hstack([X, P])) - truth
    assert np.sqrt((error**2).mean()) < 0.05


def test_recalibration_is_the_ridge_of_its_equation() -> None:
    X, P, y = problem("squared_error")
    model = fitted("recalibrated", "squared_error", X, P, y)
    (affine,) = model.corrections_
    new = np.random.default_rng(3).normal(size=(5, M))
    by_hand = new.mean(axis=1) + affine.offset + (new - affine.centre[:, 0]) @ affine.slopes
    assert_allclose(model.predict(np.hstack([X[:5], new])), by_hand)
    # The gradient of the penalised risk is zero: with one penalty for all slopes.
    residual = y - model.predict(np.hstack([X, P]))
    assert abs(residual.sum()) < 1e-6
    gradient = 2 * (P - affine.centre[:, 0]).T @ residual
    penalty = gradient @ affine.slopes / (affine.slopes @ affine.slopes)
    assert penalty >= 0
    assert_allclose(gradient, penalty * affine.slopes, atol=1e-6 * np.abs(gradient).max() + 1e-6)


@pytest.mark.parametrize("kind", OWN_MODELS)
def test_weights_act_like_repeated_rows(kind: str) -> None:
    X, P, y = problem("squared_error", 600)
    times = np.random.default_rng(0).integers(1, 4, 600)
    rows = np.arange(600)  # as groups, so that inner folds keep the copies of a row together
    weight = times.astype(float)
    weighted = fitted(kind, "squared_error", X, P, y, sample_weight=weight, groups=rows)
    copies = [np.repeat(values, times, axis=0) for values in (X, P, y)]
    repeated = fitted(kind, "squared_error", *copies, groups=np.repeat(rows, times))
    Z = np.hstack([X, P])
    difference = weighted.predict(Z) - repeated.predict(Z)
    assert np.sqrt((difference**2).mean()) < 0.3 * np.std(y - weighted.predict(Z))


def test_rows_without_weight_are_not_used() -> None:
    X, P, y = problem("gamma")
    weight = np.ones(N)
    weight[::2] = 0.0
    spoilt = np.where(weight > 0, y, 1e6)
    for kind in OWN_MODELS:
        a = fitted(kind, "gamma", X, P, y, sample_weight=weight)
        b = fitted(kind, "gamma", X, P, spoilt, sample_weight=weight)
        assert_allclose(a.predict(np.hstack([X, P])), b.predict(np.hstack([X, P])), rtol=1e-8)


def test_trees_are_left_out_where_nothing_is_left_to_learn() -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=200)
    P = truth[:, None] + 0.3 * random.normal(size=(200, M))
    X = random.normal(size=(200, 4))
    model = fitted("residual", "squared_error", X, P, truth + random.normal(size=200))
    assert model.corrections_[0].trees.n_rounds <= 4


def test_inner_folds_keep_groups_whole() -> None:
    """Groups with a value each: trees that split by group look good only in broken groups."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 10)
    X = np.repeat(random.normal(size=(30, 1)), 10, axis=0)
    y = np.repeat(random.normal(size=30), 10) + 0.01 * random.normal(size=300)
    P = random.normal(size=(300, 2)) * 0.01
    together = fitted("residual", "squared_error", X, P, y, groups=groups)
    apart = fitted("residual", "squared_error", X, P, y)
    assert apart.corrections_[0].trees.n_rounds >= 80
    assert together.corrections_[0].trees.n_rounds < 20


def test_a_class_without_rows_keeps_a_small_probability() -> None:
    X, P, y = labelled(labels=("a", "b", "c"))
    kept = y != "c"
    Z = np.hstack([X, P.reshape(N, -1)])
    for kind in OWN_MODELS:
        model = OWN_MODELS[kind](get_loss("cross_entropy"), M, np.array(["a", "b", "c"]))
        p = model.fit(Z[kept], y[kept]).predict_proba(Z)
        assert p.shape == (N, 3)
        assert 0.0 < p[:, 2].mean() < 0.1


@pytest.mark.parametrize("kind", OWN_MODELS)
@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_a_sample_that_separates_classes_leaves_doubt(kind: str, labels: Any) -> None:
    """As if one more row were spread over all classes."""
    n, K = 60, len(labels)
    codes = np.arange(n) % K
    X = codes[:, None] + 0.01 * np.random.default_rng(0).normal(size=(n, 2))
    P = np.repeat(np.eye(K)[codes][:, None], M, axis=1)
    model = OWN_MODELS[kind](get_loss("cross_entropy"), M, np.array(labels))
    model.fit(np.hstack([X, P.reshape(n, -1)]), np.array(labels)[codes])
    p = model.predict_proba(np.hstack([10 * X, P.reshape(n, -1)]))
    assert_allclose(p.sum(axis=1), 1.0)
    assert_allclose(p.min(), 1.0 / (K * (n + 1)), rtol=0.05)


@pytest.mark.parametrize("kind", OWN_MODELS)
def test_counts_stay_within_the_predictions_for_the_sample(kind: str) -> None:
    X, P, y = problem("poisson")
    model = fitted(kind, "poisson", X, P, y)
    largest = model.predict(np.hstack([X, P])).max()
    assert model.predict(np.hstack([100 * X, 100 * P])).max() <= largest * (1 + 1e-9)


# --- a fit ---------------------------------------------------------------------------------------


def table(loss: str = "squared_error", n: int = N) -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    X, P, y = problem(loss, n)
    return np.hstack([X, P]), {name: Column(2 + m) for m, name in enumerate("abc")}, y


@pytest.fixture(scope="module")
def regression() -> Any:
    X, columns, y = table()
    return LocalMARegressor(columns, own="auto", random_state=0).fit(X, y)


def test_own_candidates_are_ordinary_ones(regression: Any) -> None:
    X, _, y = table()
    names = ("a", "b", "c", "own: recalibrated", "own: residual", "own: direct")
    assert regression.candidate_names_ == names
    weights = regression.predict_weights(X)
    assert weights.shape == (N, 6)
    assert weights[:, 3:].sum(axis=1).mean() > 0.8
    assert regression.candidate_predictions(X).shape == (N, 6)
    assert regression.cautions_ == ()
    plain = LocalMARegressor(table()[1], random_state=0).fit(X, y)
    assert regression.locality_gain_.risk < 0.8 * plain.locality_gain_.risk
    low, high = regression.predict_interval(X, 0.9)
    assert 0.85 < ((low <= y) & (y <= high)).mean() < 0.98
    assert "own" not in regression.verdict_ or "alone" in regression.verdict_


def test_the_gate_learns_from_predictions_out_of_fold() -> None:
    X, _, _ = problem("squared_error", 60)
    noise = np.random.default_rng(0).normal(size=60)
    model = LocalMARegressor(own=["direct"], gate="global", random_state=0)
    with warnings.catch_warnings(action="ignore"):
        model.fit(X, noise, predictions=noise[:, None] * 0.3 + 0.1)
    assert model.global_weights_[1] < 0.2  # in its own rows a model of noise would look good


def test_predictions_that_a_user_passes() -> None:
    X, P, y = problem("squared_error")
    model = LocalMARegressor(own="auto", random_state=0).fit(X, y, predictions=P)
    values = model.predict(X, predictions=P)
    by_name = {f"candidate_{m}": P[:, m] for m in range(M)}
    assert_allclose(model.predict(X, predictions=by_name), values)
    full = model.pool_.predict(X, given=by_name)
    assert_allclose(model.predict(X, predictions=full), values)
    with pytest.raises(InvalidInputError, match=r"no candidates to run: .* 'candidate_2', or load"):
        model.predict(X)
    with pytest.raises(InvalidInputError, match="must have every candidate"):
        model.predict(X, predictions={"candidate_0": P[:, 0]})


def test_candidates_without_weight_do_not_run(regression: Any) -> None:
    X, _, _ = table()
    pool = regression.pool_
    only = np.zeros((N, 6), dtype=bool)
    only[:10, 3] = True
    P = pool.predict(X, only=only)
    assert_allclose(P[:10, 3], regression.candidate_predictions(X)[:10, 3])
    assert not P[:10, :3].any()
    assert not P[10:].any()
    assert not P[:, 4:].any()


@pytest.mark.parametrize("gate", ["auto", "global", "equal", "local"])
def test_save_and_load(gate: str, tmp_path: Any) -> None:
    X, columns, y = table()
    model = LocalMARegressor(columns, gate=gate, own="auto", random_state=0).fit(X, y)
    model.save(tmp_path / "model.localma")
    loaded = localma.load(tmp_path / "model.localma")
    assert_array_equal(loaded.predict(X), model.predict(X))
    bare = localma.load(tmp_path / "model.localma", candidates={})
    assert_allclose(bare.predict(X, predictions=X[:, 2:]), model.predict(X))
    loaded.save(tmp_path / "again.localma")
    assert_array_equal(localma.load(tmp_path / "again.localma").predict(X), model.predict(X))


@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_classes(labels: Any, tmp_path: Any) -> None:
    X, P, y = labelled(labels=labels)
    plain = LocalMAClassifier(random_state=0).fit(X, y, predictions=P)
    model = LocalMAClassifier(own="auto", random_state=0).fit(X, y, predictions=P)
    assert model.locality_gain_.risk < 0.95 * plain.locality_gain_.risk
    assert "The candidates share an error" in plain.verdict_
    p = model.predict_proba(X, predictions=P)
    assert_allclose(p.sum(axis=1), 1.0)
    model.save(tmp_path / "model.localma")
    assert_array_equal(localma.load(tmp_path / "model.localma").predict_proba(X, predictions=P), p)


def test_several_outputs(tmp_path: Any) -> None:
    X, P, y = problem("squared_error")
    cube, targets = np.stack([P, 10 - P], axis=2), np.stack([y, -y], axis=1)
    model = LocalMARegressor(own="auto", random_state=0).fit(X, targets, predictions=cube)
    values = model.predict(X, predictions=cube)
    assert values.shape == (N, 2)
    assert ((values - targets) ** 2).mean() < 0.2
    model.save(tmp_path / "model.localma")
    loaded = localma.load(tmp_path / "model.localma")
    assert_array_equal(loaded.predict(X, predictions=cube), values)


def test_folds_and_groups_are_those_of_the_model() -> None:
    X, _P, y = problem("squared_error", 200)
    groups = np.repeat(np.arange(20), 10)
    seen: list[set[int]] = []

    class Spy(RegressorMixin, BaseEstimator):
        def fit(self, Z: Any, target: Any, groups: Any = None) -> Spy:
            seen.append(set(np.asarray(groups).tolist()))
            self.fitted_ = True
            return self

        def predict(self, Z: Any) -> Any:
            return np.zeros(len(Z))

    candidates = {"a": lambda X: X[:, 0], "spy": CrossFitted(Spy(), predictions=True)}
    LocalMARegressor(candidates, gate="global", own="auto", random_state=0).fit(X, y, groups=groups)
    everything, *folds = seen
    assert everything == set(range(20))
    assert len(folds) == 5
    assert all(len(fold) == 16 for fold in folds)


def test_parameters_are_checked() -> None:
    X, columns, y = table(n=40)
    with pytest.raises(InvalidParameterError, match="own"):
        LocalMARegressor(columns, own="yes").fit(X, y)
    with pytest.raises(InvalidInputError, match="Unknown own model 'residuals'; did you mean"):
        LocalMARegressor(columns, own=["residuals"]).fit(X, y)
    with pytest.raises(InvalidInputError, match="may not begin with 'own: '"):
        LocalMARegressor({"own: x": Column(2)}, own="auto").fit(X, y)
    assert clone(LocalMARegressor(columns, own=["direct"])).own == ["direct"]


def test_few_rows_have_no_own_models() -> None:
    X, columns, y = table(n=20)
    with pytest.warns(LeftOutWarning, match="at least 25 labelled rows; received 20"):
        model = LocalMARegressor(columns, gate="global", own="auto").fit(X, y)
    assert model.candidate_names_ == ("a", "b", "c")


def test_onnx_export_is_refused(regression: Any, tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(InvalidInputError, match=r"'own: recalibrated' is a model .* Fit without"):
        export_onnx(regression, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("own.0.link", np.array(9)),
        ("own.0.floor", np.zeros(3)),
        ("own.0.bounds", np.zeros((2, 3))),
        ("own.0.bounds", np.array([[1.0], [0.0]])),
        ("own.0.correction.0.slopes", np.zeros(9)),
        ("own.1.correction.0.trees.children", np.zeros((1, 2), dtype=np.int32)),
        ("own.2.start.scale", np.zeros(2)),
        ("own.2.n_inputs", np.array(10**6)),
    ],
)
def test_hostile_arrays_are_refused(regression: Any, tmp_path: Any, name: str, value: Any) -> None:
    from localma.storage.array_file import read, to_bytes

    path = tmp_path / "model.localma"
    regression.save(path)
    file = read(path)
    assert name in file.arrays
    path.write_bytes(to_bytes(file.description, file.arrays | {name: value}))
    with pytest.raises(FileFormatError):
        localma.load(path)


# --- candidates that fail, and candidates of users -----------------------------------------------


class Picky(RegressorMixin, BaseEstimator):
    """Fails on samples that are not whole."""

    def __init__(self, n: int = N) -> None:
        self.n = n

    def fit(self, X: Any, y: Any) -> Picky:
        if len(X) < self.n:
            raise ValueError("too few rows")
        self.fitted_ = True
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


def test_a_candidate_that_fails_is_left_out() -> None:
    X, columns, y = table()
    with pytest.warns(LeftOutWarning, match=r"without 'picky'\. .* on fold 0 .*: too few rows"):
        model = LocalMARegressor({"picky": CrossFitted(Picky()), **columns}, random_state=0).fit(
            X, y
        )
    assert model.candidate_names_ == ("a", "b", "c")
    assert_allclose(
        model.predict(X), LocalMARegressor(columns, random_state=0).fit(X, y).predict(X), atol=0.2
    )
    with pytest.raises(CandidateError, match="too few rows"):
        LocalMARegressor({"picky": CrossFitted(Picky())}).fit(X, y)


def test_users_models_of_inputs_and_predictions() -> None:
    X, columns, y = table()
    line = CrossFitted(LinearRegression(), inputs=[0], predictions=True)
    other = CrossFitted(LinearRegression())
    model = LocalMARegressor({**columns, "line": line, "other": other}, gate="global", cv=3)
    model.set_params(random_state=0).fit(X, y)
    inputs = X[:, [0, 2, 3, 4]]  # not the predictions of the other cross-fitted model
    expected = LinearRegression().fit(inputs, y).predict(inputs)
    assert_allclose(model.candidate_predictions(X)[:, 3], expected)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_data_frames_name_the_columns_of_predictions(kind: str) -> None:
    library = pytest.importorskip(kind)
    X, _, y = labelled()
    frame = library.DataFrame({"u": X[:, 0], "v": X[:, 1]})
    given = [localma.as_candidate(_Fixed(m), classes=["no", "yes"]) for m in range(2)]
    named: list[list[str]] = []

    class Names(ClassifierMixin, BaseEstimator):
        def fit(self, Z: Any, target: Any) -> Names:
            named.append(list(Z.columns))
            self.classes_ = np.unique(target)
            return self

        def predict_proba(self, Z: Any) -> Any:
            return np.full((len(Z), 2), 0.5)

        def predict(self, Z: Any) -> Any:
            return self.classes_[np.zeros(len(Z), dtype=int)]

    own = CrossFitted(Names(), inputs=["u"], predictions=True)
    candidates = {"a": given[0], "b": given[1], "n": own}
    LocalMAClassifier(candidates, gate="equal", cv=2).fit(frame, y)
    assert named[0] == ["u", "a: no", "a: yes", "b: no", "b: yes"]


class _Fixed:
    """Probabilities from the first column."""

    def __init__(self, m: int) -> None:
        self.m = m

    def __call__(self, X: Any) -> Any:
        p = expit(np.asarray(X["u"], dtype=float) + self.m)
        return np.stack([1 - p, p], axis=1)


# --- the verdict ---------------------------------------------------------------------------------


def test_the_verdict_says_when_own_models_would_pay(tmp_path: Any) -> None:
    X, columns, y = table()
    model = LocalMARegressor(columns, random_state=0).fit(X, y)
    share = model.shared_error_.gain / model.shared_error_.risk
    sentence = (
        "The candidates share an error: recalibrating them would lower the loss by about "
        f"{100 * share:.0f} %. Use own='auto'."
    )
    assert model.verdict_.endswith(sentence)
    recalibrated = LocalMARegressor(columns, own=["recalibrated"], random_state=0).fit(X, y)
    measured = 1 - recalibrated.locality_gain_.risk / model.locality_gain_.risk
    assert abs(measured - share) < 0.1
    model.save(tmp_path / "model.localma")
    assert localma.load(tmp_path / "model.localma").verdict_ == model.verdict_


def test_the_verdict_rarely_says_so_without_reason() -> None:
    """The average of these candidates is the best prediction, so nothing can be recalibrated."""
    claims = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        X, P = random.normal(size=(100, 2)), random.normal(size=(100, M))
        y = P.mean(axis=1) + random.normal(size=100)
        with warnings.catch_warnings(action="ignore"):
            model = LocalMARegressor(
                gate=localma.gates.ShrunkGate(strengths=(1.0,), linear=False, trees=False)
            )
            model.set_params(random_state=0).fit(X, y, predictions=P)
        claims += model.shared_error_ is not None
    assert claims <= 1


def test_the_command_line_adds_own_models(tmp_path: Any) -> None:
    pytest.importorskip("typer")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv
    from typer.testing import CliRunner

    from localma.cli.app import app

    X, P, y = problem("squared_error")
    columns = {"u": X[:, 0], "v": X[:, 1], "p_a": P[:, 0], "p_b": P[:, 1], "y": y}
    path, out = tmp_path / "train.csv", tmp_path / "model.localma"
    csv.write_csv(pyarrow.table(columns), path)
    options = ["fit", str(path), "--target", "y", "--predictions", "p_*", "--out", str(out)]
    plain = CliRunner().invoke(app, options)
    assert plain.exit_code == 0, plain.output
    assert "Use --own." in " ".join(plain.output.split())
    assert "own='auto'" not in plain.output
    own = CliRunner().invoke(app, [*options, "--own"])
    assert own.exit_code == 0, own.output
    assert "own: recalibrated" in own.output
    predicted = tmp_path / "predicted.csv"
    new = CliRunner().invoke(app, ["predict", str(out), str(path), "--out", str(predicted)])
    assert new.exit_code == 0, new.output
    assert predicted.exists()


def test_kinds_are_in_order() -> None:
    assert list(OWN_MODELS.values()) == [Recalibrated, Residual, Direct]
