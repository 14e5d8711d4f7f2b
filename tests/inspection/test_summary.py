"""The summary: plain values for every kind of model and of rows."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from localma import Column, LocalMAClassifier, LocalMARegressor, load
from localma.checks.cautions import Caution
from localma.errors import InvalidInputError, LocalMAWarning
from localma.gates import ShrunkGate
from localma.inspection import Summary, explain, observe, summarize
from localma.inspection.summary import Advice
from localma.records import plain

# The toys are exact: a candidate may be the target, and constant weights worse than a constant.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

PARTS = {
    "schema",
    "verdict",
    "cautions",
    "model",
    "data",
    "comparison",
    "effects",
    "map",
    "regions",
    "importance",
    "region_errors",
    "path",
    "spread",
    "reliability",
    "support",
    "rows",
}


def plain_summary(*args, **how):
    """Summarize, and see that JSON holds it all."""
    record = summarize(*args, **how)
    summary = record.to_dict()
    assert Summary.from_dict(json.loads(json.dumps(summary))) == record
    assert set(summary) == PARTS
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    return summary


def test_regression_with_auto():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(160, 2))
    y = np.abs(X[:, 0])
    model = LocalMARegressor(
        {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}, cv=2, random_state=0
    ).fit(X[:80], y[:80])
    summary = plain_summary(model, X[80:], y[80:])
    assert summary["verdict"] == model.verdict_
    assert summary["path"]["shrinkage"][:3] == [None, None, None]
    assert summary["path"]["gain"]["value"] == model.locality_gain_.value
    assert summary["map"]["features"] == ["x0", "x1"]
    assert summary["importance"][0]["feature"] == "x0"
    assert summary["reliability"] is None
    assert summary["data"] == {
        "n_rows": 80,
        "n_sampled": 80,
        "labelled": True,
        "weighted": False,
        "features": [
            {"name": name, "kind": "numeric", "n_missing": 0, "n_distinct": 80}
            for name in ("x0", "x1")
        ],
    }
    left = summary["model"]["candidates"][0]
    weights = model.predict_weights(X[80:])
    assert left["mean_weight"] == pytest.approx(weights[:, 0].mean())
    assert left["most_trusted"] == (weights.argmax(axis=1) == 0).mean()


def test_without_targets_nothing_is_compared(step):
    summary = plain_summary(step.model, step.X)
    assert summary["comparison"] is summary["region_errors"] is summary["path"] is None
    assert summary["verdict"] == "The weights come from StepGate, which does not judge itself."
    assert summary["rows"]["target"] is None
    assert summary["rows"]["prediction"] == step.model.predict(step.X).tolist()


def test_classification_names_classes(classifier):
    summary = plain_summary(classifier.model, classifier.X, classifier.y, control=False)
    assert summary["model"]["classes"] == ["bird", "cat", "dog"]
    assert summary["reliability"]["kind"] == "confidence"
    assert summary["rows"]["target"] == classifier.y.tolist()
    assert set(summary["rows"]["prediction"]) <= {"bird", "cat", "dog"}


@pytest.mark.parametrize("loss", ["brier", "cross_entropy"])
def test_two_classes_of_numbers(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] > 0).astype(int)
    P = np.stack([np.full(60, 0.4), 1 / (1 + np.exp(-3 * X[:, 0]))], axis=1)
    model = LocalMAClassifier(loss=loss, gate="local", random_state=0).fit(X, y, predictions=P)
    summary = plain_summary(model, X, y, predictions=P)
    assert summary["reliability"]["positive"] == 1
    assert summary["model"]["candidates"][0]["kind"] == "predictions"
    told = explain(model, X, 0, predictions=P).to_dict()
    assert set(told["probabilities"]) == {"0", "1"}


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    Y = np.column_stack([X[:, 0], -X[:, 1]])
    model = LocalMARegressor(
        {"a": lambda X: X, "b": lambda X: -X}, gate="local", random_state=0
    ).fit(X, Y)
    summary = plain_summary(model, X, Y)
    assert summary["model"]["n_outputs"] == 2
    assert len(summary["spread"]["disagreement"]["outputs"]) == 2
    assert np.shape(summary["rows"]["prediction"]) == (80, 2)
    told = explain(model, X, 5).to_dict()
    parts = [candidate["contribution"] for candidate in told["candidates"]]
    np.testing.assert_allclose(np.sum(parts, axis=0), told["prediction"])


@pytest.mark.parametrize("loss", ["poisson", "gamma", "bernoulli", "pinball", "absolute_error"])
def test_other_losses(loss):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    y = {"bernoulli": X[:, 0], "gamma": X[:, 0] + 0.1}.get(loss, rng.poisson(3 * X[:, 0]))
    model = LocalMARegressor(
        {"flat": lambda X: np.full(len(X), 0.5), "steep": lambda X: 0.01 + 0.9 * X[:, 0]},
        loss=loss,
        gate=ShrunkGate(cv=2, n_restarts=1),
        random_state=0,
    ).fit(X, y)
    summary = plain_summary(model, X, y)
    assert summary["comparison"]["loss"] == loss
    assert summary["comparison"]["entries"][-1]["kind"] == "control"


def test_predictions_alone(step):
    P = {"low": np.zeros(100), "high": np.full(100, 2.0)}
    model = LocalMARegressor(gate=step.model.gate).fit(step.X, step.y, predictions=P)
    summary = plain_summary(model, step.X, step.y, predictions=P, control=False)
    assert summary["comparison"]["best"] == 4
    without = plain_summary(model, step.X, step.y)
    assert without["comparison"] is None
    assert without["spread"]["disagreement"] is None
    assert without["rows"]["prediction"] is None
    assert without["regions"] == summary["regions"]
    told = explain(model, step.X, 0).to_dict()
    assert told["prediction"] is None
    assert told["candidates"][0]["weight"] == 1.0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_with_categories_dates_and_holes(library):
    frames = pytest.importorskip(library)
    n = 90
    days = np.datetime64("2024-01-01", "ms") + np.arange(n) * np.timedelta64(86_400_000, "ms")
    frame = frames.DataFrame(
        {
            "area": [None if k % 9 == 0 else float(k) for k in range(n)],
            "district": ["Xuhui", "<b>Jing'an</b>", None][:3] * (n // 3),
            "day": days,
            "flag": np.arange(n) % 2 == 0,
            "guess": np.arange(n) / 10,
            "other": np.ones(n),
        }
    )
    encode = make_column_transformer(
        (make_pipeline(SimpleImputer()), ["area"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["district"]),
    )
    y = np.where(np.asarray(frame["district"]) == "Xuhui", np.arange(n) / 10, 1.0)
    model = LocalMARegressor(
        {"guess": Column("guess"), "other": Column("other")},
        gate="local",
        gate_features=encode,
        random_state=0,
    ).fit(frame, y)
    summary = plain_summary(model, frame, y)
    kinds = {f["name"]: (f["kind"], f["n_missing"]) for f in summary["data"]["features"]}
    assert kinds == {
        "area": ("numeric", 10),
        "district": ("categorical", 30),
        "day": ("date", 0),
        "flag": ("categorical", 0),
    }
    effects = {effect["feature"]: effect for effect in summary["effects"]}
    assert effects["district"]["labels"] == ["<b>Jing'an</b>", "Xuhui", "missing"]
    assert effects["area"]["labels"][-1] == "missing"
    assert effects["area"]["centres"][-1] is None
    assert effects["day"]["labels"][0].startswith("2024-01-01 to ")
    moved = {row["feature"]: row["value"] for row in summary["importance"]}
    assert moved["day"] == moved["flag"] == 0.0
    assert summary["rows"]["features"]["district"][2] == "missing"


def test_texts_have_no_columns():
    texts = ["a", "bb", "ccc", "dddd"] * 10
    model = LocalMARegressor(
        {"long": lambda X: np.array([len(t) for t in X], float), "one": lambda X: np.ones(len(X))},
        gate="local",
        gate_features=lambda X: np.array([[len(t)] for t in X], float),
        random_state=0,
    ).fit(texts, [len(t) for t in texts])
    summary = plain_summary(model, texts, [len(t) for t in texts], control=False)
    assert summary["effects"] == summary["importance"] == []
    assert summary["map"] is None
    assert summary["regions"]["regions"] == []  # all weight is on the candidate that is right
    assert explain(model, texts, 3).prediction == pytest.approx(4, abs=0.5)


def many_candidates(n=50):
    names = ["$a_1$", "_hidden", "<script>alert(1)</script>", "a & b", "x" * 60]
    names += [f"model_{k}" for k in range(n - len(names))]
    return {name: (lambda X, k=k: X[:, 0] * k) for k, name in enumerate(names)}


def test_fifty_candidates():
    X = np.linspace(-1, 1, 80)[:, None]
    model = LocalMARegressor(many_candidates(), gate="local", random_state=0).fit(
        X, 3 * np.abs(X[:, 0])
    )
    summary = plain_summary(model, X, 3 * np.abs(X[:, 0]), control=False)
    for part in (summary["effects"][0], summary["regions"], summary["rows"]):
        assert len(part["candidates"]) == 9
        assert part["candidates"][-1] == "42 others"
        assert part["n_others"] == 42
    assert len(summary["comparison"]["entries"]) == 53
    assert len(summary["region_errors"]["entries"]) == 8 + 3
    np.testing.assert_allclose(np.sum(summary["effects"][0]["weights"], axis=0), 1)


def test_candidates_called_like_mixtures_stay_apart(step):
    model = LocalMARegressor(
        {"local weights": step.model.candidates["low"], "equal": step.model.candidates["high"]},
        gate=step.model.gate,
    ).fit(step.X, step.y)
    entries = plain_summary(model, step.X, step.y, control=False)["comparison"]["entries"]
    assert [entry["kind"] for entry in entries] == [
        "candidate",
        "candidate",
        "equal",
        "global",
        "local",
    ]
    assert entries[0]["loss"]["value"] == pytest.approx(2)
    assert entries[4]["loss"]["value"] == pytest.approx(0)


@pytest.mark.parametrize("gate", ["auto", "local", "global", "equal"])
def test_one_row_and_constant_features(gate):
    X = np.column_stack([np.linspace(-1, 1, 30), np.full(30, 7.0)])
    model = LocalMARegressor(
        {"a": lambda X: X[:, 0], "b": lambda X: -X[:, 0]}, gate=gate, cv=2, random_state=0
    ).fit(X, np.abs(X[:, 0]))
    summary = plain_summary(model, X[:1], [1.0])
    assert summary["comparison"]["entries"][0]["loss"]["standard_error"] is None
    assert summary["regions"]["regions"][0]["n"] == 1
    assert summary["importance"][0]["value"] == 0.0
    names = [entry["name"] for entry in summary["comparison"]["entries"]]
    assert names[-1] == ("this model" if gate in ("global", "equal") else "local weights")
    constant = plain_summary(model, X, np.abs(X[:, 0]), features=["x1"], control=False)
    if gate in ("global", "equal"):
        assert constant["effects"] == []
        assert constant["map"] is None
        return
    assert constant["effects"][0]["labels"] == ["7"]
    assert constant["map"]["features"] == ["x1", "x0"]


def test_one_candidate():
    X = np.linspace(-1, 1, 40)[:, None]
    model = LocalMARegressor({"only": LinearRegression().fit(X, X[:, 0])}, cv=2, random_state=0)
    summary = plain_summary(model.fit(X, X[:, 0]), X, X[:, 0], control=False)
    assert summary["spread"]["effective"]["mean"] == 1
    assert summary["regions"]["regions"] == []
    assert summary["regions"]["sentence"] == "The weights are the same for every row."


def test_rows_are_drawn_and_counted(step):
    summary = plain_summary(step.model, step.X, step.y, max_rows=40, control=False)
    assert summary["data"]["n_sampled"] == 40
    assert summary["comparison"]["n_rows"] == 100
    assert sum(region["n"] for region in summary["regions"]["regions"]) == 40
    assert sum(region["n"] for region in summary["region_errors"]["regions"]) == 100
    index = summary["rows"]["index"]
    assert summary["rows"]["features"]["x1"] == [str(int(v)) for v in step.X[index, 1]]
    assert summary["rows"]["target"] == step.y[index].tolist()
    assert summary == plain_summary(step.model, step.X, step.y, max_rows=40, control=False)


def test_the_order_of_rows_does_not_matter(step):
    order = np.random.default_rng(0).permutation(100)
    first = plain_summary(step.model, step.X, step.y, control=False)
    second = plain_summary(step.model, step.X[order], step.y[order], control=False)
    for a, b in zip(first["effects"], second["effects"], strict=True):
        assert (a["labels"], a["counts"]) == (b["labels"], b["counts"])
        np.testing.assert_allclose(a["weights"], b["weights"])
    for a, b in zip(first["comparison"]["entries"], second["comparison"]["entries"], strict=True):
        assert a["loss"] == pytest.approx(b["loss"])
    sides = [
        {region["sentence"] for region in summary["regions"]["regions"]}
        for summary in (first, second)
    ]
    assert sides[0] == sides[1]


def test_whole_weights_are_repeated_rows(step):
    rng = np.random.default_rng(0)
    y, counts = step.y + rng.normal(size=100), rng.integers(0, 3, size=100)
    weighted = plain_summary(step.model, step.X, y, sample_weight=counts, control=False)
    rows = np.repeat(np.arange(100), counts)
    repeated = plain_summary(step.model, step.X[rows], y[rows], control=False)
    for a, b in zip(
        weighted["comparison"]["entries"], repeated["comparison"]["entries"], strict=True
    ):
        assert a["loss"]["value"] == pytest.approx(b["loss"]["value"])
        assert a["metrics"]["r2"]["value"] == pytest.approx(b["metrics"]["r2"]["value"])
    assert weighted["spread"]["effective"]["mean"] == repeated["spread"]["effective"]["mean"]
    assert weighted["data"]["weighted"]


def test_the_model_is_left_as_it_was(classifier):
    before = classifier.model.predict_proba(classifier.X)
    rows = [k for k, label in enumerate(classifier.y) if label != "cat"]
    plain_summary(classifier.model, classifier.X[rows], classifier.y[rows])
    np.testing.assert_array_equal(classifier.model.predict_proba(classifier.X), before)


def test_a_loaded_model_says_the_same(tmp_path):
    X = np.linspace(-2, 2, 60)[:, None]
    candidates = {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}
    model = LocalMARegressor(candidates, cv=2, random_state=0).fit(X, np.abs(X[:, 0]))
    model.save(tmp_path / "model.localma")
    again = load(tmp_path / "model.localma", candidates=candidates)
    y = np.abs(X[:, 0])
    assert plain_summary(again, X, y) == plain_summary(model, X, y)


def test_output_containers_do_not_matter(step, pd):
    expected = summarize(step.model, step.X, step.y, control=False)
    step.model.set_output(transform="pandas")
    assert summarize(step.model, step.X, step.y, control=False) == expected


def test_lists_are_tables(step):
    assert summarize(step.model, step.X.tolist()).effects == summarize(step.model, step.X).effects


def test_columns_named_by_numbers(pd):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)))
    model = LocalMARegressor(
        {"a": lambda X: np.asarray(X)[:, 0], "b": lambda X: np.asarray(X)[:, 1]},
        gate="local",
        random_state=0,
    ).fit(frame, frame.max(axis=1))
    assert plain_summary(model, frame)["map"]["features"] in (["0", "1"], ["1", "0"])


def test_nothing_to_look_at(step):
    with pytest.raises(InvalidInputError, match="X has 0 rows; pass at least one"):
        summarize(step.model, step.X[:0])
    with pytest.raises(InvalidInputError, match="positive sample weight; all 100 are zero"):
        summarize(step.model, step.X, sample_weight=np.zeros(100))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        summarize(step.model, step.X, step.y[:5])


@given(
    n=st.integers(1, 40),
    p=st.integers(1, 3),
    M=st.integers(1, 12),
    values=st.sampled_from(["continuous", "few", "constant", "huge"]),
    seed=st.integers(0, 9),
)
@settings(deadline=None, max_examples=25)
def test_odd_shapes(n, p, M, values, seed):
    rng = np.random.default_rng(seed)
    X = {
        "continuous": rng.normal(size=(n, p)),
        "few": rng.integers(0, 2, size=(n, p)).astype(float),
        "constant": np.full((n, p), 3.0),
        "huge": 1e300 * rng.normal(size=(n, p)),
    }[values]
    encode = FunctionTransformer(lambda X: np.tanh(np.asarray(X)))
    candidates = {f"c{m}": (lambda X, m=m: np.full(len(X), float(m))) for m in range(M)}
    start = rng.normal(size=(20, p))
    model = LocalMARegressor(candidates, gate="local", gate_features=encode, random_state=0)
    model.gate = "global" if M == 1 else "local"
    model.fit(start, start[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", LocalMAWarning)  # these candidates know nothing
        summary = plain_summary(model, X, rng.normal(size=n), control=False)
    assert sum(region["n"] for region in summary["regions"]["regions"]) in (0, n)
    for effect in summary["effects"]:
        assert sum(effect["counts"]) == n
        np.testing.assert_allclose(np.sum(effect["weights"], axis=0), 1)


def test_plain_turns_everything_into_what_json_holds():
    value = {1: (np.float32(0.5), np.bool_(True), np.str_("a")), "d": np.datetime64("2024-01-01")}
    assert plain(value) == {"1": [0.5, True, "a"], "d": "2024-01-01"}
    assert plain([np.inf, -np.inf, np.nan]) == [None, None, None]


def test_an_observation_is_made_once(step):
    calls = []
    model = LocalMARegressor(
        {"a": lambda X: calls.append(len(X)) or np.zeros(len(X))}, gate="equal"
    ).fit(step.X, step.y)
    calls.clear()
    summarize(model, step.X, step.y, max_rows=30)
    assert calls == [100]
    calls.clear()
    observe(model, step.X).weights  # noqa: B018
    assert calls == []


def test_records_print_as_tables_and_become_frames(step, pd):
    summary = summarize(step.model, step.X, step.y, control=False)
    assert str(summary).splitlines()[0].split()[:2] == ["candidate", "global_weight"]
    assert summary.verdict in str(summary)
    table = summary.comparison.to_frame()
    assert table["name"].tolist() == [entry.name for entry in summary.comparison.entries]
    assert table["rmse"].iloc[-1] == summary.comparison.model.metrics["rmse"].value
    assert summary.importance.to_frame()["feature"].tolist() == ["x0", "x1"]
    for record in (summary.regions, summary.effects, summary.map, summary.region_errors):
        assert len(record.to_frame()) > 0
        assert len(str(record).splitlines()) > len(record.to_frame())


def test_names_are_escaped_in_html_and_on_a_terminal(step):
    names = {"<b>": step.model.candidates["low"], "bell\x07": step.model.candidates["high"]}
    model = LocalMARegressor(names, gate="equal").fit(step.X, step.y)
    compared = summarize(model, step.X, step.y, control=False).comparison
    assert "<b>" not in compared._repr_html_()
    assert "&lt;b&gt;" in compared._repr_html_()
    assert "\x07" not in str(compared)


WORSE = Caution("worse_than_constant", "The combined prediction is worse than a constant.")
LEAK = Caution("leakage", "Column 'price' predicts the target.", ("price",))


@pytest.mark.parametrize(
    ("verdict", "cautions", "expected"),
    [
        (
            "Use local weights. They lower it by 0.5.",
            [],
            ("Use local weights.", "They lower it by 0.5."),
        ),
        (
            "Use candidate 'St. Pauli' alone. It fits.",
            [],
            ("Use candidate 'St. Pauli' alone.", "It fits."),
        ),
        (
            "Mean loss with this model: 0.25 ± 0.1.",
            [],
            ("Mean loss with this model: 0.25 ± 0.1.", ""),
        ),
        (f"{LEAK.sentence} Use fixed weights. Why.", [LEAK], ("Use fixed weights.", "Why.")),
        (
            f"{LEAK.sentence} The fit found: Use fixed weights.",
            [LEAK],
            ("Use fixed weights.", ""),
        ),
        (
            f"{WORSE.sentence} Do not use this combination.",
            [WORSE],
            ("Do not use this combination.", ""),
        ),
        (
            f"{WORSE.sentence} The fit found: Use local weights.",
            [WORSE],
            ("Do not use this combination.", "The fit found: Use local weights."),
        ),
        (WORSE.sentence, [WORSE], ("Do not use this combination.", "")),
        (LEAK.sentence, [LEAK], ("", "")),
    ],
)
def test_advice_is_the_recommendation_and_its_evidence(verdict, cautions, expected):
    assert Advice.of(verdict, cautions) == expected
