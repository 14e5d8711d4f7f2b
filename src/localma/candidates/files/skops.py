"""A scikit-learn model in a skops file as a candidate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Unpack

from localma._optional import optional
from localma.candidates.base import COMMON_FIELDS, FieldTypes, Recipe, common_options
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.files.base import CommonOptions, FromFile, ModelFile, PathLike
from localma.candidates.outputs import Classes
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


class SkopsCandidate(FromFile, EstimatorCandidate):
    """A fitted scikit-learn estimator or pipeline in a file that skops wrote.

    Unlike a pickle, a skops file only creates objects of types that skops or the user trusts. Of
    scikit-learn's types, skops does not trust the trees of forests. The candidate behaves like the
    same estimator in memory.

    Parameters
    ----------
    path : the file, ``skops.io.dump(model, "north.skops")``.
    trusted : names of further types in the file that you trust, such as
        ["sklearn.tree._tree.Tree"].
    classes, inputs, cost, batch_size : as for a fitted estimator.

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
    fields: ClassVar[FieldTypes] = {
        **ModelFile.fields,
        **COMMON_FIELDS,
        "trusted": (list, type(None)),
    }

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

    def recipe(self) -> Recipe | None:
        """The file, the trusted types and the options."""
        common = self._common_recipe()
        if common is None:
            return None
        if not self._renamed:
            common["classes"] = None  # they are in the file
        return {"kind": self.kind, **self.file.recipe(), **common, "trusted": self.trusted}

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> SkopsCandidate:
        """Read the file again. The recipe names types to trust: trusted recipes only."""
        file = ModelFile.from_recipe(recipe)
        return cls(file, trusted=recipe["trusted"], **common_options(recipe))


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
