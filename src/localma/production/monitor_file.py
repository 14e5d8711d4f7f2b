"""Saving and loading the state of a monitor: arrays and JSON with a checksum, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from localma.errors import FileFormatError, InvalidInputError, LocalMAError
from localma.production.answer import output_shape
from localma.production.blocks import Blocks
from localma.production.monitor import LAST_PERIOD, Model, Monitor, WaitingRow
from localma.production.sequential import block_starts
from localma.storage.array_file import Arrays, Json, read, shown, to_bytes
from localma.storage.whole_files import write_whole

Kind = TypeVar("Kind", bound=Monitor)

FIELDS = {
    "monitor": dict, "model": str, "candidates": list, "periods": list, "keys": list,
    "unfamiliar": dict,
}  # fmt: skip
SETTINGS = ("max_waiting", "random_state", "forgotten", "clock")
COUNTS = ("bins", "rows", "events", "tried")
SUMS = ("sums", "seconds")


def save_monitor(monitor: Monitor, path: Path) -> None:
    """Write the state of a monitor to a file, whole or not at all."""
    blocks, waiting = monitor._blocks, monitor._waiting
    arrays: Arrays = {"slowest": monitor._slowest}
    if blocks is not None:
        arrays |= {f"blocks.{name}": array for name, array in blocks.tables.items()}
    rows = list(waiting.values())
    if rows:
        arrays["waiting.period"] = np.array([row.period for row in rows], dtype=np.int64)
        arrays["waiting.P"] = np.stack([row.P for row in rows])
        arrays["waiting.average"] = np.stack([row.average for row in rows])
    description: Json = {
        "monitor": {
            "max_waiting": monitor.max_waiting,
            "random_state": monitor.random_state,
            "forgotten": monitor._forgotten,
            "clock": monitor._clock,
        },
        "model": monitor._plan.model,
        "candidates": list(monitor._plan.names),
        "periods": [] if blocks is None else [blocks.first, blocks.last],
        "keys": list(waiting),
        "unfamiliar": dict(monitor._unfamiliar),
    }
    write_whole(path, to_bytes(description, arrays))


def load_monitor(kind: type[Kind], path: Path, model: Model) -> Kind:
    """Read the state of a monitor of a model."""
    file = read(path)
    saved = file.description
    if set(saved) != set(FIELDS):
        raise FileFormatError(
            f"{path} is not the state of a monitor; it has the fields {shown(sorted(saved))}. Name "
            "a file that Monitor.save or `localma monitor` wrote."
        )
    try:
        return _restore(kind, model, saved, file.arrays, path)
    except (LocalMAError, OSError):
        raise
    except Exception as error:
        # Whatever a file makes NumPy or this module raise, the file is at fault.
        raise FileFormatError(
            f"{path} does not have the form of a monitor's state ({type(error).__name__}: "
            f"{str(error)[:300]}). Save the monitor again."
        ) from error


def _restore(kind: type[Kind], model: Model, saved: Json, arrays: Arrays, path: Path) -> Kind:
    for name, expected in FIELDS.items():
        _require(isinstance(saved[name], expected), f"{name} must be a {expected.__name__}")
    settings = saved["monitor"]
    _require(set(settings) == set(SETTINGS), f"its settings must be {', '.join(SETTINGS)}")
    _require(all(type(settings[name]) is int for name in SETTINGS), "settings must be integers")
    _require(min(settings.values()) >= 0, "settings must not be negative")
    monitor = kind(
        model, max_waiting=settings["max_waiting"], random_state=settings["random_state"]
    )
    plan = monitor._plan
    if saved["model"] != plan.model:
        raise InvalidInputError(
            f"{path} is the state of a monitor of another model, with the candidates "
            f"{shown(saved['candidates'])}; this one has {', '.join(map(repr, plan.names))}. Use "
            "the model that it watched, or start a new state."
        )
    monitor._forgotten, monitor._clock = settings["forgotten"], settings["clock"]
    unfamiliar = saved["unfamiliar"]
    are_counts = all(type(n) is int and n >= 0 for n in unfamiliar.values())
    _require(are_counts, "numbers of unfamiliar values must be counts")
    monitor._unfamiliar = dict(unfamiliar)
    monitor._slowest = _checked(arrays, "slowest", "f", (len(plan.names),), negative=False)
    monitor._blocks = _restore_blocks(monitor, saved["periods"], arrays)
    monitor._waiting = _restore_waiting(monitor, saved["keys"], arrays)
    known = {"slowest", *(name for name in arrays if name.startswith(("blocks.", "waiting.")))}
    _require(set(arrays) <= known, "it has unknown arrays")
    return monitor


def _restore_blocks(monitor: Monitor, periods: list[int], arrays: Arrays) -> Blocks | None:
    if not periods:
        _require(not any(name.startswith("blocks.") for name in arrays), "it has no periods")
        return None
    ends = len(periods) == 2 and all(type(period) is int for period in periods)
    _require(ends and 0 <= periods[0] <= periods[1] <= LAST_PERIOD, "periods must be in order")
    plan = monitor._plan
    J, V, E = len(block_starts(periods[1], periods[0])), len(plan.variables), len(plan.events)
    M, B = len(plan.names), plan.ranks.gaps.shape[1]
    shapes = {
        "bins": (V, B),
        "sums": (V,),
        "rows": (2,),
        "events": (E,),
        "tried": (E,),
        "seconds": (M,),
    }
    tables: dict[str, Any] = {}
    for name, shape in shapes.items():
        kind = "i" if name in COUNTS else "f"
        negative = name == "sums"
        tables[name] = _checked(arrays, f"blocks.{name}", kind, (J, *shape), negative=negative)
    _require((tables["events"] <= tables["tried"]).all(), "events must not exceed their rows")
    return Blocks(periods[0], periods[1], tables)


def _restore_waiting(monitor: Monitor, keys: list[str], arrays: Arrays) -> dict[str, WaitingRow]:
    if not keys:
        return {}
    _require(all(isinstance(key, str) for key in keys), "keys must be texts")
    _require(len(set(keys)) == len(keys) <= monitor.max_waiting, "keys must differ")
    shape = output_shape(monitor.model)
    n, M = len(keys), len(monitor._plan.names)
    period = _checked(arrays, "waiting.period", "i", (n,), negative=False)
    blocks = monitor._blocks
    within = blocks is not None and bool((period <= blocks.last).all())
    _require(within, "waiting rows must have been observed")
    P, average = arrays["waiting.P"], arrays["waiting.average"]
    _require(P.dtype.kind == "f" and P.shape == (n, M, *shape), "predictions must be numbers")
    _require(average.dtype.kind == "f" and average.shape == (n, *shape), "averages are missing")
    rows = zip(period.tolist(), P.astype(np.float64), average.astype(np.float64), strict=True)
    return {key: WaitingRow(*row) for key, row in zip(keys, rows, strict=True)}


def _checked(
    arrays: Arrays, name: str, kind: str, shape: tuple[int, ...], *, negative: bool
) -> Any:
    _require(name in arrays, f"the array {name} is missing")
    array: Any = arrays[name]
    _require(array.dtype.kind == kind and array.shape == shape, f"{name} has another form")
    _require(bool(np.isfinite(array).all()), f"{name} must be finite")
    _require(negative or bool((array >= 0).all()), f"{name} must not be negative")
    return array.astype(np.int64 if kind == "i" else np.float64)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise FileFormatError(f"The state of a monitor is not valid: {rule}. Save it again.")
