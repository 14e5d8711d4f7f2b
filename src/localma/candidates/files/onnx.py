"""An ONNX file as a candidate, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

import numpy as np

from localma._optional import optional
from localma._types import AnyArray, Array, Integers
from localma.candidates.base import TableFunction
from localma.candidates.batches import working_bytes
from localma.candidates.estimator import one_hot
from localma.candidates.files.base import (
    FileRecipe,
    FromFile,
    ModelFile,
    PerProcess,
    in_fixed_batches,
)
from localma.candidates.logits import LogitsCandidate, NetworkOptions
from localma.candidates.outputs import Labels, Table, Task, as_labels
from localma.candidates.recipes import ImportName, LogitsRecipe, PathLike
from localma.errors import InvalidInputError, unknown_name
from localma.storage.fingerprints import file_state, onnx_graph
from localma.tables.frames import column_names, column_values, dense, n_rows, pick_columns

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES: dict[str, type[np.generic]] = {
    **{f"tensor({name})": np.dtype(name).type for name in (*INTEGERS, "float16", "bool")},
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(string)": np.str_,
}
"""NumPy types of ONNX inputs."""
REAL_OUTPUTS = ("tensor(float16)", "tensor(float)", "tensor(double)")

Feed: TypeAlias = dict[str, AnyArray]
Probabilities: TypeAlias = "Mapping[str, float] | Mapping[int, float]"


class TensorInfo(Protocol):
    """An input or an output of a file, as onnxruntime describes it."""

    name: str
    type: str
    shape: Sequence[int | str | None]


class Session(Protocol):
    """The methods of onnxruntime.InferenceSession that are used here."""

    def get_inputs(self) -> Sequence[TensorInfo]:
        """Describe the inputs."""

    def get_outputs(self) -> Sequence[TensorInfo]:
        """Describe the outputs."""

    def run(self, names: list[str], feed: Feed, /) -> list[AnyArray | list[Probabilities]]:
        """Compute the outputs with these names."""


@dataclass(frozen=True, kw_only=True)
class OnnxRecipe(FileRecipe, LogitsRecipe):
    """The file and the options."""

    kind = "onnx"
    output: str | None
    preprocess: ImportName | None
    providers: list[str]


class OnnxCandidate(FromFile, LogitsCandidate):
    """An ONNX file: a network, or a converted model of scikit-learn, LightGBM and others.

    If the file has one input, it receives all columns of the candidate as an array of the type of
    that input. If it has several, each receives the column of a data frame with its name. For an
    array, or if the names differ, the inputs receive columns in order, each as many as it takes.
    A file made for a fixed number of rows receives that many at a time.

    If the file has several outputs, the one with real numbers is used: probabilities, not labels.
    A list of dicts from class to probability, as scikit-learn's converter writes, is read by class.

    A classifier that was converted from scikit-learn, LightGBM, XGBoost or CatBoost states its
    classes in the file. They are read from there if the package onnx is installed. You can pass
    them in another order, or pass other names in the file's order.

    Parameters
    ----------
    path : str or path
        The file. onnxruntime finds weights in files next to it; if the package onnx is installed,
        they are part of its fingerprint.
    output : str, optional
        Name of the output to use. In classification an output of labels gives the predicted label
        probability one.
    preprocess : callable, optional
        A function from the rows to an array, or to a dict from input name to array.
    providers : sequence of str, default=("CPUExecutionProvider",)
        Execution providers of onnxruntime.
    **options
        Options of every network:

        - `activation` : "softmax", "sigmoid", or None if the file returns probabilities or means.
        - `temperature` : float. Divisor of the logits; `calibrated` fits it.
        - `classes` : labels of the columns of the probabilities.
        - `inputs` : columns, by name or position, or a function of X.
        - `cost` : float. What a row costs, for budgets, such as the price of a call.
        - `batch_size` : int, str or None. Rows per call, "auto" or an amount of memory.

    Examples
    --------
    >>> OnnxCandidate("north.onnx", inputs=["area", "rooms"])  # doctest: +SKIP
    OnnxCandidate('north')
    """

    kind = "onnx"
    runs_here = True
    _recipe_type = OnnxRecipe

    def __init__(
        self,
        path: PathLike | ModelFile,
        *,
        output: str | None = None,
        preprocess: TableFunction | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        **options: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(**options)
        optional("onnxruntime", extra="onnx")
        self.file = ModelFile.of(path)
        self._file_classes = class_labels(self.file.path)
        if self.classes is None:
            self.classes = self._file_classes
        self.output, self.preprocess = output, preprocess
        self.providers = list(providers)
        self._session = PerProcess(partial(_session, self.file, self.providers))

    def _network_identity(self) -> Hashable:
        return self.file.path, self.output, self.preprocess

    def _feed(self, X: Table) -> Feed:
        if self.preprocess is not None:
            X = self.preprocess(X)
        return _feed(X, self._session.get().get_inputs())

    def _row_bytes(self, X: Table) -> int:
        return working_bytes(*self._feed(X).values())

    def _outputs(self, X: Table, task: Task) -> AnyArray:
        session, feed = self._session.get(), self._feed(X)
        output = chosen_output(self.output, session.get_outputs())
        order, classes = self._column_order(), None
        if task == "classification":
            classes = self._written_classes()

        def run(batch: Feed) -> AnyArray:
            return _values(session.run([output.name], batch)[0], classes, order)

        return in_fixed_batches(run, feed, _fixed_rows(session.get_inputs()))

    def check_task(self, task: Task, name: str) -> None:
        """Refuse classification without classes, and regression with classes that you passed.

        Parameters
        ----------
        task : {"regression", "classification"}
            The task.
        name : str
            The name of the candidate in the error.
        """
        # A regression may average a probability, so classes from the file do not matter.
        by_file = self._file_classes is not None and self._column_order() is not None
        if task == "classification" or not by_file:
            super().check_task(task, name)

    def _written_classes(self) -> Labels | None:
        """Labels as the file writes them, in the order of `classes`."""
        if self.classes is None or self._file_classes is None or self._column_order() is not None:
            return self.classes
        if len(self.classes) == len(self._file_classes):  # renamed
            return self._file_classes
        return self.classes

    def _column_order(self) -> Integers | None:
        """Column of the file for each of `classes`; None if these are other labels."""
        if self.classes is None or self._file_classes is None:
            return None
        columns = {label: column for column, label in enumerate(self._file_classes.tolist())}
        if set(columns) != set(self.classes.tolist()):
            return None
        return np.array([columns[label] for label in self.classes.tolist()], dtype=np.intp)


def _session(file: ModelFile, providers: list[str]) -> Session:
    runtime, path = optional("onnxruntime", extra="onnx"), file.check()
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors, which are raised; warnings concern the conversion
    try:
        return runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise InvalidInputError(
            f"onnxruntime cannot open {str(path)!r} ({error}): the file was cut short, is not an "
            "ONNX file, or needs another version or provider of onnxruntime. Convert the model "
            "again."
        ) from error


# Inputs.


def _feed(X: Table | Mapping[str, Table], tensors: Sequence[TensorInfo]) -> Feed:
    """Return an array of the right type for each input of the file."""
    if not isinstance(X, Mapping):
        X = _columns_by_input(X, tensors)
    by_name = {tensor.name: tensor for tensor in tensors}
    if set(X) != set(by_name):
        raise InvalidInputError(
            f"the file takes the inputs {sorted(by_name)}; preprocess returned {sorted(X)}."
        )
    return {name: _as_input(values, by_name[name]) for name, values in X.items()}


def _columns_by_input(X: Table, tensors: Sequence[TensorInfo]) -> Mapping[str, Table]:
    """Select columns by the name of the input, or in order, as many as each takes."""
    if len(tensors) == 1:
        return {tensors[0].name: X}
    names = column_names(X)
    if names is not None and all(tensor.name in names for tensor in tensors):
        return {tensor.name: column_values(X, tensor.name) for tensor in tensors}
    sizes = [(*tensor.shape, 1, 1)[1] for tensor in tensors]
    widths = [size for size in sizes if isinstance(size, int)]
    shape = np.shape(X) if names is None else (n_rows(X), len(names))  # type: ignore[arg-type]
    if len(shape) != 2 or len(widths) < len(sizes) or sum(widths) != shape[1]:
        wanted = ", ".join(f"{tensor.name!r} {list(tensor.shape)}" for tensor in tensors)
        raise InvalidInputError(
            f"the file takes several inputs, {wanted}, but rows of shape {list(shape[1:])} have "
            "neither columns of those names nor as many columns as the inputs take together: "
            "select the columns with inputs=, or return a dict of arrays from preprocess=."
        )
    ends = np.cumsum(widths).tolist()
    if isinstance(X, list | tuple):
        X = dense(X)
    return {
        tensor.name: pick_columns(X, list(range(end - width, end)))
        for tensor, width, end in zip(tensors, widths, ends, strict=True)
    }


def _as_input(values: Table, tensor: TensorInfo) -> AnyArray:
    """Convert values to the type and number of dimensions of an input of the file."""
    if tensor.type not in DTYPES:
        raise InvalidInputError(
            f"its input {tensor.name!r} has the type {tensor.type}, which arrays do not have: "
            "convert the model with tensors as inputs."
        )
    array = _cast(dense(values), DTYPES[tensor.type], tensor.name)
    if array.ndim == 1 and len(tensor.shape) == 2:
        array = array[:, None]
    elif array.ndim == 2 and len(tensor.shape) == 1 and array.shape[1] == 1:
        array = array[:, 0]
    expected = [size if isinstance(size, int) else None for size in tensor.shape]
    fits = len(expected) in (0, array.ndim) and all(
        size in (None, width) for size, width in zip(expected[1:], array.shape[1:], strict=False)
    )
    if not fits:
        raise InvalidInputError(
            f"its input {tensor.name!r} takes rows of shape {expected[1:]}; received rows of shape "
            f"{list(array.shape[1:])}: select its columns with inputs=."
        )
    return array


def _cast(array: AnyArray, dtype: type[np.generic], name: str) -> AnyArray:
    """Change the type; refuse fractions for whole numbers, and texts for numbers."""
    if dtype is np.str_:
        return array.astype(str).astype(object)
    try:
        if array.dtype.kind in "OUS":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"its input {name!r} takes numbers, but received values such as {array.flat[0]!r}: "
            "select its columns with inputs=."
        ) from None
    if np.issubdtype(array.dtype, np.floating) and np.issubdtype(dtype, np.integer):
        whole = np.isfinite(array) & (array == np.trunc(array))
        if not whole.all():
            raise InvalidInputError(
                f"its input {name!r} takes whole numbers, but received {array[~whole][0]}: select "
                "its columns with inputs=, or convert them with preprocess=."
            )
    return np.ascontiguousarray(array.astype(dtype))


def _fixed_rows(tensors: Sequence[TensorInfo]) -> int | None:
    """Number of rows that the file requires; None if it takes any number."""
    sizes = [tensor.shape[0] for tensor in tensors if tensor.shape]
    if sizes and isinstance(sizes[0], int) and sizes[0] > 0:
        return sizes[0]
    return None


# Outputs.


def chosen_output(name: str | None, tensors: Sequence[TensorInfo]) -> TensorInfo:
    """Select the output of a file: the named one, or the only one with real numbers."""
    if name is not None:
        by_name = {tensor.name: tensor for tensor in tensors}
        if name not in by_name:
            raise unknown_name("output", name, by_name)
        return by_name[name]
    if len(tensors) == 1:
        return tensors[0]
    real = [t for t in tensors if t.type in REAL_OUTPUTS or t.type.startswith("seq(map")]
    if len(real) == 1:
        return real[0]
    listed = ", ".join(f"{tensor.name!r} ({tensor.type})" for tensor in tensors)
    raise InvalidInputError(
        f"the file has the outputs {listed}, and not exactly one of them has real numbers: choose "
        "one with output=."
    )


def _values(
    output: AnyArray | list[Probabilities], classes: Labels | None, order: Integers | None
) -> AnyArray:
    """Read predictions from an output: an array, a list of dicts by class, or labels.

    classes : (K,) labels as the file writes them, in the order of the result; None in regression.
    order : (K,) columns of an array in the order of the result; None for the order of the file.
    """
    if isinstance(output, list):
        return _by_class(output, classes)
    values = np.asarray(output)
    if classes is not None and values.dtype.kind in "iuOU":
        return one_hot(values, classes)
    if order is not None and values.ndim == 2 and values.shape[1] == len(order):
        return values[:, order]
    return values


def _by_class(rows: list[Any], classes: Labels | None) -> Array:
    """Convert dicts from class to probability to an array (n, K), in the order of `classes`.

    If the classes were renamed, they are in the order of the file.
    """
    labels = list(rows[0])
    if classes is not None and set(classes.tolist()) == set(labels):
        labels = classes.tolist()
    return np.array([[row[label] for label in labels] for row in rows], dtype=np.float64)


ClassLabels = tuple[str, ...] | tuple[int, ...]

LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Attributes of ZipMap, TreeEnsembleClassifier, LinearClassifier and SVMClassifier."""
KEEP_LABELS = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators that converters put between the labels and the output."""


def class_labels(path: Path) -> Labels | None:
    """Read the class labels in an ONNX file: (K,).

    None if it has none, or if the package onnx is not installed.
    """
    labels = _labels_in_file(str(path), file_state(path))
    if labels is None:
        return None
    return as_labels(labels)


@lru_cache(maxsize=1024)
def _labels_in_file(path: str, state: tuple[int, ...]) -> ClassLabels | None:
    graph = onnx_graph(path)
    if graph is None:
        return None
    # An ensemble may contain other classifiers, which number their labels, so only the node
    # behind an output counts.
    nodes = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for output in filter(_may_hold_labels, graph.output):
        labels = _labels_behind(output.name, nodes, constants)
        if labels is not None and len(set(labels)) == len(labels) > 0:
            return labels
    return None


def _may_hold_labels(output: ValueInfoProto) -> bool:
    types: type[TensorProto] = optional("onnx", extra="onnx").TensorProto
    if output.type.WhichOneof("value") != "tensor_type":
        return True  # dicts from label to number
    return output.type.tensor_type.elem_type in (types.STRING, types.INT64, types.INT32)


def _labels_behind(
    output: str, nodes: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]
) -> ClassLabels | None:
    node = nodes.get(output)
    while node is not None and node.op_type in KEEP_LABELS:
        node = nodes.get(node.input[0])
    if node is None:
        return None
    if node.op_type == "ArrayFeatureExtractor":  # selects the label of the largest probability
        return _constant_labels(constants.get(node.input[0]))
    for attribute in node.attribute:
        if attribute.name in LABEL_ATTRIBUTES and (attribute.strings or attribute.ints):
            return tuple(map(_text, attribute.strings)) or tuple(map(int, attribute.ints))
    return None


def _constant_labels(tensor: TensorProto | None) -> ClassLabels | None:
    if tensor is None:
        return None
    onnx = optional("onnx", extra="onnx")
    values: AnyArray = onnx.numpy_helper.to_array(tensor).ravel()
    if values.dtype.kind in "iu":
        return tuple(values.tolist())
    if tensor.data_type == onnx.TensorProto.STRING:
        return tuple(map(_text, values.tolist()))
    return None


def _text(label: str | bytes) -> str:
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    return label
