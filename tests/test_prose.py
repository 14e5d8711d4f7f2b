"""The text of the project reads well: few turns of phrase that a reader stumbles over."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROSE = ROOT.parent / "shared" / "tools" / "prose"
MOST = 10.0
"""Turns of phrase per 10,000 words."""


@pytest.mark.skipif(not PROSE.is_file(), reason="the tool that counts turns of phrase is absent")
def test_few_turns_of_phrase_that_readers_stumble_over():
    run = subprocess.run(
        [sys.executable, str(PROSE), "--show", "5"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    counted = re.search(r"^([\d.]+) per 10,000 words", run.stdout, re.MULTILINE)
    assert counted is not None, run.stdout
    assert float(counted[1]) <= MOST, run.stdout
