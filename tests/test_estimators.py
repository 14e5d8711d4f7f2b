"""The estimators: every scikit-learn tool, frames, weights, outputs, and bad input."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    TimeSeriesSplit,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.equations import local_average
from localma.errors import CandidateError, InvalidInputError, OutsideSampleWarning
from localma.gates import GlobalGate, MLPGate, ShrunkGate
from localma.losses import Loss
from localma.tables.encoder import TableEncoder

# The toys are exact: a candidate may be the target, and constant weights worse than a constant.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

QUICK = MLPGate(n_steps=50)


def left(X):
    return -np.asarray(X)[:, 0]


def right(X):
    return np.asarray(X)[:, 0]


@pytest.fixture
def absolute():
    """|x| from the two lines that make it up, one right on each side of zero."""
    X = np.random.default_rng(0).uniform(-2, 2, size=(150, 2))
    return X, np.abs(X[:, 0])


@pytest.fixture
def forests():
    X, y = make_regression(300, 4, noise=5.0, random_state=0)
    candidates = {
        "low": RandomForestRegressor(10, random_state=0).fit(
            X[:100][X[:100, 0] < 0], y[:100][X[:100, 0] < 0]
        ),
        "high": RandomForestRegressor(10, random_state=0).fit(
            X[:100][X[:100, 0] > 0], y[:100][X[:100, 0] > 0]
        ),
        "line": LinearRegression().fit(X[:100], y[:100]).predict,
    }
    return candidates, X[100:], y[100:]


@pytest.fixture
def classifiers():
    X, y = make_classification(
        300, 4, n_informative=3, n_redundant=0, n_classes=3, n_clusters_per_class=1, random_state=0
    )
    labels = np.array(["ant", "bee", "cat"])[y]
    forest = RandomForestClassifier(10, random_state=0).fit(X[:100], labels[:100])
    logistic = LogisticRegression().fit(X[:100], labels[:100])
    candidates = {
        "forest": forest,
        "logistic": as_candidate(logistic.predict_proba, classes=logistic.classes_),
    }
    return candidates, X[100:], labels[100:]


class TestPrediction:
    def test_is_the_local_average(self, absolute):
        X, y = absolute
        model = LocalMARegressor({"left": left, "right": right}, random_state=0).fit(X, y)
        by_hand = local_average(model.predict_weights(X), model.candidate_predictions(X))
        np.testing.assert_allclose(model.predict(X), by_hand)

    def test_local_weights_find_the_right_side(self, absolute):
        X, y = absolute
        model = LocalMARegressor({"left": left, "right": right}, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.97
        assert (
            LocalMARegressor({"left": left, "right": right}, gate="global").fit(X, y).score(X, y)
            < 0.1
        )

    @pytest.mark.parametrize(
        "gate", ["equal", "global", "local", "paper", "auto", GlobalGate(), QUICK]
    )
    def test_every_gate_by_name_and_object(self, absolute, gate):
        X, y = absolute
        model = LocalMARegressor({"left": left, "right": right}, gate=gate, random_state=0).fit(
            X, y
        )
        assert model.predict_weights(X).shape == (150, 2)
        assert np.isfinite(model.predict(X)).all()

    def test_candidate_with_no_weight_does_not_run(self, absolute):
        X, _ = absolute
        calls = []

        def never(X):
            calls.append(len(X))
            return np.full(len(X), 1e3)

        model = LocalMARegressor({"right": right, "never": never}, gate="global").fit(X, X[:, 0])
        calls.clear()
        np.testing.assert_allclose(model.predict(X), X[:, 0], atol=1e-9)
        assert calls == []
        assert model.global_weights_.tolist() == [1.0, 0.0]

    def test_user_seed_and_given_gate_are_left_alone(self, absolute):
        X, y = absolute
        gate = MLPGate(n_steps=20)
        LocalMARegressor({"left": left, "right": right}, gate=gate, random_state=0).fit(X, y)
        assert gate.random_state is None
        assert not hasattr(gate, "global_weights_")

    def test_sample_weight_moves_the_weights(self, absolute):
        X, y = absolute
        weight = (X[:, 0] > 0).astype(float)
        model = LocalMARegressor({"left": left, "right": right}, gate="global")
        assert model.fit(X, y, sample_weight=weight).global_weights_.tolist() == [0.0, 1.0]

    def test_several_outputs(self, absolute):
        X, y = absolute
        both = {
            "left": lambda X: np.c_[-X[:, 0], X[:, 0]],
            "right": lambda X: np.c_[X[:, 0], -X[:, 0]],
        }
        model = LocalMARegressor(both, random_state=0).fit(X, np.c_[y, -y])
        assert model.predict(X).shape == (150, 2)
        assert model.score(X, np.c_[y, -y]) > 0.95
        assert model.candidate_predictions(X).shape == (150, 2, 2)
        assert model.n_outputs_ == 2
        one = LocalMARegressor({"left": left, "right": right}, gate="global").fit(X, y)
        assert one.n_outputs_ == 1

    def test_own_loss(self, absolute):
        X, y = absolute
        fourth = Loss(
            "fourth", value=lambda y, mu: (y - mu) ** 4, derivative=lambda y, mu: 4 * (mu - y) ** 3
        )
        model = LocalMARegressor({"left": left, "right": right}, loss=fourth, random_state=0).fit(
            X, y
        )
        constant = LocalMARegressor({"left": left, "right": right}, loss=fourth, gate="global").fit(
            X, y
        )
        assert (
            fourth.value(y, model.predict(X)).mean()
            < 0.1 * fourth.value(y, constant.predict(X)).mean()
        )


class TestClassification:
    def test_probabilities_and_labels(self, classifiers):
        candidates, X, y = classifiers
        model = LocalMAClassifier(candidates, random_state=0).fit(X, y)
        proba = model.predict_proba(X)
        assert model.classes_.tolist() == ["ant", "bee", "cat"]
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        assert set(model.predict(X)) <= {"ant", "bee", "cat"}
        assert model.score(X, y) > 0.7

    @pytest.mark.parametrize("loss", ["cross_entropy", "brier", "log_loss"])
    def test_losses(self, classifiers, loss):
        candidates, X, y = classifiers
        assert (
            LocalMAClassifier(candidates, loss=loss, gate=QUICK, random_state=0)
            .fit(X, y)
            .score(X, y)
            > 0.7
        )

    def test_aligned_by_label_not_by_position(self):
        X = np.linspace(-1, 1, 80)[:, None]
        y = np.where(X[:, 0] > 0, "yes", "no")

        def backwards(X):  # columns in the order yes, no
            p = (np.asarray(X)[:, 0] > 0) * 0.8 + 0.1
            return np.c_[p, 1 - p]

        candidate = as_candidate(backwards, classes=["yes", "no"])
        model = LocalMAClassifier({"backwards": candidate}).fit(X, y)
        assert model.score(X, y) == 1.0

    def test_missing_class_gets_zero_with_one_warning(self):
        X = np.linspace(-1, 1, 90)[:, None]
        y = np.repeat(["a", "b", "c"], 30)
        candidates = {
            "all": LogisticRegression().fit(X, y),
            "ab": LogisticRegression().fit(X[:60], y[:60]),
        }
        with pytest.warns(
            UserWarning, match=r"andidate 'ab' does not know the class 'c'"
        ) as caught:
            model = LocalMAClassifier(candidates, gate="equal").fit(X, y)
        assert len(caught) == 1
        assert (model.candidate_predictions(X)[:, 1, 2] == 0).all()
        assert np.isfinite(model.predict_proba(X)).all()

    def test_label_that_nobody_knows(self):
        X = np.linspace(-1, 1, 60)[:, None]
        known = LogisticRegression().fit(X, np.repeat(["a", "b"], 30))
        with pytest.raises(InvalidInputError, match=r"none knows 'z'"):
            LocalMAClassifier({"known": known}).fit(X, np.repeat(["a", "z"], 30))

    @pytest.mark.parametrize("missing", [None, float("nan"), np.nan])
    @pytest.mark.parametrize("kind", [list, lambda y: np.array(y, dtype=object)])
    def test_missing_labels_are_counted(self, missing, kind):
        X = np.linspace(-1, 1, 6)[:, None]
        known = LogisticRegression().fit(X, np.repeat(["a", "b"], 3))
        y = kind(["a", "a", missing, "b", missing, "b"])
        words = (
            r"^Every row needs a label; 2 of 6 have none in y, .* row 2: leave those rows out\.$"
        )
        with pytest.raises(InvalidInputError, match=words):
            LocalMAClassifier({"known": known}, gate="global").fit(X, y)
        with pytest.raises(InvalidInputError, match="2 of 6"):
            LocalMAClassifier(gate="global").fit(X, y, predictions=np.full((6, 1), 0.5))

    def test_missing_labels_of_frames(self):
        pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
        X = np.linspace(-1, 1, 4)[:, None]
        known = LogisticRegression().fit(X, ["a", "a", "b", "b"])
        labels = ["a", None, "b", "b"]
        for y in (
            pandas.Series(labels),
            pandas.Series(labels, dtype="string"),
            pandas.Series(labels, dtype="category"),
            pandas.DataFrame({"label": labels}),
            polars.Series(labels),
            np.array([0.0, np.nan, 1.0, 1.0]),
        ):
            with pytest.raises(InvalidInputError, match="1 of 4 have none in y, first in row 1"):
                LocalMAClassifier({"known": known}, gate="global").fit(X, y)

    def test_cross_entropy_is_finite_where_everybody_says_zero(self):
        X = np.linspace(-1, 1, 40)[:, None]
        y = np.tile(["a", "b"], 20)
        sure = as_candidate(lambda X: np.zeros(len(X)), classes=["a", "b"])
        surer = as_candidate(lambda X: np.zeros(len(X)) + 0, classes=["a", "b"])
        model = LocalMAClassifier({"sure": sure, "surer": surer}, random_state=0).fit(X, y)
        assert np.isfinite(model.predict_weights(X)).all()

    def test_callable_without_classes(self, classifiers):
        _, X, y = classifiers
        with pytest.raises(InvalidInputError, match=r"classes="):
            LocalMAClassifier({"bare": lambda X: np.full((len(X), 3), 1 / 3)}).fit(X, y)


class TestScikitLearnTools:
    def test_clone_keeps_candidates_by_reference(self, forests):
        candidates, X, y = forests
        model = LocalMARegressor(candidates, gate=QUICK).set_output(transform="default")
        twin = clone(model)
        assert twin.candidates is candidates
        assert twin.gate is not model.gate
        twin.fit(X, y)

    def test_cross_val_score(self, forests, classifiers):
        for (candidates, X, y), kind in (
            (forests, LocalMARegressor),
            (classifiers, LocalMAClassifier),
        ):
            scores = cross_val_score(
                kind(candidates, gate=QUICK, random_state=0), X, y, cv=3, error_score="raise"
            )
            assert np.isfinite(scores).all()
            assert scores.mean() > 0.5

    def test_grid_search_over_the_gate(self, forests):
        candidates, X, y = forests
        search = GridSearchCV(
            LocalMARegressor(candidates, gate=QUICK, random_state=0),
            {"gate__hidden": [(), (4,)], "gate__shrinkage": [1e-3, np.inf]},
            cv=3,
            error_score="raise",
        ).fit(X, y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.best_estimator_.candidates is candidates

    def test_grid_search_over_named_gates(self, forests):
        candidates, X, y = forests
        grid = {"gate": ["equal", "global", QUICK]}
        search = GridSearchCV(
            LocalMARegressor(candidates, random_state=0), grid, cv=2, error_score="raise"
        )
        assert np.isfinite(search.fit(X, y).cv_results_["mean_test_score"]).all()

    def test_pipeline(self, forests):
        _, X, y = forests
        scaled = StandardScaler().fit(X)
        candidate = LinearRegression().fit(scaled.transform(X), y)
        pipe = make_pipeline(
            StandardScaler(), LocalMARegressor({"line": candidate, "right": right}, gate=QUICK)
        )
        assert pipe.fit(X, y).score(X, y) > 0.9

    def test_calibrated_classifier(self, classifiers):
        candidates, X, y = classifiers
        model = CalibratedClassifierCV(
            LocalMAClassifier(candidates, gate=QUICK, random_state=0), cv=3
        ).fit(X, y)
        assert np.isfinite(model.predict_proba(X)).all()

    def test_tools_that_number_the_labels(self, classifiers):
        candidates, X, y = classifiers
        model = LocalMAClassifier(candidates, gate="global")
        tools = [
            VotingClassifier([("model", model)], voting="soft"),
            StackingClassifier([("model", model)], cv=3),
            CalibratedClassifierCV(model, cv=3, ensemble=False),
        ]
        for tool in tools:
            with pytest.raises(InvalidInputError, match="scikit-learn number the labels"):
                tool.fit(X, y)
        words = np.array(["ant", "bee", "cat"])
        numbers = np.searchsorted(words, y)
        expected = model.fit(X, y).predict_proba(X)
        logistic = candidates["logistic"].function
        pool = {
            "forest": as_candidate(candidates["forest"], classes=[0, 1, 2]),
            "logistic": as_candidate(logistic, classes=[0, 1, 2]),
        }
        renamed = LocalMAClassifier(pool, gate="global")
        for tool in tools:
            place = "estimator" if isinstance(tool, CalibratedClassifierCV) else "estimators"
            tool.set_params(**{place: renamed if place == "estimator" else [("model", renamed)]})
            probabilities = tool.fit(X, numbers).predict_proba(X)
            assert (probabilities.argmax(axis=1) == numbers).mean() > 0.7
        np.testing.assert_array_equal(tools[0].fit(X, numbers).predict_proba(X), expected)
        held_out = cross_val_predict(renamed, X, numbers, cv=3, method="predict_proba")
        assert (held_out.argmax(axis=1) == numbers).mean() > 0.7

    def test_metadata_routing(self, forests):
        candidates, X, y = forests
        with sklearn.config_context(enable_metadata_routing=True):
            model = LocalMARegressor(candidates, gate="global").set_fit_request(sample_weight=True)
            assert clone(model).get_metadata_routing().consumes("fit", ["sample_weight"])
            scores = cross_val_score(
                model.set_score_request(sample_weight=True),
                X,
                y,
                params={"sample_weight": np.ones(len(y))},
            )
        assert np.isfinite(scores).all()

    def test_pickle(self, forests):
        candidates, X, y = forests
        model = LocalMARegressor(candidates, gate=QUICK, random_state=0).fit(X, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))

    def test_cross_fitted_with_groups_and_time(self, forests):
        _, X, y = forests
        own = {"own": CrossFitted(LinearRegression()), "right": right}
        groups = np.arange(len(y)) % 7
        grouped = LocalMARegressor(own, gate=QUICK, cv=GroupKFold(3)).fit(X, y, groups=groups)
        assert grouped.score(X, y) > 0.9
        for gate in (QUICK, "auto"):
            timed = LocalMARegressor(own, gate=gate, cv=TimeSeriesSplit(4), random_state=0).fit(
                X, y
            )
            assert timed.score(X, y) > 0.9

    def test_groups_reach_the_folds_of_a_candidate(self, forests):
        _, X, y = forests
        own = {"own": CrossFitted(LinearRegression(), cv=GroupKFold(3)), "right": right}
        model = LocalMARegressor(own, gate="global")
        assert model.fit(X, y, groups=np.arange(len(y)) % 6).score(X, y) > 0.9


class TestFrames:
    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_columns_hold_predictions(self, library):
        frames = pytest.importorskip(library)
        rng = np.random.default_rng(0)
        x = rng.uniform(-2, 2, 150)
        X = frames.DataFrame({"x": x, "pred_left": -x, "pred_right": x, "z": rng.normal(size=150)})
        model = LocalMARegressor({"all": Column("pred_*")}, random_state=0).fit(X, np.abs(x))
        assert model.candidate_names_ == ("pred_left", "pred_right")
        assert model.score(X, np.abs(x)) > 0.95
        assert model.gate_.n_features_in_ == 2
        assert model.feature_names_in_.tolist() == ["x", "pred_left", "pred_right", "z"]
        scores = cross_val_score(model, X, np.abs(x), cv=3) if library == "pandas" else np.ones(1)
        assert (scores > 0.9).all()

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_set_output_names_the_candidates(self, library, absolute):
        frames = pytest.importorskip(library)
        X, y = absolute
        model = LocalMARegressor({"left": left, "right": right}, gate=QUICK).set_output(
            transform=library
        )
        weights = model.fit(X, y).predict_weights(X)
        assert isinstance(weights, frames.DataFrame)
        assert list(weights.columns) == ["left", "right"]

    def test_pandas_keeps_the_index(self, absolute):
        pd = pytest.importorskip("pandas")
        X, y = absolute
        frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(len(X)) + 10)
        model = LocalMARegressor(
            {"left": lambda X: -X["a"], "right": lambda X: X["a"]}, gate="global"
        )
        weights = model.fit(frame, y).set_output(transform="pandas").predict_weights(frame)
        assert weights.index.tolist() == frame.index.tolist()

    def test_feature_names_are_checked(self, absolute):
        pd = pytest.importorskip("pandas")
        X, y = absolute
        frame = pd.DataFrame(X, columns=["a", "b"])
        model = LocalMARegressor(
            {"one": lambda X: X.iloc[:, 0], "two": lambda X: -X.iloc[:, 0]}, gate="global"
        )
        model.fit(frame, y)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame.rename(columns={"a": "c"}))

    def test_text_columns_name_the_way_out(self):
        pd = pytest.importorskip("pandas")
        X = pd.DataFrame({"x": [0.0, 1.0, 2.0], "city": ["B", "S", "B"]})
        model = LocalMARegressor({"a": lambda X: X["x"], "b": lambda X: -X["x"]})
        with pytest.raises(
            InvalidInputError,
            match=r"finite numbers: column 'city' holds values such as 'B'\. Pass gate_features",
        ):
            model.fit(X, [0.0, 1.0, 2.0])
        model.set_params(gate_features=["x"], gate=QUICK).fit(X, [0.0, 1.0, 2.0])

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_each_column_is_named_with_its_own_fault(self, library):
        frames = pytest.importorskip(library)
        X = frames.DataFrame({"a": [1.0, np.nan], "b": ["u", "v"]})
        model = LocalMARegressor({"x": lambda X: [1.0, 2.0], "y": lambda X: [2.0, 1.0]})
        words = (
            r"finite numbers: column 'a' is missing or infinite in 1 of 2 rows, column 'b' holds "
            r"values such as 'u'\. Pass gate_features=TableEncoder\(\)"
        )
        with pytest.raises(InvalidInputError, match=words):
            model.fit(X, [0.0, 1.0])
        few = frames.DataFrame({name: ["1", "x"] for name in "abcde"})
        words = r"column 'c' holds values such as 'x', and 2 more columns have faults\. Pass"
        with pytest.raises(InvalidInputError, match=words):
            model.fit(few, [0.0, 1.0])

    def test_a_dict_is_no_table(self, absolute):
        X, y = absolute
        model = LocalMARegressor({"a": lambda X: X[:, 0], "b": lambda X: -X[:, 0]}, gate=QUICK)
        words = r"received a dict with the keys 'x', 'z'\. If they are columns, pass pandas"
        columns = {"x": X[:, 0], "z": X[:, 0]}
        with pytest.raises(InvalidInputError, match=words):
            model.fit(columns, y)
        model.fit(X, y)
        for method in (model.predict, model.predict_weights, model.candidate_predictions):
            with pytest.raises(InvalidInputError, match=words):
                method(columns)

    @pytest.mark.parametrize("how", ["gradient", "bfloat16", "both"])
    @pytest.mark.parametrize("gate", [QUICK, "global"], ids=["local", "global"])
    def test_tensors_are_read(self, absolute, gate, how):
        torch = pytest.importorskip("torch", reason="needs the extra torch")

        def tensor(values):
            made = torch.tensor(values, dtype=torch.float32)
            made = made if how == "gradient" else made.to(torch.bfloat16)
            return made if how == "bfloat16" else made.requires_grad_()

        X, y = absolute
        P = np.c_[X[:, 0], -X[:, 0]]
        model = LocalMARegressor(gate=gate, random_state=0)
        model.fit(tensor(X), tensor(y), tensor(np.ones(len(y))), predictions=tensor(P))
        rounded = [tensor(a).detach().float().numpy() for a in (X, y, P)]
        again = LocalMARegressor(gate=gate, random_state=0)
        again.fit(rounded[0], rounded[1], predictions=rounded[2])
        np.testing.assert_allclose(
            model.predict(tensor(X), predictions=tensor(P)),
            again.predict(rounded[0], predictions=rounded[2]),
            atol=1e-5,
        )

    def test_costs_change_neither_weights_nor_predictions(self, absolute):
        X, y = absolute
        fits = []
        for cost in (0.0, 1e6):
            costly = as_candidate(lambda X: X[:, 0], cost=cost)
            pool = {"a": costly, "b": lambda X: -X[:, 0]}
            fits.append(LocalMARegressor(pool, gate=QUICK, random_state=0).fit(X, y))
        assert [fit.pool_.costs[0] for fit in fits] == [0.0, 1e6]
        np.testing.assert_array_equal(*(fit.predict_weights(X) for fit in fits))
        np.testing.assert_array_equal(*(fit.predict(X) for fit in fits))

    def test_integer_column_names_do_not_leak_predictions_to_the_gate(self):
        pd = pytest.importorskip("pandas")
        x = np.random.default_rng(0).uniform(-2, 2, 60)
        X = pd.DataFrame(np.c_[x, x**2, -x, x], columns=[3, 2, 1, 0])
        model = LocalMARegressor({"a": Column(2), "b": Column(3)}, gate=QUICK)
        model.fit(X, np.abs(x))
        np.testing.assert_array_equal(model.gate_features_.transform(X), np.c_[x, x**2])

    @pytest.mark.parametrize("others", [{"x": [0.0, 1.0, 2.0, 3.0]}, {}])
    def test_dates_and_gaps_name_their_column_and_the_way_out(self, others):
        pd = pytest.importorskip("pandas")
        y = [0.0, 1.0, 2.0, 3.0]
        model = LocalMARegressor({"a": lambda X: np.zeros(len(X)), "b": lambda X: np.ones(len(X))})
        dates, gap = pd.date_range("2024-01-01", periods=4), [1.0, np.nan, 2.0, 3.0]
        for gone, fault in ((dates, "holds dates"), (gap, "is missing or infinite in 1 of 4")):
            X = pd.DataFrame(others | {"gone": gone})
            words = rf"column 'gone' {fault}.*TableEncoder\(\)"
            with pytest.raises(InvalidInputError, match=words):
                model.fit(X, y)

    @pytest.mark.parametrize("gate", ["equal", "global"])
    def test_constant_weights_look_at_no_column(self, gate):
        pd = pytest.importorskip("pandas")
        y = np.arange(4.0)
        candidates = {"a": lambda X: np.zeros(len(X)), "b": lambda X: np.full(len(X), 3.0)}
        X = pd.DataFrame({"city": list("abca"), "x": [1.0, None, 2.0, 3.0]})
        weights = LocalMARegressor(candidates, gate=gate).fit(X, y).predict_weights(X)
        np.testing.assert_allclose(weights, 0.5, atol=1e-6)

    def test_rows_in_another_order_are_refused(self):
        pd = pytest.importorskip("pandas")
        X = pd.DataFrame({"x": [3.0, 1.0, 2.0, 0.0]})
        for wrong in (lambda X: X.sort_values("x")["x"], lambda X: X[["x"]].sort_values("x")):
            with pytest.raises(CandidateError, match=r"'a' returned the rows of X in another"):
                LocalMARegressor({"a": wrong, "b": lambda X: X["x"]}, gate="equal").fit(X, X["x"])
        shuffled = X.iloc[[2, 0, 3, 1]]
        anew = {"a": lambda X: pd.Series(X["x"].to_numpy()), "b": lambda X: X["x"]}
        model = LocalMARegressor(anew, gate="equal").fit(shuffled, shuffled["x"])
        np.testing.assert_array_equal(model.predict(shuffled), shuffled["x"])


class TestGateFeatures:
    def test_columns_function_and_transformer(self, absolute):
        X, y = absolute
        both = {"left": left, "right": right}
        for features in ([0], lambda X: X[:, :1], StandardScaler()):
            model = LocalMARegressor(both, gate_features=features, random_state=0).fit(X, y)
            assert model.score(X, y) > 0.95
        assert model.gate_.n_features_in_ == 2

    def test_texts_reach_candidates_untouched(self):
        texts = ["a", "bbb", "cc", "dddd"] * 10
        model = LocalMARegressor(
            {"length": lambda T: np.array([len(t) for t in T]), "zero": lambda T: np.zeros(len(T))},
            gate=QUICK,
            gate_features=lambda T: np.array([[len(t)] for t in T]),
        ).fit(texts, [1.0, 3.0, 2.0, 4.0] * 10)
        assert model.score(texts, [1.0, 3.0, 2.0, 4.0] * 10) > 0.5

    def test_wrong_kind(self, absolute):
        X, y = absolute
        with pytest.raises(
            InvalidInputError, match=r"'gate_features' parameter .* a list of columns"
        ):
            LocalMARegressor({"left": left, "right": right}, gate_features=3.5).fit(X, y)

    def test_nothing_left_to_see(self):
        X = np.c_[np.arange(5.0), np.arange(5.0)]
        with pytest.raises(InvalidInputError, match="The gate has no column to see"):
            LocalMARegressor({"a": Column(0), "b": Column(1)}).fit(X, np.arange(5.0))

    @pytest.mark.parametrize("gate", ["global", "equal"])
    @pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
    def test_constant_weights_need_nothing_to_see(self, gate, kind, tmp_path):
        y = np.arange(8.0)
        values = np.c_[y + 1.0, y - 1.0]
        X = values
        if kind != "array":
            X = pytest.importorskip(kind).DataFrame({"a": values[:, 0], "b": values[:, 1]})
        columns = (0, 1) if kind == "array" else ("a", "b")
        pool = {name: Column(column) for name, column in zip("ab", columns, strict=True)}
        model = LocalMARegressor(pool, gate=gate).fit(X, y)
        np.testing.assert_allclose(model.predict(X), y, atol=1e-6)
        model.save(tmp_path / "model.localma")
        np.testing.assert_array_equal(load(tmp_path / "model.localma").predict(X), model.predict(X))
        if kind == "pandas":
            weights = model.set_output(transform="pandas").predict_weights(X)
            assert list(weights.columns) == ["a", "b"]
            assert weights.shape == (8, 2)


class TestBarePredictions:
    def test_array_dict_and_frame_agree(self, absolute):
        X, y = absolute
        P = np.c_[-X[:, 0], X[:, 0]]
        model = LocalMARegressor(gate=QUICK, random_state=0)
        by_array = model.fit(X, y, predictions=P).predict(X, predictions=P)
        as_dict = {"b": P[:, 1], "a": P[:, 0]}
        model.fit(X, y, predictions={"a": P[:, 0], "b": P[:, 1]})
        assert model.candidate_names_ == ("a", "b")
        np.testing.assert_array_equal(model.predict(X, predictions=as_dict), by_array)

    def test_score_takes_predictions(self, absolute):
        X, y = absolute
        P = np.c_[y, -y]
        model = LocalMARegressor(gate="global").fit(X, y, predictions=P)
        assert model.score(X, y, predictions=P) == pytest.approx(1.0)

    def test_running_them_needs_candidates(self, absolute):
        X, y = absolute
        model = LocalMARegressor(gate="global").fit(X, y, predictions=np.c_[y, -y])
        words = "no candidates to run: it was fitted with predictions=, or loaded with candidates="
        with pytest.raises(InvalidInputError, match=words):
            model.predict(X)

    @pytest.mark.parametrize("named", [False, True])
    def test_masked_predictions_are_refused_by_name(self, absolute, named):
        X, y = absolute
        P = np.ma.masked_array(np.c_[y, -y], mask=np.c_[y > 1.5, y < 0])
        words = rf"'\w+' masked {(y > 1.5).sum()} of its predictions"
        masked = {"a": P[:, 0], "b": P[:, 1]} if named else P
        with pytest.raises(CandidateError, match=words):
            LocalMARegressor(gate="global").fit(X, y, predictions=masked)
        model = LocalMARegressor(gate="global").fit(X, y, predictions=P.data)
        with pytest.raises(CandidateError, match=words):
            model.predict(X, predictions=P)
        nothing_hidden = np.ma.masked_array(P.data, mask=False)
        np.testing.assert_array_equal(
            model.predict(X, predictions=nothing_hidden), model.predict(X, predictions=P.data)
        )

    def test_names_and_rows_must_match(self, absolute):
        X, y = absolute
        model = LocalMARegressor(gate="global").fit(X, y, predictions={"a": y, "b": -y})
        with pytest.raises(InvalidInputError, match="'c'"):
            model.predict(X, predictions={"a": y, "c": y})
        with pytest.raises(InvalidInputError, match="150 rows"):
            model.predict(X, predictions={"a": y[:3], "b": y[:3]})

    def test_classification(self):
        X = np.linspace(-1, 1, 60)[:, None]
        y = np.where(X[:, 0] > 0, "yes", "no")
        P = np.stack([np.tile([0.9, 0.1], (60, 1)), np.tile([0.1, 0.9], (60, 1))], axis=1)
        model = LocalMAClassifier(random_state=0).fit(X, y, predictions=P)
        assert (model.predict(X, predictions=P) == y).mean() > 0.95

    def test_beside_own_models(self, absolute):
        X, y = absolute
        model = LocalMARegressor({"own": CrossFitted(LinearRegression())}, gate="global")
        with pytest.raises(InvalidInputError, match="CrossFitted candidate makes its own"):
            model.fit(X, y, predictions=y[:, None])


class TestBadInput:
    def check(self, match, error=InvalidInputError, X=None, y=None, candidates=None, **parameters):
        X = np.arange(10.0)[:, None] if X is None else X
        y = np.arange(10.0) if y is None else y
        candidates = {"left": left, "right": right} if candidates is None else candidates
        with pytest.raises(error, match=match) as caught:
            LocalMARegressor(candidates, **parameters).fit(X, y)
        return caught.value

    def test_nothing_to_combine(self):
        with pytest.raises(
            InvalidInputError, match=r"nothing to combine: candidates is None.*predictions=P"
        ):
            LocalMARegressor().fit([[0.0], [1.0]], [0.0, 1.0])

    def test_empty(self):
        self.check("at least one model; received none", candidates={})

    def test_one_candidate_twice(self):
        self.check("Candidates 'a' and 'b' are the same", candidates={"a": left, "b": left})

    def test_wrong_shape(self):
        error = self.check(
            r"Candidate 'north' returned shape \(10, 1, 1\); expected \(10,\) or \(10, 1\)",
            CandidateError,
            candidates={"north": lambda X: X[:, :, None]},
        )
        assert error.candidate == "north"

    @pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity")])
    def test_not_finite(self, value, what):
        self.check(
            f"Candidate 'bad' returned {what} in 10 of the 10 rows.*first in row 0",
            CandidateError,
            candidates={"bad": lambda X: np.full(len(X), value)},
        )

    def test_string(self):
        self.check(
            "must be real numbers",
            CandidateError,
            candidates={"bad": lambda X: np.array(["a"] * len(X))},
        )

    def test_raises(self):
        def broken(X):
            raise KeyError("gone")

        error = self.check(
            "Candidate 'broken' raised KeyError on rows 0 to 9",
            CandidateError,
            candidates={"broken": broken},
        )
        assert isinstance(error.__cause__, KeyError)

    def test_target_outside_domain(self):
        self.check(
            r"Loss 'poisson' takes targets in \[0, inf\); received -1 in row 0",
            y=np.r_[-1.0, np.ones(9)],
            loss="poisson",
        )

    def test_one_row(self):
        self.check("n_samples=1; pass at least 2", X=np.ones((1, 1)), y=np.ones(1))

    def test_unknown_gate_names_the_nearest(self):
        self.check("Unknown gate 'globel'; did you mean 'global'", gate="globel")

    def test_wrong_kind_of_gate(self):
        self.check("or a Gate object such as", gate=3)

    def test_unknown_loss_names_the_nearest(self):
        self.check("Unknown loss 'squared_eror'; did you mean 'squared_error'", loss="squared_eror")

    def test_rows_differ(self):
        self.check("X has 10 and y has 9", y=np.arange(9.0))

    def test_outputs_differ(self):
        self.check("candidates give 1, y has 2", y=np.ones((10, 2)))

    def test_cross_entropy_for_regression(self):
        self.check("Use LocalMAClassifier", loss="cross_entropy")

    def test_own_loss_with_wrong_derivative(self):
        wrong = Loss("mine", value=lambda y, mu: (y - mu) ** 2, derivative=lambda y, mu: y - mu)
        self.check("Correct its derivative", loss=wrong)

    def test_unknown_container(self):
        with pytest.raises(InvalidInputError, match="did you mean 'pandas'"):
            LocalMARegressor().set_output(transform="panda")

    def test_a_failed_refit_leaves_the_fitted_model_whole(self, absolute):
        X, y = absolute
        model = LocalMARegressor({"left": left, "right": right}, gate=QUICK, random_state=0)
        before = model.fit(X, y).predict(X)
        model.set_params(candidates={"z": lambda X: 9 * X[:, 0], "q": lambda X: 0 * X[:, 0]})
        with pytest.raises(InvalidInputError):
            model.set_params(loss="poisson").fit(X[:, :1], y)
        np.testing.assert_array_equal(model.predict(X), before)

    def test_a_failed_fit_leaves_the_parameters(self, absolute):
        X, y = absolute
        model = LocalMARegressor(
            {"left": left, "right": right}, gate=QUICK, loss="poisson", random_state=0
        )
        with pytest.raises(InvalidInputError):
            model.fit(X, -y)
        assert model.set_params(loss="squared_error").fit(X, y).score(X, y) > 0.5


class TestClearErrors:
    def test_a_lazy_frame(self):
        polars = pytest.importorskip("polars")
        lazy = polars.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}).lazy()
        words = (
            r"X must be a table whose rows are there, and a LazyFrame is yet to be computed: pass"
        )
        for pool in ({"a": Column("a")}, {"left": left}):
            with pytest.raises(InvalidInputError, match=words):
                LocalMARegressor(pool, gate="global").fit(lazy, [1.0, 2.0])
        model = LocalMARegressor({"a": Column("a")}, gate="global").fit(lazy.collect(), [1.0, 2.0])
        with pytest.raises(InvalidInputError, match=words):
            model.predict(lazy)

    def test_masks_as_folds_are_rows(self, absolute):
        X, y = absolute
        test = np.arange(len(y)) % 2 == 0
        numbers = [(np.flatnonzero(~test), np.flatnonzero(test))]
        pool = {"left": left, "right": right}
        by_mask, by_number = (
            LocalMARegressor(pool, cv=cv, random_state=0).fit(X, y)
            for cv in ([(~test, test)], numbers)
        )
        assert by_mask.locality_gain_ == by_number.locality_gain_

    @pytest.mark.parametrize(
        ("fold", "words"),
        [
            (
                (np.array([True, False]), np.array([False, True])),
                r"must be row indices, or a mask of all \d+ rows; fold 0 of cv has values of "
                r"dtype bool and shape \(2,\)",
            ),
            ((["a"], ["b"]), r"fold 0 of cv has values of dtype <U1 and shape \(1,\)"),
            (([0.5], [1.5]), r"fold 0 of cv has values of dtype float64"),
            (
                ([0, 1], [2, 10**6]),
                r"Rows of folds must be numbered 0 to \d+; fold 0 of cv has 2 to 1",
            ),
            (([0, -1], [2]), r"fold 0 of cv has -1 to 0\. Number the rows within the sample"),
        ],
    )
    def test_folds_that_are_no_rows(self, absolute, fold, words):
        X, y = absolute
        with pytest.raises(InvalidInputError, match=words):
            LocalMARegressor({"left": left, "right": right}, cv=[fold]).fit(X, y)

    def test_a_base_that_is_no_gate(self, absolute):
        X, y = absolute
        gate = ShrunkGate("local")
        with pytest.raises(
            InvalidInputError,
            match=r"The base of ShrunkGate must be a gate, such as MLPGate\(\); received 'local'\.",
        ):
            LocalMARegressor({"left": left, "right": right}, gate=gate).fit(X, y)

    def test_predictions_with_another_index(self):
        pandas = pytest.importorskip("pandas")
        y = np.arange(6.0)
        X = pandas.DataFrame({"x": y}, index=list("abcdef"))
        P = pandas.DataFrame({"m": y, "k": -y}, index=X.index)
        fitted = LocalMARegressor(gate="global").fit(X, y, predictions=P)
        words = (
            r"the rows of X in the same order, and their index differs from X's: in row 0 X has "
            r"'a' and predictions 'f'\. Put them in order with predictions\.loc\[X\.index\]"
        )
        turned = P[::-1]
        for wrong in (turned, {"m": turned["m"], "k": y}, {"m": y, "k": turned[["k"]]}):
            with pytest.raises(InvalidInputError, match=words):
                LocalMARegressor(gate="global").fit(X, y, predictions=wrong)
            with pytest.raises(InvalidInputError, match=words):
                fitted.predict(X, predictions=wrong)
        for right_ones in (P.to_numpy(), turned.loc[X.index], {"m": y, "k": -y}):
            np.testing.assert_allclose(fitted.predict(X, predictions=right_ones), y, atol=1e-6)
        plain = X.to_numpy()
        LocalMARegressor(gate="global").fit(plain, y, predictions=P)


class TestRowsOutsideTheSample:
    """`predict` warns once if most rows have no support, and names the column."""

    @staticmethod
    def table(years, n=60):
        rng = np.random.default_rng(0)
        return np.column_stack([rng.uniform(-2, 2, n), rng.choice(years, n)])

    @staticmethod
    def target(x, year):
        """From 2018 on the other candidate is right, so that the gate uses the year."""
        return np.where(year > 2017, x, -x)

    @pytest.fixture
    def drifted(self):
        X = self.table(np.arange(2015.0, 2021.0), n=150)
        model = LocalMARegressor({"left": left, "right": right}, random_state=0)
        return model.fit(X, self.target(*X.T)), self.table([2024.0])

    def test_once_per_fit(self, drifted):
        model, X = drifted
        words = r"100% of the rows .* mostly by 'x1': 2015 to 2020 in the sample, 2024 here"
        with pytest.warns(OutsideSampleWarning, match=words) as caught:
            model.predict(X)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        model.predict(X)  # warnings are errors here
        model.fit(X, np.abs(X[:, 0]))
        model.predict(X)
        with pytest.warns(OutsideSampleWarning):
            model.predict(X + np.array([0.0, 99.0]))

    def test_not_for_few_rows_or_a_minority(self, drifted):
        model, X = drifted
        model.predict(X[:1])
        model.predict(X[:19])
        inside = X - np.array([0.0, 6.0])
        model.predict(np.vstack([X[:20], inside[:30]]))

    def test_constant_weights_are_not_affected(self, drifted):
        _, X = drifted
        rng = np.random.default_rng(0)
        y = rng.normal(size=60)
        P = np.column_stack([y, y + 30.0])
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
        assert not model.gate_.answer_.gates
        model.predict(X + 99.0, predictions=P)
        other = LocalMARegressor({"left": left, "right": right}, gate="local", random_state=0)
        other.fit(X, np.abs(X[:, 0])).predict(X + 99.0)

    def test_a_loaded_model_warns_too(self, drifted, tmp_path):
        model, X = drifted
        model.save(tmp_path / "model.localma")
        again = load(tmp_path / "model.localma", candidates=model.candidates)
        with pytest.warns(OutsideSampleWarning, match="'x1'"):
            again.predict(X)

    @pytest.mark.parametrize("features", [None, ["x", "year"], "encoder"])
    def test_names_of_columns(self, drifted, features):
        pandas = pytest.importorskip("pandas")
        _, X = drifted
        spec = TableEncoder() if features == "encoder" else features
        old = pandas.DataFrame(self.table(np.arange(2015.0, 2021.0), 150), columns=["x", "year"])
        old = old.assign(guess=0.0, other=1.0)[["guess", "x", "year", "other"]]
        pool = {
            "left": lambda X: -X["x"],
            "right": lambda X: X["x"],
            "guess": Column("guess"),
            "other": Column("other"),
        }
        model = LocalMARegressor(pool, gate_features=spec, random_state=0)
        model.fit(old, self.target(old["x"], old["year"]))
        new = pandas.DataFrame(X, columns=["x", "year"]).assign(guess=0.0, other=1.0)
        with pytest.warns(OutsideSampleWarning, match="'year'"):
            model.predict(new[old.columns])

    def test_a_transformer_without_names(self, drifted):
        _, X = drifted
        old = self.table(np.arange(2015.0, 2021.0), n=150)
        model = LocalMARegressor(
            {"left": left, "right": right}, gate_features=lambda X: X[:, ::-1], random_state=0
        ).fit(old, self.target(*old.T))
        with pytest.warns(OutsideSampleWarning, match="'input 0'"):
            model.predict(X)

    def test_it_can_be_silenced(self, drifted):
        model, X = drifted
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", OutsideSampleWarning)
            model.predict(X)
