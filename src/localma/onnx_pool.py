"""Candidates from ONNX files as a part of the graph of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from localma._optional import optional
from localma._types import AnyArray, Float64
from localma.candidates import Candidate, OnnxCandidate
from localma.candidates.files.onnx import chosen_output
from localma.candidates.pool import Pool
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.estimators.predictions import pool_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from localma.onnx_export import Graph

Model = LocalMARegressor | LocalMAClassifier


def gate_columns(model: Model) -> list[int]:
    """Positions of the columns of X that are the inputs of the gate.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A model that was fitted on an array.

    Returns
    -------
    list of int
        The positions; an error if the inputs are anything but columns.
    """
    p = getattr(model, "n_features_in_", None)
    if p is None or hasattr(model, "feature_names_in_"):
        raise InvalidInputError(
            "A graph with candidates has one input, an array. This model was fitted on a data "
            "frame, on texts or on images. Fit it on an array, or export the gate alone."
        )
    positions: Float64 = np.arange(1.0, p + 1.0)
    rows = np.stack([positions, -positions])
    inputs = np.asarray(model.gate_features_.transform(rows))
    is_selection = np.isin(inputs[0], positions).all() and (inputs[1] == -inputs[0]).all()
    if not is_selection:
        raise InvalidInputError(
            "A graph with candidates needs a gate whose inputs are columns of X; this one has "
            "gate_features= that compute others. Export the gate alone, and compute them before."
        )
    return [int(position) - 1 for position in inputs[0]]


def add_candidates(graph: Graph, model: Model, x: str) -> str:
    """Add the candidates of a model to a graph.

    Parameters
    ----------
    graph : Graph
        The graph.
    model : LocalMARegressor or LocalMAClassifier
        A model whose candidates are ONNX files.
    x : str
        The inputs (n, p), in double precision.

    Returns
    -------
    str
        Name of their predictions: (n, M) or (n, M, K), in double precision.
    """
    pool = pool_of(model)
    named = list(zip(pool.names, pool.candidates, strict=True))
    for name, candidate in named:
        _check_kind(name, candidate.uncached())
    outputs = [_add(graph, name, candidate.uncached(), pool, model, x) for name, candidate in named]
    return graph.add("Concat", *outputs, axis=1)


def _check_kind(name: str, candidate: Candidate) -> None:
    if not isinstance(candidate, OnnxCandidate):
        raise InvalidInputError(
            f"A graph with candidates needs candidates from ONNX files, but {name!r} is a "
            f"{type(candidate).__name__}. Convert it, or export without include_candidates=True."
        )
    if candidate.preprocess is not None or callable(candidate.inputs):
        raise InvalidInputError(
            f"Candidate {name!r} changes its inputs by a Python function, which a graph cannot "
            "contain. Make that step a part of its file."
        )


def _add(graph: Graph, name: str, candidate: Candidate, pool: Pool, model: Model, x: str) -> str:
    """Predictions (n, 1) or (n, 1, K) of one candidate."""
    assert isinstance(candidate, OnnxCandidate)
    columns = _columns(candidate, name, int(model.n_features_in_))
    selected = x if columns is None else graph.add("Gather", x, columns, axis=1)
    session = candidate._session.get()
    output = chosen_output(candidate.output, session.get_outputs())
    if not output.type.startswith("tensor"):
        raise InvalidInputError(
            f"Candidate {name!r} returns {output.type}, not a tensor. Convert it again, with "
            "zipmap=False for models of scikit-learn."
        )
    values = graph.cast(graph.embed(candidate.file.path, selected, output.name), "DOUBLE")
    if isinstance(model, LocalMARegressor):
        axes = [-1, 1] if model.n_outputs_ == 1 else [-1, 1, model.n_outputs_]
        return graph.add("Reshape", values, np.array(axes))
    values = graph.add("Reshape", values, np.array([0, -1]))
    if candidate.activation == "sigmoid":
        values = graph.add("Sigmoid", graph.add("Div", values, float(candidate.temperature)))
        values = graph.add("Concat", graph.add("Sub", 1.0, values), values, axis=1)
    elif candidate.activation == "softmax":
        values = graph.add("Div", values, float(candidate.temperature))
        values = graph.add("Softmax", values, axis=-1)
    aligned = graph.add("MatMul", values, _alignment(candidate, pool))
    return graph.add("Unsqueeze", aligned, np.array([1]))


def _columns(candidate: OnnxCandidate, name: str, p: int) -> AnyArray | None:
    """Positions of its columns; None for all."""
    inputs = candidate.inputs
    if inputs is None:
        return None
    if not isinstance(inputs, Sequence) or not all(isinstance(k, int) for k in inputs):
        raise InvalidInputError(
            f"Candidate {name!r} selects its columns by name; a graph has only positions. Pass "
            "inputs= as positions."
        )
    return np.array([k % p for k in inputs], dtype=np.int64)


def _alignment(candidate: OnnxCandidate, pool: Pool) -> Float64:
    """Matrix (k, K) from the columns of a file to the classes of the pool."""
    assert candidate.classes is not None
    assert pool.classes is not None
    of_pool = {label: column for column, label in enumerate(pool.classes.tolist())}
    order = candidate._column_order()
    columns = range(len(candidate.classes)) if order is None else order.tolist()
    matrix = np.zeros((len(candidate.classes), len(of_pool)))
    for column, label in zip(columns, candidate.classes.tolist(), strict=True):
        matrix[column, of_pool[label]] = 1.0
    return matrix


def at_version(model: ModelProto, opset: int) -> ModelProto:
    """Convert a model to a version of the operators of ONNX.

    Parameters
    ----------
    model : onnx.ModelProto
        The model.
    opset : int
        The version.

    Returns
    -------
    onnx.ModelProto
        The same model, or a converted copy.
    """
    if not _has_changed(model, opset):
        return model
    converter = optional("onnx.version_converter", extra="onnx")
    try:
        return converter.convert_version(model, opset)
    except (RuntimeError, ValueError, converter.ConvertError) as error:
        raise InvalidInputError(
            f"An ONNX file cannot be converted from version {opset_of(model)} of the operators to "
            f"{opset} ({str(error)[:200]}). Convert the candidates with target_opset={opset}."
        ) from error


def _has_changed(model: ModelProto, opset: int) -> bool:
    """Whether an operator of the model has another meaning in a version."""
    find, before = optional("onnx.defs", extra="onnx").get_schema, opset_of(model)
    nodes = [node for node in model.graph.node if node.domain in ("", "ai.onnx")]
    return before != opset and any(
        find(node.op_type, before).since_version != find(node.op_type, opset).since_version
        for node in nodes
    )


def opset_of(model: ModelProto) -> int:
    """Version of the operators of ONNX that a model uses; 1 if it uses none.

    >>> helper = optional("onnx.helper", extra="onnx")
    >>> graph = helper.make_graph([], "empty", [], [])
    >>> opset_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    17
    """
    return max(
        (int(e.version) for e in model.opset_import if e.domain in ("", "ai.onnx")), default=1
    )


def check_same_numbers(model: Model, content: bytes) -> None:
    """Refuse a graph whose predictions for made-up rows differ from those of the model.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        The model.
    content : bytes
        The file.
    """
    if model.probes_ is None or not model.probes_.can_be_made:
        return
    runtime = optional("onnxruntime", extra="onnx")
    X = np.asarray(model.probes_.table(), dtype=np.float64)
    is_classifier = isinstance(model, LocalMAClassifier)
    expected = model.predict_proba(X) if is_classifier else model.predict(X)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (prediction,) = session.run(["prediction"], {"X": X})
    scale = max(1e-30, float(np.abs(expected).max()))
    largest = float(np.abs(prediction - expected).max())
    if prediction.shape != expected.shape or not largest <= SAME * scale:
        raise InvalidInputError(
            f"The graph would predict other numbers than the model (difference {largest:.3g}), so "
            "it was not written. Export without include_candidates=True, and report the case."
        )


SAME = 1e-5
"""Difference from the model, relative to its largest prediction, as of single precision."""
