"""What is installed for work on localma: every package pinned, every file known by its hash."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

ADVISORIES = {
    "skops": "0.13",
    "pillow": "13",
    "jinja2": "3.1.6",
    "transformers": "5.5",
    "torch": "2.6",
    "onnx": "1.21",
    "pyarrow": "14.0.1",
}
"""The first versions without advisories that concern us."""


def pins(*, with_integrations: bool = True) -> dict[str, Version]:
    text = (ROOT / "constraints.txt").read_text()
    text = text if with_integrations else text.partition("# Only for")[0]
    stated = [line.split("==") for line in text.splitlines() if line and line[0] != "#"]
    return {name: Version(number) for name, number in stated}


def hashed() -> dict[str, list[str]]:
    """The hashes of each line ``name==version`` of the file with hashes."""
    text = (ROOT / "constraints-hashed.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {words[0]: words[1:] for words in lines}


def requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What a package needs here, with these extras; nothing is known of one not installed."""
    if name == "localma":
        optional = PROJECT["project"]["optional-dependencies"]
        stated = [*PROJECT["project"]["dependencies"], *(r for e in extras for r in optional[e])]
        return [Requirement(text) for text in stated]
    try:
        stated = distribution(name).requires or []
    except PackageNotFoundError:
        return []
    needed = [Requirement(text) for text in stated]
    wanted = ("", *extras)
    return [
        r for r in needed if not r.marker or any(r.marker.evaluate({"extra": e}) for e in wanted)
    ]


def needed_packages() -> set[str]:
    """All packages behind localma[dev], as far as what is installed here tells."""
    known: set[tuple[str, frozenset[str]]] = set()
    left = [("localma", frozenset({"dev"}))]
    while left:
        package = left.pop()
        if package not in known:
            known.add(package)
            left += [
                (canonicalize_name(r.name), frozenset(r.extras)) for r in requirements(*package)
            ]
    return {name for name, _ in known} - {"localma"}


def test_every_package_is_pinned() -> None:
    assert needed_packages() - pins().keys() == set()


def test_what_is_installed_is_what_is_pinned() -> None:
    core = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    lowest = {r.name: Version(next(iter(r.specifier)).version) for r in core}
    if all(Version(version(name)) == number for name, number in lowest.items()):
        pytest.skip("the lowest versions are installed on purpose")
    others = {}
    for name in needed_packages():
        try:
            installed = Version(version(name))
        except PackageNotFoundError:  # an environment without extras
            continue
        if Version(installed.public) != pins()[name]:  # 2.13.0+cpu is a build of 2.13.0
            others[name] = (str(installed), str(pins()[name]))
    assert others == {}


def test_nothing_is_pinned_that_nobody_needs() -> None:
    try:
        version("torch")
    except PackageNotFoundError:
        pytest.skip("the extras are not installed")
    build = {canonicalize_name(Requirement(r).name) for r in PROJECT["build-system"]["requires"]}
    assert build == {"hatchling"}
    unneeded = pins(with_integrations=False).keys() - needed_packages()
    assert unneeded == build | {"editables", "tomlkit", "trove-classifiers"}


def bounds() -> Iterator[Requirement]:
    optional = PROJECT["project"]["optional-dependencies"]
    stated = [PROJECT["project"]["dependencies"], *optional.values()]
    yield from (Requirement(text) for group in stated for text in group)
    yield from (Requirement(text) for text in PROJECT["build-system"]["requires"])


def test_pins_are_within_the_bounds_that_users_get() -> None:
    wrong = [str(r) for r in bounds() if r.name != "localma" and pins()[r.name] not in r.specifier]
    assert wrong == []


def test_lower_bounds_leave_out_versions_with_advisories() -> None:
    lowest = {
        r.name: [Version(s.version) for s in r.specifier if s.operator == ">="] for r in bounds()
    }
    for name, first in ADVISORIES.items():
        assert lowest[name][0] >= Version(first), name


def test_every_pinned_package_has_hashes_and_no_origin() -> None:
    stated = pins(with_integrations=False).items()
    assert hashed().keys() == {f"{name}=={number}" for name, number in stated}
    for name, hashes in hashed().items():
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in hashes), name
    for file in ("constraints.txt", "constraints-hashed.txt"):
        assert not re.search(r"://|@|--(extra-)?index|--find-links", (ROOT / file).read_text())


def test_every_install_is_by_pin_or_by_hash() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    installs = [line for line in text.splitlines() if re.search(r"pip install|PIP_INSTALL\)", line)]
    assert len(installs) >= 4
    for line in installs:
        pinned = r"-c (constraints|\$\(LOWEST\)/lowest)\.txt|PIP_INSTALL\)"
        assert re.search(rf"{pinned}|--require-hashes|--no-deps", line), line


def test_the_workflow_installs_by_hash() -> None:
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert "make locked" in workflow
    assert "make test VENV=.venv-locked" in workflow


@pytest.mark.parametrize("name", ["tests.yml", "release.yml"])
def test_workflows_pin_their_actions(name: str) -> None:
    actions = re.findall(r"uses: (\S+)", (ROOT / ".github" / "workflows" / name).read_text())
    assert actions
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in actions)


def test_the_version_is_written_once() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version('localma')}\n" in citation
