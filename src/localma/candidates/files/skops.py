"""A scikit-learn model in a skops file as a candidate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localma._optional import optional
from localma.candidates.base import BatchSize, CommonRecipe, Inputs
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.files.base import FileRecipe, ModelFile, PathLike
from localma.candidates.outputs import Classes
from localma.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class SkopsRecipe(FileRecipe, CommonRecipe):
    """The file, the types that it may hold, and the options."""

    kind = "skops"
    trusted: list[str] | None

    def make(self) -> SkopsCandidate:
        """Read the file again."""
        return SkopsCandidate(self.file(), **self.options())


class SkopsCandidate(EstimatorCandidate):
    """A fitted scikit-learn estimator or pipeline, from a file that skops wrote.

    A skops file, unlike a pickle, makes only objects of types that skops or the user trusts; of
    scikit-learn's own types it does not trust the trees of forests. What was read behaves as the
    same estimator in memory does.

    Parameters
    ----------
    path : the file, ``skops.io.dump(model, "north.skops")``.
    trusted : names of further types that the file may hold, such as ["sklearn.tree._tree.Tree"].
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
    recipe_type = SkopsRecipe

    def __init__(
        self,
        path: PathLike | ModelFile,
        *,
        trusted: Sequence[str] | None = None,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = None,
    ) -> None:
        self.file = path if isinstance(path, ModelFile) else ModelFile(path)
        self.trusted = None if trusted is None else list(trusted)
        model = _loaded(self.file, self.trusted)
        self._renamed = classes is not None
        super().__init__(model, inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)

    @property
    def label(self) -> str:
        """The name of the file."""
        return self.file.label

    @property
    def source(self) -> str:
        """The path of the file."""
        return str(self.file.path)

    def _model_identity(self) -> Hashable:
        return self.file.path

    def recipe(self) -> SkopsRecipe | None:
        """The file, the types that it may hold, and the options."""
        recipe = SkopsRecipe.of(self, **self.file.recipe())
        if recipe is None or self._renamed:
            return recipe
        return replace(recipe, classes=None)  # the file has them


def _loaded(file: ModelFile, trusted: list[str] | None) -> Any:
    skops, path = optional("skops.io", extra="skops"), file.check()
    try:
        unknown = set(skops.get_untrusted_types(file=path)) - set(trusted or ())
        if unknown:
            raise InvalidInputError(
                f"{str(path)!r} holds types that skops does not trust: {sorted(unknown)}. If you "
                f"know where it is from, write SkopsCandidate({path.name!r}, "
                f"trusted={sorted({*unknown, *(trusted or ())})})."
            )
        model = skops.load(path, trusted=trusted)
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{str(path)!r} is no skops file that can be read here, or was cut short "
            f"({type(error).__name__}: {error}): dump the model again."
        ) from error
    if not hasattr(model, "predict"):
        raise InvalidInputError(
            f"{str(path)!r} holds a {type(model).__name__}, which has no method predict: dump the "
            "fitted model itself."
        )
    return model
