"""Leave out modules and doctests that need an extra which is not installed.

The packages that a module needs are read from its source: imports and calls of
`optional("package")` that run when it is imported, and those in its doctests.
"""

from __future__ import annotations

import ast
import doctest
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

# Tests may run in parallel, one process per core. Threads of PyTorch and of BLAS would then wait
# for each other, and sums would depend on the number of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SOURCE = Path(__file__).parent / "src"


def packages_needed(path: Path) -> set[str]:
    """Third-party packages that a module imports, or that its doctests import."""
    tree = _parse(path)
    examples = ast.parse("".join(_examples(tree)))
    modules = {*_imported(_at_import(tree.body)), *_imported(ast.walk(examples))}
    parents = path.relative_to(SOURCE).parts[:-1]
    modules |= {".".join(parents[:k]) for k in range(1, len(parents) + 1)}
    return {name.split(".")[0] for name in _closure(modules)} - {"localma"}


def _closure(modules: set[str]) -> set[str]:
    """Modules with all that importing them imports, as far as they are in the source tree."""
    waiting, complete = list(modules), set()
    while waiting:
        name = waiting.pop()
        if name not in complete:
            complete.add(name)
            waiting += _imported_by(name, SOURCE)
    return complete


@cache
def _imported_by(module: str, source: Path) -> set[str]:
    """What a module of the source tree imports; of other modules, nothing is known."""
    base = source.joinpath(*module.split("."))
    files = [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()]
    return {name for file in files for name in _imported(_at_import(_parse(file).body))}


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _at_import(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes that run when a module is imported: no functions, no imports for type checkers."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            continue
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from _at_import(statement.orelse)
        elif isinstance(statement, ast.ClassDef | ast.If | ast.Try | ast.With):
            yield from _at_import(statement.body)
        else:
            yield from ast.walk(statement)


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Modules that nodes import, those of the standard library left out."""
    for node in nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "optional":
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        yield from (n for n in names if n.split(".")[0] not in sys.stdlib_module_names)


def _examples(tree: ast.Module) -> Iterator[str]:
    """Source of the doctests of a module."""
    parser = doctest.DocTestParser()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for example in parser.get_examples(ast.get_docstring(node) or ""):
                yield example.source


collect_ignore = [
    str(path)
    for path in sorted(SOURCE.rglob("*.py"))
    if any(find_spec(package) is None for package in packages_needed(path))
]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Skip a doctest that asks `optional` for a package that is not installed."""
    from localma.errors import MissingDependencyError

    try:
        return (yield)
    except Exception as error:
        for failure in getattr(error, "failures", [error])[:1]:
            _, cause, _ = getattr(failure, "exc_info", (None, None, None))
            if isinstance(cause, MissingDependencyError):
                pytest.skip(str(cause))
        raise
