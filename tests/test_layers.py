"""Dependencies point one way: a module imports only from layers to its left."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import localma

PACKAGE = Path(localma.__file__).parent
LAYERS = [
    {"errors", "cautions", "_optional", "pretrained", "progress"}
    | {"wording", "_signals", "_threads", "_types"},
    {"storage", "imports"},
    {"tables"},
    {"folds", "losses", "evidence", "images"},
    {"equations", "candidates", "baseline", "fit_checks", "probes", "memorised"},
    {"gates"},
    {"estimators"},
    {"inspection", "model_file", "onnx_export"},
    {"demo", "report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {module: level for level, layer in enumerate(LAYERS) for module in layer}
# The method `save` of an estimator is sugar for `model_file.save`, imported when it is called.
ALLOWED = {("estimators", "model_file")}
STRANGERS = {("candidates", "losses"), ("candidates", "equations"), ("candidates", "gates")} | {
    ("gates", "candidates")
}


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
def test_imports_point_left(module, path):
    for other in set(imported(path)) - {module}:
        if (module, other) in ALLOWED:
            continue
        assert (module, other) not in STRANGERS, f"{path.name}: {module} know nothing of {other}"
        assert LEVEL[other] <= LEVEL[module], (
            f"{path.name} ({module}) imports {other} from its right"
        )


def test_every_module_has_a_layer():
    assert {param.values[0] for param in modules()} <= set(LEVEL)
