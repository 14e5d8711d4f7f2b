"""A key for each row by its content, so that the same row is known again wherever it stands.

Two different rows have the same key with probability ``2 ** -128``. Short rows of numbers are
hashed all at once by a multilinear hash over 32-bit words ``s_j`` in four lanes l,
``h_l = (a_l0 + sum_j a_lj s_j mod 2**64) >> 32`` with random 64-bit numbers ``a_lj``, for which
that probability is proven (Lemire and Kaser, Strongly universal string hashing is fast, 2014);
longer rows, texts, images and other objects are hashed one by one by BLAKE2b.
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
from pathlib import Path
from typing import Any
from uuid import UUID

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from localma.candidates.files import fingerprint
from localma.errors import InvalidInputError
from localma.tables.frames import n_rows

Keys = NDArray[np.uint64]
Words = NDArray[np.uint32]

LANES = 4
WIDE_WORDS = 128
"""Rows of more words are quicker hashed one by one."""
BLOCK_ROWS = 4096
PLAIN_NUMBERS = "biufcmM"
SCALARS = (bool, int, float, complex, Decimal, Fraction, date, time, timedelta, UUID, np.generic)
"""Immutable values whose repr tells them apart."""


def row_keys(X: Any) -> Keys:
    """Keys of the rows of X by their content: (n, 2).

    X : an array, a sparse matrix, a data frame, or n objects: texts, paths, arrays, tensors,
        images, dicts or lists of them. A string that is the path of a file stands for the file's
        content too. The index of a data frame is no part of its rows.

    >>> keys = row_keys(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    >>> (keys[0] == keys[2]).all(), (keys[0] == keys[1]).any()
    (np.True_, np.False_)
    """
    kind, parts = _words(X)
    return hash_words(parts, kind)


def hash_words(parts: Sequence[Words], kind: str) -> Keys:
    """Hash rows of words, apart from those of any other kind: M arrays (n, w_m) -> (n, 2).

    >>> hash_words([np.zeros((3, 2), dtype=np.uint32)], "zeros").shape
    (3, 2)
    """
    parts = [part if part.shape[1] <= WIDE_WORDS else _digests(map(bytes, part)) for part in parts]
    head = np.frombuffer(_digest(kind.encode()), dtype=np.uint32).astype(np.uint64)
    ends = 1 + len(head) + np.cumsum([0] + [part.shape[1] for part in parts])
    factors = _factors(int(ends[-1]))
    start = factors[0] + head @ factors[1 : 1 + len(head)]
    keys = np.empty((len(parts[0]), 2), dtype=np.uint64)
    for first in range(0, len(keys), BLOCK_ROWS):
        block = slice(first, first + BLOCK_ROWS)
        lanes = start + sum(
            part[block].astype(np.uint64) @ factors[left:right]
            for part, left, right in zip(parts, ends[:-1], ends[1:], strict=True)
        )
        lanes = lanes >> np.uint64(32)
        keys[block] = lanes[:, :2] << np.uint64(32) | lanes[:, 2:]
    return keys


@lru_cache(maxsize=8)
def _factors(n_words: int) -> NDArray[np.uint64]:
    """Random numbers, always the same, since keys are kept on disk: (n_words, LANES)."""
    return np.random.Philox(key=20240229).random_raw(n_words * LANES).reshape(n_words, LANES)


def as_words(values: NDArray[Any]) -> Words:
    """The bytes of each row of an array of numbers, as 32-bit words: (n, ...) -> (n, w).

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
    return _joined([_digest(row) for row in rows])


def _joined(digests: list[bytes]) -> Words:
    return np.frombuffer(b"".join(digests), np.uint32).reshape(-1, 4)


def _words(X: Any) -> tuple[str, list[Words]]:
    """What kind of rows X has, and each row in words that tell it from all others of the kind."""
    if isinstance(X, np.ma.MaskedArray) or getattr(getattr(X, "dtype", None), "names", None):
        raise InvalidInputError(
            f"Rows of a {type(X).__name__} with a mask or named fields have no key by which a "
            "cache could know them again; pass a plain array or a data frame."
        )
    if _is_tensor(X):
        kind, words = _words(_as_array(X))
        return f"tensor {X.dtype} {kind}", words
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
    return "objects", [_digests(_encoded(X[row]) for row in range(n_rows(X)))]


def _sparse_rows(X: Any) -> Iterator[bytes]:
    rows = X.tocsr(copy=True)
    rows.sum_duplicates()  # which sorts too
    indices = rows.indices.astype(np.int64)
    for first, last in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        yield indices[first:last].tobytes() + rows.data[first:last].tobytes()


def _frame_words(frame: nw.DataFrame[Any], library: str) -> tuple[str, list[Words]]:
    kinds, parts = [library], [np.empty((len(frame), 0), dtype=np.uint32)]
    for place, name in enumerate(frame.columns):
        kind, words = _column_words(frame[:, place])
        kinds.append(f"{name!r} {kind}")
        parts.extend(words)
    return "\n".join(kinds), parts


def _column_words(column: nw.Series[Any]) -> tuple[str, list[Words]]:
    native = column.to_native()
    dtype: Any = getattr(native, "dtype", getattr(native, "type", None))
    kind = str(dtype)
    if hasattr(dtype, "categories") and (column.dtype == nw.Enum or hasattr(dtype, "ordered")):
        # A model may look at the code of a category, which depends on all of them.
        kind += repr(list(dtype.categories))
    # In NumPy's own columns NaN stands for null; in others both may be there.
    nullable = not isinstance(dtype, np.dtype)
    values = _plain_numbers(column, nullable)
    if values is not None:
        words = [as_words(values)]
        if nullable:
            words.append(column.is_null().to_numpy().astype(np.uint32)[:, np.newaxis])
        return f"{kind} {values.dtype.str}", words
    known: dict[str, bytes] = {}
    digests = [_column_digest(value, known) for value in column.to_list()]
    return f"{kind} objects", [_joined(digests)]


def _plain_numbers(column: nw.Series[Any], nullable: bool) -> NDArray[Any] | None:
    """The values of a column of numbers or times, with something in place of nulls."""
    if not column.dtype.is_numeric() and not column.dtype.is_temporal():
        return None
    # Else an integer column with nulls becomes floats, where large numbers fall together.
    fill = nullable and column.dtype.is_numeric() and column.null_count() > 0
    values = np.asarray((column.fill_null(0) if fill else column).to_numpy())
    return values if values.dtype.kind in PLAIN_NUMBERS else None


def _column_digest(value: Any, known: dict[str, bytes]) -> bytes:
    """Digest of a value; columns repeat their texts, so those are digested once each."""
    if type(value) is not str:
        return _digest(_encoded(value))
    if value not in known:
        known[value] = _digest(_encoded(value))
    return known[value]


def _encoded(value: Any) -> bytes:
    """Bytes that no other value has: a tag, the length of the content, the content."""
    tag, content = _tagged(value)
    return b"%s %d " % (tag.encode(), len(content)) + content


def _tagged(value: Any) -> tuple[str, bytes]:
    if value is None:
        return "none", b""
    for types, read in _READERS:
        if isinstance(value, types):
            return read(value)
    if _is_tensor(value):
        return _tensor(value)
    name = type(value).__name__
    if all(hasattr(value, attribute) for attribute in ("mode", "size", "getpalette")):
        return _image(value)
    if name == "NAType":
        return "na", b""
    raise InvalidInputError(
        f"A row must be known again by its content to be cached, and a {name} cannot be: pass rows "
        "of numbers, texts, paths, arrays, tensors, images, or dicts and lists of them, for "
        "example with inputs= a function of X."
    )


def _text(value: str) -> tuple[str, bytes]:
    content = value.encode("utf-8", "surrogatepass")
    # Nobody says whether a string is a text or the path of a file, so it counts as both.
    return ("file", _file(value)) if os.path.isfile(value) else ("text", content)


def _path(value: os.PathLike[Any]) -> tuple[str, bytes]:
    path = os.fsdecode(value)
    if not os.path.isfile(path):
        raise InvalidInputError(
            f"A path among the rows must be that of a file to be cached; there is no file {path!r}."
        )
    return "file", _file(path)


def _file(path: str) -> bytes:
    return os.fsencode(path) + b"\0" + fingerprint(Path(path)).encode()


def _array(value: NDArray[Any]) -> tuple[str, bytes]:
    if value.dtype.kind not in PLAIN_NUMBERS:
        return f"array {value.shape}", _encoded(value.tolist())
    return f"array {value.dtype.str} {value.shape}", np.ascontiguousarray(value).tobytes()


def _listed(value: Any) -> tuple[str, bytes]:
    items = list(value)
    return f"{type(value).__name__} {len(items)}", b"".join(map(_encoded, items))


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _as_array(tensor: Any) -> NDArray[Any]:
    plain = tensor.detach().cpu()
    # NumPy does not know bfloat16, which float32 holds.
    array: NDArray[Any] = (plain.float() if "bfloat16" in str(plain.dtype) else plain).numpy()
    return array


def _tensor(value: Any) -> tuple[str, bytes]:
    return f"tensor {value.dtype}", _encoded(_as_array(value))


def _image(value: Any) -> tuple[str, bytes]:
    extra = (value.getpalette(), value.info.get("transparency"))
    return f"image {value.mode} {value.size}", repr(extra).encode() + b"\0" + value.tobytes()


Reader = Callable[[Any], tuple[str, bytes]]
_READERS: list[tuple[Any, Reader]] = [
    (str, _text),
    ((bytes, bytearray, memoryview), lambda value: ("bytes", bytes(value))),
    (SCALARS, lambda value: (type(value).__name__, repr(value).encode())),
    (np.ndarray, _array),
    ((list, tuple), _listed),
    (dict, lambda value: ("dict", _encoded(list(value.items())))),
    (os.PathLike, _path),
]
