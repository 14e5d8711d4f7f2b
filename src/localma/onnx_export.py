"""A fitted gate, and the average under its weights, as one ONNX graph that needs no Python.

The graph computes what the gate does: standardisation, networks, the mixture over a path, and the
shift guard. Numbers outside the networks are in double precision, as they are here.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates import EqualGate, Gate, GlobalGate, MLPGate, ShrunkGate, TorchGate
from localma.gates.support import POWER, REACH, Fading, Support
from localma.storage.whole_files import write_whole

OPSET, IR_VERSION = 17, 8
"""Versions of ONNX that runtimes of the last years read."""


def export_onnx(
    model_or_gate: Any,
    path: str | os.PathLike[str],
    *,
    include_combination: bool = True,
    several_outputs: bool | None = None,
) -> None:
    """Write a fitted model or gate as an ONNX graph.

    Its inputs are `x` (n, p), what the gate sees (``model.gate_features_.transform(X)``), and
    `predictions` (n, M) or (n, M, K), both in double precision. Its outputs are `weights` (n, M)
    and `prediction`, ``sum_m w_m(x) P_m``: (n,) or (n, K); for a classifier the probabilities.
    Names of candidates and classes stand in its metadata, as JSON.

    Parameters
    ----------
    model_or_gate : a fitted estimator of localma, or a gate: equal, global, `MLPGate`, a
        `TorchGate` over one tensor, or a `ShrunkGate` over these
    path : the file
    include_combination : whether the graph takes predictions and averages them; else it gives the
        weights alone
    several_outputs : whether predictions have the axis K; by default for a classifier, and for a
        regressor that was fitted on several outputs

    Examples
    --------
    >>> import tempfile
    >>> from localma.gates import Labelled
    >>> from localma.losses import squared_error
    >>> P, y = np.array([[[1.0], [3.0]]]), np.array([[2.0]])
    >>> gate = EqualGate().fit(Labelled.of(np.zeros((1, 2)), P, y, loss=squared_error()))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(gate, f"{folder}/gate.onnx")
    ...     optional("onnx", extra="onnx").load(f"{folder}/gate.onnx").graph.output[0].name
    'weights'
    """
    check_is_fitted(model_or_gate)
    is_model = isinstance(model_or_gate, LocalMARegressor | LocalMAClassifier)
    gate = model_or_gate.gate_ if is_model else model_or_gate
    graph = Graph()
    weights = _weights(graph, gate, "x")
    graph.add("Identity", weights, output="weights")
    classifies = isinstance(model_or_gate, LocalMAClassifier)
    if several_outputs is None:
        several_outputs = classifies or getattr(model_or_gate, "n_outputs_", 1) > 1
    ends = ["K"] if several_outputs else []
    if include_combination:
        _combine(graph, classifies)
    words: dict[str, Any] = {"producer": "localma"}
    if is_model:
        words["candidates"] = list(model_or_gate.candidate_names_)
    if classifies:
        words["classes"] = model_or_gate.classes_.tolist()
    content = graph.to_bytes(_shape(gate), ends if include_combination else None, words)
    write_whole(Path(path), content)


class Graph:
    """A graph of ONNX under construction; every operation gives the name of its result."""

    def __init__(self) -> None:
        self.onnx = optional("onnx", extra="onnx")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def add(self, operation: str, *inputs: Any, output: str | None = None, **how: Any) -> str:
        """Apply an operation to names and constants."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        name = self._new(operation) if output is None else output
        self.nodes.append(self.onnx.helper.make_node(operation, names, [name], **how))
        return name

    def constant(self, value: Any) -> str:
        """A constant: an array as it is, a number in double precision."""
        name = self._new("constant")
        self.initializers.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def cast(self, value: str, kind: str) -> str:
        """Convert to "FLOAT" or "DOUBLE"."""
        return self.add("Cast", value, to=getattr(self.onnx.TensorProto, kind))

    def inline(self, serialized: bytes, x: str) -> str:
        """Put in a graph of one input and one output."""
        compose, other = (
            optional("onnx.compose", extra="onnx"),
            self.onnx.load_from_string(serialized),
        )
        other = compose.add_prefix(other, self._new("module") + "/").graph
        self.nodes.append(self.onnx.helper.make_node("Identity", [x], [other.input[0].name]))
        self.nodes += list(other.node)
        self.initializers += list(other.initializer)
        return str(other.output[0].name)

    def to_bytes(
        self, x_shape: list[Any] | None, ends: list[str] | None, words: dict[str, Any]
    ) -> bytes:
        """The file: `x` and `predictions` in, `weights` and `prediction` out; words as metadata.

        ends : names of the axes of predictions after (n, M); None for weights alone.
        """
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        value = helper.make_tensor_value_info
        inputs, outputs = [value("x", double, x_shape)], [value("weights", double, ["n", "M"])]
        if ends is not None:
            inputs.append(value("predictions", double, ["n", "M", *ends]))
            outputs.append(value("prediction", double, ["n", *ends]))
        graph = helper.make_graph(self.nodes, "localma", inputs, outputs, self.initializers)
        versions = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="localma"
        )
        helper.set_model_props(model, {key: json.dumps(value) for key, value in words.items()})
        self.onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _new(self, kind: str) -> str:
        return f"{kind}_{len(self.nodes)}_{len(self.initializers)}"


def _combine(graph: Graph, to_probabilities: bool) -> None:
    """The localized average; probabilities sum to one again, whatever rounding did to them."""
    mixture = graph.add("Einsum", "weights", "predictions", equation="nm,nm...->n...")
    if to_probabilities:
        positive = graph.add("Max", mixture, 0.0)
        total = graph.add("ReduceSum", positive, np.array([1]), keepdims=1)
        mixture = graph.add("Div", positive, total)
    graph.add("Identity", mixture, output="prediction")


def _weights(graph: Graph, gate: Gate, x: str) -> str:
    """Weights (n, M) of any gate that can be exported."""
    for kind, export in _EXPORTS.items():
        if type(gate) is kind:
            return export(graph, gate, x)
    known = ", ".join(kind.__name__ for kind in _EXPORTS)
    raise InvalidInputError(
        f"Gates that can be exported to ONNX are {known}; received a {type(gate).__name__}. Export "
        "what it reads its inputs with by its own means, and fit one of these on the features."
    )


def _equal(graph: Graph, gate: Any, x: str) -> str:
    return _constant_rows(graph, np.full(gate.n_candidates_, 1.0 / gate.n_candidates_), x)


def _global(graph: Graph, gate: Any, x: str) -> str:
    return _constant_rows(graph, gate.weights_, x)


def _constant_rows(graph: Graph, weights: NDArray[Any], x: str) -> str:
    """The same weights (M,) in every row of x: (n, M)."""
    n = graph.add("Shape", x, start=0, end=1)
    shape = graph.add("Concat", n, np.array([len(weights)]), axis=0)
    return graph.add("Expand", np.asarray(weights, dtype=np.float64), shape)


def _mlp(graph: Graph, gate: Any, x: str) -> str:
    """Weights averaged over the networks of a fused gate."""
    if len(gate.parameters_) == 0:
        return _constant_rows(graph, gate.global_weights_, x)
    standard = graph.add("Div", graph.add("Sub", x, gate.mean_), gate.scale_)
    # As in the kernel: beyond this, single precision could overflow in a deep network.
    standard = graph.cast(graph.add("Clip", standard, -1e9, 1e9), "FLOAT")
    network = gate._network(gate.n_features_in_, len(gate.global_weights_))
    parts = [
        _network(graph, network, theta, gate.logit_bound, standard) for theta in gate.parameters_
    ]
    return graph.add("Div", graph.add("Sum", *parts), float(len(parts)))


def _network(graph: Graph, network: Any, theta: Any, bound: float | None, x: str) -> str:
    *hidden, (W, b) = network.layers(theta)
    for weight, bias in hidden:
        x = graph.add("Gemm", x, weight.copy(), bias.copy(), transB=1)
        if network.leak != 1.0:
            x = graph.add("LeakyRelu", x, alpha=float(network.leak))
    logits = graph.add("Gemm", x, W.copy(), b.copy(), transB=1)
    if bound is not None:
        B = np.float32(bound)
        logits = graph.add("Mul", graph.add("Tanh", graph.add("Div", logits, B)), B)
    # As in the kernel, whose exponential ends there: the guard looks at logarithms of weights.
    highest = graph.add("ReduceMax", logits, axes=[-1], keepdims=1)
    logits = graph.add(
        "Clip", graph.add("Sub", logits, highest), np.float32(-87.0), np.float32(0.0)
    )
    return graph.cast(graph.add("Softmax", logits, axis=-1), "DOUBLE")


def _shrunk(graph: Graph, gate: Any, x: str) -> str:
    """The mixture over the path, faded by the shift guard."""
    mixed = gate.answer_
    parts = [_constant_rows(graph, mixed.constant, x)]
    for share, member in zip(mixed.shares, mixed.gates, strict=True):
        parts.append(graph.add("Mul", _weights(graph, member, x), float(share)))
    weights, fading = graph.add("Sum", *parts), gate._fading()
    return weights if fading is None else _faded(graph, fading, weights, x)


def _faded(graph: Graph, fading: Fading, weights: str, x: str) -> str:
    """``softmax(s log w + (1 - s) log w_global)``, s the support of each row; see `Fading`."""
    share = _support(graph, fading.support, x)
    rest = graph.add("Sub", 1.0, share)
    floor = graph.add("Mul", share, fading.floor)
    anchor = graph.add(
        "Add",
        graph.add("Mul", graph.add("Sub", 1.0, floor), fading.towards),
        graph.add("Div", floor, float(len(fading.towards))),
    )
    tiny = float(np.finfo(np.float64).tiny)
    local = graph.add("Mul", share, graph.add("Log", graph.add("Max", weights, tiny)))
    constant = graph.add("Mul", rest, graph.add("Log", anchor))
    return graph.add("Softmax", graph.add("Add", local, constant), axis=-1)


def _support(graph: Graph, support: Support, x: str) -> str:
    """How much of the local part is used in each row: (n, 1); see `Support`."""
    below = graph.add("Div", graph.add("Sub", support.low, x), support.low_tail)
    above = graph.add("Div", graph.add("Sub", x, support.high), support.high_tail)
    largest = graph.add("ReduceMax", graph.add("Max", below, above), axes=[1], keepdims=1)
    reach = graph.add("Div", graph.add("Clip", largest, 0.0, 1e3 * REACH), REACH)
    return graph.add("Exp", graph.add("Neg", graph.add("Pow", reach, float(POWER))))


def _torch(graph: Graph, gate: Any, x: str) -> str:
    """Weights of a PyTorch module, which PyTorch's own exporter describes."""
    if gate.network_ is None:
        return _constant_rows(graph, gate.global_weights_, x)
    if gate.input_shape_ is None:
        raise InvalidInputError(
            "A TorchGate can be exported to ONNX if its input is one tensor of floating numbers; "
            "this one read texts, integers or several tensors. Export its module with torch.onnx."
        )
    torch = optional("torch", extra="torch")
    buffer, network = io.BytesIO(), gate.network_.eval()
    example = torch.zeros((2, *gate.input_shape_))
    axes = {"x": {0: "n"}, "logits": {0: "n"}}
    try:
        with warnings.catch_warnings():
            # The newer exporter needs one more package; this one says that it is the older.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network, (example, 2), buffer, dynamo=False, opset_version=OPSET,
                input_names=["x"], output_names=["logits"], dynamic_axes=axes,
            )  # fmt: skip
    except (RuntimeError, ValueError, TypeError, ImportError) as error:
        raise InvalidInputError(
            f"PyTorch cannot describe the module of this TorchGate in ONNX ({error}). Use "
            "operations that torch.onnx knows."
        ) from error
    logits = graph.inline(buffer.getvalue(), graph.cast(x, "FLOAT"))
    return graph.add("Softmax", graph.cast(logits, "DOUBLE"), axis=-1)


def _shape(gate: Gate) -> list[Any] | None:
    """Shape of `x`, with names for what is free; None where rows may have any shape."""
    for member in gate.members:
        shape = getattr(member, "input_shape_", None)
        if shape is not None:
            return ["n", *shape]
    width = getattr(gate, "n_features_in_", "p")
    return ["n", width] if width != 0 else None


_EXPORTS: dict[type[Gate], Callable[[Graph, Any, str], str]] = {
    EqualGate: _equal,
    GlobalGate: _global,
    MLPGate: _mlp,
    ShrunkGate: _shrunk,
    TorchGate: _torch,
}
