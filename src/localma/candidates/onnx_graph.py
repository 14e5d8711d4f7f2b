"""The class labels that an ONNX file states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localma._optional import optional
from localma.storage.fingerprints import file_state

ClassLabels = tuple[str, ...] | tuple[int, ...]

LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Attributes of ZipMap, TreeEnsembleClassifier, LinearClassifier and SVMClassifier."""
CHANGE_NO_LABEL = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators that converters put between the labels and the output."""


def class_labels(path: Path) -> ClassLabels | None:
    """Read the class labels that an ONNX file states; None if it states none.

    None also if the package onnx is not installed.
    """
    if find_spec("onnx") is None:
        return None
    return _read(str(path), file_state(path))


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
