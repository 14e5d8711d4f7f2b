"""Every public object has a docstring in numpydoc's form, and an example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

validation = pytest.importorskip("numpydoc.validate")

API = Path(__file__).parents[1] / "docs" / "api.md"

IGNORED = {
    "ES01",  # no extended summary
    "SA01",  # no section "See Also"
    "SA04",  # no description in that section
    "GL01",  # the summary starts on the first line
    "GL02",  # the closing quotes are on the last line of a docstring of one line
    "EX01",  # doctests need not have a section "Examples"
    "RT02",  # returned values may have names
    "PR06",  # types such as "string" in a sentence
}


def documented() -> Iterator[str]:
    """Names in docs/api.md: of autosummary, and of the members of modules."""
    module = ""
    for block in re.findall(r"```\{eval-rst\}\n(.*?)```", API.read_text(), re.DOTALL):
        for name in re.findall(r"^\.\. currentmodule:: (\S+)$", block, re.MULTILINE):
            module = f"{name}."
        for name in re.findall(r"^   ([\w.]+)$", block, re.MULTILINE):
            yield name if name.startswith("localma.") else module + name
        for name, options in re.findall(r"automodule:: (\S+)\n((?:   :.*\n?)*)", block):
            listed = re.search(r":members:(.*)", options)
            if listed is not None:
                members = re.findall(r"\w+", listed[1]) or public_members(name)
                yield from (f"{name}.{member}" for member in members)


def has_docstring(value: object) -> bool:
    """Whether a value is a class or a function; a constant has no docstring when Python runs."""
    return inspect.isclass(value) or inspect.isfunction(value)


def public_members(name: str) -> list[str]:
    """Classes and functions that a module defines."""
    return [
        member
        for member, value in vars(import_module(name)).items()
        if member[0] != "_" and has_docstring(value) and value.__module__ == name
    ]


def with_methods(name: str) -> Iterator[str]:
    """A name, and if it is a class, its public methods and properties that localma defines."""
    module, _, attribute = name.rpartition(".")
    kind = getattr(import_module(module), attribute)
    if has_docstring(kind):
        yield name
    if not inspect.isclass(kind):
        return
    for parent in kind.__mro__:
        # A public parent is on the page itself. scikit-learn writes the methods *_request.
        if parent is kind or (parent.__name__[0] == "_" and "localma" in parent.__module__):
            for member, value in vars(parent).items():
                described = callable(value) or isinstance(
                    value, property | classmethod | staticmethod
                )
                if described and member[0] != "_" and not member.endswith("_request"):
                    yield f"{name}.{member}"


NAMES = list(dict.fromkeys(documented()))


def test_the_page_lists_modules_and_names():
    assert {"localma.load", "localma.losses.Loss", "localma.equations.softmax"} <= set(NAMES)
    assert "localma.checks.cautions.Caution" in NAMES
    assert "localma.LocalMARegressor.fit" in with_methods("localma.LocalMARegressor")


@pytest.mark.parametrize("name", NAMES)
def test_numpydoc_accepts_the_docstrings(name):
    errors = [
        f"{member}: {code} {message}"
        for member in dict.fromkeys(with_methods(name))
        for code, message in validation.validate(member)["errors"]
        if code not in IGNORED
    ]
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_has_an_example(name):
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    # The docstring of a parent class does not count, so that `inspect.getdoc` is not used.
    assert not has_docstring(value) or ">>> " in (value.__doc__ or "")
