"""What the gate sees of X: all but the prediction columns, some columns, or a function of X."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_array

from localma.errors import FileFormatError, InvalidInputError
from localma.frames import ColumnKey, column_names, dense, drop_columns, n_rows, pick_columns
from localma.imports import import_name, import_object

Array = NDArray[np.floating]


class GateFeatures:
    """The inputs of the gate as a numeric array, the same at fit and at prediction.

    Parameters
    ----------
    spec : None, a list of columns, a scikit-learn transformer, or a function of X
        None means every column that holds no candidate's predictions. A transformer is
        cloned and fitted on X without those columns.
    hidden : columns that hold candidates' predictions, which the gate does not see by default.
    """

    def __init__(self, spec: Any = None, hidden: Collection[ColumnKey] = ()) -> None:
        self.spec = spec
        self.hidden = tuple(hidden)
        self.columns: list[ColumnKey] | None = None
        self.transformer: Any = None
        if isinstance(spec, str | int | np.integer):
            self.columns = [spec if isinstance(spec, str) else int(spec)]
        elif isinstance(spec, list | tuple | np.ndarray):
            self.columns = list(spec)
        elif spec is not None and not hasattr(spec, "transform") and not callable(spec):
            raise InvalidInputError(
                "gate_features must be None, a list of columns, a transformer or a function "
                f"of X; received {spec!r}."
            )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a clone of the transformer, where there is one."""
        if hasattr(self.spec, "transform"):
            transformer: Any = clone(self.spec)
            self.transformer = transformer.fit(drop_columns(X, self.hidden), y)
        return self

    def transform(self, X: Any) -> Array:
        """Inputs of the gate: (n, p), finite numbers."""
        features = self._numeric(self._select(X))
        if features.shape[0] != n_rows(X):
            raise InvalidInputError(
                f"gate_features must give one row per row of X; it gave {features.shape[0]} "
                f"for {n_rows(X)}."
            )
        return features

    def recipe(self) -> dict[str, Any]:
        """Describe it in JSON; a transformer or a nameless function must be given again."""
        recipe: dict[str, Any] = {"hidden": sorted(self.hidden, key=str)}
        if self.columns is not None:
            return {"kind": "columns", "columns": self.columns, **recipe}
        if self.spec is None:
            return {"kind": "all", **recipe}
        name = None if self.transformer is not None else import_name(self.spec)
        if name is not None:
            return {"kind": "function", "import": name, **recipe}
        return {"kind": "attach", "what": repr(self.spec), **recipe}

    @classmethod
    def from_recipe(cls, recipe: dict[str, Any]) -> Self:
        """Rebuild from a recipe; follows an import name, so trusted recipes only."""
        known = {"all": None, "columns": "columns", "function": "import"}
        kind, hidden = recipe.get("kind"), recipe.get("hidden")
        if (
            kind not in known
            or not isinstance(hidden, list)
            or set(recipe) - {"kind", "hidden"} != ({known[kind]} - {None})
        ):
            raise FileFormatError(f"The inputs of the gate have an unknown form: {recipe!r}.")
        if kind == "function":
            return cls(import_object(recipe["import"]), hidden)
        return cls(recipe.get("columns"), hidden)

    @classmethod
    def attached(cls, spec: Any, hidden: Collection[ColumnKey]) -> Self:
        """Take a function, or a transformer that is fitted already, as it is."""
        features = cls(spec, hidden)
        if hasattr(spec, "transform"):
            features.transformer = spec
        return features

    def _select(self, X: Any) -> Any:
        if self.columns is not None:
            return pick_columns(X, self.columns)
        visible = drop_columns(X, self.hidden)
        if self.transformer is not None:
            return self.transformer.transform(visible)
        return visible if self.spec is None else self.spec(visible)

    def _numeric(self, selected: Any) -> Array:
        if getattr(selected, "ndim", 2) == 1:
            selected = dense(selected)[:, None]
        if getattr(selected, "shape", (0, 1))[1:] == (0,):
            raise InvalidInputError(
                "The gate has no column to see: every column of X holds predictions. Add columns "
                "that describe the inputs, or pass gate_features=."
            )
        try:
            return np.asarray(
                check_array(dense(selected), dtype=[np.float64, np.float32], input_name="X")
            )
        except (ValueError, TypeError) as error:
            text = _columns_of_text(selected)
            if not text:
                raise
            raise InvalidInputError(
                f"The gate needs numbers, and column {text[0]!r} holds other values ({error}). "
                "Pass gate_features= a list of numeric columns, or a transformer that encodes "
                "the rest, such as make_column_transformer((OneHotEncoder(), [...]), ...)."
            ) from error


def _columns_of_text(selected: Any) -> list[Any]:
    """Names of the columns of a frame that do not convert to numbers."""

    def fails(name: Any) -> bool:
        try:
            np.asarray(dense(pick_columns(selected, [name])), dtype=np.float64)
        except (ValueError, TypeError):
            return True
        return False

    return [name for name in column_names(selected) or [] if fails(name)]
