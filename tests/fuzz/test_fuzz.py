"""A quick run of the fuzzers; ``make fuzz`` is the long one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.artefacts import LIGHT, all_kinds, local
from tests.fuzz.mutations import mutated
from tests.fuzz.run import fuzz

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it"),
    pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning"),  # the toys are exact
]


@pytest.mark.parametrize("kinds", [tuple(LIGHT), tuple(sorted(set(all_kinds()) - set(LIGHT)))])
def test_damaged_models_are_refused_or_predict(kinds, tmp_path):
    if not kinds:
        pytest.skip("none of the packages is installed")
    count = 300 * len(kinds) if kinds[0] in LIGHT else 60 * len(kinds)
    tally = fuzz(11, tmp_path / "found", count=count, kinds=kinds)
    assert tally.findings == []
    assert tally.total == count
    assert tally.sealed > 0.5 * count
    assert sum(n for (_, outcome), n in tally.outcomes.items() if outcome == "predicted") > 0
    assert tally.memory < 200 * 2**20


def test_hostile_models_open_import_and_connect_to_nothing():
    command = [sys.executable, "-m", "tests.fuzz.hostile", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    report = json.loads(done.stdout)
    assert report["files"] >= 1_000
    assert report["events"] == {}
    assert report["folder"] == [
        "evil_module.py", "hostile.localma", "link.onnx", "model", "secret.safetensors",
    ]  # fmt: skip
    assert report["outcomes"]["UntrustedFileError"] > 500


def test_the_fuzzer_sees_crashes_hangs_and_what_is_not_documented(tmp_path, monkeypatch):
    """A fuzzer that finds nothing is worth something only if it can find."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "def trace(number):\n"
        "    if number == 5: os.abort()\n"
        "    if number == 8: time.sleep(60)\n"
        "    if number == 9: raise KeyError('undocumented')\n"
        "import builtins\n"
        "builtins.fuzz_trap = trace\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    monkeypatch.setattr("tests.fuzz.run.HANG", 2.0)
    tally = fuzz(0, tmp_path / "found", count=12, kinds=("equal",))
    assert sorted(tally.findings) == [
        "5 (equal): crash", "8 (equal): hang", "9 (equal): undocumented",
    ]  # fmt: skip
    stored = sorted(path.name for path in (tmp_path / "found").iterdir())
    assert stored == [f"0-{k}.{end}" for k in (5, 8, 9) for end in ("localma", "txt")]


def test_mutations_depend_on_the_seed_alone():
    content = local().content
    first, again, other = (mutated(content, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert first == again != other
