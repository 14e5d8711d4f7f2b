"""A scikit-learn model in a skops file as a candidate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from localma._optional import optional
from localma.candidates.base import CommonOptions
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.files.base import FileRecipe, FromFile, ModelFile
from localma.candidates.outputs import Classes
from localma.candidates.recipes import CommonRecipe, PathLike
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


@dataclass(frozen=True, kw_only=True)
class SkopsRecipe(FileRecipe, CommonRecipe):
    """The file, the trusted types and the options."""

    kind = "skops"
    trusted: list[str] | None


class SkopsCandidate(FromFile, EstimatorCandidate):
    """A fitted scikit-learn estimator or pipeline in a file that skops wrote.

    Unlike a pickle, a skops file only creates objects of types that skops or the user trusts. Of
    scikit-learn's types, skops does not trust the trees of forests. The candidate behaves like the
    same estimator in memory.

    Parameters
    ----------
    path : str or path
        The file, ``skops.io.dump(model, "north.skops")``.
    trusted : list of str, optional
        Names of further types in the file that you trust, such as ["sklearn.tree._tree.Tree"].
    classes : array-like of shape (K,), optional
        Labels to use instead of the model's `classes_`, in the same order.
    **options
        Options of every candidate:

        - `inputs` : columns, by name or position, or a function of X.
        - `cost` : float. What a row costs, for budgets, such as the price of a call.
        - `batch_size` : int, str or None. Rows per call, "auto" or an amount of memory.

    Examples
    --------
    >>> import tempfile, skops.io
    >>> from sklearn.linear_model import LinearRegression
    >>> with tempfile.NamedTemporaryFile(suffix=".skops") as file:
    ...     skops.io.dump(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]), file.name)
    ...     line = SkopsCandidate(file.name)
    >>> line.predict([[2.0]], "regression").round(6).tolist()
    [5.0]
    """

    kind = "skops"
    runs_here = True
    _recipe_type = SkopsRecipe

    def __init__(
        self,
        path: PathLike | ModelFile,
        *,
        trusted: Sequence[str] | None = None,
        classes: Classes | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        self.file = ModelFile.of(path)
        self.trusted = None if trusted is None else list(trusted)
        self._renamed = classes is not None
        model = _loaded(self.file, self.trusted)
        super().__init__(model, classes=classes, **options)

    def _model_identity(self) -> Hashable:
        return self.file.path

    def recipe(self) -> SkopsRecipe | None:
        """Describe the file, the trusted types and the options.

        Returns
        -------
        SkopsRecipe or None
            None if `inputs` is a function that cannot be imported.
        """
        recipe = SkopsRecipe.of(self)
        if recipe is None or self._renamed:
            return recipe
        return replace(recipe, classes=None)  # they are in the file


def _loaded(file: ModelFile, trusted: list[str] | None) -> BaseEstimator:
    skops, path = optional("skops.io", extra="skops"), file.check()
    try:
        unknown = set(skops.get_untrusted_types(file=path)) - set(trusted or ())
        if unknown:
            raise InvalidInputError(
                f"{str(path)!r} holds types that skops does not trust: {sorted(unknown)}. If you "
                f"trust the file, write SkopsCandidate({path.name!r}, "
                f"trusted={sorted({*unknown, *(trusted or ())})})."
            )
        model = skops.load(path, trusted=trusted)
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{str(path)!r} is not a skops file, cannot be read here, or was cut short "
            f"({type(error).__name__}: {error}): dump the model again."
        ) from error
    if not hasattr(model, "predict"):
        raise InvalidInputError(
            f"{str(path)!r} holds a {type(model).__name__}, which has no predict method: dump the "
            "fitted model itself."
        )
    return model
