"""Features and fine-tuned candidates that some studies compute once, before their replicates.

A run computes them if they are missing. The command `prepare` shows the speed and uses all cores.
You can stop it at any time, and it continues from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from localma.errors import unknown_name
from studies import cifar10, cifar10_data, toxicity, toxicity_data

Prepare = Callable[[Any], Iterator[str]]

PREPARED: Mapping[str, tuple[Prepare, Mapping[str, Any]]] = {
    "cifar10": (cifar10_data.prepare, cifar10.SIZES),
    "toxicity": (toxicity_data.prepare, toxicity.SIZES),
}
"""Study -> function that computes its parts, and its sizes by name."""


def prepare(name: str, size: str = "full") -> None:
    """Compute the parts of a study, with a line on standard error after each."""
    if name not in PREPARED:
        raise unknown_name("study with parts to prepare", name, PREPARED)
    compute, sizes = PREPARED[name]
    if size not in sizes:
        raise unknown_name("size", size, sizes)
    for line in compute(sizes[size]):
        print(f"{name}: {line}", file=sys.stderr, flush=True)
