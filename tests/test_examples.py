"""The examples run, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").rglob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example, tmp_path):
    text = example.read_text(encoding="utf-8")
    assert ("import pandas" in text) == ("Needs pandas." in text)
    for package in ("matplotlib", "pandas"):
        if f"import {package}" in text:
            pytest.importorskip(package)
    if "Needs torch." in text:
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "local weights" in done.stdout.lower()
