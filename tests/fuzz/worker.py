"""Loads damaged models, one after the other, and says what became of each.

A line per model on standard output: its number, its kind, whether the checksum was made anew, what
happened, and details. The parent process watches for silence and for the end of this one.
"""

from __future__ import annotations

import argparse
import builtins
import json
import resource
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import localma
from localma.errors import LocalMAError
from tests.fuzz.artefacts import Artefact, all_kinds, schedule
from tests.fuzz.mutations import mutated
from tests.fuzz.run import FINDINGS

HEADROOM = 2**30
"""Memory beyond that of a process with all packages imported; a load may not need it."""


TRAP: Callable[[int], None] = getattr(builtins, "fuzz_trap", lambda index: None)
"""Set by the test of the fuzzer itself, to see that it notices what it should."""


def main() -> None:
    arguments = parsed()
    warnings.simplefilter("ignore")
    kinds = all_kinds(arguments.kinds.split(",") if arguments.kinds else None)
    artefacts = {name: make() for name, make in kinds.items()}
    for artefact in artefacts.values():  # compiles the kernel, imports what is imported at use
        Path(arguments.file).write_bytes(artefact.content)
        with suppress(LocalMAError):
            check_predictions(localma.load(arguments.file, **artefact.options), artefact)
    base = memory()
    limit_memory()
    order = schedule(list(kinds))
    say({"ready": order, "memory": base})
    for index in range(arguments.start, arguments.stop):
        kind = order[index % len(order)]
        artefact = artefacts[kind]
        random = np.random.default_rng([arguments.seed, index])
        content, sealed = artefact.content, True
        while content == artefact.content:
            content, sealed = mutated(artefact.content, random)
        Path(arguments.file).write_bytes(content)
        outcome, detail = judged(arguments.file, artefact, sealed, index)
        if outcome in FINDINGS:
            Path(arguments.out).mkdir(parents=True, exist_ok=True)
            (Path(arguments.out) / f"{arguments.seed}-{index}.localma").write_bytes(content)
        line = {"index": index, "kind": kind, "sealed": sealed, "outcome": outcome}
        say(line | ({"detail": detail} if detail else {}))
        if index % 100 == 99 or index == arguments.stop - 1:
            say({"memory": memory()})


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("seed", "start", "stop"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--kinds", default="")
    return parser.parse_args()


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM, used + HEADROOM))


def judged(path: str, artefact: Artefact, sealed: bool, index: int) -> tuple[str, str]:
    """What happened: "refused", "rows refused", "predicted", or the name of a finding."""
    try:
        TRAP(index)
        model = localma.load(path, **artefact.options)
    except (LocalMAError, OSError) as error:
        if any(isinstance(link, MemoryError) for link in chain(error)):
            return "memory", traceback.format_exc()[-3000:]
        if len(str(error)) > 1_000:
            return "long message", str(error)[:2000]
        return "refused", type(error).__name__
    except BaseException:
        return "undocumented", traceback.format_exc()[-3000:]
    if not sealed:
        return "silent", "it loads, though its checksum is not that of its bytes"
    try:
        return check_predictions(model, artefact)
    except BaseException:
        return "undocumented", traceback.format_exc()[-3000:]


def chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def check_predictions(model: Any, artefact: Artefact) -> tuple[str, str]:
    """Predictions must be finite and weights on the simplex, unless the rows are refused."""
    predict = getattr(model, "predict_proba", model.predict)
    try:
        W = np.asarray(model.predict_weights(artefact.X))
        values = np.asarray(predict(artefact.X, artefact.predictions))
        ends = np.zeros(1)
        if model.gate_.evidence is not None:
            method = getattr(model, "predict_set", getattr(model, "predict_interval", None))
            ends = np.asarray(method(artefact.X, 0.8, artefact.predictions), dtype=float)
    except (LocalMAError, ValueError) as error:
        if any(isinstance(link, MemoryError) for link in chain(error)):
            return "memory", traceback.format_exc()[-3000:]
        return "rows refused", type(error).__name__
    if not (np.isfinite(W).all() and (W >= 0).all() and abs(W.sum(axis=1) - 1).max() < 1e-5):
        return "bad weights", str(W.tolist())[:2000]
    if not np.isfinite(values).all():
        return "bad predictions", str(values.tolist())[:2000]
    if not np.isfinite(ends).all():
        return "bad intervals", str(ends.tolist())[:2000]
    return "predicted", ""


if __name__ == "__main__":
    main()
