"""What some studies compute once, before their replicates: features and fine-tuned candidates.

A run computes it itself where it is missing; to prepare it shows how fast it goes, and uses all
cores. It may be killed at any moment, and goes on from there.
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
"""Study -> what computes its parts, and its sizes by name."""


def prepare(name: str, size: str = "full") -> None:
    """Compute the parts of a study, a line on standard error after each."""
    if name not in PREPARED:
        raise unknown_name("study with parts to prepare", name, PREPARED)
    compute, sizes = PREPARED[name]
    if size not in sizes:
        raise unknown_name("size", size, sizes)
    for line in compute(sizes[size]):
        print(f"{name}: {line}", file=sys.stderr, flush=True)
