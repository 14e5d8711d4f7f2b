"""An ONNX file as a candidate, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.candidates.base import (
    BatchSize,
    ImportName,
    Inputs,
    LogitsCandidate,
    LogitsRecipe,
    working_bytes,
)
from localma.candidates.estimator import one_hot
from localma.candidates.files.base import (
    FileRecipe,
    ModelFile,
    PathLike,
    PerProcess,
    in_fixed_batches,
)
from localma.candidates.outputs import Activation, Classes, Labels, Table, Task, as_labels
from localma.errors import InvalidInputError, unknown_name
from localma.storage.fingerprints import file_state
from localma.tables.frames import column_names, column_values, dense, n_rows, pick_columns

DTYPES: dict[str, Any] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.str_,
}
"""Types of ONNX inputs and what they are in NumPy."""
REAL_OUTPUTS = ("tensor(float16)", "tensor(float)", "tensor(double)")

Feed = dict[Any, Any]


@dataclass(frozen=True, kw_only=True)
class OnnxRecipe(FileRecipe, LogitsRecipe):
    """The file and the options."""

    kind = "onnx"
    output: str | None
    preprocess: ImportName | None
    providers: list[str]

    def make(self) -> OnnxCandidate:
        """Find the file again."""
        return OnnxCandidate(self.file(), **self.options())


class OnnxCandidate(LogitsCandidate):
    """An ONNX file: a network, or a model of scikit-learn, LightGBM and others, converted.

    A file with one input gets all columns that the candidate sees, as an array of the type that
    the input states. One with several gets, by name, the columns of a data frame that are called
    like its inputs; from an array, and where the names differ, columns in order, each input as
    many as it takes. A file made for a fixed number of rows is fed that many at a time.

    Of several outputs the one with real numbers is taken: probabilities, not labels. A list of
    dicts from class to probability, as scikit-learn's converter writes, is read by class.

    A classifier that was converted from scikit-learn, LightGBM, XGBoost or CatBoost states its
    classes in the file, and they are read from there if the package onnx is installed. You may
    state them in another order, or state other names in the file's order.

    Parameters
    ----------
    path : the file. Weights kept in files beside it are found by onnxruntime; where the package
        onnx is installed they are part of its fingerprint.
    output : name of the output to take. In classification an output of labels gives the predicted
        one probability one.
    activation : "softmax", "sigmoid" or None, where the file returns probabilities or means.
    temperature : what logits are divided by; `calibrated` fits it.
    preprocess : a function from the rows to an array, or a dict from input name to array.
    providers : onnxruntime's execution providers; the CPU by default.
    classes, inputs, cost, batch_size : as for every candidate.
    """

    kind = "onnx"
    runs_here = True
    recipe_type = OnnxRecipe

    def __init__(
        self,
        path: PathLike | ModelFile,
        *,
        output: str | None = None,
        classes: Classes | None = None,
        activation: Activation | None = None,
        temperature: float = 1.0,
        preprocess: Callable[[Any], Any] | None = None,
        inputs: Inputs = None,
        cost: float = 1.0,
        batch_size: BatchSize = "auto",
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        super().__init__(
            activation=activation,
            temperature=temperature,
            inputs=inputs,
            classes=classes,
            cost=cost,
            batch_size=batch_size,
        )
        optional("onnxruntime", extra="onnx")
        self.file = path if isinstance(path, ModelFile) else ModelFile(path)
        self._file_classes = class_labels(self.file.path)
        if self.classes is None:
            self.classes = self._file_classes
        self.output, self.preprocess = output, preprocess
        self.providers = list(providers)
        self._session = PerProcess(partial(_session, self.file, self.providers))

    @property
    def label(self) -> str:
        """The name of the file."""
        return self.file.label

    @property
    def source(self) -> str:
        """The path of the file."""
        return str(self.file.path)

    def _network_identity(self) -> object:
        return self.file.path, self.output, self.preprocess

    def _feed(self, X: Table) -> Feed:
        rows = X if self.preprocess is None else self.preprocess(X)
        return _feed(rows, self._session.get().get_inputs())

    def _row_bytes(self, X: Table) -> int:
        return working_bytes(*self._feed(X).values())

    def _outputs(self, X: Table, task: Task) -> Any:
        session, feed = self._session.get(), self._feed(X)
        output = _chosen_output(self.output, session.get_outputs())
        classes = self._written_classes() if task == "classification" else None
        order = self._column_order()

        def run(part: Feed) -> NDArray[Any]:
            return _values(session.run([output.name], part)[0], classes, order)

        n = len(next(iter(feed.values())))
        return in_fixed_batches(run, feed, n, _fixed_rows(session.get_inputs()))

    def check_task(self, task: Task, name: str) -> None:
        """Refuse classification without classes, and regression with classes that you stated."""
        # A regression may average a probability, whatever classes the file has.
        by_file = self._file_classes is not None and self._column_order() is not None
        if task == "classification" or not by_file:
            super().check_task(task, name)

    def _written_classes(self) -> Labels | None:
        """Labels as the file writes them, in the order of `classes`."""
        if self.classes is None or self._file_classes is None or self._column_order() is not None:
            return self.classes
        renamed = len(self.classes) == len(self._file_classes)
        return self._file_classes if renamed else self.classes

    def _column_order(self) -> NDArray[np.intp] | None:
        """Column of the file that belongs to each of `classes`; None if these are other labels."""
        if self.classes is None or self._file_classes is None:
            return None
        columns = {label: column for column, label in enumerate(self._file_classes.tolist())}
        if set(columns) != set(self.classes.tolist()):
            return None
        return np.array([columns[label] for label in self.classes.tolist()], dtype=np.intp)

    def recipe(self) -> OnnxRecipe | None:
        """The file and the options; None if a function among them cannot be imported."""
        return OnnxRecipe.of(self, **self.file.recipe())


def _session(file: ModelFile, providers: list[str]) -> Any:
    runtime, path = optional("onnxruntime", extra="onnx"), file.check()
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors, which are raised; warnings are for who converts files
    try:
        return runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise InvalidInputError(
            f"onnxruntime cannot open {str(path)!r} ({error}): the file was cut short, is no ONNX "
            "file, or needs another version or provider of onnxruntime. Convert the model again."
        ) from error


# Inputs.


def _feed(X: Table, taken: Sequence[Any]) -> Feed:
    """What onnxruntime is given: an array of the right type for each input of the file."""
    if not isinstance(X, Mapping):
        X = {taken[0].name: X} if len(taken) == 1 else _columns_of_inputs(X, taken)
    by_name = {tensor.name: tensor for tensor in taken}
    if set(X) != set(by_name):
        raise InvalidInputError(
            f"the file takes the inputs {sorted(by_name)}; preprocess returned {sorted(X)}."
        )
    return {name: _as_input(values, by_name[name]) for name, values in X.items()}


def _columns_of_inputs(X: Any, taken: Sequence[Any]) -> dict[str, Any]:
    """Columns by the name of the input, or in order, as many as each takes."""
    names = column_names(X)
    if names is not None and all(tensor.name in names for tensor in taken):
        return {tensor.name: column_values(X, tensor.name) for tensor in taken}
    widths = [1 if len(tensor.shape) < 2 else tensor.shape[1] for tensor in taken]
    shape = np.shape(X) if names is None else (n_rows(X), len(names))
    known = all(isinstance(width, int) for width in widths)
    if len(shape) != 2 or not known or sum(widths) != shape[1]:
        wanted = ", ".join(f"{t.name!r} {list(t.shape)}" for t in taken)
        raise InvalidInputError(
            f"the file takes several inputs, {wanted}, and rows of shape {list(shape[1:])} have "
            "neither columns of those names nor as many columns as they take together: state its "
            "columns with inputs=, or make a dict of arrays with preprocess=."
        )
    ends = np.cumsum(widths).tolist()
    X = dense(X) if isinstance(X, list | tuple) else X
    return {
        tensor.name: pick_columns(X, list(range(end - width, end)))
        for tensor, width, end in zip(taken, widths, ends, strict=True)
    }


def _as_input(values: Any, tensor: Any) -> NDArray[Any]:
    """Values with the type and number of dimensions that an input of the file states."""
    if tensor.type not in DTYPES:
        raise InvalidInputError(
            f"its input {tensor.name!r} has the type {tensor.type}, which no array has: convert "
            "the model with tensors as inputs."
        )
    array = _cast(dense(values), DTYPES[tensor.type], tensor.name)
    if array.ndim == 1 and len(tensor.shape) == 2:
        array = array[:, None]
    elif array.ndim == 2 and len(tensor.shape) == 1 and array.shape[1] == 1:
        array = array[:, 0]
    wanted = [size if isinstance(size, int) else None for size in tensor.shape]
    fits = len(wanted) in (0, array.ndim) and all(
        size in (None, found) for size, found in zip(wanted[1:], array.shape[1:], strict=False)
    )
    if not fits:
        raise InvalidInputError(
            f"its input {tensor.name!r} takes rows of shape {wanted[1:]}; received rows of shape "
            f"{list(array.shape[1:])}: state the columns it takes with inputs=."
        )
    return array


def _cast(array: NDArray[Any], dtype: Any, name: str) -> NDArray[Any]:
    """Change the type; refuse numbers that whole numbers cannot hold, and words for numbers."""
    if dtype is np.str_:
        return array.astype(str).astype(object)
    try:
        numbers = array.astype(np.float64) if array.dtype.kind in "OUS" else array
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"its input {name!r} takes numbers, and received values such as {array.flat[0]!r}: "
            "state the columns it takes with inputs=."
        ) from None
    if numbers.dtype.kind == "f" and np.issubdtype(dtype, np.integer):
        whole = np.isfinite(numbers) & (numbers == np.round(numbers))
        if not whole.all():
            raise InvalidInputError(
                f"its input {name!r} takes whole numbers, and received {numbers[~whole][0]}: "
                "state the columns it takes with inputs=, or prepare them with preprocess=."
            )
    return np.ascontiguousarray(numbers.astype(dtype))


def _fixed_rows(taken: Sequence[Any]) -> int | None:
    """Rows that the file insists on; None if it takes any number."""
    first = [tensor.shape[0] for tensor in taken if tensor.shape]
    return first[0] if first and isinstance(first[0], int) and first[0] > 0 else None


# Outputs.


def _chosen_output(name: str | None, given: Sequence[Any]) -> Any:
    if name is not None:
        by_name = {tensor.name: tensor for tensor in given}
        if name not in by_name:
            raise unknown_name("output", name, by_name)
        return by_name[name]
    real = [t for t in given if t.type in REAL_OUTPUTS or t.type.startswith("seq(map")]
    found = real if len(given) > 1 else list(given)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{tensor.name!r} ({tensor.type})" for tensor in given)
    raise InvalidInputError(
        f"the file has the outputs {listed}, and not exactly one of real numbers: state which one "
        "to take with output=."
    )


def _values(output: Any, classes: Labels | None, order: NDArray[np.intp] | None) -> NDArray[Any]:
    """Predictions out of an output: an array, a list of dicts by class, or labels.

    classes : (K,) labels as the file writes them, in the order wanted; None in regression.
    order : (K,) the columns of an array in the order wanted; None if they are in order.
    """
    if isinstance(output, list):
        return _by_class(output, classes)
    values = np.asarray(output)
    if classes is not None and values.dtype.kind in "iuOU":
        return one_hot(values, classes)
    if order is not None and values.ndim == 2 and values.shape[1] == len(order):
        return values[:, order]
    return values


def _by_class(rows: list[Any], classes: Labels | None) -> NDArray[Any]:
    """Dicts from class to probability as an array (n, K), in the order of `classes`.

    Where the classes were renamed, the file's own order is kept.
    """
    own = list(rows[0])
    labels = own if classes is None else classes.tolist()
    order = labels if set(labels) == set(own) else own
    return np.array([[row[label] for label in order] for row in rows], dtype=np.float64)


ClassLabels = tuple[str, ...] | tuple[int, ...]

LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Attributes of ZipMap, TreeEnsembleClassifier, LinearClassifier and SVMClassifier."""
CHANGE_NO_LABEL = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators that converters put between the labels and the output."""


def class_labels(path: Path) -> Labels | None:
    """Read the class labels that an ONNX file states: (K,).

    None if it states none, and if the package onnx is not installed.
    """
    if find_spec("onnx") is None:
        return None
    labels = _read(str(path), file_state(path))
    if labels is None:
        return None
    return as_labels(labels)


@lru_cache(maxsize=1024)
def _read(path: str, state: tuple[int, ...]) -> ClassLabels | None:
    onnx = optional("onnx", extra="onnx")
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception:  # onnxruntime refuses a damaged file later, with a better message
        return None
    return _class_labels(graph, onnx)


def _class_labels(graph: Any, onnx: Any) -> ClassLabels | None:
    """Labels behind the first output that consists of labels, or of dicts from label to number.

    Inside an ensemble there may be other classifiers, which number their labels, so only what an
    output consists of counts.
    """
    made_by = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for output in graph.output:
        if _may_hold_labels(output, onnx.TensorProto):
            labels = _labels_behind(output.name, made_by, constants, onnx)
            if labels is not None and len(set(labels)) == len(labels) > 0:
                return labels
    return None


def _may_hold_labels(output: Any, types: Any) -> bool:
    if output.type.WhichOneof("value") != "tensor_type":
        return True
    return output.type.tensor_type.elem_type in (types.STRING, types.INT64, types.INT32)


def _labels_behind(
    output: str, made_by: Mapping[str, Any], constants: Mapping[str, Any], onnx: Any
) -> ClassLabels | None:
    node = made_by.get(output)
    while node is not None and node.op_type in CHANGE_NO_LABEL:
        node = made_by.get(node.input[0])
    if node is None:
        return None
    if node.op_type == "ArrayFeatureExtractor":  # picks the label by the largest probability
        return _constant_labels(constants.get(node.input[0]), onnx)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    stated = [attributes[name] for name in LABEL_ATTRIBUTES if name in attributes]
    return _attribute_labels(stated[0]) if stated else None


def _attribute_labels(attribute: Any) -> ClassLabels:
    if attribute.strings:
        return tuple(_text(label) for label in attribute.strings)
    return tuple(int(label) for label in attribute.ints)


def _constant_labels(tensor: Any, onnx: Any) -> ClassLabels | None:
    if tensor is None:
        return None
    values = onnx.numpy_helper.to_array(tensor).ravel()
    if values.dtype.kind in "iu":
        return tuple(values.tolist())
    if tensor.data_type == onnx.TensorProto.STRING:
        return tuple(_text(label) for label in values.tolist())
    return None


def _text(label: str | bytes) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else label
