"""A table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Lines of a table.

    >>> print(table(["n", "risk"], [["100", "0.2"]]))
    | n | risk |
    | --- | --- |
    | 100 | 0.2 |
    """
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
