"""The errors and warnings of localma; each error is also one that users already catch.

Every message states the rule, the value received and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NUMPY_SCALAR = re.compile(
    rf"\bnp\.(?:(?:(?:u?int|float|str|bool)\w*|longdouble)\(({_QUOTED}|[^()]*)\)|(True|False)_)"
)


def _without_numpy_types(text: str) -> str:
    """Write NumPy's scalars in a message as plain values.

    >>> _without_numpy_types("received [np.int64(0), np.str_('a (b)'), np.True_]")
    "received [0, 'a (b)', True]"
    """
    return _NUMPY_SCALAR.sub(lambda scalar: scalar[1] or scalar[2], text)


class LocalMAError(Exception):
    """Root of every error that localma raises on purpose.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, the way out.
    python_hint : str, optional
        The way out in terms of Python, which a command line leaves out.

    Attributes
    ----------
    plain : str
        The message without the hint.

    Examples
    --------
    >>> error = LocalMAError("The gate is not saved.", python_hint="Pass load(path, gate=...).")
    >>> print(error)
    The gate is not saved. Pass load(path, gate=...).
    >>> error.plain
    'The gate is not saved.'
    """

    def __init__(self, message: str = "", *, python_hint: str = "") -> None:
        # Values of users are often scalars of NumPy; here no message can show np.int64(0).
        self.plain = _without_numpy_types(message)
        super().__init__(_without_numpy_types(f"{message} {python_hint}".rstrip()))


class InvalidInputError(LocalMAError, ValueError):
    """The caller's data or parameters break a rule that the message states."""


class CandidateError(LocalMAError, ValueError):
    """A candidate failed, or returned what no candidate may return.

    Parameters
    ----------
    message : str
        The rule, the value received, the way out.
    candidate : str
        Name of the candidate in its pool.
    rows : sequence of int, optional
        The rows, counted from zero, that have no finite prediction, if that is what is wrong.
    python_hint : str, optional
        The way out in terms of Python.
    """

    def __init__(
        self, message: str, *, candidate: str, rows: Sequence[int] = (), python_hint: str = ""
    ) -> None:
        super().__init__(message, python_hint=python_hint)
        self.candidate, self.rows = candidate, tuple(rows)

    def __reduce__(self) -> tuple[object, ...]:
        # The keyword-only arguments would be lost on the way back from a worker process.
        return _candidate_error, (str(self), self.candidate, self.rows, self.plain)


def _candidate_error(
    message: str, candidate: str, rows: tuple[int, ...], plain: str
) -> CandidateError:
    error = CandidateError(message, candidate=candidate, rows=rows)
    error.plain = plain
    return error


class ChangedCandidateError(LocalMAError, ValueError):
    """A candidate is not the model with which a file was saved."""


class FileFormatError(LocalMAError, ValueError):
    """A saved model is damaged, or does not have the form that its format version promises."""


class UntrustedFileError(LocalMAError, ValueError):
    """A saved model asks for code or addresses that only `trust=True` may follow."""


class MissingDependencyError(LocalMAError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class LocalMAWarning(UserWarning):
    """Root of every warning that localma issues; filter it or one of its subclasses."""


class WorseThanConstantWarning(LocalMAWarning):
    """The combined prediction is not better than the best constant on held-out rows."""


class TrainedOnSampleWarning(LocalMAWarning):
    """A candidate seems to have been trained on the labelled rows."""


class LeakageWarning(LocalMAWarning):
    """A gate feature or a candidate predicts the target almost perfectly on its own."""


class OutsideSampleWarning(LocalMAWarning):
    """Most rows to predict lie outside the labelled sample, so local weights are not used."""


def unknown_name(kind: str, received: object, known: Iterable[str]) -> InvalidInputError:
    """Build the error for a name that is not in a registry, with the nearest known one.

    >>> str(unknown_name("loss", "squared", ["squared_error", "poisson"]))
    "Unknown loss 'squared'; did you mean 'squared_error'? Known: 'poisson', 'squared_error'."
    """
    names = sorted(known)
    near = get_close_matches(str(received), names, n=1, cutoff=0.51)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    listed = ", ".join(repr(name) for name in names)
    return InvalidInputError(f"Unknown {kind} {received!r}{hint} Known: {listed}.")
