"""Names of candidates: strings, each once, made up where nobody gave any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from localma.errors import InvalidInputError, unknown_name


def check_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Refuse names that are no strings or that stand there twice.

    >>> check_names(["north", "south"])
    ('north', 'south')
    """
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(
                f"Names of candidates must be strings that are not empty; received {name!r} "
                f"({type(name).__name__})."
            )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(
            f"Names of candidates must differ; {twice[0]!r} is there {names.count(twice[0])} "
            "times: rename all but one."
        )
    return names


def made_unique(labels: Sequence[str]) -> tuple[str, ...]:
    """Number the labels that are there more than once, as scikit-learn does for pipelines.

    >>> made_unique(["ridge", "tree", "tree"])
    ('ridge', 'tree-1', 'tree-2')
    """
    count, seen = Counter(labels), Counter[str]()
    names = []
    for label in labels:
        seen[label] += 1
        names.append(f"{label}-{seen[label]}" if count[label] > 1 else label)
    return tuple(names)


def numbered(n_candidates: int) -> tuple[str, ...]:
    """Names for the columns of an array that has none.

    >>> numbered(2)
    ('candidate_0', 'candidate_1')
    """
    return tuple(f"candidate_{m}" for m in range(n_candidates))


def check_same_names(received: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse predictions under other names than the candidates', in whatever order."""
    for name in received:
        if name not in expected:
            raise unknown_name("candidate", name, expected)
    missing = [name for name in expected if name not in received]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        raise InvalidInputError(
            f"predictions must have every candidate; {listed} missing: add the predictions of "
            "these candidates, or fit again without them."
        )
