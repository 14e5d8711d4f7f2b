"""The code in README and guide runs as it stands, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "guide.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_runs(document, capsys):
    pytest.importorskip("pandas")
    blocks = re.findall(r"```python\n(.*?)```", document.read_text("utf-8"), flags=re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), str(document), "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_exist(document):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target
