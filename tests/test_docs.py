"""The pages run as they stand: every block of code, in order, in a folder of its own.

A block of Python that begins with a comment such as ``# make_rents.py``, or one of TOML, is written
to that file; other Python runs, and what stands in a block of text was printed just before. Words
must be the same as on the page, numbers nearly so.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CLI = ("typer", "rich", "pyarrow")
TORCH = ("torch", "accelerate")
ADDRESS = "https://models.example/rent"

NEEDS = {
    "command-line.md": (*CLI, "matplotlib"),
    "guide.md": ("pandas", "jinja2"),
    "how-to/cache.md": (*CLI, "pandas"),
    "how-to/changing-pool.md": ("pandas",),
    "how-to/classes.md": ("pandas",),
    "how-to/failures-and-budgets.md": ("pandas",),
    "how-to/cluster.md": ("ray", *CLI),
    "how-to/files.md": ("pandas", "onnxruntime", "skl2onnx", "skops", *TORCH),
    "how-to/groups-time-weights.md": (*CLI, "pandas"),
    "how-to/images.md": (*TORCH, "PIL"),
    "how-to/large-data.md": (*CLI, "pandas"),
    "how-to/monitor.md": (*CLI, "pandas", "jinja2"),
    "how-to/production.md": (*CLI, "pandas", "onnx", "onnxruntime"),
    "how-to/serve.md": ("pandas",),
    "how-to/shared-errors.md": (),
    "how-to/texts.md": (*TORCH, "transformers"),
    "how-to/urls.md": (*CLI, "pandas"),
    "tutorial.md": (*CLI, "jinja2"),
}
"""Pages with code, and the packages beyond the core that they need."""
WARNS = {"how-to/classes.md": "does not know the class"}
WITHOUT_CODE = {
    "api.md",
    "architecture.md",
    "equations.md",
    "glossary.md",
    "how-it-works.md",
    "index.md",
    "results.md",
    "scale.md",
}

BLOCK = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


@dataclass
class Reader:
    """Somebody who does what a page says, in a folder."""

    folder: Path

    def __post_init__(self):
        self.names = {"__name__": "__page__"}
        self.printed = ""

    def read(self, text):
        for language, block in BLOCK.findall(text):
            if language.startswith("{"):
                continue  # a directive of Sphinx, such as a picture
            steps = {
                "python": self.run,
                "toml": self.write,
                "sh": self.call,
                "text": self.compare,
                "dockerfile": self.build,
            }
            steps[language](block)

    def run(self, block):
        if FILE.match(block):
            self.write(block)
            return
        said = StringIO()
        with redirect_stdout(said):
            exec(compile(block, "a page", "exec"), self.names)
        self.printed = said.getvalue()

    def write(self, block):
        (self.folder / FILE.match(block)[1]).write_text(block, encoding="utf-8")

    def call(self, block):
        lines = block.replace("\\\n", " ").splitlines()
        self.printed = "\n".join(self._command(line) for line in lines if line)

    def build(self, block):
        """Do of a container image what needs no container."""
        for arguments in re.findall(r"^RUN localma ([^&\n]*)", block, re.MULTILINE):
            localma(shlex.split(arguments))

    def compare(self, block):
        assert_same_words(block, self.printed)

    def _command(self, line):
        words = shlex.split(line, comments=True)
        if words[:1] == ["export"]:
            os.environ.update([words[1].split("=", 1)])
            return ""
        if words[:1] == ["localma"]:
            return localma(words[1:])
        assert words[:1] == ["python"], f"what is {line!r}?"
        done = subprocess.run(
            [sys.executable, *words[1:]], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def localma(arguments):
    """Run the program in this process, which saves the seconds of importing it."""
    from typer.testing import CliRunner

    from localma.cli import app

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, f"{arguments}: {result.output}{result.exception!r}"
    return result.output


def assert_same_words(shown, printed):
    """What the page shows is part of what was printed, its numbers within a tenth."""
    shown, printed = words_of(shown), words_of(printed)
    masked = [NUMBER.sub("#", word) for word in printed]
    wanted = [NUMBER.sub("#", word) for word in shown]
    places = [k for k in range(len(masked)) if masked[k : k + len(wanted)] == wanted]
    assert places, (
        f"the page shows\n{' '.join(shown)}\nbut what was printed is\n{' '.join(printed)}"
    )
    part = printed[places[0] : places[0] + len(shown)]
    assert numbers_in(shown) == pytest.approx(numbers_in(part), rel=0.1, abs=0.05)


def words_of(text):
    return re.sub("[\u2500-\u257f]", " ", text).split()


def numbers_in(words):
    return [float(number.replace(",", "")) for word in words for number in NUMBER.findall(word)]


def pages():
    found = [*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")]
    return {path.relative_to(DOCS).as_posix() for path in found}


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rents(tmp_path_factory):
    """The tables of the tutorial, which the how-tos go on with."""
    reader = Reader(tmp_path_factory.mktemp("rents"))
    block = next(block for language, block in BLOCK.findall(text_of("tutorial.md")))
    reader.write(block)
    subprocess.run([sys.executable, "make_rents.py"], cwd=reader.folder, check=True)
    return {path.name: path.read_bytes() for path in reader.folder.glob("*.csv")}


@pytest.fixture
def folder(tmp_path, rents, monkeypatch):
    for name, content in rents.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    settings = {"COLUMNS": "84", "LOCALMA_CACHE": str(tmp_path / "default cache")}
    with patch.dict(os.environ, settings):
        yield tmp_path


def test_every_page_is_read():
    assert pages() == {*NEEDS, *WITHOUT_CODE}
    for page in WITHOUT_CODE:
        assert all(language.startswith("{") for language, _ in BLOCK.findall(text_of(page)))


@pytest.mark.parametrize("page", [page for page in NEEDS if page != "how-to/urls.md"])
def test_page_runs(page, folder):
    for package in NEEDS[page]:
        pytest.importorskip(package)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare(page, folder)
        Reader(folder).read(text_of(page))
    told = [str(warning.message) for warning in caught]
    assert len(told) == (page in WARNS), told
    assert all(WARNS[page] in message for message in told)


def prepare(page, folder):
    """Make what the reader of a page has already."""
    if page == "how-to/texts.md":
        from tests.tiny_models import write_encoder

        write_encoder(folder / "minilm")


def test_models_behind_addresses(folder):
    """The page about addresses, against a server on this machine; the key stays out of files."""
    for package in NEEDS["how-to/urls.md"]:
        pytest.importorskip(package)
    from tests.loopback import Service, running

    with running(Service()) as service:
        service.behave = twelve_a_square_metre
        text = text_of("how-to/urls.md")
        assert ADDRESS in text
        Reader(folder).read(text.replace(ADDRESS, service.url))
        assert {headers["Authorization"] for headers in service.headers} == {"Bearer 123"}
    saved = [path for path in folder.rglob("*") if path.suffix in (".localma", ".arrow", ".csv")]
    assert len(saved) >= 3
    assert not any(b"Bearer" in path.read_bytes() for path in saved)


def twelve_a_square_metre(handler, turn):
    rows = handler.server.documents[turn]["rows"]
    return handler.answer({"predictions": [12.0 * area for area, rooms in rows]})


def test_a_shown_output_that_differs_is_noticed():
    assert_same_words("area > 80\n(34% of rows)", "│ north, area > 81 │ (35% of rows)")
    with pytest.raises(AssertionError, match="the page shows"):
        assert_same_words("area > 80", "area <= 80")
    with pytest.raises(AssertionError):
        assert_same_words("area > 80", "area > 120")


@pytest.mark.parametrize("page", sorted(pages()))
def test_links_exist(page):
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (DOCS / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", sorted(pages()))
def test_rows_of_a_table_have_as_many_cells(page):
    """A bar inside of code would cut a cell in two, and Sphinx says nothing."""
    tables = re.findall(r"(?:^\|.*\n)+", BLOCK.sub("", text_of(page)), re.MULTILINE)
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_every_command_and_option_is_on_the_page():
    pytest.importorskip("typer")
    from typer.main import get_command

    from localma.cli import app

    sections = dict(
        re.findall(r"^## `localma ([\w-]+)`\n(.*?)(?=^## )", commands_page(), re.M | re.S)
    )
    program = get_command(app)
    commands = {name: program.get_command(None, name) for name in program.list_commands(None)}
    assert list(sections) == list(commands)
    for name, command in commands.items():
        known = {o for p in command.params for o in [*p.opts, *p.secondary_opts] if o[:2] == "--"}
        shown = set(re.findall(r"`(--[\w-]+)", sections[name]))
        assert shown == known - {"--help"}, name


def commands_page():
    return text_of("command-line.md")


def test_every_variable_of_the_environment_is_on_the_page():
    source = Path(__file__).parents[1] / "src" / "localma"
    code = "\n".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    used = set(re.findall(r"LOCALMA_[A-Z]+", code))
    assert used == set(re.findall(r"LOCALMA_[A-Z]+", commands_page()))


def test_every_public_name_is_in_the_api():
    import localma
    from localma import candidates, gates, inspection, report

    text = text_of("api.md")
    listed = set(re.findall(r"^   (localma\.[\w.]+)$", text, re.MULTILINE))
    for module in (localma, candidates, gates, inspection, report):
        for name in module.__all__:
            assert {f"localma.{name}", f"{module.__name__}.{name}"} & listed, name
    assert {"localma.progress.track", "localma.progress.bar"} <= listed


def test_every_promise_of_the_security_page_names_a_test_that_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) >= 9
    for file, name in named:
        assert re.search(rf"^(?:def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE), name
