"""The page as text: whole, safe, small, the same every time, and right about what it shows."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localma.errors import InvalidInputError, MissingDependencyError
from localma.formatting import fixed, number, percent
from localma.inspection import Summary
from localma.inspection.display import COLOURS
from localma.report import render, write
from localma.report.charts import (
    DARK,
    Scale,
    Styles,
    around,
    for_losses,
    luminance,
    readable_on,
    ticks,
)
from localma.report.page import MOST_CANDIDATES, environment, key_numbers, safe_json
from tests.report_summaries import CASES, HOSTILE, fifty, five_classes, hostile, split, two_classes

# The toys are exact: a candidate may be the target, and constant weights worse than a constant.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

pytest.importorskip("jinja2")
pytest.importorskip("pandas")

VOID = {"meta", "link", "input", "br", "img"}
PARTS = (
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
)
LISTS = ("effects", "importance")


class Read(HTMLParser):
    """A page, element by element; an element that is not closed in its turn is an error."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts, self.wrong = [], [], [], []
        self.feed(page)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self):
        return " ".join(
            " ".join(t for tag, t in self.texts if tag not in ("script", "style")).split()
        )


@pytest.mark.parametrize("case", CASES)
def test_pages_are_well_formed(case):
    read = Read(render(CASES[case](), title=f"About {case}"))
    assert read.wrong == []
    ids = Counter(attributes["id"] for _, attributes in read.tags if "id" in attributes)
    assert max(ids.values()) == 1
    pointed = [a["href"][1:] for a in read.all("a") + read.all("use")]
    pointed += [label["for"] for label in read.all("label")]
    pointed += [a["aria-labelledby"] for _, a in read.tags if "aria-labelledby" in a]
    assert set(pointed) <= set(ids)
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(a["scope"] in ("col", "row") for a in read.all("th"))
    assert f"About {case}" in read.text()


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_fetched_or_styled_in_place(case):
    page = render(CASES[case]())
    read = Read(page)
    for tag, attributes in read.tags:
        assert "style" not in attributes, tag
        assert not any(key.startswith("on") for key in attributes), (tag, attributes)
        for key in ("src", "href"):
            assert attributes.get(key, "#")[:1] == "#" or attributes[key] == "data:,"
    assert "url(" not in page
    assert "@import" not in page
    assert len(page.encode()) < 3_000_000


def test_the_policy_names_our_style_and_script_only():
    page = render(split())
    style = re.search("<style>(.*?)</style>", page, re.S)[1]
    script = re.search("<script>(.*?)</script>", page, re.S)[1]
    policy = next(a["content"] for a in Read(page).all("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    for kind, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_names_stay_text():
    read = Read(render(hostile(), title=HOSTILE[1]))
    assert read.all("img") == []
    assert read.all("i") == []
    assert len(read.all("script")) == 2
    for name in HOSTILE:
        assert " ".join(name.split()) in read.text()
    assert "1337" not in read.text()
    data = json.loads(next(text for tag, text in read.texts if tag == "script"))
    assert [style["name"] for style in data["rows"]["series"]] == HOSTILE


@given(st.text() | st.just("</script>") | st.just("\u2028\u2029&<!--"))
def test_json_cannot_end_its_element(text):
    safe = safe_json({text: [text]})
    assert not set(safe) & set("<>&\u2028\u2029")
    assert json.loads(safe) == {text: [text]}


def test_pages_are_the_same_every_time():
    summary = split()
    page = render(summary)
    assert page == render(json.loads(json.dumps(summary)))
    assert summary == split()


@pytest.mark.parametrize("make", [hostile, five_classes], ids=["regression", "classification"])
@pytest.mark.parametrize("part", PARTS)
def test_any_part_may_be_missing(make, part):
    summary = make() | {part: [] if part in LISTS else None}
    read = Read(render(summary))
    assert read.wrong == []
    assert summary["verdict"] in read.text()
    assert "None" not in read.text()


def test_all_parts_may_be_missing():
    summary = split() | {part: [] if part in LISTS else None for part in PARTS}
    read = Read(render(summary))
    assert read.wrong == []
    assert "There is nothing to compare without the targets" in read.text()
    assert "has no features that could be shown" in read.text()
    named = [a["href"] for a in read.all("a")]
    assert named == ["#main", "#trust", "#candidates", "#facts"]


def test_no_numbers_that_are_none():
    """A summary may lack a number here and there: every one of them, in turn, in all at once."""

    def without_floats(value):
        if isinstance(value, dict):
            return {key: without_floats(item) for key, item in value.items()}
        if isinstance(value, list):
            return [without_floats(item) for item in value]
        return None if isinstance(value, float) else value

    parts = ("comparison", "importance", "region_errors", "path", "spread", "support", "model")
    summary = split()
    summary |= {part: without_floats(summary[part]) for part in parts}
    read = Read(render(summary))
    assert read.wrong == []
    assert "None" not in read.text()


def test_other_schemas_are_refused():
    with pytest.raises(InvalidInputError, match=r"summary of schema 1; received 2\. Make one with"):
        render(split() | {"schema": 2})
    with pytest.raises(InvalidInputError, match=r"received 'list'"):
        render([])


def test_without_jinja_the_extra_is_named(monkeypatch):
    environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'localma\[report\]'"):
        render(split())


def test_files_are_written_whole(tmp_path):
    path = tmp_path / "report.html"
    write(split(), path, title="Ours")
    before = path.read_text(encoding="utf-8")
    assert before == render(split(), title="Ours")
    with pytest.raises(InvalidInputError):
        write(split() | {"schema": 0}, path)
    assert path.read_text(encoding="utf-8") == before
    write(split(), str(path))
    assert "<h1>Who is trusted where</h1>" in path.read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_names_that_utf8_cannot_hold(tmp_path):
    summary = json.loads(json.dumps(split()).replace('"left', '"l\\udce4ft'))
    write(summary, tmp_path / "report.html")
    assert "l?ft" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_comparison_is_ordered_and_said_in_numbers():
    summary = split()
    read = Read(render(summary))
    table = summary["comparison"]
    losses = [
        float(a["data-value"])
        for a in read.all("td")
        if a.get("class") == "number" and a.get("data-value", "").count(".")
    ][:: 2 + len(table["metrics"])]
    assert losses[: len(table["entries"])] == sorted(e["loss"]["value"] for e in table["entries"])
    text = read.text()
    for said in (summary["verdict"], table["control"]["sentence"], summary["regions"]["sentence"]):
        assert said in text
    for region in summary["regions"]["regions"]:
        assert region["where"] in text
    assert "this model" in text


def test_the_head_says_what_these_rows_say_beside_the_verdict_of_the_fit():
    summary = split()
    summary["verdict"] = "Use local weights."
    summary["comparison"]["claim"] = "Mean squared error with local weights: 3."
    head = " ".join(Read(render(summary).split("<nav", 1)[0]).text().split())
    assert "Use local weights. This is the result of the fit, on held-out rows." in head
    assert "On the 120 rows of this page: Mean squared error with local weights: 3." in head
    summary["verdict"] = summary["comparison"]["claim"]  # a gate that does not judge itself
    head = Read(render(summary).split("<nav", 1)[0]).text()
    assert "of this page" not in head
    assert "held-out" not in head


def test_the_first_number_is_in_the_unit_of_the_target():
    summary = split()
    model = next(e for e in summary["comparison"]["entries"] if e["kind"] == "local")
    rmse = model["metrics"]["rmse"]["value"]
    tile = key_numbers(Summary.from_dict(summary))[0]
    assert tile.value == number(rmse)
    assert tile.label == f"root mean squared error with {model['name']}"


def test_every_candidate_has_a_card():
    summary = fifty()
    text = Read(render(summary)).text()
    for candidate in summary["model"]["candidates"]:
        assert f"{candidate['name']} function, cost 1" in text
    assert "38 more candidates" in text


def test_of_very_many_candidates_the_best_are_listed():
    summary = fifty()
    pool, entries = summary["model"]["candidates"], summary["comparison"]["entries"]
    more = [pool[1] | {"name": f"more {k}"} for k in range(3000)]
    summary["model"]["candidates"] = pool + more
    entries[50:50] = [entries[1] | {"name": card["name"]} for card in more]
    read = Read(render(summary))
    assert MOST_CANDIDATES == 100
    assert "Not shown, with larger loss: 2,950 candidates." in read.text()
    assert "Not shown, with less weight: 2,950 others." in read.text()
    assert "local weights this model" in read.text()


def test_very_wide_tables_stay_small():
    summary = split()
    row = summary["importance"][0]
    names = [f"column {k}" for k in range(3000)]
    summary["importance"] = [row | {"feature": name} for name in names]
    summary["data"]["features"] = [summary["data"]["features"][0] | {"name": n} for n in names]
    values = ["long " * 2000] * len(summary["rows"]["index"])
    summary["rows"]["features"] = dict.fromkeys(names[:50], values)
    page = render(summary)
    assert len(page.encode()) < 3_000_000
    assert "since they matter less: 2,800 others" in page


def test_classes_are_named_and_reliability_is_drawn():
    summary = five_classes()
    read = Read(render(summary))
    assert ", ".join(summary["model"]["classes"]) in read.text()
    assert summary["reliability"]["sentence"] in read.text()
    assert "probability of the most probable class" in read.text()
    assert "probability of 1 →" in Read(render(two_classes())).text()


def test_candidates_keep_their_colour():
    summary = Summary.from_dict(fifty())
    styles = Styles(summary)
    named = styles.of(summary.regions)
    assert len({style.colour for style in named}) == 9
    assert named[-1].number == "+"
    first = summary.regions.candidates[0]
    place = [c.name for c in summary.model.candidates].index(first)
    assert named[0] == styles.at(place) == styles.of(summary.rows)[0]


@pytest.mark.parametrize("colours", [COLOURS, DARK], ids=["light", "dark"])
def test_numbers_can_be_read_on_every_colour(colours):
    for colour in colours:
        ink = "#ffffff" if readable_on(colour) == "#fff" else "#000000"
        dark, light = sorted([luminance(colour), luminance(ink)])
        assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize("colours", [DARK], ids=["dark"])
def test_colours_show_on_a_dark_page(colours):
    ground = luminance("#191d23")
    assert all((luminance(colour) + 0.05) / (ground + 0.05) >= 3 for colour in colours)
    assert len(colours) == len(COLOURS)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_lie_on_the_scale(low, span):
    scale = around([low, low + span])
    found = ticks(scale)
    assert 1 <= len(found) <= 5
    places = [float(tick.at) for tick in found]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)


@given(st.floats(1e-9, 1e9), st.floats(1.0, 1e12))
def test_ticks_of_logarithms_lie_on_the_scale(low, factor):
    found = ticks(around([low, low * factor], log=True))
    assert 1 <= len(found) <= 5
    assert all(0 <= float(tick.at) <= 100 for tick in found)


@given(st.lists(st.floats(-1e12, 1e12) | st.none(), max_size=9))
def test_losses_always_have_a_scale(values):
    scale = for_losses(values)
    assert scale.low < scale.high
    for value in values:
        if value is not None:
            assert 0 <= scale.at(value) <= 100


def test_one_huge_loss_hides_no_other():
    scale = for_losses([1.0, 1.1, 1.2, 1e9])
    assert scale.at(1.2) - scale.at(1.0) > 2
    assert scale.is_beyond(1e9)
    assert 'href="#beyond"' in render(fifty())


@given(st.floats(-1e300, 1e300), st.integers(0, 6))
def test_numbers_can_be_read_back(value, decimals):
    for text in (number(value), fixed(value, decimals)):
        back = float(text.replace("−", "-").replace(",", ""))
        assert back == pytest.approx(value, rel=5.1e-3, abs=max(5.1e-5, 0.51 * 10.0**-decimals))


def test_shares_are_rounded_to_what_matters():
    assert [percent(x) for x in (1.0, 0.0994, 0.00094, -0.5)] == ["100%", "9.9%", "0.09%", "−50%"]


def test_scales_are_clipped():
    assert Scale(0.0, 2.0).at(-1.0) == 0.0
    assert Scale(0.0, 2.0).at(5.0) == 100.0
