"""The packages that modules need are found in their source; see ``conftest.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SOURCE, packages_needed

PACKAGE = SOURCE / "localma"
CORE = {"numpy", "scipy", "sklearn", "numba", "llvmlite", "safetensors", "narwhals"}
CORE |= {"threadpoolctl", "joblib"}
EXTRAS = {"torch", "accelerate", "typer", "rich", "pyarrow", "jinja2", "onnx", "skops"}
EXTRAS |= {"fastapi", "starlette", "ray", "mlflow"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import torch.nn as nn", {"torch"}),
        ("from PIL import Image", {"PIL"}),
        ('pa = optional("pyarrow.compute", extra="cli")', {"pyarrow"}),
        ("try:\n    import onnx\nexcept ImportError:\n    onnx = None", {"onnx"}),
        ('"""\n>>> import polars\n"""', {"polars"}),
        ('def f():\n    """\n    >>> optional("onnx", extra="onnx").load\n    """', {"onnx"}),
        ("class A:\n    import torch", {"torch"}),
        ("import os\nimport xml.dom", set()),
        ("def f():\n    import torch", set()),
        ('def f():\n    return optional("torch", extra="torch")', set()),
        ("if TYPE_CHECKING:\n    import torch", set()),
        ("if TYPE_CHECKING:\n    import onnx\nelse:\n    onnx = optional('onnx')", {"onnx"}),
    ],
)
def test_imports_are_found(source, packages, tmp_path, monkeypatch):
    monkeypatch.setattr("conftest.SOURCE", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(source)
    assert packages_needed(path) == packages


def test_a_module_needs_what_its_imports_need():
    files = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    assert packages_needed(files["localma"]) <= CORE
    needs_typer = {name for name, path in files.items() if "typer" in packages_needed(path)}
    assert {name for name in files if name.startswith("localma.cli.")} <= needs_typer
    assert not any(name.startswith(("localma.gates", "localma.inspection")) for name in needs_typer)


HIDE = f"""
import importlib, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(EXTRAS)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
"""


def test_no_other_module_needs_an_extra_to_be_imported():
    """Import every module in a process that cannot find the packages of the extras."""
    files = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    command = [sys.executable, "-c", HIDE, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    failed = set(done.stdout.split())
    assert "localma.cli.app" in failed
    assert failed <= {name for name, path in files.items() if packages_needed(path) & EXTRAS}


def test_core_only_leaves_out_no_test_of_an_absent_package():
    """It leaves out the files of a list, so a new file runs; those say nothing about extras."""
    makefile = (SOURCE.parent / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (listed,) = re.findall(r"^SAME_WITH_EXTRAS := (.*)$", makefile, re.MULTILINE)
    assert "--ignore=tests/test_%.py" in makefile
    words = r"MissingDependency|pip install|find_spec|CliRunner|localma\.(?:cli|serving)"
    about_extras = re.compile(words)
    for name in listed.split():
        path = SOURCE.parent / "tests" / f"test_{name}.py"
        assert not about_extras.search(path.read_text("utf-8")), name
    assert listed.split() == sorted(set(listed.split()))
