"""Keys of rows by their content, so that a cache recognises a row anywhere.

Two different rows have the same key with probability ``2 ** -128``. Short rows of numbers are
hashed all at once by a multilinear hash over 32-bit words ``s_j`` in four lanes l,
``h_l = (a_l0 + sum_j a_lj s_j mod 2**64) >> 32`` with random 64-bit numbers ``a_lj``. That
probability is proven for it (Lemire and Kaser, Strongly universal string hashing is fast, 2014).
Longer rows, texts, images and other objects are hashed one by one by BLAKE2b.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from localma._types import AnyArray
from localma.errors import InvalidInputError
from localma.storage.fingerprints import fingerprint

if TYPE_CHECKING:
    from PIL.Image import Image
    from scipy.sparse import spmatrix
    from torch import Tensor

Keys = NDArray[np.uint64]
Words = NDArray[np.uint32]

LANES = 4
WIDE_WORDS = 128
"""Rows with more words are hashed faster one by one."""
BLOCK_ROWS = 4096
PLAIN_NUMBERS = "biufcmM"
SCALARS = (bool, int, float, complex, Decimal, Fraction, date, time, timedelta, UUID, np.generic)
"""Immutable values that differ in their repr."""


def row_keys(X: Any) -> Keys:
    """Compute keys of the rows of X by their content: (n, 2).

    X : an array, a sparse matrix, a data frame, or n objects: texts, paths, arrays, tensors,
        images, dicts or lists of them. If a string is the path of a file, the content of the file
        counts too. The index of a data frame does not count.

    >>> keys = row_keys(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    >>> (keys[0] == keys[2]).all(), (keys[0] == keys[1]).any()
    (np.True_, np.False_)
    """
    kind, blocks = _words(X)
    return hash_words(blocks, kind)


def hash_words(blocks: Sequence[Words], kind: str) -> Keys:
    """Hash rows of words, separately for each kind of rows: arrays (n, w_m) -> (n, 2).

    >>> hash_words([np.zeros((3, 2), dtype=np.uint32)], "zeros").shape
    (3, 2)
    """
    blocks = [b if b.shape[1] <= WIDE_WORDS else _digests(map(bytes, b)) for b in blocks]
    head = np.frombuffer(_digest(kind.encode()), dtype=np.uint32).astype(np.uint64)
    ends = 1 + len(head) + np.cumsum([0] + [block.shape[1] for block in blocks])
    factors = _factors(int(ends[-1]))
    offset = factors[0] + head @ factors[1 : 1 + len(head)]
    keys = np.empty((len(blocks[0]), 2), dtype=np.uint64)
    for start in range(0, len(keys), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        lanes = offset + sum(
            block[rows].astype(np.uint64) @ factors[left:right]
            for block, left, right in zip(blocks, ends[:-1], ends[1:], strict=True)
        )
        lanes = lanes >> np.uint64(32)
        keys[rows] = lanes[:, :2] << np.uint64(32) | lanes[:, 2:]
    return keys


@lru_cache(maxsize=8)
def _factors(n_words: int) -> NDArray[np.uint64]:
    """Random numbers, always the same because keys are stored on disk: (n_words, LANES)."""
    return np.random.Philox(key=20240229).random_raw(n_words * LANES).reshape(n_words, LANES)


def as_words(values: AnyArray) -> Words:
    """Return the bytes of each row of an array of numbers as 32-bit words: (n, ...) -> (n, w).

    >>> as_words(np.array([[1, 2, 3]], dtype=np.uint8)).tolist()
    [[197121]]
    """
    n = len(values)
    flat = np.ascontiguousarray(values).reshape(n, values.size // n)
    raw = flat.view(np.uint8).reshape(n, flat.shape[1] * flat.itemsize)
    if raw.shape[1] % 4:
        raw = np.pad(raw, ((0, 0), (0, -raw.shape[1] % 4)))
    return raw.view(np.uint32)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _digests(rows: Iterable[bytes]) -> Words:
    """Digest of each row, as words: (n, 4)."""
    return np.frombuffer(b"".join(map(_digest, rows)), np.uint32).reshape(-1, 4)


def _words(X: Any) -> tuple[str, list[Words]]:
    """Return the kind of the rows of X, and words that differ for different rows of that kind."""
    if isinstance(X, np.ma.MaskedArray) or getattr(getattr(X, "dtype", None), "names", None):
        raise InvalidInputError(
            f"Rows of a {type(X).__name__} with a mask or named fields cannot be cached; pass a "
            "plain array or a data frame."
        )
    if _is_tensor(X):
        kind, blocks = _words(_as_array(X))
        return f"tensor {X.dtype} {kind}", blocks
    if isinstance(X, np.ndarray) and X.dtype.kind in PLAIN_NUMBERS:
        return f"array {X.dtype.str} {X.shape[1:]}", [as_words(X)]
    if isinstance(X, np.ndarray):
        return f"array of objects {X.shape[1:]}", [_digests(map(_encoded, X.tolist()))]
    if issparse(X):
        return f"sparse {X.dtype.str} {X.shape[1]}", [_digests(_sparse_rows(X))]
    frame = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(frame, nw.Series):
        frame = frame.to_frame()
    if isinstance(frame, nw.DataFrame):
        return _frame_words(frame, type(X).__module__.partition(".")[0])
    return "objects", [_digests(_encoded(X[row]) for row in range(len(X)))]


def _sparse_rows(X: spmatrix) -> Iterator[bytes]:
    rows = X.tocsr(copy=True)
    rows.sum_duplicates()  # also sorts
    indices = rows.indices.astype(np.int64)
    for start, stop in pairwise(rows.indptr):
        yield indices[start:stop].tobytes() + rows.data[start:stop].tobytes()


def _frame_words(frame: nw.DataFrame[Any], library: str) -> tuple[str, list[Words]]:
    kinds, blocks = [library], [np.empty((len(frame), 0), dtype=np.uint32)]
    for index, name in enumerate(frame.columns):
        kind, words = _column_words(frame[:, index])
        kinds.append(f"{name!r} {kind}")
        blocks.extend(words)
    return "\n".join(kinds), blocks


def _column_words(column: nw.Series[Any]) -> tuple[str, list[Words]]:
    native = column.to_native()
    dtype: Any = getattr(native, "dtype", getattr(native, "type", None))
    kind = str(dtype)
    if hasattr(dtype, "categories") and (column.dtype == nw.Enum or hasattr(dtype, "ordered")):
        # A model may use the code of a category, which depends on all categories.
        kind += repr(list(dtype.categories))
    # In NumPy columns NaN means null; other columns can have both.
    nullable = not isinstance(dtype, np.dtype)
    values = _plain_numbers(column, nullable)
    if values is None:
        # Columns repeat their texts, so each text is encoded once.
        encode_once = lru_cache(maxsize=None)(_encoded)
        encoders = {str: encode_once}
        encoded = [encoders.get(type(value), _encoded)(value) for value in column.to_list()]
        return f"{kind} objects", [_digests(encoded)]
    blocks = [as_words(values)]
    if nullable:
        blocks.append(column.is_null().to_numpy().astype(np.uint32)[:, np.newaxis])
    return f"{kind} {values.dtype.str}", blocks


def _plain_numbers(column: nw.Series[Any], nullable: bool) -> AnyArray | None:
    """Return the values of a column of numbers or times, with any values for nulls."""
    if not column.dtype.is_numeric() and not column.dtype.is_temporal():
        return None
    if nullable and column.dtype.is_numeric() and column.null_count() > 0:
        # Otherwise integers with nulls become floats, in which large numbers can be equal.
        column = column.fill_null(0)
    values = np.asarray(column.to_numpy())
    if values.dtype.kind not in PLAIN_NUMBERS:
        return None
    return values


def _encoded(value: object) -> bytes:
    """Encode a value uniquely: a tag, the length of the content, the content."""
    tag, content = _tagged(value)
    return b"%s %d " % (tag.encode(), len(content)) + content


def _tagged(value: Any) -> tuple[str, bytes]:
    for types, encode in _ENCODERS:
        if isinstance(value, types):
            return encode(value)
    if _is_tensor(value):
        return f"tensor {value.dtype}", _encoded(_as_array(value))
    name = type(value).__name__
    if all(hasattr(value, attribute) for attribute in ("mode", "size", "getpalette")):
        return _image(value)
    if name == "NAType":
        return "na", b""
    raise InvalidInputError(
        f"An object of type {name} cannot be cached, because rows are recognised by their content: "
        "pass rows of numbers, texts, paths, arrays, tensors, images, or dicts and lists of them, "
        "for example with a function of X as inputs=."
    )


def _text(value: str) -> tuple[str, bytes]:
    # A string may be a text or the path of a file, so both count.
    if os.path.isfile(value):
        return "file", _file(value)
    return "text", value.encode("utf-8", "surrogatepass")


def _path(value: os.PathLike[str]) -> tuple[str, bytes]:
    path = os.fsdecode(value)
    if not os.path.isfile(path):
        raise InvalidInputError(f"Only paths of files can be cached; {path!r} is not a file.")
    return "file", _file(path)


def _file(path: str) -> bytes:
    return os.fsencode(path) + b"\0" + fingerprint(Path(path)).encode()


def _array(value: AnyArray) -> tuple[str, bytes]:
    if value.dtype.kind not in PLAIN_NUMBERS:
        return f"array {value.shape}", _encoded(value.tolist())
    return f"array {value.dtype.str} {value.shape}", np.ascontiguousarray(value).tobytes()


def _listed(value: Sequence[object]) -> tuple[str, bytes]:
    return f"{type(value).__name__} {len(value)}", b"".join(map(_encoded, value))


def _image(value: Image) -> tuple[str, bytes]:
    extra = (value.getpalette(), value.info.get("transparency"))
    return f"image {value.mode} {value.size}", repr(extra).encode() + b"\0" + value.tobytes()


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _as_array(tensor: Tensor) -> AnyArray:
    plain = tensor.detach().cpu()
    if "bfloat16" in str(plain.dtype):  # which NumPy does not have
        plain = plain.float()
    return plain.numpy()


_ENCODERS: list[tuple[type | tuple[type, ...], Callable[[Any], tuple[str, bytes]]]] = [
    (type(None), lambda value: ("none", b"")),
    (str, _text),
    ((bytes, bytearray, memoryview), lambda value: ("bytes", bytes(value))),
    (SCALARS, lambda value: (type(value).__name__, repr(value).encode())),
    (np.ndarray, _array),
    ((list, tuple), _listed),
    (dict, lambda value: ("dict", _encoded(list(value.items())))),
    (os.PathLike, _path),
]
