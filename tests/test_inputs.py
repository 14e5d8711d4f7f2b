"""What reaches every public entry: masked values, dates, and targets in any unit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from localma import Column, LocalMAClassifier, LocalMARegressor, as_candidate
from localma.candidates import Pool, fit_temperature
from localma.checks.losses import check_predictions, check_targets, check_unit
from localma.errors import CandidateError, InvalidInputError
from localma.gates import EqualGate, GlobalGate, Labelled, MLPGate, ShrunkGate
from localma.inspection import evaluate, explain, observe, summarize
from localma.losses import Loss, get_loss
from localma.tables.frames import unmasked, without_mask

# With constant weights these toys are worse than the mean of the target, as a warning says.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

SQUARED = get_loss("squared_error")
MASK = np.arange(60) == 7


def sample(n=60, seed=0):
    """Inputs (n, 2), predictions (n, 2) and a target that each candidate hits on one side."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    P = np.stack([-X[:, 0], X[:, 0]], axis=1)
    return X, P, np.abs(X[:, 0]) + 0.1 * rng.normal(size=n)


def masked(values, mask=MASK, hidden=1e6):
    """The same values, of which some are masked; what is under the mask is absurd."""
    mask = np.broadcast_to(mask.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    under = values.copy()
    if values.dtype.kind in "fiu":
        under[mask] = hidden
    return np.ma.array(under, mask=mask)


def quick(**parameters):
    return LocalMARegressor(gate=MLPGate(n_steps=5), random_state=0, **parameters)


def left(X):
    return -np.asarray(X)[:, 0]


def right(X):
    return np.asarray(X)[:, 0]


def fitted():
    X, _, y = sample()
    return quick(candidates={"left": left, "right": right}).fit(X, y)


# Masks.


class TestMasks:
    def test_a_masked_value_is_missing(self):
        numbers = np.ma.array([1, 999], mask=[False, True])
        np.testing.assert_array_equal(unmasked(numbers), [1.0, np.nan])
        words = np.ma.array(["a", "b"], mask=[True, False])
        assert unmasked(words).tolist() == [None, "b"]
        dates = np.ma.array(["2024-05-31", "1970-01-01"], dtype="datetime64[D]", mask=[False, True])
        assert np.isnat(unmasked(dates)).tolist() == [False, True]
        assert unmasked(np.float32([1.0])).dtype == np.float32

    def test_a_mask_that_hides_nothing_is_no_mask(self):
        X, P, y = (np.ma.array(values) for values in sample())
        weight = np.ma.ones(len(y))
        model = quick().fit(X, y, predictions=P, sample_weight=weight, groups=np.ma.arange(60) % 9)
        plain = quick().fit(X.data, y.data, predictions=P.data)
        np.testing.assert_array_equal(model.predict_weights(X), plain.predict_weights(X.data))
        assert type(model.predict(X, predictions=P)) is np.ndarray

    @pytest.mark.parametrize("form", ["array", "list of rows", "list with the constant"])
    def test_a_masked_target_is_refused(self, form):
        X, P, y = sample()
        y = masked(y)
        if form == "list of rows":
            y = list(y[:, np.newaxis])
        elif form == "list with the constant":
            y = list(y)
        with pytest.raises(InvalidInputError, match="y is masked in 1 of 60 rows, first in row 7"):
            quick().fit(X, y, predictions=P)

    def test_masked_rows_can_be_left_out(self):
        X, P, y = sample()
        kept = ~MASK
        model = quick().fit(X[kept], masked(y)[kept], predictions=P[kept])
        other = quick().fit(X[kept], y[kept], predictions=P[kept])
        np.testing.assert_array_equal(model.predict_weights(X), other.predict_weights(X))

    @pytest.mark.parametrize("name", ["sample_weight", "groups"])
    def test_other_values_of_rows_are_refused(self, name):
        X, P, y = sample()
        values = {"sample_weight": np.ones(60), "groups": np.arange(60) % 9}[name]
        with pytest.raises(InvalidInputError, match=f"{name} is masked in 1 of 60 rows"):
            quick().fit(X, y, predictions=P, **{name: masked(values)})

    @pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array([0, 1])])
    def test_masked_labels_are_refused(self, labels):
        X, _, y = sample()
        P = np.full((60, 2, 2), 0.5)
        y = labels[(y > 1).astype(int)]
        with pytest.raises(InvalidInputError, match="y is masked in 1 of 60 rows"):
            LocalMAClassifier(gate="global").fit(X, masked(y, hidden=1), predictions=P)

    def test_masked_inputs_are_missing(self):
        X, P, y = sample()
        with pytest.raises(ValueError, match="X contains NaN"):
            quick().fit(masked(X), y, predictions=P)

    def test_masked_inputs_reach_what_can_fill_them(self):
        from sklearn.impute import SimpleImputer

        X, P, y = sample()
        holes = np.where(MASK[:, np.newaxis], np.nan, X)
        model, other = (
            quick(gate_features=SimpleImputer()).fit(inputs, y, predictions=P)
            for inputs in (masked(X), holes)
        )
        np.testing.assert_array_equal(model.predict_weights(X), other.predict_weights(X))

    @pytest.mark.parametrize("form", ["array", "dict", "list of rows", "classes"])
    def test_masked_predictions_are_refused(self, form):
        P = masked(sample()[1])
        received, task, classes = P, "regression", None
        if form == "dict":
            received = {"candidate_0": P[:, 0], "candidate_1": P[:, 1]}
        elif form == "list of rows":
            received = list(P)
        elif form == "classes":
            received, task, classes = masked(np.full((60, 2, 2), 0.5)), "classification", [0, 1]
        with pytest.raises(CandidateError, match=r"'candidate_0' (masked|returned NaN in 1)"):
            Pool.from_predictions(received, n_rows=60, task=task, classes=classes)

    def test_masked_predictions_are_refused_at_fit_and_at_prediction(self):
        X, P, y = sample()
        model = quick().fit(X, y, predictions=P)
        for call in (
            lambda: quick().fit(X, y, predictions=masked(P)),
            lambda: model.predict(X, predictions=masked(P)),
            lambda: evaluate(model, X, y, predictions=masked(P)),
        ):
            with pytest.raises(CandidateError, match="'candidate_0' masked 1 of its predictions"):
                call()

    def test_a_candidate_that_masks_is_named(self):
        X, _, y = sample()
        candidates = {"good": left, "half": lambda X: masked(X[:, 0])}
        with pytest.raises(CandidateError, match="'half' masked 1 of its predictions"):
            quick(candidates=candidates).fit(X, y)

    @pytest.mark.parametrize(
        "call",
        [
            lambda model, X: model.predict(X),
            lambda model, X: model.predict_weights(X),
            lambda model, X: model.candidate_predictions(X),
            lambda model, X: model.score(X, np.ones(60)),
            lambda model, X: evaluate(model, X, np.ones(60)),
            lambda model, X: summarize(model, X, np.ones(60)),
            lambda model, X: explain(model, X, 0),
            lambda model, X: model.pool_.predict(X),
            lambda model, X: as_candidate(right).predict(X, "regression"),
            lambda model, X: Column(0).predict(X, "regression"),
        ],
    )
    def test_masked_inputs_are_missing_at_every_entry(self, call):
        X, _, _ = sample()
        with pytest.raises(ValueError, match="NaN"):
            call(fitted(), masked(X))

    @pytest.mark.parametrize(
        "call",
        [
            lambda model, X, y: model.score(X, y),
            lambda model, X, y: model.score(X, np.ones(60), sample_weight=y),
            lambda model, X, y: evaluate(model, X, y),
            lambda model, X, y: evaluate(model, X, np.ones(60), sample_weight=y),
            lambda model, X, y: evaluate(model, X, np.ones(60), groups=y),
            lambda model, X, y: summarize(model, X, y),
            lambda model, X, y: observe(model, X, y),
            lambda model, X, y: check_targets(SQUARED, y),
            lambda model, X, y: check_predictions(SQUARED, y[:, np.newaxis]),
            lambda model, X, y: fit_temperature(X, y.astype(int)),
            lambda model, X, y: fit_temperature(y, np.zeros(60, int)),
        ],
    )
    def test_masked_values_are_refused_at_every_entry(self, call):
        X, _, y = sample()
        with pytest.raises(InvalidInputError, match="masked in 1 of 60 rows, first in row 7"):
            call(fitted(), X, masked(y))

    def test_masked_labels_are_refused_by_score(self):
        X, _, y = sample()
        labels = (y > 1).astype(int)
        P = np.full((60, 2, 2), 0.5)
        model = LocalMAClassifier(gate="global").fit(X, labels, predictions=P)
        with pytest.raises(InvalidInputError, match="y is masked"):
            model.score(X, masked(labels), predictions=P)

    @pytest.mark.parametrize("gate", [GlobalGate(), MLPGate(n_steps=2), ShrunkGate(cv=2)])
    @pytest.mark.parametrize("name", ["X", "P", "y", "sample_weight"])
    def test_gates_refuse_masks(self, gate, name):
        X, P, y = sample()
        values = {"X": X, "P": P[:, :, None], "y": y[:, None], "sample_weight": np.ones(60)}
        values[name] = masked(values[name])
        with pytest.raises(InvalidInputError, match=f"{name} is masked in 1 of 60 rows"):
            gate.fit(Labelled.of(**values, loss=SQUARED))

    @pytest.mark.parametrize(
        "gate", [EqualGate(), GlobalGate(), MLPGate(n_steps=2), ShrunkGate(cv=2)]
    )
    def test_fitted_gates_refuse_masks(self, gate):
        X, P, y = sample()
        gate.fit(Labelled.of(X, P[:, :, None], y[:, None], loss=SQUARED))
        with pytest.raises(InvalidInputError, match="P is masked"):
            gate.average(X, masked(P))
        if gate.needs_inputs:
            with pytest.raises(InvalidInputError, match="X is masked"):
                gate.predict_weights(masked(X))

    @given(
        arrays.arrays(
            st.sampled_from([np.float64, np.float32, np.int32, np.bool_, "U3", "M8[s]"]),
            arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
        ),
        st.data(),
    )
    def test_any_shape_and_type(self, values, data):
        mask = data.draw(arrays.arrays(np.bool_, values.shape))
        array = np.ma.array(values, mask=mask)
        plain = unmasked(array)
        assert not isinstance(plain, np.ma.MaskedArray)
        assert plain.shape == values.shape
        missing = np.array([v is None or v != v for v in plain.ravel().tolist()], dtype=bool)
        if values.dtype.kind != "M":
            assert (missing | ~mask.ravel()).all()
        same = ~mask & (values == values)
        assert (plain[same] == values[same]).all()
        if mask.any():
            with pytest.raises(InvalidInputError, match="is masked in"):
                without_mask(array, "y")
        else:
            np.testing.assert_array_equal(without_mask(array, "y"), values)


# Dates.


DATES = (np.datetime64("2024-01-01") + np.arange(60))[:, np.newaxis]


class TestDates:
    @pytest.mark.parametrize(
        "X", [DATES, DATES - DATES[0], DATES.astype(object), DATES.astype(object).tolist()]
    )
    @pytest.mark.parametrize("features", [None, [0], lambda X: X])
    def test_are_no_numbers(self, X, features):
        _, P, y = sample()
        if isinstance(X, list) and features is not None:
            X = np.array(X, dtype=object)
        model = quick(gate_features=features)
        with pytest.raises(
            InvalidInputError, match=r"X holds dates or durations.*TableEncoder\(\)"
        ):
            model.fit(X, y, predictions=P)

    def test_are_no_numbers_at_prediction(self):
        X, P, y = sample()
        model = quick().fit(X[:, :1], y, predictions=P)
        for call in (model.predict_weights, lambda X: model.predict(X, predictions=P)):
            with pytest.raises(InvalidInputError, match="X holds dates or durations"):
                call(DATES)
        with pytest.raises(InvalidInputError, match="received dtype datetime64"):
            model.gate_.predict_weights(DATES)
        with pytest.raises(InvalidInputError, match="received dtype datetime64"):
            MLPGate().fit(Labelled.of(DATES, P[:, :, None], y[:, None], loss=SQUARED))

    def test_pass_where_the_gate_needs_no_input(self):
        _, _, y = sample()

        def day(X):
            return X[:, 0].astype(float)

        model = LocalMARegressor({"day": day, "zero": lambda X: 0 * day(X)}, gate="global")
        assert model.fit(DATES, y).predict(DATES).shape == (60,)

    def test_are_encoded_by_a_table_encoder(self):
        polars = pytest.importorskip("polars")
        from localma import TableEncoder

        _, P, y = sample()
        table = polars.DataFrame({"day": np.random.default_rng(0).permutation(DATES[:, 0])})
        model = quick(gate_features=TableEncoder()).fit(table, y, predictions=P)
        assert model.predict_weights(table).shape == (60, 2)

    def test_are_no_target(self):
        X, P, _ = sample()
        with pytest.raises(InvalidInputError, match="received dates such as '2024-01-01'"):
            quick().fit(X, DATES[:, 0], predictions=P)


# Units of the target.

UNITS = (1e-20, 1e-8, 1e8, 1e20)


class TestUnits:
    @pytest.mark.parametrize("gate", ["auto", "local", "global"])
    @pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "quantile", "huber"])
    def test_do_not_matter(self, gate, loss):
        X, P, y = sample(300)
        at = np.array([[-1.5, 0.0], [-0.5, 0.0], [0.5, 0.0], [1.5, 0.0]])

        def weights(unit):
            own = get_loss(loss, delta=1.35 * unit) if loss == "huber" else loss
            model = LocalMARegressor(loss=own, gate=gate, random_state=0)
            return model.fit(X, unit * y, predictions=unit * P).predict_weights(at)

        one = weights(1.0)
        if gate != "global":
            assert one[0, 0] > 0.9 > 0.1 > one[-1, 0]
        for unit in UNITS:
            np.testing.assert_allclose(weights(unit), one, atol=5e-3)

    @pytest.mark.parametrize("gate", ["auto", "local", "global"])
    def test_do_not_matter_to_large_samples(self, gate):
        X, P, y = sample(20_000)
        at = np.array([[-1.5, 0.0], [-0.5, 0.0], [0.5, 0.0], [1.5, 0.0]])
        model = LocalMARegressor(gate=gate, random_state=0)
        one = model.fit(X, y, predictions=P).predict_weights(at)
        for unit in (1e-20, 1e20):
            other = model.fit(X, unit * y, predictions=unit * P).predict_weights(at)
            np.testing.assert_allclose(other, one, atol=5e-3)

    @pytest.mark.parametrize("loss", ["poisson", "gamma", "inverse_gaussian", "tweedie"])
    def test_of_means_are_refused_only_near_the_floor(self, loss):
        X, P, y = sample(300)
        P, y = P + 3.0, y + 3.0
        model = LocalMARegressor(loss=loss, gate="local", random_state=0)
        one = model.fit(X, y, predictions=P).predict_weights(X)
        for unit in (1e-8, 1e8, 1e20):
            other = model.fit(X, unit * y, predictions=unit * P).predict_weights(X)
            np.testing.assert_allclose(other, one, atol=5e-3)
        with pytest.raises(InvalidInputError, match=r"cannot tell means below .* such as 1e\+19"):
            model.fit(X, 1e-20 * y, predictions=1e-20 * P)

    @pytest.mark.parametrize(
        ("unit", "words"), [(1e300, r"such as 1e-300"), (1e-300, r"such as 1e\+300")]
    )
    @pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber"])
    def test_that_double_precision_cannot_square_are_refused(self, unit, words, loss):
        X, P, y = sample()
        with pytest.raises(InvalidInputError, match=f"between 1e-70 and 1e.70 in size.*{words}"):
            quick(loss=loss).fit(X, unit * y, predictions=unit * P)

    def test_that_a_steep_loss_cannot_take_are_refused(self):
        fourth = Loss("fourth", lambda y, mu: (mu - y) ** 4, lambda y, mu: 4 * (mu - y) ** 3)
        _, P, y = sample()
        for unit in (1e50, 1e-50):
            with pytest.raises(InvalidInputError, match="The mean loss 'fourth' must lie between"):
                check_unit(fourth, unit * y[:, None], unit * P[:, :, None])

    def test_perfect_predictions_and_zeros_pass(self):
        X, _, y = sample()
        quick().fit(X, y, predictions=np.stack([y, y], axis=1))
        quick().fit(X, 0 * y, predictions=np.zeros((60, 2)))

    def test_of_inputs_do_not_matter(self):
        X, P, y = sample()
        one = quick().fit(X, y, predictions=P).predict_weights(X)
        for unit in (1e-300, 1e-150, 1e150, 1e300):
            other = quick().fit(unit * X, y, predictions=P).predict_weights(unit * X)
            np.testing.assert_allclose(other, one, atol=1e-3)

    @settings(max_examples=25, deadline=None)
    @given(
        exponents=st.tuples(st.integers(-60, 60), st.integers(-300, 300)),
        shape=st.tuples(
            st.integers(4, 40), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2)
        ),
        seed=st.integers(0, 1000),
    )
    def test_of_any_shape_and_size(self, exponents, shape, seed):
        n, p, M, K = shape
        rng = np.random.default_rng(seed)
        X, P, y = rng.normal(size=(n, p)), rng.normal(size=(n, M, K)), rng.normal(size=(n, K))
        y = y[:, 0] if K == 1 else y
        target, inputs = (10.0**exponent for exponent in exponents)
        one = quick().fit(X, y, predictions=P).predict_weights(X)
        model = quick().fit(inputs * X, target * y, predictions=target * P)
        other = model.predict_weights(inputs * X)
        assert np.isfinite(other).all()
        np.testing.assert_allclose(other.sum(axis=1), 1.0)
        np.testing.assert_allclose(other, one, atol=5e-3)


@pytest.mark.parametrize(
    ("loss", "scale"), list(product(["squared_error", "absolute_error"], [1e-20, 1e20]))
)
def test_the_verdict_is_free_of_the_unit(loss, scale):
    X, P, y = sample(200)
    one, other = (
        LocalMARegressor(loss=loss, random_state=0).fit(X, c * y, predictions=c * P)
        for c in (1.0, scale)
    )
    assert one.locality_gain_.is_clear == other.locality_gain_.is_clear
    ratio = one.locality_gain_.value / one.locality_gain_.global_risk
    again = other.locality_gain_.value / other.locality_gain_.global_risk
    assert again == pytest.approx(ratio, rel=0.02)
