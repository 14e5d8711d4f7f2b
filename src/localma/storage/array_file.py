"""Named arrays and a JSON description in one safetensors file, with a checksum.

The header's metadata holds the format version, the description and a SHA-256 of the whole file,
computed with 64 zeros in place of the checksum. It detects damage to any byte: in names, types,
shapes, numbers or the description. A checksum is not a signature: a program that changes a file on
purpose can compute a new one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from localma._types import AnyArray
from localma.errors import FileFormatError, InvalidInputError

if TYPE_CHECKING:
    from hashlib import _Hash

FORMAT_VERSION = 3
"""The format that is written."""
READ_VERSIONS = (3,)
"""The formats that are read."""

MAX_DIMENSIONS = 16
DTYPES: dict[str, np.dtype[np.generic]] = {
    f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}")
    for kind, sizes in {"F": (8, 4, 2), "I": (8, 4, 2, 1), "U": (8, 4, 2, 1)}.items()
    for size in sizes
} | {"BOOL": np.dtype("?")}
"""NumPy types by their names in safetensors."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ZEROS = b"0" * 64
_CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_BLOCK = 2**20

Arrays = dict[str, AnyArray]
Json = dict[str, Any]


@dataclass(frozen=True)
class ArrayFile:
    """The content of a file.

    Attributes
    ----------
    sha256 : the checksum, in hexadecimal digits
    version : the format version
    description : a JSON object
    types : the type and shape of each array
    arrays : the arrays; empty if only the description was read
    """

    sha256: str
    version: int
    description: Json
    types: dict[str, ArrayType]
    arrays: Arrays


@dataclass(frozen=True)
class ArrayType:
    """Type and shape of an array, and the range of its bytes."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    start: int
    stop: int


def shown(value: object) -> str:
    """Format a value from a file for a message: short, with control characters escaped.

    >>> shown("a" * 10_000)[-8:], shown([[[[[[[[1]]]]]]]])
    ("aaaaaaa'", '[[[[...]]]]')
    """
    return _SHORT.repr(value)


_SHORT = Repr()
_SHORT.maxlevel = 4
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 12


# Writing.


def to_bytes(description: Json, arrays: Mapping[str, AnyArray]) -> bytes:
    """Return the content of a file; it depends only on the description and the arrays.

    >>> content = to_bytes({"estimator": "mean"}, {"weights": np.array([0.5, 0.5])})
    >>> seal(content) == content
    True
    """
    # Wide types come first, so that every array starts at a multiple of its item size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    blocks, entries, start = [], {}, 0
    for name in order:
        array = np.asarray(arrays[name], order="C")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype not in _NAMES:
            raise InvalidInputError(
                f"Arrays of a saved model must hold numbers; {name!r} is of type {array.dtype}."
            )
        block = array.tobytes()
        entries[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, start + len(block)],
        }
        blocks.append(block)
        start += len(block)
    metadata = {
        "format": "localma",
        "format_version": str(FORMAT_VERSION),
        "sha256": _ZEROS.decode(),
        "description": json.dumps(description, allow_nan=False),
    }
    header = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return seal(b"".join([len(header).to_bytes(8, "little"), header, *blocks]))


def seal(content: bytes) -> bytes:
    """Put the right checksum into the content of a file."""
    stop = 8 + int.from_bytes(content[:8], "little")
    header, _ = _without_checksum(content[8:stop])
    digest = sha256(content[:8] + header)
    digest.update(memoryview(content)[stop:])
    sealed = _with_checksum(header, digest.hexdigest().encode())
    return b"".join([content[:8], sealed, memoryview(content)[stop:]])


def _without_checksum(header: bytes) -> tuple[bytes, str | None]:
    """Return the header with zeros for its checksum, and the checksum; None unless it has one."""
    checksums = _CHECKSUM.findall(header)
    if len(checksums) != 1:
        return header, None
    return _with_checksum(header, _ZEROS), checksums[0].decode()


def _with_checksum(header: bytes, checksum: bytes) -> bytes:
    return _CHECKSUM.sub(b'"sha256":"%b"' % checksum, header, count=1)


# Reading.


def read(path: Path, *, with_arrays: bool = True) -> ArrayFile:
    """Read a file and verify its checksum.

    Needs memory for the arrays, if they are read, and at most 50 times that of the header.
    """
    with open(path, "rb") as file:
        length, header = _read_header(file, path)
        zeroed, recorded = _without_checksum(header)
        digest = sha256(length + zeroed)
        data, n_bytes = _read_data(file, digest, with_arrays)
    if recorded is None:
        _metadata(_parsed(header, "The header"), path)  # another program may have written it
        raise FileFormatError(f"{path} has no checksum. Save the model again.")
    if digest.hexdigest() != recorded:
        raise FileFormatError(
            f"{path} is damaged: its SHA-256 should be {recorded} and is {digest.hexdigest()}. "
            "Copy the file again, or save the model again."
        )
    entries = _parsed(header, f"The header of {path}")
    metadata = _metadata(entries, path)
    types = _types(entries, n_bytes, path)
    description = _parsed(str(metadata.get("description")), f"The description in {path}")
    arrays = {name: _array(data, types[name], name) for name in types if with_arrays}
    return ArrayFile(recorded, int(metadata["format_version"]), description, types, arrays)


def _read_header(file: BinaryIO, path: Path) -> tuple[bytes, bytes]:
    size = os.fstat(file.fileno()).st_size
    length = file.read(8)
    n_bytes = int.from_bytes(length, "little")
    if len(length) < 8 or not 2 <= n_bytes <= size - 8:
        raise _not_a_model(path)
    header = file.read(n_bytes)
    if len(header) < n_bytes or header[:1] != b"{":
        raise _not_a_model(path)
    return length, header


def _not_a_model(path: Path) -> FileFormatError:
    return FileFormatError(
        f"{path} is not a localma model file, or it was cut short. Name a file that save() or "
        "`localma fit` wrote, or copy it again."
    )


def _read_data(file: BinaryIO, digest: _Hash, keep: bool) -> tuple[bytearray, int]:
    """Return the bytes after the header, if `keep`, and their number."""
    # Not mapped, because this process would be killed if another one cut the file short.
    remaining = max(0, os.fstat(file.fileno()).st_size - file.tell())
    data = bytearray(remaining * keep)
    n_bytes = 0
    while n_bytes < remaining and (block := file.read(_BLOCK)):
        digest.update(block)
        if keep:
            data[n_bytes : n_bytes + len(block)] = block
        n_bytes += len(block)
    return data, n_bytes


def _metadata(entries: Json, path: Path) -> Json:
    metadata = entries.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != "localma":
        raise FileFormatError(f"{path} is a safetensors file, but localma did not write it.")
    version = metadata.get("format_version")
    if version not in {str(number) for number in READ_VERSIONS}:
        readable = " and ".join(map(str, READ_VERSIONS))
        raise FileFormatError(
            f"{path} has format version {shown(version)}; this localma reads {readable}. Load it "
            "with the version of localma that wrote it, or fit and save the model again."
        )
    return metadata


def parse_json(text: str | bytes) -> Any:
    """Parse JSON strictly: a ValueError for NaN, for infinity and for a name that occurs twice.

    >>> parse_json('{"rows": 3}')
    {'rows': 3}
    """
    return json.loads(text, object_pairs_hook=_unique_names, parse_constant=_refuse_constant)


def _unique_names(pairs: list[tuple[str, Any]]) -> Json:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parsed(text: str | bytes, origin: str) -> Json:
    """Parse a JSON object."""
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{origin} cannot be read as JSON ({type(error).__name__}: {str(error)[:200]}). Save "
            "the model again."
        ) from None
    if not isinstance(value, dict):
        raise FileFormatError(f"{origin} must be a JSON object; received {shown(value)}.")
    return value


def _types(entries: Json, n_bytes: int, path: Path) -> dict[str, ArrayType]:
    """Read the types of the arrays, which must fill the bytes without gap or overlap."""
    types = {name: _type(name, e) for name, e in entries.items() if name != "__metadata__"}
    stop = 0
    for kind in sorted(types.values(), key=lambda kind: (kind.start, kind.stop)):
        if kind.start != stop:
            raise FileFormatError(f"The arrays of {path} leave a gap or overlap at byte {stop}.")
        stop = kind.stop
    if stop != n_bytes:
        raise FileFormatError(
            f"The arrays of {path} should have {stop} bytes; the file has {n_bytes}."
        )
    return types


def _type(name: str, entry: Any) -> ArrayType:
    if (
        not isinstance(entry, dict)
        or set(entry) != {"dtype", "shape", "data_offsets"}
        or not _are_counts(entry["shape"], range(MAX_DIMENSIONS + 1))
        or not _are_counts(entry["data_offsets"], [2])
    ):
        raise FileFormatError(f"The array {shown(name)} has an unknown form: {shown(entry)}.")
    dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FileFormatError(
            f"The array {shown(name)} has the type {shown(dtype)}; known are {', '.join(DTYPES)}."
        )
    if stop - start != prod(shape) * DTYPES[dtype].itemsize:
        raise FileFormatError(
            f"The array {shown(name)} of shape {shown(shape)} and type {dtype} does not take "
            f"{shown(stop - start)} bytes."
        )
    return ArrayType(DTYPES[dtype], tuple(shape), start, stop)


def _are_counts(values: Any, lengths: Container[int]) -> bool:
    """Whether it is a list, of an allowed length, of numbers that NumPy accepts as sizes."""
    if not isinstance(values, list) or len(values) not in lengths:
        return False
    return all(type(value) is int and 0 <= value < 2**48 for value in values)


def _array(data: bytearray, kind: ArrayType, name: str) -> AnyArray:
    flat = np.frombuffer(memoryview(data)[kind.start : kind.stop], kind.dtype)
    if not flat.flags.aligned:
        flat = flat.copy()
    if kind.dtype.kind == "b" and flat.size and flat.view(np.uint8).max() > 1:
        raise FileFormatError(f"The array {shown(name)} has truth values other than 0 and 1.")
    try:
        return flat.reshape(kind.shape)
    except ValueError:  # an empty array with more dimensions than NumPy can count
        raise FileFormatError(
            f"The array {shown(name)} cannot have the shape {shown(list(kind.shape))}."
        ) from None
