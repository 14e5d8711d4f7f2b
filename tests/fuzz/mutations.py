"""Seeded damage to saved models: to the description, the arrays, the header, the bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from localma.storage import array_file

Random = np.random.Generator

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e308, -1e308,
    1e-320, "", "a", "inf", "nan", "\x1b[2J", "x" * 3000, "\U0001f600" * 50, "../../etc/passwd",
    "/etc/passwd", "~/.ssh/id_rsa", "$HOME", "http://127.0.0.1:9/", "os:system", "left", "right",
    "<U250000000", "<U9", "|O", "<f8", "<M8[s]", [], {}, [[]], [None], [1, 2], ["a", "a"],
    [-1, -8, 0, -1, 8, 0, 4], [10**9], [1] * 3000, [[1], [2, 3]], {"a": 1}, {"$float": "nan"},
    {"$float": "inf"}, {"$float": "-inf"}, {"$float": "1e5"}, {"$float": [1]}, {"$tuple": []},
    {"$tuple": [4]}, {"$tuple": [4, 3]}, {"$tuple": [-1, 8]}, {"$tuple": [10**12]},
    {"$tuple": [0.1]}, {"$list": 5}, {"$left_out": "x"}, {"$import": "os:system"},
    {"$import": ["os"]}, {"$path": "/etc/passwd"}, {"$path": "../model"}, {"$a": 1, "$b": 2},
    {"$gate": {"kind": "EqualGate", "known": True, "parameters": {}}},
    {"$gate": {"kind": "MLPGate", "known": True, "parameters": {"hidden": {"$tuple": [5]}}}},
    {"$gate": {"kind": "TextGate", "known": True, "parameters": {"encoder": "a/b"}}},
    {"$gate": {"kind": "os:system", "known": False, "parameters": {}}},
    {"kind": "ImageGate", "known": True, "parameters": {"network": "tf_efficientnet_lite2"}},
    {"kind": "MLPGate", "known": True, "parameters": {}},
    {"kind": "column", "columns": [0], "classes": None, "cost": 1.0},
    {"kind": "column", "columns": ["a", "b"], "classes": [1, 2], "cost": -1},
]  # fmt: skip
"""What a field of the description is replaced by."""

NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 21.0, 1e38, -1e38, 1e300, 1e-300, 5e-324, 0.5]
DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
HEADER_TYPES = ["BF16", "F8_E4M3", "F8_E5M2", "C64", "F64", "F32", "I64", "BOOL", "", 7, None]
SIZES = [0, 1, 2, 3, 5, 65, 2**20, 2**40, 2**62, 2**64, -1, 1.5, None, "3"]


def mutated(content: bytes, random: Random) -> tuple[bytes, bool]:
    """A damaged copy, and whether its checksum was computed anew."""
    sealed = bool(random.random() < 0.65)
    way = random.random()
    if way < 0.4:
        changed = _change_description(content, random)
    elif way < 0.6:
        changed = _change_arrays(content, random)
    elif way < 0.7:
        changed = _change_gently(content, random)
    elif way < 0.78:
        changed = _change_both(content, random)
    elif way < 0.88:
        changed = _change_header(content, random)
    else:
        changed = _change_bytes(content, random)
    try:
        return (array_file.seal(changed), True) if sealed else (_stale(changed, content), False)
    except (AssertionError, ValueError):
        return changed, False


def _stale(changed: bytes, original: bytes) -> bytes:
    """The content with the checksum of the original, as after damage on the way."""
    (recorded,) = array_file._CHECKSUM.findall(_header(original))
    match = array_file._CHECKSUM.search(changed)
    if match is None:
        return changed
    return changed[: match.start(1)] + recorded + changed[match.end(1) :]


def _header(content: bytes) -> bytes:
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def _with_header(content: bytes, header: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + len(_header(content)) :]


def _pick(random: Random, values: Any) -> Any:
    return copy.deepcopy(values[int(random.integers(len(values)))])


def _open(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    entries = json.loads(_header(content))
    data = content[8 + len(_header(content)) :]
    description = json.loads(entries.pop("__metadata__")["description"])
    arrays = {}
    for name, entry in entries.items():
        start, stop = entry["data_offsets"]
        flat = np.frombuffer(data[start:stop], array_file.DTYPES[entry["dtype"]])
        arrays[name] = flat.reshape(entry["shape"]).copy()
    return description, arrays


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a JSON document stands."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from _paths(item, (*path, key))


def _change_description(content: bytes, random: Random) -> bytes:
    description, arrays = _open(content)
    for _ in range(int(random.integers(1, 4))):
        _change_field(description, random)
    changed = array_file.to_bytes(description, arrays)
    return _nest(changed, random) if random.random() < 0.02 else changed


def _change_field(description: dict[str, Any], random: Random) -> None:
    paths = list(_paths(description))
    if random.random() < 0.4:  # what makes the kernel's buffers
        paths = [p for p in paths if p[0] == "gate"] or paths
    *parents, key = _pick(random, paths)
    owner: Any = description
    for parent in parents:
        owner = owner[parent]
    way = random.random()
    if way < 0.7:
        owner[key] = _pick(random, VALUES)
    elif way < 0.8:
        del owner[key]
    elif way < 0.9 and isinstance(owner, dict):
        owner[str(_pick(random, ["hidden", "kind", "name", "cache", "x", "$import"]))] = (
            copy.deepcopy(owner[key])
        )
    elif isinstance(owner, list):
        owner.insert(int(random.integers(len(owner) + 1)), _pick(random, [*VALUES, owner[key]]))
    else:
        owner[key] = _changed_number(owner[key], random)


def _changed_number(value: Any, random: Random) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _pick(random, VALUES)
    larger = value * 1000 if abs(value) < 1e300 else 0
    return _pick(random, [-value, value + 1, larger, value // 3, [value]])


def _nest(content: bytes, random: Random) -> bytes:
    """Replace the description by one that is nested very deeply."""
    depth = int(_pick(random, [50, 900, 5000, 100_000]))
    entries = json.loads(_header(content))
    opening, closing = _pick(random, [("[", "]"), ('{"$tuple":[', "]}"), ('{"a":', "}")])
    text = opening * depth + ("1" if opening.endswith(":") else "") + closing * depth
    whole = json.loads(entries["__metadata__"]["description"])
    key = _pick(random, sorted(whole))
    whole[key] = "PLACE"
    described = json.dumps(whole).replace('"PLACE"', text)
    entries["__metadata__"]["description"] = described
    return _with_header(content, json.dumps(entries, separators=(",", ":")).encode())


def _change_arrays(content: bytes, random: Random) -> bytes:
    description, arrays = _open(content)
    for _ in range(int(random.integers(1, 3))):
        _change_array(arrays, random)
    return array_file.to_bytes(description, arrays)


def _change_gently(content: bytes, random: Random) -> bytes:
    """Other numbers of the same size, so that most of what is loaded goes through the kernel."""
    description, arrays = _open(content)
    for name in sorted(arrays):
        if arrays[name].dtype.kind == "f" and random.random() < 0.5:
            noise = random.normal(1.0, _pick(random, [1e-3, 1.0, 1e3, 1e18]), arrays[name].shape)
            changed = arrays[name] * noise
            if name.endswith(("weights", "constant", "shares")):
                changed = _on_simplex(name, arrays, random)
            if name.endswith(("scale", "tail")):
                changed = np.abs(changed)
            arrays[name] = np.asarray(changed, dtype=arrays[name].dtype)
    return array_file.to_bytes(description, arrays)


def _on_simplex(name: str, arrays: dict[str, np.ndarray], random: Random) -> np.ndarray:
    if name.endswith(("constant", "shares")) or not arrays[name].size:
        return arrays[name]
    weights = random.exponential(size=arrays[name].shape) * (random.random() < 0.8)
    weights.flat[int(random.integers(weights.size))] += 1e-3
    return weights / weights.sum()


def _change_both(content: bytes, random: Random) -> bytes:
    description, arrays = _open(content)
    _change_field(description, random)
    _change_array(arrays, random)
    return array_file.to_bytes(description, arrays)


def _change_array(arrays: dict[str, np.ndarray], random: Random) -> None:
    if not arrays:
        return
    name = _pick(random, sorted(arrays))
    array = arrays[name]
    way = random.random()
    if way < 0.5:
        arrays[name] = _changed_values(array, random)
    elif way < 0.6:
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(_pick(random, DTYPES))
    elif way < 0.8:
        arrays[name] = _changed_shape(array, random)
    elif way < 0.87:
        del arrays[name]
    elif way < 0.94:
        arrays[name] = arrays[_pick(random, sorted(arrays))]
    else:
        new = _pick(random, [name + ".0", "gate.mixed.7.constant", "evil", "probes.inputs", ""])
        arrays[new] = array


def _changed_values(array: np.ndarray, random: Random) -> np.ndarray:
    changed = np.array(array)
    if not changed.size:
        return changed
    number = _pick(random, NUMBERS)
    with np.errstate(all="ignore"):
        if random.random() < 0.3:
            changed[...] = np.asarray(number).astype(changed.dtype)
        elif random.random() < 0.5:
            changed.flat[int(random.integers(changed.size))] = np.asarray(number).astype(
                changed.dtype
            )
        else:
            changed = np.asarray(changed * number).astype(changed.dtype)
    return changed


def _changed_shape(array: np.ndarray, random: Random) -> np.ndarray:
    ways = [
        lambda: array.ravel(),
        lambda: array[np.newaxis],
        lambda: array[..., np.newaxis],
        lambda: np.zeros((*array.shape[:-1], 0), array.dtype),
        lambda: np.zeros((2, 3, 5, 7), array.dtype),
        lambda: np.repeat(np.atleast_1d(array), 2, axis=0),
        lambda: np.atleast_1d(array)[:-1],
        lambda: np.atleast_1d(array)[..., :1],
        lambda: array.reshape(-1)[:1].reshape(()) if array.size else array,
        lambda: array.T,
    ]
    return np.ascontiguousarray(ways[int(random.integers(len(ways)))]())


def _change_header(content: bytes, random: Random) -> bytes:
    entries = json.loads(_header(content))
    names = sorted(set(entries) - {"__metadata__"})
    entry = entries[_pick(random, names)]
    way = int(random.integers(8))
    if way == 0:
        entry["dtype"] = _pick(random, HEADER_TYPES)
    elif way == 1:
        entry["shape"] = [1] * int(_pick(random, [0, 17, 65, 1000])) + entry["shape"]
    elif way == 2:
        entry["shape"] = [_pick(random, SIZES) for _ in range(int(random.integers(4)))]
    elif way == 3:
        entry["data_offsets"] = [_pick(random, SIZES) for _ in range(int(random.integers(4)))]
    elif way == 4:
        entry["shape"], entry["data_offsets"] = [0, 2**40], [0, 0]
    elif way == 5:
        entries["__metadata__"][_pick(random, sorted(entries["__metadata__"]))] = _pick(
            random, [*VALUES, "3", "2", "99"]
        )
    elif way == 6:
        entries[_pick(random, ["", "a" * 2000, "gate.\x00", "__metadata__"])] = copy.deepcopy(entry)
    else:
        entry.pop(_pick(random, sorted(entry)))
    return _with_header(content, json.dumps(entries, separators=(",", ":")).encode())


def _change_bytes(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    way = random.random()
    place = int(random.integers(len(changed)))
    if way < 0.5:
        for _ in range(int(random.integers(1, 9))):
            at = int(random.integers(len(changed)))
            changed[at] ^= 1 << int(random.integers(8))
    elif way < 0.65:
        del changed[place:]
    elif way < 0.75:
        changed[place:place] = random.bytes(int(random.integers(1, 64)))
    elif way < 0.85:
        stop = min(len(changed), place + int(random.integers(1, 512)))
        changed[place:stop] = bytes(stop - place)
    elif way < 0.95:
        del changed[place : place + int(random.integers(1, 64))]
    else:
        changed[:8] = int(_pick(random, [0, 1, 2**20, 2**40, 2**63])).to_bytes(8, "little")
    return bytes(changed)
