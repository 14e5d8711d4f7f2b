"""Loads models that ask for code, files and addresses, under an audit hook; prints what they got.

``python -m tests.fuzz.hostile [N]`` takes every N-th name. A process of its own, since an audit
hook stays until the process ends.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import localma
from localma.candidates.recipes import KINDS, json_types
from localma.errors import LocalMAError
from localma.imports import import_object
from localma.storage import array_file
from tests.fuzz.artefacts import all_kinds

WATCHED = ("open", "import", "socket.", "os.", "subprocess.", "shutil.", "ctypes.", "urllib.",
           "tempfile.", "http.", "ftplib.", "smtplib.", "webbrowser.", "exec", "compile", "pickle.",
           "marshal.", "glob.", "mmap.", "sqlite3.", "pty.", "syslog.")  # fmt: skip


def strings(folder: Path) -> list[str]:
    """What a hostile file may name: paths, links, import names, addresses, variables."""
    secret, link = folder / "secret.safetensors", folder / "link.onnx"
    secret.write_bytes(b"secret")
    link.symlink_to(secret)
    (folder / "evil_module.py").write_text("open('ran', 'w')\n")
    model_folder = folder / "model"
    model_folder.mkdir()
    (model_folder / "config.json").write_text("{}")
    return [
        str(secret), str(link), "secret.safetensors", "link.onnx", "model", str(model_folder),
        "../../../../etc/passwd", "/etc/passwd", "/proc/self/environ", "/dev/zero",
        "~/.ssh/id_rsa", "$HOME/.netrc", "${HOME}", "%USERPROFILE%",
        "\\\\127.0.0.1\\share\\x.onnx", "C:\\secret.txt", "file:///etc/passwd",
        "http://127.0.0.1:9/model", "https://127.0.0.1:9/", "//127.0.0.1/x",
        "hf-hub:somebody/model", "somebody/encoder", "bert-base-uncased", "local-dir:/etc",
        "os:system", "evil_module:run", "builtins:eval", "builtins:exec", "subprocess:Popen",
        "localma.imports:import_object", "numpy:load", "a.localma\x00.onnx", "", ".", "..",
        "x" * 500,
    ]  # fmt: skip


def recipes(text: str) -> Iterator[dict[str, Any]]:
    """A recipe of every kind of candidate with the text in each of its fields."""
    examples = {tuple: [], list: [text], str: text, int: 1, float: 1.0, bool: False, dict: {}}
    for name, place in KINDS.items():
        kind = import_object(place)
        recipe: dict[str, Any] = {"kind": name}
        field_types = json_types(kind._recipe_type)
        for field, types in field_types.items():
            recipe[field] = None if type(None) in types else examples[types[0]]
        yield recipe
        for field, types in field_types.items():
            if str in types:
                yield {**recipe, field: text}
            if list in types:
                yield {**recipe, field: [text]}
            if dict in types:
                yield {**recipe, field: {text: text}}


def gates(text: str) -> Iterator[dict[str, Any]]:
    """Gates that ask for the text in every parameter that could be code, a path or an address."""
    tagged = [text, {"$path": text}, {"$import": text}, {"$list": [text]}]
    for value in tagged:
        places = [
            ("ImageGate", {"network": "test_efficientnet", "weights": value, "frozen": True}),
            ("ImageGate", {"network": value}),
            ("ImageGate", {"cache": value}),
            ("ImageGate", {"checkpoint": value}),
            ("ImageGate", {"candidates_on": value}),
            ("ImageGate", {"augment": value, "head": value}),
            ("TextGate", {"encoder": value}),
            ("TextGate", {"encoder": value, "frozen": True, "cache": value}),
            ("TorchGate", {"module": value}),
            ("TorchGate", {"module": value, "collate": value, "preprocess": value}),
            ("TorchGate", {"module": value, "checkpoint": value, "device": value}),
            ("MLPGate", {"hidden": value}),
            ("ShrunkGate", {"cv": value}),
            ("TreeGate", {"n_leaves": value}),
        ]
        for kind, parameters in places:
            gate = {"kind": kind, "known": True, "parameters": parameters}
            yield gate
            if kind in ("ImageGate", "TextGate", "TorchGate"):
                yield {"kind": "ShrunkGate", "known": True, "parameters": {"base": {"$gate": gate}}}
    yield {"kind": text, "known": False, "parameters": {}}
    yield {"kind": text, "known": True, "parameters": {}}


def descriptions(saved: dict[str, Any], texts: list[str]) -> Iterator[dict[str, Any]]:
    """Descriptions that ask for something in one place each."""
    for text in texts:
        for recipe in recipes(text):
            yield _with(saved, candidates=[{"name": "a", "recipe": recipe}, saved["candidates"][1]])
        for gate in gates(text):
            yield _with(saved, gate=gate)
        for kind in ("function", "attach", "table", "columns"):
            yield _with(saved, gate_features={"kind": kind, "import": text, "hidden": []})
        yield _with(saved, gate_features={"kind": "function", "import": text, "hidden": [text]})
        yield _with(saved, loss={"name": text, "parameters": {}, "own": False})
        yield _with(saved, estimator=text)
        yield _with(saved, probes={"container": text, "columns": [], "candidates": []})


def _with(saved: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**deepcopy(saved), **changes}


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    file = folder / "hostile.localma"
    content = all_kinds(["local"])["local"]().content
    file.write_bytes(content)
    saved = array_file.read(file)
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    everything = list(descriptions(saved.description, strings(folder)[::every]))
    hostile = [array_file.to_bytes(description, saved.arrays) for description in everything]
    events: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    armed = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not armed or not event.startswith(WATCHED):
            return
        if event == "open" and arguments[0] == str(file) and not arguments[2] & os.O_ACCMODE:
            return  # the model file itself, to be read
        events[f"{event} {arguments!r}"[:200]] += 1

    # The packages that localma itself imports at use are imported before anybody looks.
    for number in range(0, len(hostile), 7):
        file.write_bytes(hostile[number])
        outcomes_of(file)
    sys.addaudithook(hook)
    for content in hostile:
        file.write_bytes(content)
        armed = True
        outcome = outcomes_of(str(file))
        armed = False
        outcomes[outcome] += 1
    unchanged = sorted(path.name for path in folder.iterdir())
    report = {"files": len(hostile), "events": dict(events.most_common(20)), "folder": unchanged}
    print(json.dumps(report | {"outcomes": dict(outcomes)}))
    sys.exit(bool(events))


def outcomes_of(file: Any) -> str:
    try:
        localma.load(file)
    except (LocalMAError, OSError) as error:
        return type(error).__name__
    return "loaded"


if __name__ == "__main__":
    main()
