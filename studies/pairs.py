"""Two methods in the same replicates: paired differences of their risks, and who is the best.

The risk of a method is its error: a metric that counts what is right ("accuracy", in per cent) is
turned round. So a difference below zero is in favour of the method named first, whatever the study.

Standard errors are over replicates. They say how a difference varies with the split, or the draw
of the sample; not how it varies with other candidates, or other test rows where all replicates
share those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from studies.findings import NotRunError, Results, standard_error

TOLERANCE, ERRORS = 0.01, 3.0
"""A method may be behind another by this part of the risk, or so many standard errors."""
RIGHT = "accuracy"
"""How the name of a metric begins that counts what is right."""


@dataclass(frozen=True)
class Difference:
    """Mean risk of a method minus that of another, paired by replicate, with its standard error.

    risk : mean risk of the other; replicates : how many both have run in.
    """

    mean: float
    error: float
    risk: float
    replicates: int

    @property
    def is_allowed(self) -> bool:
        """Whether it is at most 1 % of the risk, or three standard errors."""
        self._needs_an_error()
        return self.mean <= max(TOLERANCE * self.risk, ERRORS * self.error)

    @property
    def is_clear(self) -> bool:
        """Whether it is below zero by more than three standard errors."""
        self._needs_an_error()
        return self.mean < -ERRORS * self.error

    def words(self, *, relative: bool) -> str:
        """In parts of the risk, or as it is; a single replicate has no standard error.

        >>> Difference(-0.5, 0.1, 20.0, 5).words(relative=True)
        '-2.50 ± 0.50'
        >>> Difference(-0.5, float("nan"), 20.0, 1).words(relative=False)
        '-0.50'
        """
        scale = 100.0 / self.risk if relative else 1.0
        error = f" ± {scale * self.error:.2f}" if self.replicates > 1 else ""
        return f"{scale * self.mean:+.2f}{error}"

    def _needs_an_error(self) -> None:
        if self.replicates < 2:
            raise NotRunError("Two methods must have run in two replicates to be judged.")


def difference(results: Results, metric: str, method: str, other: str, **keys: Any) -> Difference:
    """Compare two methods in the replicates of a cell that both have run in."""
    paired = results.paired(method, other, metric, **keys)
    ours, theirs = (100.0 - part if metric.startswith(RIGHT) else part for part in paired)
    error = standard_error(ours - theirs)
    return Difference(float((ours - theirs).mean()), error, float(theirs.mean()), len(ours))


def differences(
    results: Results, metric: str, method: str, other: str, over: str, **keys: Any
) -> dict[Any, Difference]:
    """Compare two methods along a key, in its order, where both have run: at least once."""
    found = {
        cell[over]: difference(results, metric, method, other, **cell)
        for cell in results.cells_along(over, method, metric, **keys)
        if results.has_run(other, metric, **cell)
    }
    if not found:
        raise NotRunError(f"No replicate of {method} and {other} in {keys} has been run.")
    return found


def clearly_better(
    results: Results, metric: str, method: str, other: str, over: str, **keys: Any
) -> bool:
    """Whether a method is clearly better than another all along a key."""
    found = differences(results, metric, method, other, over, **keys)
    return all(one.is_clear for one in found.values())


def beside_best(
    results: Results,
    metric: str,
    method: str,
    others: Sequence[str],
    labels: Mapping[str, str],
    over: str,
    **keys: Any,
) -> list[str]:
    """One line: a method beside the best of some others along a key, or none if nothing has run."""
    relative = not metric.startswith(RIGHT)
    points = []
    for cell in results.cells_along(over, method, metric, **keys):
        found = {
            other: difference(results, metric, method, other, **cell)
            for other in others
            if other != method and results.has_run(other, metric, **cell)
        }
        if found:
            best = max(found, key=lambda other: found[other].mean)
            words = found[best].words(relative=relative)
            points.append(f"{cell[over]:,}: {words} ({labels[best]})")
    what, unit = ("risk", "% of its risk") if relative else ("error rate", "points")
    place = ", ".join(map(str, keys.values()))
    line = (
        f"{place + ': ' if place else ''}{what} of {labels[method]} minus that of the best other "
        f"method, in {unit}, at {over} = {'; '.join(points)}"
    )
    return [line] if points else []
