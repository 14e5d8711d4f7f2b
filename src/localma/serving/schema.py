"""The inputs and outputs of a fitted model as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Self

import narwhals as nw
import numpy as np

from localma._types import AnyArray, Json
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.probes import CONTAINERS
from localma.production import Answer
from localma.serving.protocol import RequestError, Tensor, Wanted
from localma.tables.encoder import TableEncoder

Model = LocalMARegressor | LocalMAClassifier

ARRAY = "X"
"""Name of the one tensor of a model that was fitted on an array."""
PLATFORM = "localma"
DATATYPES = {
    "Float64": "FP64",
    "Float32": "FP32",
    "Boolean": "BOOL",
    "String": "BYTES",
    "Categorical": "BYTES",
    "Date": "BYTES",
    "Datetime": "BYTES",
    **{f"Int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}
"""Datatype of the tensor for each type of a column."""
ENCODED = {"number": "Float64", "truth": "Boolean", "category": "String", "date": "Datetime"}
"""Type of a column for each kind of the encoder."""
LABELS = {"b": "BOOL", "i": "INT64", "u": "UINT64", "f": "FP64"}
"""Datatype of class labels; others are texts."""


@dataclass(frozen=True)
class Port:
    """A tensor that the model takes or returns.

    Parameters
    ----------
    name : str
        Its name.
    datatype : str
        Its datatype.
    shape : tuple of int
        Its shape; -1 is the number of rows.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def metadata(self) -> dict[str, Json]:
        """The description of the protocol."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True)
class Schema:
    """The tensors of a model.

    Parameters
    ----------
    columns : dict of str -> str, or None
        Name and type of each column; None for a model that was fitted on an array.
    width : int
        Number of columns.
    container : str or None
        Library of the data frame that the candidates get; None for an array.
    outputs : tuple of Port
        What the model can return.
    usual : int
        How many of these it returns if the client does not choose.

    Examples
    --------
    >>> X = np.linspace(1, 2, 50)[:, None]
    >>> model = LocalMARegressor({"low": lambda X: 0.9 * X[:, 0]}, gate="equal").fit(X, X[:, 0])
    >>> [port.metadata() for port in Schema.of(model).inputs]
    [{'name': 'X', 'datatype': 'FP64', 'shape': [-1, 1]}]
    """

    columns: Mapping[str, str] | None
    width: int
    container: str | None
    outputs: tuple[Port, ...]
    usual: int

    @classmethod
    def of(cls, model: Model) -> Self:
        """Describe the tensors of a fitted model."""
        width = getattr(model, "n_features_in_", None)
        if width is None:
            raise InvalidInputError(
                "Only a model that was fitted on a table can be served; this one reads texts or "
                "images. Compute its features in front of the service."
            )
        ports, usual = _outputs(model)
        if not hasattr(model, "feature_names_in_"):
            return cls(None, width, None, ports, usual)
        return cls(_columns(model), width, _container(model), ports, usual)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The tensors that the model takes."""
        if self.columns is None:
            return (Port(ARRAY, "FP64", (-1, self.width)),)
        return tuple(Port(name, DATATYPES[kind], (-1,)) for name, kind in self.columns.items())

    def table(self, tensors: Sequence[Tensor]) -> Table:
        """Put tensors together to the table that the model takes.

        Parameters
        ----------
        tensors : sequence of Tensor
            One array (n, p), or one column (n,) or (n, 1) for each name.

        Returns
        -------
        array or frame of shape (n, p)
            The rows.
        """
        by_name = {tensor.name: tensor for tensor in tensors}
        names = [ARRAY] if self.columns is None else list(self.columns)
        if by_name.keys() != set(names):
            raise RequestError(_wrong_names(by_name, names))
        if self.columns is None:
            return self._array(by_name[ARRAY])
        data = {name: _column(by_name[name], kind) for name, kind in self.columns.items()}
        lengths = {len(values) for values in data.values()}
        if lengths & {0} or len(lengths) > 1:
            raise RequestError(
                "All inputs need the same number of rows, at least one; received "
                f"{', '.join(map(str, sorted(lengths)))}."
            )
        return self._frame(data)

    def _array(self, tensor: Tensor) -> Table:
        values = tensor.values
        if values.ndim != 2 or values.shape[1] != self.width or not len(values):
            raise RequestError(
                f"The input {ARRAY!r} must have shape [n, {self.width}] with n of 1 or more; "
                f"received {tensor.shape}."
            )
        if tensor.datatype == "BYTES":
            raise RequestError(f"The input {ARRAY!r} must hold numbers; received BYTES.")
        return values.astype(np.float64, copy=False)

    def _frame(self, data: dict[str, AnyArray]) -> Table:
        columns = self.columns or {}
        kinds = {name: _kind(columns[name], values) for name, values in data.items()}
        numeric = all(values.dtype.kind in "iufb" for values in data.values())
        if self.container == "pandas" and numeric:
            frame: Table = import_module("pandas").DataFrame(data, copy=False)
            return frame
        schema = {name: getattr(nw, kind)() for name, kind in kinds.items()}
        lists = {name: values.tolist() for name, values in data.items()}
        backend = import_module(self.container or "pandas")
        return nw.from_dict(lists, schema, backend=backend).to_native()

    def chosen(self, wanted: Sequence[Wanted] | None, is_binary: bool) -> list[Wanted]:
        """The outputs that a request asks for."""
        if wanted is None:
            return [Wanted(port.name, is_binary) for port in self.outputs[: self.usual]]
        names = [port.name for port in self.outputs]
        for entry in wanted:
            if entry.name not in names:
                raise RequestError(
                    f"The model has no output {entry.name[:80]!r}; it has {', '.join(names)}."
                )
        return list(wanted)

    def results(self, answer: Answer, wanted: Sequence[Wanted]) -> list[tuple[Tensor, bool]]:
        """The outputs of an answer, and whether each is binary."""
        ports = {port.name: port for port in self.outputs}
        values: dict[str, AnyArray | None] = {
            "predict": answer.prediction,
            "probabilities": answer.probabilities,
            "weights": answer.weights,
            "support": answer.support,
        }
        results = []
        for entry in wanted:
            array = values[entry.name]
            assert array is not None
            results.append((_tensor(ports[entry.name], array), entry.is_binary))
        return results


def _wrong_names(received: Mapping[str, Tensor], names: Sequence[str]) -> str:
    missing = [name for name in names if name not in received][:5]
    unknown = [name[:80] for name in received if name not in names][:5]
    parts = [f"without {', '.join(map(repr, missing))}"] if missing else []
    if unknown:
        parts.append(f"with {', '.join(map(repr, unknown))}, which it does not know")
    expected = f"the {len(names)} inputs of its metadata"
    if len(names) == 1:
        expected = f"one input {names[0]!r}"
    return f"The model takes {expected}; received inputs {' and '.join(parts)}."


def _tensor(port: Port, values: AnyArray) -> Tensor:
    if port.datatype == "BYTES":
        labels = [None if label is None else str(label) for label in values.tolist()]
        values = np.array(labels, dtype=object)
    elif values.dtype == object:  # a label of a row without any prediction is None
        raise RequestError(
            "Some rows have no prediction, which labels of this type cannot express. Ask for "
            "probabilities only.",
            status=503,
        )
    return Tensor(port.name, port.datatype, values)


def _outputs(model: Model) -> tuple[tuple[Port, ...], int]:
    M = len(model.candidate_names_)
    details = (Port("weights", "FP64", (-1, M)), Port("support", "FP64", (-1,)))
    if isinstance(model, LocalMAClassifier):
        kind = LABELS.get(model.classes_.dtype.kind, "BYTES")
        labels = Port("predict", kind, (-1,))
        return (labels, Port("probabilities", "FP64", (-1, len(model.classes_))), *details), 2
    shape = (-1,) if model.n_outputs_ == 1 else (-1, model.n_outputs_)
    return (Port("predict", "FP64", shape), *details), 1


def _container(model: Model) -> str:
    """Library of the data frames: that of the sample, or the first that is installed."""
    known = None if model.probes_ is None else model.probes_.container
    for name in [known] if known else CONTAINERS:
        if find_spec(name) is not None:
            return str(name)
    raise InvalidInputError(
        f"The model was fitted on a data frame of {known or 'pandas'}, which is not installed. "
        f"Install it: pip install {known or 'pandas'}."
    )


def _columns(model: Model) -> dict[str, str]:
    """Type of each column: that of the sample, or what the encoder knows."""
    names = [str(name) for name in model.feature_names_in_]
    if model.probes_ is not None and model.probes_.container is not None:
        return {str(column.name): column.dtype for column in model.probes_.columns}
    encoder, kinds = model.gate_features_.transformer, {}
    if isinstance(encoder, TableEncoder):
        kinds = {column.name: ENCODED[column.kind] for column in encoder.columns_}
    return {name: kinds.get(name, "Float64") for name in names}


def _column(tensor: Tensor, kind: str) -> AnyArray:
    """Values (n,) of a column."""
    values = tensor.values
    if values.ndim == 2 and values.shape[1] != 1:
        raise RequestError(
            f"The input {tensor.name!r} is a column of shape [n] or [n, 1]; received "
            f"{tensor.shape}."
        )
    is_text = DATATYPES[kind] == "BYTES"
    if is_text != (tensor.datatype == "BYTES"):
        raise RequestError(
            f"The input {tensor.name!r} is {DATATYPES[kind]}; received {tensor.datatype}."
        )
    flat = values.reshape(-1)
    if kind in ("Date", "Datetime"):
        moments = [_moment(text, tensor.name, kind) for text in flat.tolist()]
        return np.array(moments, dtype=np.dtype(object))
    if kind in ("Float64", "Float32") and flat.dtype.kind != "f":
        return flat.astype(np.float64)
    return flat


def _kind(kind: str, values: AnyArray) -> str:
    """Type of a column; floating numbers stay so, because they may be missing."""
    if values.dtype.kind == "f":
        return {4: "Float32", 2: "Float32"}.get(values.dtype.itemsize, "Float64")
    if values.dtype.kind in "iu":
        return f"{'U' * (values.dtype.kind == 'u')}Int{8 * values.dtype.itemsize}"
    return "Boolean" if values.dtype.kind == "b" else kind


def _moment(text: str | None, name: str, kind: str) -> date | datetime | None:
    if not text:
        return None
    read = datetime.fromisoformat if kind == "Datetime" else date.fromisoformat
    try:
        return read(text)
    except ValueError:
        raise RequestError(
            f"The input {name!r} holds dates, such as 2024-05-01; received {text[:40]!r}."
        ) from None
