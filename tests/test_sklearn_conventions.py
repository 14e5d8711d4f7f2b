"""Conventions of scikit-learn beyond its checks: HTML, parameter validation, names of features."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError as SklearnParameterError
from sklearn.utils.estimator_checks import check_param_validation

import localma
from localma import LocalMAClassifier, LocalMARegressor, TableEncoder, as_candidate
from localma.errors import InvalidInputError, InvalidParameterError
from localma.gates import Labelled, MLPGate, ShrunkGate
from localma.losses import squared_error

ADDRESS = "https://localma.example/_api/localma.{estimator_name}.html"


def left(X):
    return -np.asarray(X)[:, 0]


def right(X):
    return np.asarray(X)[:, 0]


def sample(n=60):
    x = np.linspace(-2, 2, n)
    return x[:, np.newaxis], 0.5 * x + 0.3 * np.cos(40 * x)


def fitted(gate="global", names=("left", "right"), **parameters):
    candidates = dict(zip(names, (left, right), strict=True))
    model = LocalMARegressor(candidates, gate=gate, random_state=0, **parameters)
    return model.fit(*sample())


class Cells(HTMLParser):
    """Texts of table cells and paragraphs."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.tags, self._open = [], [], False
        self.feed(text[text.index('<div class="localma-fit">') :])

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open = tag in ("td", "th", "p")
        if self._open:
            self.texts.append("")

    def handle_endtag(self, tag):
        self._open = False

    def handle_data(self, data):
        if self._open:
            self.texts[-1] += data


class TestHtml:
    def test_candidates_with_mean_weights_largest_first(self):
        texts = Cells(fitted()._repr_html_()).texts
        assert texts == ["Candidate", "Mean weight", "right", "0.750", "left", "0.250", ""]

    def test_verdict(self):
        model = fitted("auto", cv=2)
        assert Cells(model._repr_html_()).texts[-1] == model.verdict_

    def test_cautions_without_a_verdict(self):
        model = LocalMARegressor({"left": left}, gate="equal")
        with pytest.warns(localma.errors.WorseThanConstantWarning):
            model.fit(*sample())
        sentence = " ".join(caution.sentence for caution in model.cautions_)
        assert sentence
        assert Cells(model._repr_html_()).texts[-1] == sentence

    def test_names_are_escaped(self):
        name = "<script>alert(1)</script> & co"
        cells = Cells(fitted(names=(name, "right"))._repr_html_())
        assert name in cells.texts
        assert "script" not in cells.tags

    def test_before_the_fit_only_the_diagram(self):
        text = LocalMARegressor({"left": left})._repr_html_()
        assert "sk-top-container" in text
        assert "localma-fit" not in text

    def test_many_candidates_are_counted(self):
        X, y = sample()
        P = np.repeat(X, 25, axis=1)
        model = LocalMARegressor(gate="equal").fit(X, y, predictions=P)
        texts = Cells(model._repr_html_()).texts
        assert "and 5 more" in texts
        assert texts.count("0.040") == 20

    def test_mime_bundle_follows_the_display_setting(self):
        model = fitted()
        assert "localma-fit" in model._repr_mimebundle_()["text/html"]
        with sklearn.config_context(display="text"):
            assert set(model._repr_mimebundle_()) == {"text/plain"}
            assert not hasattr(model, "_repr_html_")

    def test_loaded_model_shows_global_weights(self, tmp_path):
        fitted().save(tmp_path / "model.localma")
        candidates = {"left": left, "right": right}
        loaded = localma.load(tmp_path / "model.localma", candidates)
        assert loaded.mean_weights_ is None
        assert Cells(loaded._repr_html_()).texts[1:4] == ["Global weight", "right", "0.750"]

    def test_mean_weights_are_the_mean_over_the_sample(self):
        X, y = sample()
        weight = np.linspace(0, 1, len(y))
        model = LocalMARegressor({"left": left, "right": right}, gate="local", random_state=0)
        model.fit(X, y, sample_weight=weight)
        expected = np.average(model.predict_weights(X), axis=0, weights=weight)
        np.testing.assert_allclose(model.mean_weights_, expected, rtol=1e-12)

    @pytest.mark.parametrize("kind", [LocalMARegressor, LocalMAClassifier])
    def test_link_to_the_documentation_once_it_has_an_address(self, kind, monkeypatch):
        assert kind()._get_doc_link() == ""
        assert 'sk-estimator-doc-link " rel' not in kind()._repr_html_()
        monkeypatch.setattr(kind, "_doc_link_template", ADDRESS)
        address = f"https://localma.example/_api/localma.{kind.__name__}.html"
        assert kind()._get_doc_link() == address
        assert f'href="{address}"' in kind()._repr_html_()


class TestParameters:
    @pytest.mark.parametrize("kind", [LocalMARegressor, LocalMAClassifier])
    def test_scikit_learns_check(self, kind):
        candidate = as_candidate(lambda X: np.full(len(X), 0.5), classes=[0, 1])
        check_param_validation(kind.__name__, kind({"half": candidate}))

    @pytest.mark.parametrize(
        ("parameter", "value", "remedy"),
        [
            ("candidates", 5, "Pass candidates={'name': fitted_model, ...}."),
            ("loss", None, "Pass a name such as 'squared_error', or a localma.losses.Loss."),
            (
                "gate",
                3,
                "Pass one of 'auto', 'local', 'trees', 'global', 'equal', 'paper', or a Gate",
            ),
            ("gate_features", 3.5, "Pass a list of columns, a transformer or a function of X"),
            ("cv", 1, "Pass a number of folds from 2 on, or a splitter of scikit-learn."),
            ("random_state", -1, "Pass an integer from 0 on, or None."),
        ],
    )
    def test_errors_state_rule_value_and_remedy(self, parameter, value, remedy):
        X = np.arange(10.0)[:, np.newaxis]
        model = LocalMARegressor({"left": left}).set_params(**{parameter: value})
        with pytest.raises(InvalidParameterError) as caught:
            model.fit(X, X[:, 0])
        message = str(caught.value)
        assert f"The '{parameter}' parameter of LocalMARegressor must be " in message
        assert f". Got {value!r} instead. {remedy}" in message
        for kind in (InvalidInputError, SklearnParameterError, ValueError, TypeError):
            assert isinstance(caught.value, kind)

    def test_validation_can_be_switched_off(self):
        X, y = sample()
        model = LocalMARegressor({"left": left, "right": right}, gate="global", cv=1)
        with pytest.raises(InvalidParameterError):
            model.fit(X, y)
        with sklearn.config_context(skip_parameter_validation=True):
            model.fit(X, y)


class TestFeatures:
    @pytest.mark.parametrize("gate", ["global", "equal"])
    def test_arrays_have_a_number(self, gate):
        X = np.random.default_rng(0).normal(size=(60, 3))
        model = LocalMARegressor({"left": left, "right": right}, gate=gate)
        model.fit(X, X[:, 0] + X[:, 1])
        assert model.n_features_in_ == 3
        assert not hasattr(model, "feature_names_in_")
        assert not hasattr(clone(model), "n_features_in_")

    def test_frames_have_names(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        X, y = sample()
        X = pandas.DataFrame({"a": X[:, 0], "b": np.cos(np.arange(60.0))})
        model = LocalMARegressor({"left": left, "right": right}, gate="global")
        model.fit(X, y).save(tmp_path / "model.localma")
        loaded = localma.load(tmp_path / "model.localma", {"left": left, "right": right})
        for each in (model, loaded):
            assert each.n_features_in_ == 2
            assert each.feature_names_in_.tolist() == ["a", "b"]
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X[["b", "a"]])

    def test_table_encoder(self):
        polars = pytest.importorskip("polars")
        table = polars.DataFrame({"area": [50.0, None, 80.0], "city": ["a", "b", "a"]})
        encoder = TableEncoder(["area"]).fit(table)
        assert encoder.n_features_in_ == 2
        assert encoder.feature_names_in_.tolist() == ["area", "city"]
        restored = TableEncoder.from_recipe(encoder.recipe())
        assert restored.n_features_in_ == 1
        assert restored.feature_names_in_.tolist() == ["area"]

    @pytest.mark.parametrize("gate", [MLPGate(n_steps=20), ShrunkGate(cv=2, n_restarts=1)], ids=str)
    def test_gates(self, gate):
        x = np.linspace(-2, 2, 60)
        P, X = np.stack([-x, x], axis=1)[:, :, np.newaxis], np.stack([x, x**2, x**3], axis=1)
        data = Labelled.of(X, P, np.abs(x)[:, np.newaxis], loss=squared_error())
        assert clone(gate).set_params(random_state=0).fit(data).n_features_in_ == 3
