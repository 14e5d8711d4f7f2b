"""Several outputs in one loss: equal shares for outputs of any unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localma import LocalMAClassifier, LocalMARegressor, inspection, load
from localma.equations import row_losses
from localma.errors import FileFormatError, InvalidInputError
from localma.gates import GlobalGate, Labelled, MLPGate, ShrunkGate
from localma.gates.constant import standardize_outputs
from localma.losses import LOSSES, Loss, get_loss
from localma.model_file import _describe_loss, _restore_loss

UNITS = np.array([1.0, 128.0])
"""A power of two changes no digit, so that results can be compared exactly."""

SHORT_PATH = ShrunkGate(cv=3, strengths=(1.0,), linear=False, trees=False, random_state=0)

WITH_UNIT = ("squared_error", "absolute_error", "quantile", "poisson", "gamma")


def problem(n=240):
    """The outputs need opposite candidates, so that their shares in the loss decide."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    truth = 3.0 + np.abs(rng.normal(size=(n, 2)))
    error = np.stack([X > 0, X <= 0], axis=1) * rng.uniform(0.5, 1.5, size=(n, 2, 2))
    error *= np.array([[0.3, 1.0], [1.0, 0.3]])
    return X, truth[:, np.newaxis] + error, truth + 0.05 * np.abs(rng.normal(size=(n, 2)))


def fitted_weights(gate, loss, units=1.0):
    X, P, y = problem()
    model = LocalMARegressor(gate=gate, loss=loss, random_state=0)
    return model.fit(X, units * y, predictions=units * P).predict_weights(X)


@pytest.mark.parametrize(
    ("gate", "rounding"),
    # A learning rate that never falls magnifies rounding. On the path, points of nearly the same
    # risk would do so, too.
    [("global", 1e-6), (MLPGate(n_steps=100), 1e-3), ("paper", 0.02), (SHORT_PATH, 1e-3)],
)
def test_unit_of_an_output_does_not_matter_to_a_standardized_loss(gate, rounding):
    loss = get_loss("squared_error")
    one, other = (fitted_weights(gate, loss.standardized(), units) for units in (1.0, UNITS))
    np.testing.assert_allclose(other, one, atol=rounding)
    assert np.abs(fitted_weights(gate, loss, UNITS) - one).max() > 0.1


@pytest.mark.parametrize("name", WITH_UNIT)
def test_every_loss_of_a_target_with_a_unit_can_be_standardized(name):
    loss = get_loss(name).standardized()
    for gate in ("global", MLPGate(n_steps=100)):
        one, other = (fitted_weights(gate, loss, units) for units in (1.0, UNITS))
        np.testing.assert_allclose(other, one, atol=0.02)  # kinks magnify rounding


def test_torch_gate_weights_outputs_as_the_kernel_does():
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from localma.gates import TorchGate

    def linear():
        return torch.nn.Linear(2, 2)

    # Batches, and the rows that are held out, depend on the targets.
    gate = TorchGate(linear, n_epochs=30, batch_size=240, validation_fraction=0.0, random_state=0)
    one, other = (
        fitted_weights(gate, get_loss("squared_error").standardized(), units)
        for units in (1.0, UNITS)
    )
    np.testing.assert_allclose(other, one, atol=1e-3)


def test_shares_are_one_over_the_risks_under_the_global_weights():
    X, P, y = problem()
    loss = get_loss("squared_error").standardized()
    data = standardize_outputs(Labelled.of(X, UNITS * P, UNITS * y, loss=loss))
    share = np.array(data.loss.output_weight)
    assert share.mean() == pytest.approx(1.0)
    gate = GlobalGate().fit(data)
    residual = UNITS * y - np.einsum("m,nmk->nk", gate.weights_, UNITS * P)
    risks = (residual**2).mean(axis=0)
    assert share[0] * risks[0] == pytest.approx(share[1] * risks[1], rel=0.1)
    assert gate.risk_ == pytest.approx((share * risks).mean())
    np.testing.assert_allclose(
        row_losses(data.loss, 0 * residual, residual), residual**2 @ share / 2
    )


def test_global_weights_are_those_of_columns_that_were_scaled_by_hand():
    X, P, y = problem()
    loss = replace(get_loss("squared_error"), output_weight=(0.4, 1.6))
    scale = np.sqrt([0.4, 1.6])
    weighted = GlobalGate().fit(Labelled.of(X, P, y, loss=loss))
    by_hand = GlobalGate().fit(Labelled.of(X, scale * P, scale * y, loss=get_loss("squared_error")))
    np.testing.assert_allclose(weighted.weights_, by_hand.weights_, atol=1e-6)
    network, same = (
        MLPGate(n_steps=60, random_state=0).fit(data).predict_weights(X)
        for data in (
            Labelled.of(X, P, y, loss=loss),
            Labelled.of(X, scale * P, scale * y, loss=get_loss("squared_error")),
        )
    )
    np.testing.assert_allclose(network, same, atol=2e-3)


def test_one_output_and_perfect_outputs_do_no_harm():
    X, P, y = problem()
    loss = get_loss("squared_error")
    for name in ("global", "auto"):
        one, other = (
            LocalMARegressor(gate=name, loss=this, random_state=0)
            .fit(X, y[:, 0], predictions=P[:, :, 0])
            .predict_weights(X)
            for this in (loss, loss.standardized())
        )
        np.testing.assert_array_equal(one, other)
    P[:, :, 1] = y[:, np.newaxis, 1]
    model = LocalMARegressor(gate="global", loss=loss.standardized())
    assert np.isfinite(model.fit(X, y, predictions=P).global_weights_).all()


def test_classifiers_refuse_a_standardized_loss():
    X, P, _ = problem()
    P = P / P.sum(axis=2, keepdims=True)
    model = LocalMAClassifier(gate="global", loss=get_loss("brier").standardized())
    with pytest.raises(
        InvalidInputError, match=r"whose outputs are classes\. Pass the loss itself"
    ):
        model.fit(X, np.arange(len(X)) % 2, predictions={"a": P[:, 0], "b": P[:, 1]})


@pytest.mark.parametrize("weight", [(1.0,), (1.0, 1.0, 1.0), (2.0, 0.0), (np.nan, 1.0)])
def test_weights_of_outputs_are_checked(weight):
    X, P, y = problem()
    loss = replace(get_loss("squared_error"), output_weight=weight)
    with pytest.raises(InvalidInputError, match="one positive number for each of the 2 outputs"):
        Labelled.of(X, P, y, loss=loss)


def test_evaluation_and_saved_models_use_the_standardized_loss(tmp_path):
    X, P, y = problem()
    loss = get_loss("squared_error").standardized()
    model = LocalMARegressor(gate="global", loss=loss).fit(X, UNITS * y, predictions=UNITS * P)
    model.save(tmp_path / "model.localma")
    again = load(tmp_path / "model.localma")
    assert again.loss_.output_weight == model.loss_.output_weight
    assert again.loss_.standardize
    first, second = (
        inspection.evaluate(m, X, UNITS * y, predictions=UNITS * P).model.loss.value
        for m in (model, again)
    )
    assert first == second == pytest.approx(model.gate_.risk_)


@pytest.mark.parametrize("weight", ["ab", [None], [-1.0], [float("nan")]])
def test_damaged_weights_in_a_file_are_refused(weight):
    saved = {"name": "squared_error", "parameters": {}, "own": False, "output_weight": weight}
    with pytest.raises(FileFormatError):
        _restore_loss(saved, None)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_standardized_loss_of_the_registry_is_saved_by_name(name):
    loss = replace(get_loss(name).standardized(), output_weight=(0.5, 1.5))
    assert _restore_loss(_describe_loss(loss), None) == loss
    assert _describe_loss(Loss("own", np.add, np.add).standardized())["own"]
