"""What a monitor has found: its tests, the numbers of each block, and one recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Literal

import numpy as np

from localma._types import Float64
from localma.formatting import count, number, percent
from localma.production.sequential import shares_of_starts
from localma.records import Columns, Record

if TYPE_CHECKING:
    from localma.production.blocks import Blocks
    from localma.production.monitor import Monitor, Plan

Action = Literal["refit", "drop", "nothing"]

ALARM = 20.0
"""Evidence that raises an alarm: one over the largest probability of a false alarm, 5 %."""
LARGEST_EVIDENCE = 1e99
ENOUGH_LABELS = 100
"""Labelled rows since a change that show whether the loss has risen."""
NAMED = 3
"""Tests that the recommendation names."""


@dataclass(frozen=True)
class MonitorTest(Record):
    """One test of a monitor.

    Parameters
    ----------
    kind : str
        "loss" (of a candidate), "combination" (its loss), "input", "disagreement" (between the
        largest and the smallest prediction), "weight", "outside" (rows unlike the labelled
        sample), "unfamiliar" (rows with categories or missing values that were not in the sample)
        or "failure" (of a candidate).
    name : str
        The input or the candidate; empty if there is none.
    evidence : float
        The e-value, times the part of all evidence that this test has. An alarm needs a sum of 20.
    since : int or None
        The period in which the change most likely began; the first one for a difference from the
        fit in all rows.
    rows : int
        Number of rows since then that count here.
    at_fit : float or None
        Mean in the sample of the fit; the tolerated share for events.
    now : float or None
        Mean since that period.

    Examples
    --------
    >>> test = MonitorTest("loss", "north", 35.2, 51, 900, 0.21, 0.45)
    >>> test.title, test.change
    ("loss of 'north'", "the loss of 'north' has risen from 0.210 to 0.450 since period 51")
    """

    kind: str
    name: str
    evidence: float
    since: int | None
    rows: int
    at_fit: float | None
    now: float | None

    @property
    def title(self) -> str:
        """What is tested, in a few words."""
        words = {
            "loss": f"loss of {self.name!r}",
            "combination": "loss of the combination",
            "input": f"input {self.name!r}",
            "disagreement": "disagreement of candidates",
            "weight": f"weight of {self.name!r}",
            "outside": "rows unlike the sample",
            "unfamiliar": "rows with unfamiliar values",
            "failure": f"failures of {self.name!r}",
        }
        return words[self.kind]

    @property
    def change(self) -> str:
        """The change in words."""
        values = f"from {_shown(self.at_fit)} to {_shown(self.now)}"
        since = f"since period {self.since}"
        share = "–" if self.now is None else percent(self.now)
        words = {
            "loss": f"the loss of {self.name!r} has risen {values} {since}",
            "combination": f"the loss of the combination has risen {values} {since}",
            "input": f"the input {self.name!r} has another distribution {since} (mean {values})",
            "disagreement": f"the candidates disagree differently {since} (mean {values})",
            "weight": f"the weights of {self.name!r} have changed {since} (mean {values})",
            "outside": f"{share} of the rows are unlike the labelled sample {since}",
            "unfamiliar": f"{share} of the rows have unfamiliar values {since}",
            "failure": f"{self.name!r} fails in {share} of the rows {since}",
        }
        return words[self.kind]


def evidence_text(evidence: float) -> str:
    """Write evidence, which may be huge or tiny.

    >>> evidence_text(1e40), evidence_text(35.2), evidence_text(1e-7)
    ('over 1,000,000', '35', 'below 0.01')
    """
    if evidence > 1e6:
        return "over 1,000,000"
    return number(evidence, 2) if evidence >= 0.01 else "below 0.01"


def _shown(value: float | None) -> str:
    return number(value)


@dataclass(frozen=True)
class MonitorBlock(Record):
    """The numbers of one block of periods.

    Parameters
    ----------
    start : int
        The first period of the block; it ends before the next block.
    rows, labelled : int
        Numbers of rows, and of labels of them.
    loss : float or None
        Mean loss of the combination.
    candidate_losses : list of float or None
        Mean loss of each candidate.
    weights : list of float or None
        Mean weight of each candidate.
    outside : float or None
        Share of rows unlike the labelled sample.
    failures : list of float or None
        Share of failures of each candidate.

    Examples
    --------
    >>> MonitorBlock(0, 100, 100, 0.5, [0.6], [1.0], 0.0, [0.0]).rows
    100
    """

    start: int
    rows: int
    labelled: int
    loss: float | None
    candidate_losses: list[float | None]
    weights: list[float | None]
    outside: float | None
    failures: list[float | None]


@dataclass(frozen=True)
class CandidateTimes(Record):
    """Calls of one candidate.

    Parameters
    ----------
    candidate : str
        Its name.
    rows : int
        Number of rows for which it was asked.
    failures : int
        Number of these without a prediction.
    seconds_per_row : float or None
        Mean time per row.
    slowest : float
        Time of the slowest call of `observe`, in seconds.

    Examples
    --------
    >>> CandidateTimes("north", 100, 0, 1e-5, 0.002).failures
    0
    """

    candidate: str
    rows: int
    failures: int
    seconds_per_row: float | None
    slowest: float


@dataclass(frozen=True)
class MonitorReport(Record):
    """What a monitor has found.

    Parameters
    ----------
    action : {"refit", "drop", "nothing"}
        What to do.
    drop : list of str
        The candidates to drop.
    sentence : str
        The recommendation and its reason.
    is_alarm : bool
        Whether some change is certain enough. If nothing changes, an alarm is ever raised with a
        probability of at most 5 %.
    evidence : float
        The sum of the evidence of all tests; 20 or more is an alarm.
    rows, labelled, waiting, forgotten : int
        Numbers of rows that were observed, have a label, wait for one, and no longer wait.
    tests : list of MonitorTest
        The tests, the one with the most evidence first.
    blocks : list of MonitorBlock
        The numbers of each block of periods.
    times : list of CandidateTimes
        The calls of each candidate.
    unfamiliar : dict of str to int
        Numbers of rows with unfamiliar values, by description.

    Examples
    --------
    >>> test = MonitorTest("outside", "", 0.25, 0, 100, 0.1, 0.02)
    >>> report = MonitorReport(
    ...     "nothing", [], "Do nothing: no change.", False, 0.25, 100, 0, 0, 0, [test], [], [], {}
    ... )
    >>> print(report)
    test                    evidence  at_fit    now  since  rows
    rows unlike the sample     0.250   0.100  0.020      0   100
    Do nothing: no change.
    """

    action: Action
    drop: list[str]
    sentence: str
    is_alarm: bool
    evidence: float
    rows: int
    labelled: int
    waiting: int
    forgotten: int
    tests: list[MonitorTest]
    blocks: list[MonitorBlock]
    times: list[CandidateTimes]
    unfamiliar: dict[str, int]

    def _columns(self) -> Columns:
        """Return a row per test."""
        return {
            "test": [test.title for test in self.tests],
            "evidence": [test.evidence for test in self.tests],
            "at_fit": [test.at_fit for test in self.tests],
            "now": [test.now for test in self.tests],
            "since": [test.since for test in self.tests],
            "rows": [test.rows for test in self.tests],
        }

    def _notes(self) -> list[str]:
        return [self.sentence]


def make_report(monitor: Monitor) -> MonitorReport:
    """Report what a monitor has observed."""
    plan, blocks = monitor._plan, monitor._blocks
    waiting, forgotten = len(monitor._waiting), monitor._forgotten
    if blocks is None:
        sentence = "Do nothing: no row has been observed."
        return MonitorReport(
            "nothing", [], sentence, False, 0.0, 0, 0, waiting, forgotten, [], [], [], {}
        )
    tests = find_evidence(plan, blocks)
    evidence = total_evidence(plan, blocks)
    rows, labelled = blocks.tables["rows"].sum(axis=0).tolist()
    advice = _Advice.of(plan, blocks, tests, evidence)
    return MonitorReport(
        advice.action,
        advice.drop,
        advice.sentence,
        evidence >= ALARM,
        evidence,
        rows,
        labelled,
        waiting,
        forgotten,
        tests,
        _history(plan, blocks),
        _times(monitor, blocks),
        dict(monitor._unfamiliar),
    )


def log_evidence(plan: Plan, blocks: Blocks) -> Float64:
    """Logarithms of the evidence of each test, by block in which the change is: (V + E, J)."""
    starts, tables = np.maximum(blocks.starts, blocks.first), blocks.tables
    shares = shares_of_starts(starts, blocks.first)
    events, tried = tables["events"].astype(np.float64), tables["tried"].astype(np.float64)
    logs = plan.shares.log_evidence(events, tried, shares)
    if plan.variables:
        bins = tables["bins"].astype(np.float64)
        logs = np.concatenate([plan.ranks.log_evidence(bins, shares), logs])
    parts = np.concatenate([plan.rank_parts, plan.event_parts])
    return np.asarray(logs + np.log(parts)[:, np.newaxis])


def total_evidence(plan: Plan, blocks: Blocks | None) -> float:
    """The sum of the evidence of all tests, at most `LARGEST_EVIDENCE`."""
    if blocks is None:
        return 0.0
    return _capped(np.logaddexp.reduce(log_evidence(plan, blocks), axis=None))


def _capped(logarithm: float) -> float:
    return exp(min(float(logarithm), log(LARGEST_EVIDENCE)))


def find_evidence(plan: Plan, blocks: Blocks) -> list[MonitorTest]:
    """Evaluate all tests, and sort them by their evidence."""
    tables, starts = blocks.tables, np.maximum(blocks.starts, blocks.first)
    sums = np.column_stack([tables["sums"], tables["events"]])
    rows = np.column_stack([tables["bins"].sum(axis=2), tables["tried"]])
    means = np.empty(0) if plan.reference is None else plan.reference.means
    at_fit = np.concatenate([means, plan.shares.tolerated]).tolist()
    found = []
    for k, logs in enumerate(log_evidence(plan, blocks)):
        kind, name = (*plan.variables, *plan.events)[k]
        j = int(np.argmax(logs))
        n = int(rows[j:, k].sum())
        found.append(
            MonitorTest(
                kind,
                name,
                _capped(np.logaddexp.reduce(logs)),
                int(starts[j]) if n else None,
                n,
                at_fit[k],
                float(sums[j:, k].sum()) / n if n else None,
            )
        )
    return sorted(found, key=lambda test: -test.evidence)


@dataclass(frozen=True)
class _Advice:
    """The recommendation: an action, candidates to drop, and a sentence."""

    action: Action
    drop: list[str]
    sentence: str

    @classmethod
    def of(
        cls, plan: Plan, blocks: Blocks, tests: Sequence[MonitorTest], evidence: float
    ) -> _Advice:
        """Advise on tests that are sorted by their evidence."""
        if evidence < ALARM:
            return cls("nothing", [], _calm(tests, blocks))
        # Each of these would raise the alarm without the others; at least the largest is named.
        clear = [test for test in tests if test.evidence >= ALARM] or list(tests[:1])
        failing = [test for test in clear if test.kind == "failure"]
        worse = [test for test in clear if test.kind == "loss"]
        combination = [test for test in clear if test.kind == "combination"]
        bad = list(dict.fromkeys(test.name for test in (*failing, *worse)))
        if bad and 2 * len(bad) <= len(plan.names):
            verb = "Drop" if len(bad) > 1 else f"Drop {bad[0]!r}"
            if len(bad) > 1:
                verb += f" {', '.join(map(repr, bad))}"
            others = "The other candidates show no such change."
            return cls("drop", bad, f"{verb}: {_listed((*failing, *worse))}. {others}")
        if failing or worse or combination:
            reasons = _listed((*combination, *worse, *failing))
            return cls("refit", [], f"Refit: {reasons}.")
        return cls._of_inputs(plan, blocks, clear)

    @classmethod
    def _of_inputs(cls, plan: Plan, blocks: Blocks, clear: Sequence[MonitorTest]) -> _Advice:
        """Advise on changes other than those of losses and failures."""
        since = min(test.since or 0 for test in clear)
        counted = blocks.tables["rows"][np.maximum(blocks.starts, blocks.first) >= since, 1]
        labels = int(counted.sum())
        reasons = _listed(clear)
        has_losses = any(v.kind in ("loss", "combination") for v in plan.variables)
        if labels >= ENOUGH_LABELS and has_losses:
            return cls(
                "nothing",
                [],
                f"Do nothing yet: {reasons}, but no loss has clearly risen in the "
                f"{count(labels, 'labelled row')} since then.",
            )
        known = f"only {count(labels, 'row')} since then" if labels else "no row since then"
        have = "has" if labels < 2 else "have"
        return cls(
            "refit",
            [],
            f"Refit: {reasons}, and {known} {have} a label that would "
            "show whether the loss has risen. Label some.",
        )


def _calm(tests: Sequence[MonitorTest], blocks: Blocks) -> str:
    n = int(blocks.tables["rows"][:, 0].sum())
    most = f"{tests[0].title}, with {evidence_text(tests[0].evidence)} of {ALARM:g}"
    return f"Do nothing: no test is clear after {count(n, 'row')}. The most evidence is of {most}."


def _listed(tests: Sequence[MonitorTest]) -> str:
    reasons = [test.change for test in tests[:NAMED]]
    if len(tests) > NAMED:
        reasons.append(f"{count(len(tests) - NAMED, 'more test')} agree")
    return ", and ".join(filter(None, [", ".join(reasons[:-1]), reasons[-1]]))


def _history(plan: Plan, blocks: Blocks) -> list[MonitorBlock]:
    """The numbers of the blocks that have rows."""
    tables = blocks.tables
    with np.errstate(all="ignore"):
        means = np.divide(tables["sums"], tables["bins"].sum(axis=2))
        shares = np.divide(tables["events"], tables["tried"])
    index = {f"{variable.kind} {variable.name}": v for v, variable in enumerate(plan.variables)}

    def mean(j: int, kind: str, name: str = "") -> float | None:
        v = index.get(f"{kind} {name}")
        return None if v is None or np.isnan(means[j, v]) else float(means[j, v])

    history = []
    for j, start in enumerate(np.maximum(blocks.starts, blocks.first).tolist()):
        rows, labelled = tables["rows"][j].tolist()
        if not rows and not labelled:
            continue
        history.append(
            MonitorBlock(
                start,
                rows,
                labelled,
                mean(j, "combination"),
                [mean(j, "loss", name) for name in plan.names],
                [mean(j, "weight", name) for name in plan.names],
                _known(shares[j, 0]),
                [_known(share) for share in shares[j, 2:]],
            )
        )
    return history


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _times(monitor: Monitor, blocks: Blocks) -> list[CandidateTimes]:
    names, tables = monitor._plan.names, blocks.tables
    rows, failures = tables["tried"].sum(axis=0)[2:], tables["events"].sum(axis=0)[2:]
    seconds = tables["seconds"].sum(axis=0)
    return [
        CandidateTimes(
            name,
            int(rows[m]),
            int(failures[m]),
            float(seconds[m] / rows[m]) if rows[m] else None,
            float(monitor._slowest[m]),
        )
        for m, name in enumerate(names)
    ]
