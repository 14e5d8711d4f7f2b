"""Imports point one way: a module imports only from its own layer and those before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import localma

PACKAGE = Path(localma.__file__).parent
FOUNDATION = {"errors", "_types", "_optional"}
TOOLS = {
    "formatting",
    "progress",
    "records",
    "imports",
    "pretrained",
    "_torch_packages",
    "_signals",
    "_tasks",
    "_threads",
    "compiled",
}
LAYERS = [
    FOUNDATION,
    TOOLS,
    {"storage", "losses"},
    {"equations", "tables", "trees"},
    {"folds", "evidence", "dependence", "backbones", "images"},
    {"candidates", "gates"},
    {"checks", "probes", "own", "reference"},
    {"estimators"},
    {"inspection", "model_file", "onnx_export", "onnx_pool", "production"},
    {"report", "serving", "ray", "demo"},
    {"cli"},
    {"__main__"},
]
LEVEL = {module: level for level, layer in enumerate(LAYERS) for module in layer}

ONLY = {
    "losses": FOUNDATION,
    "equations": {"losses"} | FOUNDATION,
    "storage": FOUNDATION | TOOLS,
    "trees": {"compiled"} | FOUNDATION,
    "tables": {"storage"} | FOUNDATION | TOOLS,
    # Candidates that are fitted here share their folds with the gate.
    "candidates": {"tables", "storage", "folds", "backbones", "images"} | FOUNDATION | TOOLS,
}
"""Rooms that may import nothing but these."""
STRANGERS = {("gates", "candidates")}

# Methods of an estimator, such as `save` and `answer`, import these when they are called.
ALLOWED = {("estimators", "model_file"), ("estimators", "production")}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if top != "__init__":
            yield pytest.param(top, path, id=str(path.relative_to(PACKAGE)))


def imported(path):
    """Top-level modules of localma that a file imports anywhere, types included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = (
                [node.module]
                if node.module != "localma"
                else [f"localma.{a.name}" for a in node.names]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name and name.startswith("localma."))


@pytest.mark.parametrize(("module", "path"), list(modules()))
def test_imports_point_one_way(module, path):
    for name in set(imported(path)) - {module}:
        if (module, name) in ALLOWED:
            continue
        assert LEVEL[name] <= LEVEL[module], f"{path.name}: {name} is in a layer after {module}"
        assert name in ONLY.get(module, LEVEL), f"{path.name}: {module} may not import {name}"
        assert (module, name) not in STRANGERS, f"{path.name}: {module} may not import {name}"


def test_every_module_has_a_layer():
    assert {param.values[0] for param in modules()} <= set(LEVEL)


def test_the_picture_shows_every_room():
    """Tools and single files that the picture leaves out are in the table below it."""
    page = (Path(__file__).parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = {param.values[0] for param in modules()} - TOOLS - {"__main__", "demo", "backbones"}
    assert not [room for room in rooms if f"`{room}`" not in page and f"`{room}/`" not in page]
