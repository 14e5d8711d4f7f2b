"""Errors and warnings of localma; each error is also a standard Python error.

Every message states the rule, the value received and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial

from sklearn.utils._param_validation import InvalidParameterError as _SklearnParameterError

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
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

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
        # Users' values are often NumPy scalars, and a message should not show np.int64(0).
        self.plain = _without_numpy_types(message)
        super().__init__(_without_numpy_types(f"{message} {python_hint}".rstrip()))


class InvalidInputError(LocalMAError, ValueError):
    """The caller's data or parameters break a rule that the message states.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> try:
    ...     LocalMARegressor({"a": lambda X: X[:, 0]}).fit([[1.0], [2.0]], [1.0])
    ... except ValueError as error:
    ...     print(f"{type(error).__name__}: {error}")
    InvalidInputError: X and y must have the same number of rows; X has 2 and y has 1.
    """


class InvalidParameterError(InvalidInputError, _SklearnParameterError):
    """A parameter of an estimator has the wrong type or value.

    It is also scikit-learn's `InvalidParameterError`, a `ValueError` and a `TypeError`.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> try:
    ...     LocalMARegressor({"a": lambda X: X[:, 0]}, cv="five").fit([[1.0], [2.0]], [1.0, 2.0])
    ... except ValueError as error:
    ...     print(str(error).partition(". ")[2])
    Got 'five' instead. Pass a number of folds from 2 on, or a splitter of scikit-learn.
    """


class CandidateError(LocalMAError, ValueError):
    """A candidate failed, or returned invalid predictions.

    Parameters
    ----------
    message : str
        The rule, the value received, and what to do.
    candidate : str
        Name of the candidate in its pool.
    rows : sequence of int, optional
        The rows, counted from zero, without a finite prediction, if there are such rows.
    python_hint : str, optional
        What to do in terms of Python.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> try:
    ...     model = LocalMARegressor({"log": lambda X: [float("nan"), 0.0]}, gate="global")
    ...     model.fit([[0.0], [1.0]], [1.0, 2.0])
    ... except ValueError as error:
    ...     print(type(error).__name__, error.candidate, error.rows)
    CandidateError log (0,)
    """

    def __init__(
        self, message: str, *, candidate: str, rows: Sequence[int] = (), python_hint: str = ""
    ) -> None:
        super().__init__(message, python_hint=python_hint)
        self.candidate, self.rows = candidate, tuple(rows)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling loses keyword-only arguments, for example in a worker process.
        remake = partial(type(self), candidate=self.candidate)
        return remake, (str(self),), vars(self)


class NoAnswerError(LocalMAError, RuntimeError):
    """All candidates failed in some rows.

    Parameters
    ----------
    message : str
        The rows, and what failed.
    rows : sequence of int
        The rows without any candidate, counted from zero.
    python_hint : str, optional
        What to do in terms of Python.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = [[0.0], [1.0], [2.0]]
    >>> candidates = {"log": lambda X: [float("nan"), 0.0, 0.7]}
    >>> model = LocalMARegressor(candidates, gate="equal", missing="renormalize")
    >>> try:
    ...     model.fit(X, [0.0, 0.1, 0.6]).predict(X)
    ... except RuntimeError as error:
    ...     print(type(error).__name__, error.rows)
    NoAnswerError (0,)
    """

    def __init__(self, message: str, *, rows: Sequence[int], python_hint: str = "") -> None:
        super().__init__(message, python_hint=python_hint)
        self.rows = tuple(rows)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling loses keyword-only arguments, for example in a worker process.
        return partial(type(self), rows=self.rows), (str(self),), vars(self)


class ChangedCandidateError(LocalMAError, ValueError):
    """A candidate is not the model with which a file was saved.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

    Examples
    --------
    >>> try:
    ...     raise ChangedCandidateError("Candidate 'a' is not the model that was saved.")
    ... except ValueError as error:
    ...     print(error)
    Candidate 'a' is not the model that was saved.
    """


class FileFormatError(LocalMAError, ValueError):
    """A saved model is damaged, or does not have the form of its format version.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

    Examples
    --------
    >>> import localma
    >>> try:
    ...     localma.load(localma.__file__)
    ... except ValueError as error:
    ...     print(type(error).__name__, "is not a localma model file" in str(error))
    FileFormatError True
    """


class UntrustedFileError(LocalMAError, ValueError):
    """A saved model needs code or addresses that are only used with `trust=True`.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

    Examples
    --------
    >>> try:
    ...     raise UntrustedFileError("The file names code.", python_hint="Pass trust=True.")
    ... except ValueError as error:
    ...     print(error)
    The file names code. Pass trust=True.
    """


class MissingDependencyError(LocalMAError, ImportError):
    """An optional package is not installed; the message names the extra to install.

    Parameters
    ----------
    message : str
        The rule, the value received and, unless it is in the hint, what to do.
    python_hint : str, optional
        What to do in terms of Python, which the command line leaves out.

    Examples
    --------
    >>> try:
    ...     raise MissingDependencyError("Install matplotlib with: pip install 'localma[plot]'.")
    ... except ImportError as error:
    ...     print(error)
    Install matplotlib with: pip install 'localma[plot]'.
    """


class LocalMAWarning(UserWarning):
    """Root of every warning that localma issues; filter it or one of its subclasses.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore", category=LocalMAWarning):
    ...     warnings.warn("A candidate is identical to the target.", LeakageWarning)  # is not shown
    """


class WorseThanConstantWarning(LocalMAWarning):
    """The combined prediction is not better than the best constant on held-out rows.

    Examples
    --------
    >>> import warnings
    >>> from localma import LocalMARegressor
    >>> X = [[float(x)] for x in range(20)]
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = LocalMARegressor({"a": lambda X: -X[:, 0]}, gate="global").fit(X, range(20))
    >>> [warning.category.__name__ for warning in caught], model.cautions_[0].kind
    (['WorseThanConstantWarning'], 'worse_than_constant')
    """


class TrainedOnSampleWarning(LocalMAWarning):
    """A candidate seems to have been trained on the labelled rows.

    Examples
    --------
    >>> import warnings
    >>> from localma import LocalMARegressor
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> X, y = [[float(x)] for x in range(20)], [x % 3 for x in range(20)]
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     candidates = {"near": KNeighborsRegressor(2).fit(X, y)}
    ...     model = LocalMARegressor(candidates, gate="global").fit(X, y)
    >>> [warning.category.__name__ for warning in caught], model.cautions_[0].kind
    (['TrainedOnSampleWarning'], 'trained_on_sample')
    """


class LeakageWarning(LocalMAWarning):
    """A gate feature or a candidate predicts the target almost perfectly on its own.

    Examples
    --------
    >>> import warnings
    >>> from localma import LocalMARegressor
    >>> X = [[float(x)] for x in range(20)]
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="global").fit(X, range(20))
    >>> [warning.category.__name__ for warning in caught], model.cautions_[0].kind
    (['LeakageWarning'], 'leakage')
    """


class OutsideSampleWarning(LocalMAWarning):
    """Most rows to predict lie outside the labelled sample, so local weights are not used.

    Examples
    --------
    >>> import warnings
    >>> from localma import LocalMARegressor
    >>> X = [[x / 30] for x in range(-30, 30)]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}, cv=2)
    >>> model = model.set_params(random_state=0).fit(X, [abs(x) for [x] in X])
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     prediction = model.predict([[100.0]] * 20)
    >>> [warning.category.__name__ for warning in caught]
    ['OutsideSampleWarning']
    """


class LeftOutWarning(LocalMAWarning):
    """A candidate could not be fitted on the sample, so the model is fitted without it.

    Examples
    --------
    >>> import warnings
    >>> from localma import CrossFitted, LocalMARegressor
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> X = [[float(x)] for x in range(20)]
    >>> candidates = {"a": lambda X: X[:, 0], "near": CrossFitted(KNeighborsRegressor(30))}
    >>> model = LocalMARegressor(candidates, gate="equal")
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     names = model.fit(X, [x + x % 3 for [x] in X]).candidate_names_
    >>> [warning.category.__name__ for warning in caught], names
    (['LeftOutWarning'], ('a',))
    """


def unknown_name(kind: str, received: object, names: Iterable[str]) -> InvalidInputError:
    """Make the error for a name that is not in a registry, with the most similar name.

    Parameters
    ----------
    kind : str
        The kind of thing that has names, such as "loss".
    received : object
        The name that the caller passed.
    names : iterable of str
        The names that exist.

    Returns
    -------
    InvalidInputError
        An error to raise.

    Examples
    --------
    >>> str(unknown_name("loss", "squared", ["squared_error", "poisson"]))
    "Unknown loss 'squared'; did you mean 'squared_error'? Known: 'poisson', 'squared_error'."
    """
    names, hint = sorted(names), "."
    for match in get_close_matches(str(received), names, n=1, cutoff=0.51):
        hint = f"; did you mean {match!r}?"
    listed = ", ".join(map(repr, names))
    return InvalidInputError(f"Unknown {kind} {received!r}{hint} Known: {listed}.")
