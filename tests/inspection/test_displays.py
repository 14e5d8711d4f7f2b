"""The pictures: drawn without a warning, with what the summary says, names as they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from localma import LocalMAClassifier, LocalMARegressor, as_candidate
from localma.errors import InvalidInputError
from localma.inspection import (
    ComparisonDisplay,
    ErrorByRegionDisplay,
    ImportanceDisplay,
    LocalityPathDisplay,
    RegionsDisplay,
    ReliabilityDisplay,
    Summary,
    WeightEffectDisplay,
    WeightMapDisplay,
    summarize,
)
from localma.inspection.display import SERIES, name_text
from localma.inspection.effects import FeatureImportance

# The toys are exact: a candidate may be the target, and constant weights worse than a constant.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pd = pytest.importorskip("pandas")
pyplot = pytest.importorskip("matplotlib.pyplot")

ODD_NAMES = ["$a_1$", "_hidden", "<b>bold</b>", "50 % & more", "x" * 60, "one $ only", "a\nb"]

PART_OF = {
    ComparisonDisplay: "comparison",
    ErrorByRegionDisplay: "region_errors",
    ImportanceDisplay: "importance",
    LocalityPathDisplay: "path",
    RegionsDisplay: "regions",
    WeightEffectDisplay: "effects",
    WeightMapDisplay: "map",
}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def odd():
    """A summary with names, categories, dates and holes that try to break a picture."""
    n = 60
    frame = pd.DataFrame(
        {
            "$area$": np.where(np.arange(n) % 7 == 0, np.nan, np.arange(n)),
            "_where": np.resize(["a $ b", "c $ d", "_e", None], n),
            "day": pd.date_range("2024-01-01", periods=n),
        }
    )
    candidates = {
        name: (lambda X, k=k: np.full(len(X), float(k))) for k, name in enumerate(ODD_NAMES)
    }

    def inputs(X):
        return np.column_stack([X["_where"] == "_e", X["$area$"].fillna(0)]).astype(float)

    model = LocalMARegressor(
        candidates, gate_features=inputs, cv=2, folds="shuffled", random_state=0
    )
    y = np.where(frame["_where"] == "_e", 5.0, np.arange(n) / 10)
    summary = summarize(model.fit(frame, y), frame, y, control=False)
    return Summary.from_dict(json.loads(json.dumps(summary.to_dict(), allow_nan=False)))


def drawn_texts(figure):
    figure.canvas.draw()
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


@pytest.mark.parametrize("display", PART_OF)
def test_draws_a_part_with_odd_names_as_they_are(odd, display):
    drawn = getattr(odd, PART_OF[display]).plot()
    texts = drawn_texts(drawn.figure_)
    assert not any(matplotlib.cbook.is_math_text(text) for text in texts if "a_1" in text)
    if display not in (LocalityPathDisplay, ImportanceDisplay, WeightMapDisplay):
        joined = "|".join(texts)
        assert r"\$a_1\$" in joined
        assert "_hidden" in joined
        assert "<b>bold</b>" in joined


@pytest.mark.parametrize("display", PART_OF)
def test_draws_on_given_axes(odd, display):
    part = getattr(odd, PART_OF[display])
    assert isinstance(part, display)
    figure, ax = pyplot.subplots()
    if display is WeightEffectDisplay:
        part = display(part.effects[:1])
    drawn = part.plot(ax=ax)
    assert drawn.ax_ is ax
    assert drawn.figure_ is figure
    figure.canvas.draw()


def test_effects_draw_lines_and_bands_of_a_step(step):
    display = WeightEffectDisplay.from_estimator(step.model, step.X, features=["x0", 1])
    first, second = display.ax_
    assert first.get_title() == "x0"
    assert first.lines[0].get_ydata()[[0, -1]].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(second.lines[0].get_ydata(), 0.5)
    assert len({line.get_linestyle() for line in first.lines}) == 2
    assert [text.get_text() for text in display.figure_.legends[0].get_texts()] == ["low", "high"]


def test_effects_have_bands_where_the_gate_has(classifier):
    display = WeightEffectDisplay.from_estimator(classifier.model, classifier.X)
    assert all(len(ax.collections) == 3 for ax in display.ax_)


def test_map_draws_leaders_or_one_candidate(step):
    display = WeightMapDisplay.from_estimator(step.model, step.X, features=("x0", "x1"))
    digits = {text.get_text() for text in display.ax_.texts}
    assert digits == {"1", "2"}
    one = WeightMapDisplay.from_estimator(
        step.model, step.X, features=("x0", "x1"), candidate="low"
    )
    assert one.ax_.images[0].get_array()[0, 0] == 1.0
    with pytest.raises(InvalidInputError, match="Unknown candidate of this map 'lwo'; did you"):
        display.plot(candidate="lwo")


def test_regions_draw_shares_that_sum_to_one(step):
    display = RegionsDisplay.from_estimator(step.model, step.X)
    widths = np.array([bar.get_width() for bar in display.ax_.patches]).reshape(2, 2)
    np.testing.assert_allclose(widths.sum(axis=0), 1)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels[0] == "x0 <= 0\n(50% of rows)"
    assert len({bar.get_hatch() for bar in display.ax_.patches}) == 2


def test_importance_draws_largest_first(step):
    display = ImportanceDisplay.from_estimator(step.model, step.X)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["x0", "x1"]
    rows = [FeatureImportance(f"f{k}", 0.0, None, 0.0) for k in range(30)]
    many = ImportanceDisplay(rows).plot()
    assert many.ax_.get_title() == "10 less important features are not shown"


def test_comparison_draws_best_first(step):
    display = ComparisonDisplay.from_estimator(step.model, step.X, step.y)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels[0] == "local weights"
    assert "control: constants" in labels
    assert set(labels[-2:]) == {"low", "high"}


def test_comparison_leaves_out_the_worst_of_many():
    X = np.linspace(0, 1, 40)[:, None]
    candidates = {f"m{k:02}": (lambda X, k=k: X[:, 0] + k) for k in range(50)}
    model = LocalMARegressor(candidates, gate="global").fit(X, X[:, 0])
    display = ComparisonDisplay.from_estimator(model, X, X[:, 0], control=False)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert len(labels) == 15 + 3
    assert "m14" in labels
    assert "m15" not in labels
    assert "35 worse candidates" in display.figure_.get_suptitle().replace("\n", " ")


def test_error_by_region_draws_everybody(step):
    display = ErrorByRegionDisplay.from_estimator(step.model, step.X, step.y)
    drawn = {
        container.get_label(): container.lines[0].get_xdata().astype(float)
        for container in display.ax_.containers
    }
    np.testing.assert_allclose(drawn["low"], [0, 4])
    np.testing.assert_allclose(drawn["local weights"], [0, 0])


def test_reliability_draws_two_curves(classifier):
    display = ReliabilityDisplay.from_estimator(classifier.model, classifier.X, classifier.y)
    first, second = display.ax_.get_legend().get_texts()
    assert first.get_text().startswith("local weights: ECE ")
    assert second.get_text().startswith("global weights: ECE ")
    assert display.ax_.get_xlabel() == "probability of the most probable class"


def test_reliability_names_the_class():
    coin = as_candidate(lambda X: np.full(len(X), 0.5), classes=["$no$", "$yes$"])
    X, y = np.zeros((8, 1)), ["$yes$", "$no$"] * 4
    model = LocalMAClassifier({"coin": coin}, gate="equal").fit(X, y)
    display = ReliabilityDisplay.from_estimator(model, X, y)
    assert r"probability of \$yes\$" in drawn_texts(display.figure_)


def test_a_single_row_can_be_drawn(step):
    summary = summarize(step.model, step.X[:1], step.y[:1])
    for display, part in PART_OF.items():
        record = getattr(summary, part)
        if record is not None:
            assert isinstance(record, display)
            record.plot().figure_.canvas.draw()


@pytest.mark.parametrize(
    "display",
    [
        ImportanceDisplay,
        RegionsDisplay,
        WeightEffectDisplay,
        WeightMapDisplay,
        ErrorByRegionDisplay,
    ],
)
def test_weights_that_do_not_vary_are_not_drawn(step, display):
    model = LocalMARegressor(step.model.candidates, gate="equal").fit(step.X, step.y)
    rows = (step.X, step.y) if display is ErrorByRegionDisplay else (step.X,)
    with pytest.raises(InvalidInputError, match="the weights are the same for every row"):
        display.from_estimator(model, *rows)


def test_styles_are_enough_for_all_that_is_named():
    assert len(SERIES) == 9
    assert all(len(set(styles)) == 9 for styles in zip(*SERIES, strict=True))


def test_names_are_cut():
    assert len(name_text("x" * 60)) == 28
    assert name_text("_x").endswith("_x")


def shanghai():
    folder = Path(os.environ.get("LOCALMA_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = folder / "rent" / "shanghai_lianjia_2020.parquet"
    if not path.exists():
        pytest.skip("the rental listings are not here; set LOCALMA_DATA")
    pytest.importorskip("pyarrow")
    return pd.read_parquet(path, columns=["area", "bedrooms", "lon", "lat", "district", "rent"])


def test_real_rents_are_told_and_drawn():
    """Two linear models, of the centre and of a suburb: the gate finds out where each holds."""
    frame = shanghai().dropna().sample(1500, random_state=0)
    y = np.log(frame.pop("rent").to_numpy())
    inside = frame["district"].isin(["Jingan", "Xuhui", "Huangpu"]).to_numpy()
    outside = frame["district"].isin(["Songjiang", "Jiading", "Qingpu"]).to_numpy()
    candidates = {}
    for name, rows in {"centre": inside, "suburb": outside}.items():
        line = np.polyfit(np.log(frame["area"][rows]), y[rows], 1)
        candidates[name] = lambda X, line=line: np.polyval(line, np.log(X["area"]))
    model = LocalMARegressor(
        candidates, gate_features=["lon", "lat", "area"], cv=2, random_state=0
    ).fit(frame[:700], y[:700])
    summary = summarize(model, frame[700:], y[700:], control=False)
    assert summary.comparison.entries[-1].kind == "local"
    assert summary.comparison.best == len(candidates) + 2
    assert {row.feature for row in summary.importance.rows[:2]} == {"lon", "lat"}
    assert summary.regions.faithfulness.r2 > 0.5
    for display, part in PART_OF.items():
        record = getattr(summary, part)
        assert isinstance(record, display)
        record.plot().figure_.canvas.draw()
