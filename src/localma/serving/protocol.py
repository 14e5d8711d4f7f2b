"""The Open Inference Protocol, version 2: tensors and documents, in JSON and in binary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from localma._types import AnyArray, Json
from localma.errors import InvalidInputError
from localma.formatting import printable

NUMBERS = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""NumPy's name of each datatype of numbers; BYTES, the other one, holds texts."""
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
CONTAINERS = 1024
"""Lists and objects that every document may have; longer ones may have more."""
LENGTH = 4
"""Bytes before each text in binary, which hold its length."""
MOST_DIMENSIONS = 2
MOST_SHOWN = 80
"""Characters of a value in a message."""
IGNORED = frozenset({"content_type", "headers", "priority"})
"""Parameters that clients of other servers send, without a meaning here."""
REQUEST_FIELDS = frozenset({"id", "parameters", "inputs", "outputs"})

Parameters = dict[str, "bool | int | float | str"]


class RequestError(InvalidInputError):
    """A request cannot be answered; `status` is the status of HTTP.

    Examples
    --------
    >>> RequestError("The request has no inputs.").status
    400
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named array.

    Parameters
    ----------
    name : str
        Its name.
    datatype : str
        A key of `NUMBERS`, or "BYTES".
    values : array of shape (n,) or (n, p)
        The numbers, or texts as objects; a missing text is None.

    Examples
    --------
    >>> Tensor("area", "FP64", np.array([80.0])).shape
    [1]
    """

    name: str
    datatype: str
    values: AnyArray

    @property
    def shape(self) -> list[int]:
        """The length of each axis."""
        return list(self.values.shape)


@dataclass(frozen=True)
class Wanted:
    """An output that a client asks for, and whether it wants it in binary."""

    name: str
    is_binary: bool


@dataclass(frozen=True)
class InferRequest:
    """A request for predictions.

    Parameters
    ----------
    id : str or None
        What the client calls it; the response repeats it.
    parameters : dict
        Options of the answer.
    inputs : tuple of Tensor
        The rows.
    outputs : tuple of Wanted, or None
        The outputs to return; None for those that are usual.
    is_binary : bool
        Whether outputs are binary unless they say otherwise.
    """

    id: str | None
    parameters: Parameters
    inputs: tuple[Tensor, ...]
    outputs: tuple[Wanted, ...] | None
    is_binary: bool


def parse_request(body: bytes, header_length: int | None = None) -> InferRequest:
    """Read a request for predictions.

    Parameters
    ----------
    body : bytes
        A JSON document, and after it the binary tensors, if there are any.
    header_length : int, optional
        Bytes of the JSON document, from the header ``Inference-Header-Content-Length``.

    Returns
    -------
    InferRequest
        The checked request.

    Examples
    --------
    >>> body = b'{"inputs": [{"name": "X", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}]}'
    >>> parse_request(body).inputs[0].values.tolist()
    [[1.0, 2.0]]
    """
    header, blobs = body, None
    if header_length is not None:
        if not 0 < header_length <= len(body):
            raise RequestError(
                f"Inference-Header-Content-Length must be from 1 to the {len(body)} bytes of the "
                f"body; received {header_length}. Count the bytes of the JSON document."
            )
        header, blobs = body[:header_length], memoryview(body)[header_length:]
    document = _object(_parsed(header), "The request", REQUEST_FIELDS)
    given, outputs = document.get("inputs"), document.get("outputs")
    if not isinstance(given, list) or not given:
        raise RequestError(
            f"inputs must be a list of one tensor or more; received {_shown(given)}. See the "
            "metadata of the model for their names."
        )
    parameters = _parameters(document.get("parameters"), "The request")
    is_binary = parameters.pop("binary_data_output", False) is True
    return InferRequest(
        id=_request_id(document.get("id")),
        parameters={name: v for name, v in parameters.items() if name not in IGNORED},
        inputs=_tensors(given, blobs),
        outputs=None if outputs is None else _wanted(outputs, is_binary),
        is_binary=is_binary,
    )


def _parsed(text: bytes) -> Json:
    containers = text.count(b"[") + text.count(b"{")
    if containers > CONTAINERS + len(text) // 4:  # an empty list takes two bytes here, 64 in memory
        raise RequestError(f"The body has {containers} lists and objects. Send rows, not brackets.")
    try:
        document: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:MOST_SHOWN] if str(error) else type(error).__name__
        raise RequestError(f"The body must be a JSON document; it cannot be read: {reason}.") from (
            None
        )
    return document


def _object(value: Json, owner: str, fields: frozenset[str]) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise RequestError(f"{owner} must be a JSON object; received {_shown(value)}.")
    unknown = sorted(set(value) - fields)
    if unknown:
        raise RequestError(
            f"{owner} has an unknown field {_shown(unknown[0])}; known: "
            f"{', '.join(sorted(fields))}."
        )
    return value


def _request_id(value: Json) -> str | None:
    if value is not None and not isinstance(value, str):
        raise RequestError(f"id must be a text; received {_shown(value)}.")
    return value


def _parameters(value: Json, owner: str) -> Parameters:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{owner}: parameters must be an object; received {_shown(value)}.")
    for name, entry in value.items():
        if not isinstance(entry, bool | int | float | str) and name != "headers":
            raise RequestError(
                f"{owner}: the parameter {_shown(name)} must be a number, a text, true or false; "
                f"received {_shown(entry)}."
            )
    return dict(value)  # type: ignore[arg-type]


def _wanted(outputs: Json, is_binary: bool) -> tuple[Wanted, ...]:
    if not isinstance(outputs, list) or not outputs:
        raise RequestError(
            f"outputs must be a list of one output or more; received {_shown(outputs)}. Leave it "
            "out for the usual outputs."
        )
    wanted = []
    for value in outputs:
        entry = _object(value, "An output", frozenset({"name", "parameters"}))
        name = _name(entry, "An output")
        parameters = _parameters(entry.get("parameters"), f"The output {_shown(name)}")
        _refuse_extensions(parameters, f"The output {_shown(name)}")
        wanted.append(Wanted(name, parameters.get("binary_data", is_binary) is True))
    if len({entry.name for entry in wanted}) < len(wanted):
        raise RequestError("An output is listed twice. List each output once.")
    return tuple(wanted)


def _refuse_extensions(parameters: Parameters, owner: str) -> None:
    for name in ("shared_memory_region", "classification"):
        if name in parameters:
            raise RequestError(
                f"{owner} needs the extension {name!r}, which this server does not have. Send and "
                "receive tensors in JSON or in binary."
            )


def _name(entry: Mapping[str, Json], owner: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{owner} needs a name, a text; received {_shown(name)}.")
    return name


# Tensors.

TENSOR_FIELDS = frozenset({"name", "shape", "datatype", "parameters", "data"})


def _tensors(given: Sequence[Json], blobs: memoryview | None) -> tuple[Tensor, ...]:
    tensors, start = [], 0
    for value in given:
        entry = _object(value, "An input", TENSOR_FIELDS)
        owner = f"The input {_shown(_name(entry, 'An input'))}"
        parameters = _parameters(entry.get("parameters"), owner)
        _refuse_extensions(parameters, owner)
        size = parameters.get("binary_data_size")
        if size is None:
            tensors.append(_from_json(entry, owner))
            continue
        left = 0 if blobs is None else len(blobs) - start
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= left:
            raise RequestError(
                f"{owner}: binary_data_size must be a number of bytes, at most the {left} that "
                f"are left in the body; received {_shown(size)}."
            )
        if blobs is None or "data" in entry:
            raise RequestError(f"{owner} has data and binary_data_size. Send one of them.")
        tensors.append(_from_binary(entry, owner, bytes(blobs[start : start + size])))
        start += size
    if blobs is not None and start != len(blobs):
        raise RequestError(
            f"The binary tensors have {start} bytes together, but {len(blobs)} follow the JSON "
            "document. Send exactly the bytes of the tensors."
        )
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise RequestError("An input occurs twice. Send each input once.")
    return tuple(tensors)


def _type_and_shape(entry: Mapping[str, Json], owner: str) -> tuple[str, tuple[int, ...]]:
    datatype, shape = entry.get("datatype"), entry.get("shape")
    if datatype != "BYTES" and datatype not in NUMBERS:
        raise RequestError(
            f"{owner} needs a datatype from {', '.join([*NUMBERS, 'BYTES'])}; received "
            f"{_shown(datatype)}."
        )
    is_list = isinstance(shape, list) and 1 <= len(shape) <= MOST_DIMENSIONS
    if not is_list or any(type(k) is not int or not 0 <= k < 2**31 for k in shape):  # type: ignore[union-attr]
        raise RequestError(
            f"{owner} needs a shape of one or two whole numbers, such as [2] or [2, 1]; received "
            f"{_shown(shape)}."
        )
    return str(datatype), tuple(shape)  # type: ignore[arg-type]


def _from_json(entry: Mapping[str, Json], owner: str) -> Tensor:
    datatype, shape = _type_and_shape(entry, owner)
    data = entry.get("data")
    if not isinstance(data, list):
        raise RequestError(f"{owner} needs data, a list; received {_shown(data)}.")
    if len(shape) == MOST_DIMENSIONS and data and isinstance(data[0], list):
        data = _flattened(data, shape, owner)
    if len(data) != prod(shape):
        raise RequestError(
            f"{owner} has shape {list(shape)}, so it needs {prod(shape)} values; received "
            f"{len(data)}."
        )
    return Tensor(str(entry["name"]), datatype, _array(data, datatype, owner).reshape(shape))


def _flattened(rows: list[Json], shape: tuple[int, ...], owner: str) -> list[Json]:
    lengths = {len(row) if isinstance(row, list) else None for row in rows}
    if len(rows) != shape[0] or lengths != {shape[1]}:
        raise RequestError(
            f"{owner} has shape {list(shape)}, so its data must be {shape[0]} lists of {shape[1]} "
            "values, or one list of all values."
        )
    return [value for row in rows for value in row]  # type: ignore[union-attr]


ALLOWED: dict[str, set[type]] = {
    "b": {bool},
    "u": {int},
    "i": {int},
    "f": {int, float, type(None)},
    "O": {str, type(None)},
}
"""Types of JSON for each kind of array; null is a missing value."""


def _array(values: list[Json], datatype: str, owner: str) -> AnyArray:
    dtype = np.dtype(object) if datatype == "BYTES" else np.dtype(NUMBERS[datatype])
    wrong = set(map(type, values)) - ALLOWED[dtype.kind]
    if wrong:
        example = next(value for value in values if type(value) in wrong)
        note = " A missing number needs datatype FP64." if example is None else ""
        raise RequestError(f"{owner} is {datatype}, but its data has {_shown(example)}.{note}")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype=dtype)
    except (OverflowError, ValueError):
        raise RequestError(
            f"{owner} has a number that {datatype} cannot hold. Send another datatype."
        ) from None


def _from_binary(entry: Mapping[str, Json], owner: str, raw: bytes) -> Tensor:
    datatype, shape = _type_and_shape(entry, owner)
    n = prod(shape)
    if datatype == "BYTES":
        values: AnyArray = np.array(_texts(raw, n, owner), dtype=object)
    else:
        dtype = np.dtype(NUMBERS[datatype])
        if len(raw) != n * dtype.itemsize:
            raise RequestError(
                f"{owner} has shape {list(shape)}, so it needs {n * dtype.itemsize} bytes; "
                f"received {len(raw)}."
            )
        values = np.frombuffer(raw, dtype)
    return Tensor(str(entry["name"]), datatype, values.reshape(shape))


def _texts(raw: bytes, n: int, owner: str) -> list[str]:
    """Split texts, each after its length."""
    texts, start = [], 0
    while start < len(raw):
        size = int.from_bytes(raw[start : start + LENGTH], "little")
        start += LENGTH + size
        if start > len(raw):
            raise RequestError(f"{owner} ends within a text. Write the length before each text.")
        try:
            texts.append(raw[start - size : start].decode())
        except UnicodeDecodeError:
            raise RequestError(f"{owner} has a text that is not in UTF-8.") from None
    if len(texts) != n:
        raise RequestError(f"{owner} needs {n} texts for its shape; received {len(texts)}.")
    return texts


def _shown(value: object) -> str:
    """A value of a client, short and on one line."""
    text = repr(value) if not isinstance(value, list | dict) else json.dumps(value)[:MOST_SHOWN]
    return printable(text)[:MOST_SHOWN]


# Responses.


def encode_response(
    document: Mapping[str, Json], outputs: Sequence[tuple[Tensor, bool]]
) -> tuple[bytes, int | None]:
    """Write a response: the body and, if it has binary tensors, the length of its JSON.

    Parameters
    ----------
    document : dict
        The fields apart from the outputs.
    outputs : sequence of (Tensor, bool)
        The outputs, and whether each is binary.

    Returns
    -------
    (bytes, int or None)
        The body, and the value of ``Inference-Header-Content-Length``.

    Examples
    --------
    >>> encode_response({"model_name": "rent"}, [(Tensor("predict", "FP64", np.ones(1)), False)])
    (b'{"model_name":"rent","outputs":[{"name":"predict","datatype":"FP64","shape":[1],"data":[1.0]}]}', None)
    """  # noqa: E501
    entries: list[Json] = []
    blobs = []
    for tensor, is_binary in outputs:
        entry: dict[str, Json] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
        }
        if is_binary:
            blobs.append(_as_bytes(tensor))
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            entry["data"] = _as_list(tensor)
        entries.append(entry)
    header = as_json({**document, "outputs": entries})
    return b"".join([header, *blobs]), len(header) if blobs else None


def as_json(document: Mapping[str, Json]) -> bytes:
    """Write JSON without blanks."""
    return ENCODER.encode(document).encode()


def _as_list(tensor: Tensor) -> list[Json]:
    """Values in one list, as the protocol wants them; NaN is null."""
    values = tensor.values.ravel()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return [value if np.isfinite(value) else None for value in values.tolist()]
    listed: list[Json] = values.tolist()
    return listed


def _as_bytes(tensor: Tensor) -> bytes:
    if tensor.datatype != "BYTES":
        return tensor.values.astype(NUMBERS[tensor.datatype], copy=False).tobytes()
    texts = ["" if text is None else str(text) for text in tensor.values.ravel().tolist()]
    encoded = [text.encode() for text in texts]
    return b"".join(len(text).to_bytes(LENGTH, "little") + text for text in encoded)


def error_document(message: str) -> bytes:
    """Write an error as the protocol wants it.

    >>> error_document("The model is not ready.")
    b'{"error":"The model is not ready."}'
    """
    return as_json({"error": message})
