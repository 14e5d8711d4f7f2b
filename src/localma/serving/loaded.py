"""The model that answers, and its replacement when the file changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TypedDict, get_type_hints

import numpy as np

from localma._types import Json
from localma.candidates import Candidate
from localma.candidates.column import Column
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.outputs import Table
from localma.candidates.stacked import Stacked
from localma.errors import FileFormatError, InvalidInputError, LocalMAError, UntrustedFileError
from localma.estimators.inputs import check_inputs
from localma.estimators.predictions import pool_of
from localma.imports import modules_beside
from localma.model_file import load
from localma.production import Answer, Breaker
from localma.production.answer import answered_checked
from localma.production.options import Options
from localma.serving.logs import event
from localma.serving.protocol import Parameters, RequestError
from localma.serving.schema import Model, Schema
from localma.serving.settings import Settings
from localma.tables.frames import take_rows

QUICK_SECONDS = 0.01
"""An answer that takes less than this may hold up the event loop."""
QUICK_ROWS = 64
QUICK_KINDS = (EstimatorCandidate, Column, Stacked)
"""Candidates that compute and never wait for anything."""
TRIAL_SECONDS = 0.25
"""Time for attempts to answer quickly; other work on the machine may slow some down."""
VERSION = 12
"""Characters of the checksum that are the version of a model."""

Stamp = tuple[int, int, int]


class Limits(TypedDict, total=False):
    """Parameters of a request; `Options` describes them."""

    deadline: float
    timeout: int
    candidate_timeout: float
    budget: float
    max_candidates: int
    min_weight: float
    missing: str
    retries: int


KNOWN = tuple(get_type_hints(Limits))
"""Parameters of a request that change the answer."""
MICROSECONDS = 1e6
BREAKER = Breaker(failures=5, pause=2.0)
"""A candidate that is back answers again within seconds."""


def options_of(parameters: Parameters, seconds: float | None) -> Options:
    """Options of an answer from the parameters of a request.

    Parameters
    ----------
    parameters : dict
        The parameters. `timeout` is the one of Triton's clients, in microseconds.
    seconds : float or None
        Time that is left for the answer; None if it need not be limited.

    Returns
    -------
    Options
        The checked options.

    Examples
    --------
    >>> options_of({"timeout": 500_000}, seconds=30.0).deadline
    0.5
    """
    for name in parameters:
        if name not in KNOWN:
            raise RequestError(
                f"Unknown parameter {name[:80]!r} of the request; known: {', '.join(KNOWN)}."
            )
    given = dict(parameters)
    limits = [seconds] if seconds is not None else []
    microseconds = given.pop("timeout", 0)
    if not isinstance(microseconds, int) or microseconds < 0:
        raise RequestError(
            f"timeout must be a whole number of microseconds; received {microseconds!r}."
        )
    if microseconds:
        limits.append(microseconds / MICROSECONDS)
    patience = given.pop("candidate_timeout", None)
    options = Options(timeout=patience, breaker=BREAKER, **given)  # type: ignore[arg-type]
    if options.deadline is not None:
        limits.append(options.deadline)
    if not limits:
        return options
    return Options(**{**options.__dict__, "deadline": min(limits)})


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model that has passed its probe.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        The model.
    schema : Schema
        Its tensors.
    version : str
        The beginning of the checksum of its file.
    is_quick : bool
        Whether its answers for few rows are computed in the thread of the event loop.
    stamp : tuple of int, or None
        Time, size and number of its file when it was read.
    """

    model: Model
    schema: Schema
    version: str
    is_quick: bool
    stamp: Stamp | None = None

    def answer(self, X: Table, options: Options) -> Answer:
        """Answer for a table that the schema has made."""
        began, model = monotonic(), self.model
        is_array = isinstance(X, np.ndarray) and model.gate_features is None
        if not is_array or not np.isfinite(X).all():  # type: ignore[arg-type]
            X = self._checked(X, options)
        return answered_checked(model, X, None, options, began).answer

    def _checked(self, X: Table, options: Options) -> Table:
        """Check rows as the estimator does."""
        missing = options.missing or self.model.missing
        try:
            checked: Table = check_inputs(self.model, X, allow_missing=missing != "error")
        except LocalMAError:
            raise
        except ValueError as error:  # of scikit-learn, which describes the rows
            raise RequestError(str(error).splitlines()[0]) from error
        return checked

    def metadata(self, name: str) -> dict[str, Json]:
        """The description of the protocol, with the names of candidates and classes."""
        details: dict[str, Json] = {"candidates": list(self.model.candidate_names_)}
        classes = getattr(self.model, "classes_", None)
        if classes is not None:
            details["classes"] = classes.tolist()
        return {
            "name": name,
            "versions": [self.version],
            "platform": "localma",
            "inputs": [port.metadata() for port in self.schema.inputs],
            "outputs": [port.metadata() for port in self.schema.outputs],
            "parameters": details,
        }


def load_and_probe(settings: Settings, folder: Path | None = None) -> Loaded:
    """Load the model file, and let the model answer for made-up rows.

    Parameters
    ----------
    settings : Settings
        The settings of the service.
    folder : path, optional
        Folder of the files of the candidates. By default that of the model file.

    Returns
    -------
    Loaded
        The model.
    """
    path = Path(settings.path)
    stamp = _stamp(path)
    version = sha256(path.read_bytes()).hexdigest()[:VERSION]
    model = _opened(path, settings.trust, folder or path.parent)
    pool_of(model)
    if sha256(path.read_bytes()).hexdigest()[:VERSION] != version:
        raise FileFormatError("The file changed while it was read.")
    schema = Schema.of(model)
    is_quick = _probe(model, settings.timeout)
    return Loaded(model, schema, version, is_quick, stamp)


def _opened(path: Path, trust: bool, folder: Path) -> Model:
    try:
        with modules_beside(folder) if trust else nullcontext():
            return load(path, trust=trust, folder=folder)
    except UntrustedFileError as error:
        raise InvalidInputError(
            f"{path} names candidates that run code, or open files or addresses. {error.plain} "
            "Add --trust if you trust it."
        ) from error


def _computes(candidate: Candidate) -> bool:
    return isinstance(candidate.uncached(), QUICK_KINDS)


def _waits(candidate: Candidate) -> bool:
    """Whether it needs a server, which may be away now and back later."""
    plain = candidate.uncached()
    return plain.runs_beside and not plain.runs_here


def _probe(model: Model, timeout: float) -> bool:
    """Answer for made-up rows; return whether one row is computed quickly, and never waits."""
    if model.probes_ is None or not model.probes_.can_be_made:
        event("not probed", level=logging.WARNING, reason="the file has no made-up inputs")
        return False
    rows = model.probes_.table()
    model.predict_weights(rows)  # may compile the kernel, which takes longer than an answer may
    result = model.answer(rows, missing="nan", deadline=timeout, breaker=None)
    answered = result.weights.sum(axis=1) > 0.0
    wrong = ~np.isfinite(result.averages[answered]).all()
    may_be_away = all(map(_waits, pool_of(model).candidates))
    if wrong or not (answered.any() or may_be_away):
        reasons = "; ".join(map(str, result.failures[:3])) or "it is not finite"
        raise InvalidInputError(f"The model has no prediction for its made-up inputs: {reasons}.")
    return all(map(_computes, pool_of(model).candidates)) and _is_quick(model, rows)


def _is_quick(model: Model, rows: Table) -> bool:
    """Whether one of several answers for a row took no longer than it may in the event loop."""
    row, end = take_rows(rows, slice(0, 1)), monotonic() + TRIAL_SECONDS
    while True:
        began = monotonic()
        model.answer(row, missing="nan")
        now = monotonic()
        if now - began < QUICK_SECONDS:
            return True
        if now > end:
            return False


class Watch:
    """Looks at the file of a model from time to time, and replaces the model.

    Parameters
    ----------
    settings : Settings
        The settings of the service.
    loaded : Loaded
        The model that answers now.
    replace : function of Loaded
        Called with a new model that passed its probe.
    refused : function
        Called if a new file cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        replace: Callable[[Loaded], None],
        refused: Callable[[], None],
    ) -> None:
        self.settings, self.replace, self.refused = settings, replace, refused
        self.path = Path(settings.path)
        self.stamp = loaded.stamp
        self.stopped = Event()

    def run(self) -> None:
        """Look until `stopped` is set."""
        while self.settings.reload and not self.stopped.wait(self.settings.reload):
            self.look()

    def look(self) -> None:
        """Load the file if it has changed since the last look."""
        stamp = _stamp(self.path)
        if stamp in (None, self.stamp):
            return
        self.stamp = stamp
        began = monotonic()
        try:
            loaded = load_and_probe(self.settings)
        except Exception as error:  # any failure of a new file leaves the old model in place
            self.refused()
            reason = error.plain if isinstance(error, LocalMAError) else str(error)
            event(
                "reload refused",
                level=logging.ERROR,
                reason=reason[:1000],
                error_type=type(error).__name__,
            )
            return
        self.replace(loaded)
        event("reloaded", version=loaded.version, seconds=round(monotonic() - began, 3))


def _stamp(path: Path) -> Stamp | None:
    """What changes when a file is written; None without a file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
