"""The code in the README runs as it stands, and its links lead somewhere; pages: test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def test_code_runs(capsys):
    pytest.importorskip("pandas")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), str(README), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_links_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text("utf-8")):
        assert (ROOT / target).exists(), target
