"""The page of a monitor, and its command."""

from __future__ import annotations

import csv as csv_file
import json
from html.parser import HTMLParser

import numpy as np
import pytest

from localma import LocalMARegressor
from localma.production import Monitor

jinja2 = pytest.importorskip("jinja2")

from localma.report import render_monitor, write_monitor  # noqa: E402


class Checker(HTMLParser):
    """Collects tags, ids and links, and checks that tags are closed."""

    VOID = frozenset({"meta", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        assert "style" not in names
        self.ids += [names["id"]] if "id" in names else []
        self.links += [names[name] for name in ("href", "src") if name in names]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = X[:, 0] + rng.normal(size=900)
    candidates = {
        "<b>a": lambda X: X[:, 0],
        "c": lambda X: 0.5 * X[:, 0],
        "d": lambda X: 0 * X[:, 0],
    }
    model = LocalMARegressor(candidates, gate="global").fit(X[:300], y[:300])
    monitor = Monitor(model, random_state=0)
    P = np.stack([predict(X[300:]) for predict in candidates.values()], axis=1)
    P[300:, 0] += 3.0
    monitor.observe(X[300:], P, y[300:])
    return monitor.report()


def test_the_page_says_what_to_do_and_stands_alone(report, tmp_path):
    page = render_monitor(report, title="T <i>")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    for link in checker.links:
        assert link == "data:," or (link.startswith("#") and link[1:] in checker.ids)
    assert "<b>a" not in page
    assert "<i>" not in page
    assert "The loss of &#39;&lt;b&gt;a&#39; has risen" in page
    assert page == render_monitor(json.loads(json.dumps(report.to_dict())), title="T <i>")
    write_monitor(report, tmp_path / "page.html")
    assert "<h1>What has changed</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_page_of_a_monitor_that_saw_nothing():
    model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="equal").fit([[0.0], [1.0]], [0.0, 1.0])
    page = render_monitor(Monitor(model).report())
    assert "No row has been observed." in page
    checker = Checker()
    checker.feed(page)
    assert checker.open == []


# The command.


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv_file.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("typer")
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("monitor")
    rng = np.random.default_rng(0)
    header = ["id", "day", "area", "city", "pred_a", "pred_b", "rent"]
    rows = []
    for k in range(900):
        area = rng.uniform(20, 150)
        rent = 12 * area + 30 * rng.normal()
        a, b = rent + 20 * rng.normal(), rent + 60 + 20 * rng.normal()
        if k >= 700:
            a += 200
        city = "x" if k % 2 else "y"
        cells = [f"n{k}", f"2024-01-{1 + k // 100:02d}", *np.round([area], 2), city]
        rows.append([*cells, round(a, 1), round(b, 1), round(rent, 1)])
    write(folder / "train.csv", header, rows[:300])
    write(folder / "first.csv", header, rows[300:600])
    write(folder / "second.csv", header[:-1], [row[:-1] for row in rows[600:]])
    write(folder / "late.csv", ["id", "rent"], [[row[0], row[-1]] for row in rows[600:]])
    features = ["--predictions", "pred_*", "--features", "area,city", "--gate", "global"]
    model = folder / "m.localma"
    call("fit", folder / "train.csv", "--target", "rent", *features, "--out", model)
    return folder


def call(*arguments, code=0):
    from typer.testing import CliRunner

    from localma.cli import app

    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exit_code != code:
        raise AssertionError(f"exit code {result.exit_code}: {result.output}{result.exception!r}")
    return result


def words_of(result):
    return " ".join(result.output.split())


def test_rows_then_late_targets_then_a_page(folder, tmp_path):
    model, state = folder / "m.localma", tmp_path / "s.monitor"
    same = ["--state", state, "--key", "id"]
    said = words_of(call("monitor", model, folder / "first.csv", *same, "--period", "day"))
    assert "300 rows, 300 of them with a target. Do nothing: no test is clear" in said
    said = words_of(call("monitor", model, folder / "second.csv", *same, "--period", "day"))
    assert "600 rows, 300 of them with a target, 300 wait for a target." in said
    page = tmp_path / "page.html"
    said = words_of(call("monitor", model, folder / "late.csv", *same, "--late", "--page", page))
    assert "Drop 'pred_a': the loss of 'pred_a' has risen" in said
    assert "Drop &#39;pred_a&#39;." in page.read_text(encoding="utf-8")
    before = state.read_bytes()
    wrong = call("monitor", model, folder / "late.csv", *same, "--late", code=1)
    assert "does not wait for one" in str(wrong.exception)
    assert state.read_bytes() == before
    told = json.loads(call("monitor", model, "--state", state, "--json").stdout)
    assert (told["action"], told["rows"], told["labelled"]) == ("drop", 600, 600)


def test_states_of_two_processes_are_added(folder, tmp_path):
    model, names = folder / "m.localma", ("one", "two", "both")
    one, two, both = (tmp_path / name for name in names)
    call("monitor", model, folder / "first.csv", "--state", one, "--period", "day")
    call("monitor", model, folder / "second.csv", "--state", two, "--period", "day")
    call("monitor", model, "--state", both, "--merge", one, "--merge", two)
    told = json.loads(call("monitor", model, "--state", both, "--json").stdout)
    assert (told["rows"], told["labelled"]) == (600, 300)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["first.csv", "--late", "--state", "s"], "--late needs a table, and --key"),
        (["first.csv", "--state", "m.localma"], "--state: 'm.localma' is an input"),
        (["first.csv", "--state", "s", "--page", "s"], "--page and --state name the same file"),
        (["--state", "s", "--merge", "none"], "--merge: the file 'none' does not exist"),
        (["first.csv", "--state", "s", "--key", "none"], "none"),
        (["none.csv", "--state", "s"], "none.csv"),
    ],
)
def test_wrong_calls_name_files_columns_and_options(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    result = call("monitor", "m.localma", *arguments, code=2)
    assert words in words_of(result)
    assert not (folder / "s").exists()


def test_wrong_columns_are_an_error(folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = call("monitor", "m.localma", "first.csv", "--state", "s", "--period", "city", code=1)
    assert "The column 'city' must hold a date or a whole number" in str(result.exception)
    result = call("monitor", "m.localma", "late.csv", "--state", "s", code=1)
    assert "late.csv has no column 'area'" in str(result.exception)
    assert not (folder / "s").exists()
