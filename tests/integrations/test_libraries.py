"""Real models of LightGBM, XGBoost, CatBoost and statsmodels as candidates.

`make test-integrations` runs these tests in an environment of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from localma import (
    CrossFitted,
    LocalMAClassifier,
    LocalMARegressor,
    TableEncoder,
    as_candidate,
    load,
)
from localma.candidates import OnnxCandidate
from localma.errors import CandidateError, InvalidInputError
from localma.gates import MLPGate

pandas = pytest.importorskip("pandas", reason="frames are those of pandas")

QUICK = MLPGate(n_steps=40, hidden=(8,))
NAMES = ["a", "b", "c"]
random = np.random.default_rng(0)
X = random.normal(size=(400, 3)).astype(np.float32).astype(np.float64)  # as ONNX files read them
Y = X[:, 0] - X[:, 1] ** 2 + 0.1 * random.normal(size=400)
CLASSES = ["low", "mid", "top"]
CODES = np.digitize(Y, [-1.5, 0.0])
LABELS = np.array(CLASSES)[CODES]
TRAIN, SAMPLE, NEW = slice(0, 150), slice(150, 350), slice(350, 400)


@dataclass(frozen=True)
class Library:
    """A library of boosted trees: how its models are made, and the labels that they take."""

    package: str
    regressor: Callable[[int], Any]
    classifier: Callable[[int], Any]
    takes_words: bool = True

    def fitted_regressor(self, trees: int, data: Any) -> Any:
        return self.regressor(trees).fit(rows(data, TRAIN), Y[TRAIN])

    def fitted_classifier(self, trees: int, data: Any) -> Any:
        labels = LABELS if self.takes_words else CODES
        return self.classifier(trees).fit(rows(data, TRAIN), labels[TRAIN])

    def class_candidate(self, trees: int, data: Any) -> Any:
        model = self.fitted_classifier(trees, data)
        return as_candidate(model, classes=None if self.takes_words else CLASSES)


def lightgbm_model(kind: str) -> Callable[[int], Any]:
    def make(trees: int) -> Any:
        import lightgbm

        return getattr(lightgbm, kind)(n_estimators=trees, num_leaves=7, n_jobs=1, verbose=-1)

    return make


def xgboost_model(kind: str) -> Callable[[int], Any]:
    def make(trees: int) -> Any:
        import xgboost

        return getattr(xgboost, kind)(n_estimators=trees, max_depth=3, n_jobs=1)

    return make


def catboost_model(kind: str) -> Callable[[int], Any]:
    def make(trees: int) -> Any:
        import catboost

        quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
        return getattr(catboost, kind)(iterations=trees, depth=3, **quiet)

    return make


LIBRARIES = [
    Library("lightgbm", lightgbm_model("LGBMRegressor"), lightgbm_model("LGBMClassifier")),
    Library(
        "xgboost", xgboost_model("XGBRegressor"), xgboost_model("XGBClassifier"), takes_words=False
    ),
    Library("catboost", catboost_model("CatBoostRegressor"), catboost_model("CatBoostClassifier")),
]
KINDS = {"array": X, "frame": pandas.DataFrame(X, columns=NAMES)}


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.package)
def library(request: pytest.FixtureRequest) -> Library:
    pytest.importorskip(request.param.package, reason=f"needs {request.param.package}")
    return request.param


@pytest.fixture(params=KINDS)
def data(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def rows(data: Any, part: slice) -> Any:
    return data[part] if isinstance(data, np.ndarray) else data.iloc[part]


# --- fitted models -----------------------------------------------------------------------------


def test_regressors(library: Library, data: Any, tmp_path: Path) -> None:
    models = {
        "few": library.fitted_regressor(3, data),
        "many": library.fitted_regressor(40, data),
    }
    model = LocalMARegressor(models, gate=QUICK, random_state=0)
    model.fit(rows(data, SAMPLE), Y[SAMPLE])
    new = rows(data, NEW)
    expected = np.column_stack([fitted.predict(new) for fitted in models.values()])
    assert_allclose(model.candidate_predictions(new), expected, rtol=1e-6)
    mean = (model.predict_weights(new) * expected).sum(axis=1)
    assert_allclose(model.predict(new), mean, rtol=1e-6)
    assert model.score(new, Y[NEW]) > 0.5
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", candidates=models)
    assert_array_equal(restored.predict(new), model.predict(new))


def test_classifiers_with_words_as_labels(library: Library, data: Any, tmp_path: Path) -> None:
    pool = {
        name: library.class_candidate(trees, data) for name, trees in (("few", 3), ("many", 30))
    }
    model = LocalMAClassifier(pool, gate=QUICK, random_state=0)
    model.fit(rows(data, SAMPLE), LABELS[SAMPLE])
    new = rows(data, NEW)
    assert model.classes_.tolist() == CLASSES
    P = model.candidate_predictions(new)
    assert_allclose(P[:, 1], library.fitted_classifier(30, data).predict_proba(new), atol=1e-6)
    mean = np.einsum("nm,nmk->nk", model.predict_weights(new), P)
    assert_allclose(model.predict_proba(new), mean, atol=1e-6)
    assert model.score(new, LABELS[NEW]) > 0.6
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", candidates=pool)
    assert_array_equal(restored.predict_proba(new), model.predict_proba(new))
    assert_array_equal(restored.predict(new), model.predict(new))


def test_two_classes(library: Library) -> None:
    yes = np.where(Y > -0.5, "yes", "no")
    labels = yes if library.takes_words else (yes == "yes").astype(int)
    fitted = library.classifier(10).fit(X[TRAIN], labels[TRAIN])
    names = None if library.takes_words else ["no", "yes"]
    pool = {"trees": as_candidate(fitted, classes=names)}
    pool["even"] = as_candidate(lambda X: np.full(len(X), 0.5), classes=["no", "yes"])
    model = LocalMAClassifier(pool, gate="global").fit(X[SAMPLE], yes[SAMPLE])
    P = model.candidate_predictions(X[NEW])
    assert_allclose(P[:, 0], fitted.predict_proba(X[NEW]), atol=1e-6)
    assert model.score(X[NEW], yes[NEW]) > 0.7


def test_the_columns_of_a_frame_go_by_name(library: Library) -> None:
    frame = KINDS["frame"]
    fitted = library.fitted_regressor(20, frame)
    moved = frame[["c", "a", "b"]].assign(more=1.0)
    candidate = as_candidate(fitted)
    assert_allclose(
        candidate.predict(moved, "regression"), fitted.predict(frame), rtol=1e-6, atol=1e-9
    )


def test_a_default_fit_judges_the_models(library: Library) -> None:
    models = [library.fitted_regressor(trees, X) for trees in (3, 40)]
    model = LocalMARegressor(models, random_state=0).fit(X[SAMPLE], Y[SAMPLE])
    assert model.verdict_
    assert model.global_weights_[1] > 0.5


def test_unfitted_models_and_models_for_another_task_are_refused(library: Library) -> None:
    for unfitted in (library.regressor(3), library.classifier(3)):
        with pytest.raises(InvalidInputError, match="A candidate must be fitted already"):
            as_candidate(unfitted)
    regressor, classifier = library.fitted_regressor(3, X), library.fitted_classifier(3, X)
    with pytest.raises(InvalidInputError, match="has no classes_, which a candidate for classif"):
        LocalMAClassifier({"trees": regressor}).fit(X[SAMPLE], LABELS[SAMPLE])
    with pytest.raises(InvalidInputError, match="is a classifier, and this is a regression"):
        LocalMARegressor({"trees": classifier}).fit(X[SAMPLE], Y[SAMPLE])
    with pytest.raises(InvalidInputError, match="is not a classifier, and this is a class"):
        LocalMAClassifier({"trees": CrossFitted(library.regressor(3))}).fit(X, LABELS)


# --- models that are fitted on the sample ------------------------------------------------------


def test_cross_fitted_regressors(library: Library, data: Any) -> None:
    own = CrossFitted(library.regressor(20))
    pool = {"own": own, "zero": lambda X: np.zeros(len(X))}
    model = LocalMARegressor(pool, gate="global", random_state=0)
    model.fit(rows(data, SAMPLE), Y[SAMPLE], sample_weight=np.ones(200))
    assert model.global_weights_[0] > 0.5
    full = library.regressor(20).fit(rows(data, SAMPLE), Y[SAMPLE])
    new = rows(data, NEW)
    assert_allclose(model.candidate_predictions(new)[:, 0], full.predict(new), rtol=1e-4, atol=1e-4)


def test_cross_fitted_classifiers(library: Library, data: Any) -> None:
    labels = LABELS if library.takes_words else CODES
    own = CrossFitted(library.classifier(10))
    model = LocalMAClassifier({"own": own}, gate="global", random_state=0)
    model.fit(rows(data, SAMPLE), labels[SAMPLE])
    assert model.classes_.tolist() == np.unique(labels).tolist()
    assert model.score(rows(data, NEW), labels[NEW]) > 0.6


def test_a_library_that_takes_numbers_only_says_so() -> None:
    pytest.importorskip("xgboost", reason="needs xgboost")
    own = CrossFitted(xgboost_model("XGBClassifier")(3))
    with pytest.raises(CandidateError, match=r"'own' raised ValueError when fitted on all rows .*"):
        LocalMAClassifier({"own": own}, gate="global").fit(X, LABELS)


# --- categories and gaps, which trees take and the gate does not --------------------------------


@pytest.mark.parametrize("package", ["lightgbm", "catboost"])
def test_categories_and_gaps(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"needs {package}")
    frame = KINDS["frame"].copy()
    frame.loc[::7, "a"] = np.nan
    frame["city"] = pandas.Categorical(np.array(["north", "south"])[(X[:, 2] > 0).astype(int)])
    if package == "lightgbm":
        fitted = [
            lightgbm_model("LGBMRegressor")(trees).fit(frame[TRAIN], Y[TRAIN]) for trees in (3, 30)
        ]
    else:
        fitted = [
            catboost_model("CatBoostRegressor")(trees).fit(
                frame[TRAIN], Y[TRAIN], cat_features=["city"]
            )
            for trees in (3, 30)
        ]
    pool = dict(zip(["few", "many"], fitted, strict=True))
    model = LocalMARegressor(pool, gate=QUICK, gate_features=TableEncoder(), random_state=0)
    model.fit(frame[SAMPLE], Y[SAMPLE])
    P = np.column_stack([each.predict(frame[NEW]) for each in fitted])
    assert_allclose(model.candidate_predictions(frame[NEW]), P, rtol=1e-9)
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", candidates=pool)
    assert_array_equal(restored.predict(frame[NEW]), model.predict(frame[NEW]))


# --- the libraries' own formats ----------------------------------------------------------------


def test_a_booster_of_lightgbm(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm")
    fitted = lightgbm_model("LGBMClassifier")(10).fit(X[TRAIN], LABELS[TRAIN])
    fitted.booster_.save_model(tmp_path / "three.txt")
    booster = lightgbm.Booster(model_file=tmp_path / "three.txt")
    candidate = as_candidate(booster, classes=CLASSES)
    expected = fitted.predict_proba(X[NEW])
    assert_allclose(candidate.predict(X[NEW], "classification"), expected)
    two = lightgbm_model("LGBMClassifier")(10).fit(X[TRAIN], Y[TRAIN] > 0)
    candidate = as_candidate(two.booster_, classes=["no", "yes"])
    assert_allclose(candidate.predict(X[NEW], "classification"), two.predict_proba(X[NEW]))
    regressor = lightgbm_model("LGBMRegressor")(10).fit(X[TRAIN], Y[TRAIN])
    candidate = as_candidate(regressor.booster_)
    assert_allclose(candidate.predict(X[NEW], "regression"), regressor.predict(X[NEW]))


def test_a_booster_of_xgboost_in_a_function(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="needs xgboost")
    fitted = xgboost_model("XGBClassifier")(10).fit(X[TRAIN], CODES[TRAIN])
    fitted.save_model(tmp_path / "three.json")
    booster = xgboost.Booster(model_file=tmp_path / "three.json")
    candidate = as_candidate(lambda X: booster.predict(xgboost.DMatrix(X)), classes=CLASSES)
    expected = fitted.predict_proba(X[NEW])
    assert_allclose(candidate.predict(X[NEW], "classification"), expected, atol=1e-6)


# --- ONNX --------------------------------------------------------------------------------------


def write_onnx(fitted: Any, package: str, path: Path, **options: Any) -> Path:
    """The file that the library itself, or its converter, writes."""
    if package == "catboost":
        fitted.save_model(str(path), format="onnx")
        return path
    onnxmltools = pytest.importorskip("onnxmltools", reason="converts trees to ONNX")
    types = onnxmltools.convert.common.data_types
    convert = getattr(onnxmltools, f"convert_{package}")
    made = convert(fitted, initial_types=[("X", types.FloatTensorType([None, 3]))], **options)
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def onnx_library(library: Library) -> Library:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra onnx")
    return library


def test_an_onnx_regressor(onnx_library: Library, tmp_path: Path) -> None:
    fitted = onnx_library.fitted_regressor(10, X)
    path = write_onnx(fitted, onnx_library.package, tmp_path / "trees.onnx")
    predictions = as_candidate(path).predict(X[NEW], "regression")
    assert_allclose(predictions, fitted.predict(X[NEW]), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("words", [True, False], ids=["words", "numbers"])
def test_an_onnx_classifier_states_its_classes(
    onnx_library: Library, n_classes: int, words: bool, tmp_path: Path
) -> None:
    if words and not onnx_library.takes_words:
        pytest.skip(f"{onnx_library.package} takes numbers as labels only")
    codes = CODES if n_classes == 3 else (CODES > 0).astype(int)
    labels = np.array(CLASSES)[codes] if words else codes
    fitted = onnx_library.classifier(10).fit(X[TRAIN], labels[TRAIN])
    path = write_onnx(fitted, onnx_library.package, tmp_path / "trees.onnx")
    candidate = as_candidate(path)
    assert isinstance(candidate, OnnxCandidate)
    assert candidate.classes is not None
    assert candidate.classes.tolist() == np.unique(labels).tolist()
    predictions = candidate.predict(X[NEW], "classification")
    assert_allclose(predictions, fitted.predict_proba(X[NEW]), atol=1e-5)


def test_lightgbm_without_dicts_states_its_classes(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm", reason="needs lightgbm")
    fitted = lightgbm_model("LGBMClassifier")(10).fit(X[TRAIN], LABELS[TRAIN])
    path = write_onnx(fitted, "lightgbm", tmp_path / "trees.onnx", zipmap=False)
    candidate = as_candidate(path)
    assert candidate.classes is not None
    assert candidate.classes.tolist() == CLASSES
    expected = fitted.predict_proba(X[NEW])
    assert_allclose(candidate.predict(X[NEW], "classification"), expected, atol=1e-5)


def test_a_pool_of_onnx_files_is_saved_whole(onnx_library: Library, tmp_path: Path) -> None:
    package, pool = onnx_library.package, {}
    for name, trees in (("few", 3), ("many", 30)):
        fitted = onnx_library.fitted_classifier(trees, X)
        pool[name] = write_onnx(fitted, package, tmp_path / f"{name}.onnx")
    labels = LABELS if onnx_library.takes_words else CODES
    model = LocalMAClassifier(pool, gate=QUICK, random_state=0).fit(X[SAMPLE], labels[SAMPLE])
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", trust=True)
    assert_array_equal(restored.predict_proba(X[NEW]), model.predict_proba(X[NEW]))


# --- statsmodels -------------------------------------------------------------------------------


@pytest.fixture
def sm() -> Any:
    return pytest.importorskip("statsmodels.api", reason="needs statsmodels")


def with_constant(X: Any) -> Any:
    import statsmodels.api

    return statsmodels.api.add_constant(X, has_constant="add")


def test_linear_models_of_statsmodels(sm: Any, data: Any, tmp_path: Path) -> None:
    train = rows(data, TRAIN)
    results = {
        "line": sm.OLS(Y[TRAIN], with_constant(train)).fit(),
        "robust": sm.RLM(Y[TRAIN], with_constant(train)).fit(),
    }
    pool = {name: as_candidate(each, inputs=with_constant) for name, each in results.items()}
    model = LocalMARegressor(pool, gate=QUICK, random_state=0).fit(rows(data, SAMPLE), Y[SAMPLE])
    new = rows(data, NEW)
    expected = np.column_stack([each.predict(with_constant(new)) for each in results.values()])
    assert_allclose(model.candidate_predictions(new), expected)
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", candidates=pool)
    assert_array_equal(restored.predict(new), model.predict(new))


def test_a_formula_finds_its_columns(sm: Any) -> None:
    formulas = pytest.importorskip("statsmodels.formula.api", reason="needs statsmodels")
    frame = KINDS["frame"].assign(y=Y)
    curve = formulas.ols("y ~ a + I(b ** 2)", data=frame[TRAIN]).fit()
    line = formulas.ols("y ~ a + b + c", data=frame[TRAIN]).fit()
    inputs = frame.drop(columns="y")
    model = LocalMARegressor({"curve": curve, "line": line}, gate="global")
    model.fit(inputs[SAMPLE], Y[SAMPLE])
    assert model.global_weights_[0] > 0.9
    assert_allclose(model.candidate_predictions(inputs[NEW])[:, 0], curve.predict(inputs[NEW]))


def test_counts_with_a_generalized_linear_model(sm: Any) -> None:
    counts = np.random.default_rng(1).poisson(np.exp(0.5 * X[:, 0]))
    family = sm.families.Poisson()
    glm = sm.GLM(counts[TRAIN], with_constant(X[TRAIN]), family=family).fit()
    pool = {
        "glm": as_candidate(glm, inputs=with_constant),
        "mean": lambda X: np.full(len(X), counts[TRAIN].mean()),
    }
    model = LocalMARegressor(pool, loss="poisson", gate="global").fit(X[SAMPLE], counts[SAMPLE])
    assert model.global_weights_[0] > 0.5
    assert (model.predict(X[NEW]) > 0).all()


def test_class_models_of_statsmodels(sm: Any, data: Any) -> None:
    # Noise, since both models diverge where a line separates the classes.
    noisy = X[:, 0] + np.random.default_rng(2).logistic(size=400)
    codes = np.digitize(noisy, [-0.7, 0.7])
    train, new = rows(data, TRAIN), rows(data, NEW)
    three = sm.MNLogit(codes[TRAIN], with_constant(train)).fit(disp=0)
    two = sm.Logit((codes[TRAIN] > 0).astype(int), with_constant(train)).fit(disp=0)
    candidate = as_candidate(three, inputs=with_constant, classes=CLASSES)
    expected = np.asarray(three.predict(with_constant(new)))
    assert_allclose(candidate.predict(new, "classification"), expected)
    labels = np.where(codes > 0, "yes", "no")
    pool = {
        "logit": as_candidate(two, inputs=with_constant, classes=["no", "yes"]),
        "even": as_candidate(lambda X: np.full(len(X), 0.5), classes=["no", "yes"]),
    }
    model = LocalMAClassifier(pool, gate=QUICK, random_state=0)
    model.fit(rows(data, SAMPLE), labels[SAMPLE])
    second = np.asarray(two.predict(with_constant(new)))
    assert_allclose(model.candidate_predictions(new)[:, 0, 1], second)


def test_the_environment_has_all_libraries() -> None:
    """Only in the environment of these tests: there, none of them may be skipped."""
    packages = ["lightgbm", "xgboost", "catboost", "statsmodels", "onnxmltools", "onnxruntime"]
    missing = [package for package in packages if find_spec(package) is None]
    if len(missing) > 1:
        pytest.skip(f"needs {', '.join(missing)}: run make test-integrations")
    assert not missing
