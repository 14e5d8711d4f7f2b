"""The page in a real browser: it runs, its controls work, and everybody can read it."""

from __future__ import annotations

import base64
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from localma.report import write
from tests.report_summaries import CASES, HOSTILE, five_classes, split

pytest.importorskip("jinja2")
pytest.importorskip("pandas")
webdriver = pytest.importorskip("selenium.webdriver")

DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(DRIVER is None, reason="needs chromedriver, from Debian's chromium-driver"),
    # The toys are exact: a candidate may be the target.
    pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning"),
]
SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PHONE = 360


@pytest.fixture(scope="module")
def driver():
    """One browser for all tests; it is told where its driver is, so that none is downloaded."""
    from selenium.webdriver.chrome.service import Service

    os.environ.update(SE_OFFLINE="true", SE_AVOID_STATS="true")
    options = webdriver.ChromeOptions()
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every case as a file."""
    folder = tmp_path_factory.mktemp("pages")
    for case, make in CASES.items():
        write(make(), folder / f"{case}.html", title=f"About {case}")
    return folder


@pytest.fixture
def visit(driver, pages):
    """Open the page of a case, in light or dark mode, at some width."""

    def opened(case, *, dark=False, width=1100):
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE},
        )
        wanted = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [wanted]})
        driver.get((pages / f"{case}.html").as_uri())
        return Page(driver)

    return opened


class Page:
    """What a reader can see and do."""

    def __init__(self, driver):
        self.driver = driver

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())",
            selector,
        )

    def click(self, element):
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def choose(self, selector, position):
        from selenium.webdriver.support.ui import Select

        Select(self.find(selector)).select_by_index(position)


@pytest.mark.parametrize("case", CASES)
def test_loads_without_a_fault_and_asks_for_nothing(visit, driver, case):
    page = visit(case)
    assert driver.get_log("browser") == []
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.find("h1").text == f"About {case}"
    assert page.run("return document.documentElement.classList.contains('scripted')")


def test_the_policy_forbids_requests(visit, driver):
    page = visit("split")
    blocked = driver.execute_async_script(
        """const done = arguments[0];
        document.addEventListener("securitypolicyviolation", (e) => done(e.effectiveDirective));
        const image = new Image();
        image.src = "http://127.0.0.1:9/x.png";
        setTimeout(() => done("nothing was blocked"), 2000);"""
    )
    assert blocked == "img-src"
    page.run(
        "const s = document.createElement('script'); s.text = 'window.ran = 1';"
        "document.body.append(s)"
    )
    assert page.run("return window.ran") is None
    driver.get_log("browser")


def test_headers_sort(visit):
    page = visit("split")
    summary = split()["comparison"]["entries"]
    headers = page.all(".comparison thead th")
    assert [h.get_attribute("aria-sort") for h in headers][:4] == [None, "ascending", None, None]
    names = ".comparison tbody th bdi"
    by_loss = [e["name"] for e in sorted(summary, key=lambda e: e["loss"]["value"])]
    assert page.texts(names) == by_loss
    page.click(headers[0].find_element("css selector", "button"))
    assert page.texts(names) == sorted((e["name"] for e in summary), key=str.lower)
    assert headers[0].get_attribute("aria-sort") == "ascending"
    assert headers[1].get_attribute("aria-sort") is None
    page.click(headers[0].find_element("css selector", "button"))
    assert page.texts(names) == sorted((e["name"] for e in summary), key=str.lower, reverse=True)
    assert headers[0].get_attribute("aria-sort") == "descending"
    page.click(headers[1].find_element("css selector", "button"))
    assert page.texts(names) == by_loss


def test_what_is_missing_is_sorted_last(visit):
    page = visit("alone")
    header = page.all(".comparison thead th")[-1]
    before = page.texts(".comparison tbody th bdi")
    page.run(
        "document.querySelector('.comparison tbody tr:last-child td:last-child')"
        ".dataset.value = '0.5'"
    )
    for _ in ("ascending", "descending"):
        page.click(header.find_element("css selector", "button"))
        assert page.texts(".comparison tbody th bdi")[0] == before[-1]


def test_a_feature_is_picked(visit):
    page = visit("split")
    shown = "return [...document.querySelectorAll('.effect')].map(e => e.offsetHeight > 0)"
    assert page.run(shown) == [True, False, False]
    lines = page.run("return document.querySelector('.effect .plot').innerHTML")
    page.choose("#pick-feature", 2)
    assert page.run(shown) == [False, False, True]
    visible = page.run("return document.querySelector('.effect:not([hidden]) .plot').innerHTML")
    assert visible != lines
    wanted = split()["effects"][2]["feature"]
    assert page.find(".effect:not([hidden]) figcaption").get_attribute("textContent") == wanted


def test_the_map_shows_one_candidate(visit):
    page = visit("split")
    part = split()["map"]
    before = page.texts(".map .cell text")
    assert set(before) <= {"1", "2", "3", ""}
    page.choose("#pick-map", 2)
    cells = page.texts(".map .cell text")
    weights = [weight for row in part["weights"][1] for weight in row]
    shown = [None if weight is None else f"{weight:.2f}".removeprefix("0") for weight in weights]
    for cell, weight, now in zip(weights, shown, cells, strict=True):
        assert now == (weight or ""), cell
    full = page.run(
        "return [...document.querySelectorAll('.map .cell .fill')]"
        ".map(e => Number(e.getAttribute('fill-opacity')))"
    )
    assert full == pytest.approx([weight or 0.0 for weight in weights], abs=1e-3)
    page.choose("#pick-map", 0)
    assert page.texts(".map .cell text") == before


def shown_row(page):
    return SimpleNamespace(
        title=page.find("#row .title").text,
        weights=dict(zip(page.texts("#row .weight bdi"), page.texts("#row .amount"), strict=True)),
        text=page.find("#row").text,
    )


def expected_row(summary, title):
    rows = summary["rows"]
    i = [str(index) for index in rows["index"]].index(title.removeprefix("Row "))
    named = zip(rows["candidates"], rows["weights"][i], strict=True)
    return {name: f"{weight:.2f}" for name, weight in named}


def test_rows_answer_to_the_pointer_and_to_the_keyboard(visit, driver):
    from selenium.webdriver import ActionChains, Keys

    page, summary = visit("split"), split()
    first = shown_row(page)
    assert first.weights == expected_row(summary, first.title)
    strip = page.find(".strip")
    page.run("arguments[0].scrollIntoView({block: 'center'})", strip)
    ActionChains(driver).move_to_element(strip).perform()
    pointed = shown_row(page)
    assert pointed.title != first.title
    assert pointed.weights == expected_row(summary, pointed.title)
    assert "prediction" in pointed.text
    assert "support" in pointed.text
    slider = page.find("#pick-row")
    slider.send_keys(Keys.ARROW_RIGHT)
    stepped = shown_row(page)
    assert stepped.title != pointed.title
    assert stepped.weights == expected_row(summary, stepped.title)
    assert slider.get_attribute("aria-valuetext") == stepped.title.lower()


def test_a_legend_lets_one_candidate_stand_out(visit):
    page = visit("split")
    button = page.all(".legend button")[1]
    seen = (
        "return [...document.querySelectorAll('.effect polyline')].slice(0, 3)"
        ".map(e => getComputedStyle(e).opacity)"
    )
    page.run(
        "const s = new CSSStyleSheet(); s.replaceSync('* {transition: none !important}');"
        "document.adoptedStyleSheets = [s]"
    )
    assert page.run(seen) == ["1", "1", "1"]
    page.click(button)
    assert button.get_attribute("aria-pressed") == "true"
    assert page.run(seen) == ["0.13", "1", "0.13"]
    page.click(button)
    assert page.run(seen) == ["1", "1", "1"]


def test_names_are_text_and_do_not_run(visit, driver):
    from selenium.webdriver import ActionChains

    page = visit("hostile")
    page.run("window.alert = () => { window.ran = true }")
    for position in range(4):
        page.choose("#pick-feature", position)
    for position in range(len(HOSTILE)):
        page.choose("#pick-map", position + 1)
    strip = page.find(".strip")
    page.run("arguments[0].scrollIntoView({block: 'center'})", strip)
    ActionChains(driver).move_to_element(strip).perform()
    for button in page.all("thead button"):
        page.run("arguments[0].click()", button)
    assert page.run("return window.ran") is None
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.run("return document.scripts.length") == 2
    assert set(page.texts("#row .weight bdi")) == set(HOSTILE)
    assert set(HOSTILE) <= set(page.texts(".comparison tbody th bdi"))
    assert driver.get_log("browser") == []


@pytest.fixture(scope="module")
def axe():
    found = find_spec("axe_core_python")
    if found is None:
        pytest.skip("needs axe-core-python, which holds axe-core")
    folder = Path(next(iter(found.submodule_search_locations)))
    return (folder / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("case", "width", "dark"),
    [
        ("hostile", 1100, False),
        ("hostile", PHONE, True),
        ("five_classes", 1100, True),
        ("five_classes", PHONE, False),
        ("unlabelled", 1100, False),
    ],
)
def test_everybody_can_read_it(visit, driver, axe, case, width, dark):
    page = visit(case, dark=dark, width=width)
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    page.run(axe)
    found = driver.execute_async_script(
        "const done = arguments[0];"
        "axe.run({resultTypes: ['violations']}).then(done, e => done({error: String(e)}))"
    )
    assert "error" not in found
    assert len(found["passes"]) > 20
    faults = [
        (fault["id"], fault["impact"], [node["html"][:200] for node in fault["nodes"][:3]])
        for fault in found["violations"]
    ]
    assert faults == []


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("case", CASES)
def test_a_phone_need_not_scroll_sideways(visit, case, is_open):
    page = visit(case, width=PHONE)
    if is_open:
        page.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.run("return innerWidth") == PHONE
    assert page.run("return document.documentElement.scrollWidth") <= PHONE


def test_dark_mode_is_dark(visit):
    grounds = {}
    for dark in (False, True):
        page = visit("split", dark=dark)
        colour = page.run("return getComputedStyle(document.body).backgroundColor")
        grounds[dark] = sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))
    assert grounds[True] < 150 < 600 < grounds[False]


@pytest.mark.parametrize("case", ["split", "five_classes", "fifty"])
def test_it_prints(visit, driver, case):
    page = visit(case, dark=True)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    content = base64.b64decode(printed["data"])
    assert content.startswith(b"%PDF")
    assert 1 < content.count(b"/Type /Page\n") < 20
    wanted = {"name": "prefers-color-scheme", "value": "dark"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [wanted]})
    ink = page.run("return getComputedStyle(document.body).color")
    assert ink == "rgb(22, 25, 29)"
    assert not any(control.is_displayed() for control in page.all(".control, nav, #row"))
    assert all(figure.is_displayed() for figure in page.all(".effect"))


def test_it_reads_without_its_script(visit, driver):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = visit("five_classes")
        assert all(figure.is_displayed() for figure in page.all(".effect"))
        assert not any(control.is_displayed() for control in page.all(".control"))
        assert page.all("thead button, .legend button") == []
        assert five_classes()["verdict"] in " ".join(page.find(".verdict").text.split())
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_keyboard_reaches_every_control(visit, driver):
    from selenium.webdriver import ActionChains, Keys

    page = visit("split")
    reached = []
    for _ in range(60):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        reached.append(
            page.run(
                "const e = document.activeElement; const s = getComputedStyle(e);"
                "return [e.id || e.className || e.tagName, s.outlineStyle]"
            )
        )
    names = [name for name, _ in reached]
    assert names[0] == "skip"
    assert {"pick-feature", "pick-map", "pick-row", "scrolled", "BUTTON", "SUMMARY"} <= set(names)
    assert all(outline != "none" for name, outline in reached if name != "BODY")
