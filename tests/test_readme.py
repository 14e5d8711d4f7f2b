"""The code in the README runs as it stands, and its links lead somewhere; pages: test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def test_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), str(README), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_rule_about_training_rows_is_stated():
    rule = "**The labelled sample must not contain rows on which a candidate was trained.**"
    for page in (README, ROOT / "docs" / "guide.md", ROOT / "docs" / "tutorial.md"):
        assert rule in " ".join(page.read_text("utf-8").split()), page


def test_the_first_example_obeys_the_rule():
    """Each candidate saw the first 200 rows only; the labelled rows come after them."""
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    names = {}
    exec(compile(block, str(README), "exec"), names)
    assert names["training"].stop <= names["labelled"].start
    assert names["labelled"].stop <= names["new"].start
    n_fitted = [names["candidates"]["older"]._n_samples, int((~names["older"]).sum())]
    assert sum(n_fitted) == names["training"].stop
    assert "pandas" not in block
    assert not names["model"].cautions_


def test_links_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text("utf-8")):
        assert (ROOT / target).exists(), target
