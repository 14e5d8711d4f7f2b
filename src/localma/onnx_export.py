"""Export of a fitted gate, with the average under its weights, as one ONNX graph.

The graph has the same steps as the gate: standardisation, networks, the mixture over a path, and
the shift guard. As in Python, only the networks are in single precision.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from localma._optional import optional
from localma._types import AnyArray, Array, Float32
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates import EqualGate, Gate, GlobalGate, MLPGate, ShrunkGate, TorchGate, TreeGate
from localma.gates.fused.networks import Network
from localma.gates.sample import FARTHEST
from localma.gates.support import POWER, Fading, Support
from localma.onnx_pool import add_candidates, at_version, check_same_numbers, gate_columns, opset_of
from localma.storage.whole_files import write_whole

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

Operand = str | float | np.float32 | AnyArray
"""Input of an operation: the name of a result, or a constant."""
Shape = list[str | int] | None

OPSET, IR_VERSION = 17, 8
"""Versions of ONNX that current and older runtimes read."""
TREES_DOMAIN, TREES_OPSET = "ai.onnx.ml", 3
"""Where ONNX defines trees, and the version with thresholds in double precision."""


def export_onnx(
    model_or_gate: LocalMARegressor | LocalMAClassifier | Gate,
    path: str | os.PathLike[str],
    *,
    include_combination: bool = True,
    include_candidates: bool = False,
    several_outputs: bool | None = None,
) -> None:
    """Write a fitted model or gate as an ONNX graph.

    Its inputs are `x` (n, p), the inputs of the gate (``model.gate_features_.transform(X)``), and
    `predictions` (n, M) or (n, M, K), both in double precision. Its outputs are `weights` (n, M)
    and `prediction`, ``sum_m w_m(x) P_m``: (n,) or (n, K). For a classifier, `prediction` holds the
    probabilities. The metadata contain the names of the candidates and classes, as JSON.

    Parameters
    ----------
    model_or_gate : LocalMARegressor, LocalMAClassifier or Gate
        A fitted estimator or gate. Equal and global weights, `MLPGate`, `TreeGate`, a
        `TorchGate` over one tensor, and a `ShrunkGate` over these can be exported.
    path : str or path
        The file.
    include_combination : bool
        Whether the graph takes predictions and averages them. Otherwise it only returns the
        weights.
    include_candidates : bool
        Whether the graph also contains the candidates, which must come from ONNX files. Its one
        input is then `X` (n, p), the rows of the model in double precision, and it needs no Python.
        For a model that was fitted on an array. The graph is compared with the model for made-up
        rows before it is written.
    several_outputs : bool, optional
        Whether predictions have the axis K. By default they do for a classifier and for a
        regressor with several outputs.

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
    gate = model_or_gate
    metadata: dict[str, str | list[str]] = {"producer": "localma"}
    if not isinstance(model_or_gate, Gate):
        gate = model_or_gate.gate_
        _refuse_stacked(model_or_gate)
        metadata["candidates"] = list(model_or_gate.candidate_names_)
    is_classifier = isinstance(model_or_gate, LocalMAClassifier)
    if is_classifier:
        metadata["classes"] = model_or_gate.classes_.tolist()
    if several_outputs is None:
        several_outputs = is_classifier or getattr(model_or_gate, "n_outputs_", 1) > 1
    if include_candidates:
        if not isinstance(model_or_gate, LocalMARegressor | LocalMAClassifier):
            raise InvalidInputError("include_candidates=True needs a model; received a gate.")
        content = _whole(model_or_gate, several_outputs, metadata)
        check_same_numbers(model_or_gate, content)
        write_whole(Path(path), content)
        return
    graph, axes = Graph(), None
    graph.add("Identity", _weights(graph, gate, "x"), output="weights")
    if include_combination:
        _combine(graph, is_classifier)
        axes = ["K"] * several_outputs
    write_whole(Path(path), graph.to_bytes(_input_shape(gate), axes, metadata))


def _whole(
    model: LocalMARegressor | LocalMAClassifier,
    several_outputs: bool,
    metadata: dict[str, str | list[str]],
) -> bytes:
    """The gate, the candidates and the average, as a function of X."""
    graph = Graph()
    x = graph.add("Gather", "X", np.array(gate_columns(model)), axis=1)
    graph.add("Identity", _weights(graph, model.gate_, x), output="weights")
    graph.add("Identity", add_candidates(graph, model, "X"), output="predictions")
    _combine(graph, isinstance(model, LocalMAClassifier))
    return graph.to_bytes(
        ["n", model.n_features_in_], ["K"] * several_outputs, metadata, whole=True
    )


def _refuse_stacked(model: LocalMARegressor | LocalMAClassifier) -> None:
    """Refuse a model whose average needs models that the graph does not contain."""
    names = [] if model.pool_ is None else model.pool_.stacked_names
    if names:
        raise InvalidInputError(
            f"The graph contains the gate and no models, and {names[0]!r} is a model that is "
            "computed from the other candidates. Fit without own=, or export model.gate_ and "
            "compute its predictions in Python."
        )


class Graph:
    """An ONNX graph under construction; every operation returns the name of its result."""

    def __init__(self) -> None:
        self.onnx = optional("onnx", extra="onnx")
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.embedded: list[ModelProto] = []

    def add(
        self,
        operation: str,
        *inputs: Operand,
        output: str | None = None,
        **attributes: Any,
    ) -> str:
        """Apply an operation to names and constants."""
        names = [self.constant(value) for value in inputs]
        name = output or self._new_name(operation)
        self.nodes.append(self.onnx.helper.make_node(operation, names, [name], **attributes))
        return name

    def constant(self, value: Operand) -> str:
        """Name of a constant: an array as it is, a number in double precision."""
        if isinstance(value, str):
            return value
        name = self._new_name("constant")
        self.initializers.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def cast(self, value: str, kind: str) -> str:
        """Convert to "FLOAT" or "DOUBLE"."""
        return self.add("Cast", value, to=getattr(self.onnx.TensorProto, kind))

    def inline(self, serialized: bytes, x: str) -> str:
        """Insert a graph of one input and one output."""
        model = self.onnx.load_from_string(serialized)
        compose = optional("onnx.compose", extra="onnx")
        inner = compose.add_prefix(model, self._new_name("module") + "/").graph
        self.add("Identity", x, output=inner.input[0].name)
        self.nodes += list(inner.node)
        self.initializers += list(inner.initializer)
        return str(inner.output[0].name)

    def embed(self, path: Path, x: str, output: str) -> str:
        """Insert the model of a file, whose inputs receive the columns of x in order."""
        compose = optional("onnx.compose", extra="onnx")
        model = compose.add_prefix(self.onnx.load(str(path)), self._new_name("file") + "/")
        self.embedded.append(model)
        constants = {tensor.name for tensor in model.graph.initializer}
        start = 0
        for entry in (value for value in model.graph.input if value.name not in constants):
            tensor = entry.type.tensor_type
            sizes = [axis.dim_value for axis in tensor.shape.dim]
            columns = x
            if len(model.graph.input) - len(constants) > 1:
                width = sizes[1] if len(sizes) > 1 else 1
                columns = self.add("Gather", x, np.arange(start, start + width), axis=1)
                start += width
            self.add("Cast", columns, to=tensor.elem_type, output=entry.name)
        (name,) = (v.name for v in model.graph.output if v.name.endswith("/" + output))
        return str(name)

    def to_bytes(
        self,
        x_shape: Shape,
        axes: list[str] | None,
        metadata: dict[str, str | list[str]],
        *,
        whole: bool = False,
    ) -> bytes:
        """Content of the file.

        axes : names of the axes of predictions after (n, M); None if there are only weights.
        whole : whether the candidates are a part of the graph, whose input is then X.
        """
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        value = helper.make_tensor_value_info
        inputs, outputs = [value("X" if whole else "x", double, x_shape)], []
        outputs.append(value("weights", double, ["n", "M"]))
        if axes is not None:
            if not whole:
                inputs.append(value("predictions", double, ["n", "M", *axes]))
            outputs.append(value("prediction", double, ["n", *axes]))
        graph = helper.make_graph(self.nodes, "localma", inputs, outputs, self.initializers)
        versions = [helper.make_opsetid("", OPSET)]
        if any(node.domain == TREES_DOMAIN for node in self.nodes):
            versions.append(helper.make_opsetid(TREES_DOMAIN, TREES_OPSET))
        model = helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="localma"
        )
        self._join(model)
        helper.set_model_props(model, {key: json.dumps(value) for key, value in metadata.items()})
        self.onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _join(self, model: ModelProto) -> None:
        """Join the embedded models, at the newest version of the operators in use."""
        if not self.embedded:
            return
        newest = max(map(opset_of, [model, *self.embedded]))
        n_inputs = len(model.graph.input)
        # Conversion refuses results of models that are not there yet.
        model.graph.input.extend(value for part in self.embedded for value in part.graph.output)
        model.CopyFrom(at_version(model, newest))
        del model.graph.input[n_inputs:]
        versions = {entry.domain: entry.version for entry in model.opset_import}
        for part in (at_version(part, newest) for part in self.embedded):
            model.graph.node.extend(part.graph.node)
            model.graph.initializer.extend(part.graph.initializer)
            model.functions.extend(part.functions)
            model.ir_version = max(model.ir_version, part.ir_version)
            for entry in part.opset_import:
                domain = "" if entry.domain == "ai.onnx" else entry.domain
                versions[domain] = max(versions.get(domain, 1), entry.version)
        del model.opset_import[:]
        helper = self.onnx.helper
        model.opset_import.extend(helper.make_opsetid(d, v) for d, v in versions.items())
        _sort(model)

    def _new_name(self, kind: str) -> str:
        return f"{kind}_{len(self.nodes)}_{len(self.initializers)}"


def _sort(model: ModelProto) -> None:
    """Put each node after those whose results it takes."""
    produced = {name for node in model.graph.node for name in node.output if name}
    known = {value.name for value in model.graph.input} | {t.name for t in model.graph.initializer}
    waiting, ordered = list(model.graph.node), []
    while waiting:
        ready = [n for n in waiting if all(i in known or i not in produced for i in n.input)]
        ordered += ready
        known |= {name for node in ready for name in node.output}
        waiting = [node for node in waiting if node not in ready]
    del model.graph.node[:]
    model.graph.node.extend(ordered)


def _combine(graph: Graph, to_probabilities: bool) -> None:
    """Add the localized average; probabilities are rescaled to sum to one despite rounding."""
    mixture = graph.add("Einsum", "weights", "predictions", equation="nm,nm...->n...")
    if to_probabilities:
        positive = graph.add("Max", mixture, 0.0)
        total = graph.add("ReduceSum", positive, np.array([1]), keepdims=1)
        mixture = graph.add("Div", positive, total)
    graph.add("Identity", mixture, output="prediction")


def _weights(graph: Graph, gate: Gate, x: str) -> str:
    """Weights (n, M) of any gate that can be exported."""
    if type(gate) not in _EXPORTS:
        names = ", ".join(kind.__name__ for kind in _EXPORTS)
        raise InvalidInputError(
            f"Gates that can be exported to ONNX are {names}; received a {type(gate).__name__}. "
            "Export its encoder separately, and fit one of these gates on the encoder's features."
        )
    return _EXPORTS[type(gate)](graph, gate, x)


def _equal(graph: Graph, gate: EqualGate, x: str) -> str:
    return _constant_rows(graph, np.full(gate.n_candidates_, 1.0 / gate.n_candidates_), x)


def _global(graph: Graph, gate: GlobalGate, x: str) -> str:
    return _constant_rows(graph, gate.weights_, x)


def _constant_rows(graph: Graph, weights: Array, x: str) -> str:
    """The same weights (M,) in every row of x: (n, M)."""
    n = graph.add("Shape", x, start=0, end=1)
    shape = graph.add("Concat", n, np.array([len(weights)]), axis=0)
    return graph.add("Expand", np.asarray(weights, dtype=np.float64), shape)


def _mlp(graph: Graph, gate: MLPGate, x: str) -> str:
    """Weights averaged over the networks of a gate."""
    if len(gate.parameters_) == 0:
        return _constant_rows(graph, gate.global_weights_, x)
    standard = graph.add("Div", graph.add("Sub", x, gate.mean_), gate.scale_)
    # As in the kernel: beyond this, single precision could overflow in a deep network.
    standard = graph.cast(graph.add("Clip", standard, -1e9, 1e9), "FLOAT")
    network = gate._network(gate.n_features_in_, len(gate.global_weights_))
    weights = [
        _network(graph, network, theta, gate.logit_bound, standard) for theta in gate.parameters_
    ]
    return graph.add("Div", graph.add("Sum", *weights), float(len(weights)))


def _network(graph: Graph, network: Network, theta: Float32, bound: float | None, x: str) -> str:
    *hidden, (W, b) = network.layers(theta)
    for weight, bias in hidden:
        x = graph.add("Gemm", x, weight.copy(), bias.copy(), transB=1)
        if network.leak != 1.0:
            x = graph.add("LeakyRelu", x, alpha=float(network.leak))
    logits = graph.add("Gemm", x, W.copy(), b.copy(), transB=1)
    if bound is not None:
        B = np.float32(bound)
        logits = graph.add("Mul", graph.add("Tanh", graph.add("Div", logits, B)), B)
    # As in the kernel, whose exponential ends there: the guard takes logarithms of weights.
    highest = graph.add("ReduceMax", logits, axes=[-1], keepdims=1)
    relative = graph.add("Sub", logits, highest)
    logits = graph.add("Clip", relative, np.float32(-87.0), np.float32(0.0))
    return graph.cast(graph.add("Softmax", logits, axis=-1), "DOUBLE")


def _tree(graph: Graph, gate: TreeGate, x: str) -> str:
    """Softmax over the scores of trees, whose sums are in single precision."""
    trees = gate.trees_
    if trees.n_rounds == 0:
        return _constant_rows(graph, gate.global_weights_, x)
    sizes = np.diff(trees.starts)
    tree = np.repeat(np.arange(trees.n_rounds), sizes)
    node = np.arange(len(tree)) - np.repeat(trees.starts[:-1], sizes)
    leaves, S = np.flatnonzero(trees.feature < 0), trees.n_scores
    tensor = graph.onnx.numpy_helper.from_array
    scores = graph.add(
        "TreeEnsembleRegressor",
        x,
        domain=TREES_DOMAIN,
        n_targets=S,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=np.maximum(trees.feature, 0).tolist(),
        nodes_modes=np.where(trees.feature < 0, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values_as_tensor=tensor(trees.threshold, "thresholds"),
        nodes_truenodeids=trees.children[:, 0].tolist(),
        nodes_falsenodeids=trees.children[:, 1].tolist(),
        nodes_missing_value_tracks_true=trees.missing_left.tolist(),
        target_treeids=np.repeat(tree[leaves], S).tolist(),
        target_nodeids=np.repeat(node[leaves], S).tolist(),
        target_ids=np.tile(np.arange(S), len(leaves)).tolist(),
        target_weights_as_tensor=tensor(trees.values[leaves].ravel(), "scores"),
    )
    logits = graph.add("Add", graph.cast(scores, "DOUBLE"), gate.start)
    return graph.add("Softmax", logits, axis=-1)


def _shrunk(graph: Graph, gate: ShrunkGate, x: str) -> str:
    """The mixture over the path, faded by the shift guard."""
    mixed, inputs = gate.answer_, x
    fading = gate._fading() if gate.fades else None
    if fading is not None:
        low, high = fading.support.ends
        inputs = graph.add("Min", graph.add("Max", x, low), high)
    terms = [_constant_rows(graph, mixed.constant, x)]
    for share, member in zip(mixed.shares, mixed.gates, strict=True):
        terms.append(graph.add("Mul", _weights(graph, member, inputs), float(share)))
    weights = graph.add("Sum", *terms)
    if fading is None:
        return weights
    return _faded(graph, fading, weights, x)


def _faded(graph: Graph, fading: Fading, weights: str, x: str) -> str:
    """``softmax(s log w + (1 - s) log w_global)``, s the support of each row; see `Fading`."""
    share = _support(graph, fading.support, x)
    floor = graph.add("Mul", share, fading.floor)
    anchor = graph.add(
        "Add",
        graph.add("Mul", graph.add("Sub", 1.0, floor), fading.towards),
        graph.add("Div", floor, float(len(fading.towards))),
    )
    tiny = float(np.finfo(np.float64).tiny)
    local = graph.add("Mul", share, graph.add("Log", graph.add("Max", weights, tiny)))
    constant = graph.add("Mul", graph.add("Sub", 1.0, share), graph.add("Log", anchor))
    return graph.add("Softmax", graph.add("Add", local, constant), axis=-1)


def _support(graph: Graph, support: Support, x: str) -> str:
    """Share of local weights in each row: (n, 1); see `Support`."""
    columns, directions, ends, landmarks, spacing, gaps = support.kernel_arrays
    centre, inverse_scale, low, high, under, over, origin, _, _, weight = columns
    t = _squashed(graph, graph.add("Mul", graph.add("Sub", x, centre), inverse_scale))
    inside = graph.add("Min", graph.add("Max", t, low), high)
    centred = graph.add("Sub", inside, origin)
    z = graph.add("MatMul", centred, np.ascontiguousarray(directions.T))
    excesses = [_beyond(graph, t, low, high, under, over), _beyond(graph, z, *ends)]
    if len(gaps):
        both = graph.add("Concat", t, z, axis=1)
        both = graph.add("Gather", both, gaps[:, 0].astype(np.int64), axis=1)
        sides = graph.add("Sub", both, gaps[:, 1]), graph.add("Sub", gaps[:, 2], both)
        depth = graph.add("Mul", graph.add("Min", *sides), np.ascontiguousarray(gaps[:, 3]))
        excesses.append(graph.add("ReduceMax", depth, axes=[1], keepdims=1))
    if len(landmarks):
        away = graph.add("Mul", graph.add("Abs", centred), weight)
        position = graph.add("ReduceMax", away, axes=[1], keepdims=1)
        excesses += _distances(graph, z, position, landmarks, spacing)
    reach = graph.add("Clip", graph.add("Max", *excesses), 0.0, FARTHEST)
    return graph.add("Exp", graph.add("Neg", graph.add("Pow", reach, float(POWER))))


def _squashed(graph: Graph, scaled: str) -> str:
    """Inputs that count linearly up to a size of 1, and logarithmically beyond; see `squash`."""
    size = graph.add("Abs", scaled)
    beyond = graph.add("Log", graph.add("Max", size, 1.0))
    return graph.add(
        "Mul", graph.add("Sign", scaled), graph.add("Add", graph.add("Min", size, 1.0), beyond)
    )


def _beyond(graph: Graph, value: str, low: Array, high: Array, under: Array, over: Array) -> str:
    """Largest excess over the ends, relative to the reach beyond them: (n, 1)."""
    below = graph.add("Mul", graph.add("Sub", low, value), under)
    above = graph.add("Mul", graph.add("Sub", value, high), over)
    return graph.add("ReduceMax", graph.add("Max", below, above), axes=[1], keepdims=1)


def _distances(graph: Graph, z: str, position: str, landmarks: Array, spacing: Array) -> list[str]:
    """Excess of the distance from the nearest landmark, scaled and plain; see `Measured`."""
    median, largest, rate, top, reach, plain_top, plain_reach = spacing.tolist()
    squares = graph.add("ReduceSumSquare", z, axes=[1], keepdims=1)
    products = graph.add("MatMul", z, np.ascontiguousarray(-2.0 * landmarks.T))
    squared = graph.add("Add", graph.add("Add", products, (landmarks**2).sum(axis=1)), squares)
    nearest = graph.add("ReduceMin", squared, axes=[1], keepdims=1)
    nearest = graph.add("Sqrt", graph.add("Max", nearest, 0.0))
    away = graph.add("Sub", graph.add("Clip", position, median, largest), median)
    growth = graph.add("Exp", graph.add("Mul", away, rate))
    scaled = graph.add("Sub", graph.add("Div", nearest, growth), top)
    plain = graph.add("Sub", nearest, plain_top)
    return [graph.add("Div", scaled, reach), graph.add("Div", plain, plain_reach)]


def _torch(graph: Graph, gate: TorchGate, x: str) -> str:
    """Weights of a PyTorch module, through PyTorch's own exporter."""
    if gate.network_ is None:
        return _constant_rows(graph, gate.global_weights_, x)
    if gate.input_shape_ is None:
        raise InvalidInputError(
            "A TorchGate can be exported to ONNX if its input is one tensor of floating numbers; "
            "this one reads texts, integers or several tensors. Export its module with torch.onnx."
        )
    torch = optional("torch", extra="torch")
    buffer, network = io.BytesIO(), gate.network_.eval()
    example = torch.zeros((2, *gate.input_shape_))
    axes = {"x": {0: "n"}, "logits": {0: "n"}}
    try:
        with warnings.catch_warnings():
            # The newer exporter needs one more package, and the older one warns about its age.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network, (example, 2), buffer, dynamo=False, opset_version=OPSET,
                input_names=["x"], output_names=["logits"], dynamic_axes=axes,
            )  # fmt: skip
    except (RuntimeError, ValueError, TypeError, ImportError) as error:
        raise InvalidInputError(
            f"PyTorch cannot export the module of this TorchGate to ONNX ({error}). Use "
            "operations that torch.onnx supports."
        ) from error
    logits = graph.inline(buffer.getvalue(), graph.cast(x, "FLOAT"))
    return graph.add("Softmax", graph.cast(logits, "DOUBLE"), axis=-1)


def _input_shape(gate: Gate) -> Shape:
    """Shape of `x`, with names for free axes; None if rows may have any shape."""
    for member in gate.members:
        shape = getattr(member, "input_shape_", None)
        if shape is not None:
            return ["n", *shape]
    width = getattr(gate, "n_features_in_", "p")
    if width == 0:
        return None
    return ["n", width]


_EXPORTS: dict[type[Gate], Callable[[Graph, Any, str], str]] = {
    EqualGate: _equal,
    GlobalGate: _global,
    MLPGate: _mlp,
    ShrunkGate: _shrunk,
    TorchGate: _torch,
    TreeGate: _tree,
}
