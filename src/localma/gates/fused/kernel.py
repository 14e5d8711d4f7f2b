"""The fused kernel: networks trained by Adam and evaluated, without Python's lock.

Import this module only when it is used: the import compiles it, or loads it from Numba's cache.

Rows are cut into blocks that stay in the processor's cache. Within a block the row is the innermost
index, so that every operation works on *lanes*, a vector of neighbouring rows. The first half of
this file teaches Numba that type; the second half is the network itself.

All of it is in one file, because Numba's cache checks only the date of the file of the function
that it stores.

In all signatures, `stride` is the distance between two units of the same row, which is the size of
a full block, and `width` is the number of rows of the present block, a multiple of `LANES`.
"""
# Numba compiles these functions; mypy sees only their Python shells.
# mypy: disable-error-code="no-untyped-call, call-arg, import-untyped, var-annotated"

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from inspect import signature
from itertools import count
from types import CodeType, FunctionType
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder as Builder
from llvmlite.ir import Value
from numba import njit, objmode, types
from numba.core import cgutils
from numba.core.base import BaseContext as Context
from numba.core.datamodel.manager import DataModelManager
from numba.core.dispatcher import Dispatcher
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, models, overload, register_model
from numba.np.unsafe.ndarray import to_fixed_tuple

from localma._types import Array, Float32, Float64, Integers
from localma.compiled import entry

LANES = 16  # rows of one elementwise operation: two AVX2 registers, or one of AVX-512
HALF = 8  # rows of one accumulator of `_add_outer`, which needs more of them

# -- Lanes: a vector of float32, in LLVM's terms -----------------------------------------------

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_FUSE = ("contract",)  # a product and a sum may become one instruction; nothing else may change
_POINTER = types.CPointer(types.float32)
_VOID, _INDEX = types.void, types.intp

Pointer: TypeAlias = types.CPointer
"""Address of float32 numbers, in compiled code."""

Kind: TypeAlias = types.Type
"""Type of an argument of an intrinsic."""

Values: TypeAlias = list[Value]
Intrinsic: TypeAlias = tuple[Signature, Callable[[Context, Builder, Signature, Values], Value]]
"""Signature of an intrinsic, and the function that emits its instructions."""

Operation: TypeAlias = Callable[..., Any]
"""An intrinsic as compiled code calls it."""


def _emits(signature: Callable[..., Signature]) -> Callable[[Callable[..., Value]], Operation]:
    """Make an intrinsic from a function that emits its instructions.

    signature : a function of the types of the arguments. The decorated function receives the
    builder and the values of the arguments.
    """

    def decorate(write: Callable[..., Value]) -> Operation:
        def emit(context: Context, builder: Builder, _: Signature, args: Values) -> Value:
            return write(builder, *args) or context.get_dummy_value()

        @wraps(write)  # Numba reads the names of the arguments
        def define(_: Typing, *kinds: Kind) -> Intrinsic:
            return signature(*kinds), emit

        return intrinsic(define)

    return decorate


def _named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function that is defined inside another a name that no other function has.

    Numba links the functions of two cached entries by their names and by numbers that each process
    counts from zero. Two entries may have been compiled in different processes, so equal names
    could stand for different functions, and the kernel would then compute nonsense.
    """

    def rename(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ = name
        return function

    return rename


class Lanes(types.Type):
    """Numba's type of a vector of `width` float32."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"Lanes({width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: DataModelManager, lanes: Lanes) -> None:
        super().__init__(manager, lanes, ir.VectorType(_FLOAT, lanes.width))


_LANES, _HALF = Lanes(LANES), Lanes(HALF)


def _address(builder: Builder, pointer: Value, index: Value, width: int = 1) -> Value:
    target = _FLOAT
    if width > 1:
        target = ir.VectorType(_FLOAT, width)
    return builder.bitcast(builder.gep(pointer, [index]), target.as_pointer())


def _read(builder: Builder, pointer: Value, index: Value, width: int) -> Value:
    return builder.load(_address(builder, pointer, index, width), align=4)


def _shuffle(builder: Builder, left: Value, right: Value, picks: list[int]) -> Value:
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(_INT, len(picks)), picks))


def _spread(builder: Builder, scalar: Value) -> Value:
    vector = ir.Constant(ir.VectorType(_FLOAT, LANES), ir.Undefined)
    return _shuffle(builder, builder.insert_element(vector, scalar, _INT(0)), vector, [0] * LANES)


def _constant(like: Value, number: float) -> Value:
    return ir.Constant(like.type, [number] * like.type.count)


def _multiply_add(builder: Builder, left: Value, right: Value, added: Value) -> Value:
    return builder.fadd(builder.fmul(left, right, flags=_FUSE), added, flags=_FUSE)


def _larger(builder: Builder, left: Value, right: Value) -> Value:
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


def _pointer(typing: Typing, array: Kind) -> Intrinsic:
    """Address of an array's data; it counts no references, so the caller must keep the array."""

    def emit(context: Context, builder: Builder, _: Signature, args: Values) -> Value:
        return context.make_array(array)(context, builder, args[0]).data

    return _POINTER(array), emit


pointer: Operation = intrinsic(_pointer)


@_emits(lambda *_: _LANES(_POINTER, _INDEX))
def load(builder: Builder, source: Value, index: Value) -> Value:
    """Read the lanes ``source[index : index + LANES]``."""
    return _read(builder, source, index, LANES)


@_emits(lambda *_: _VOID(_POINTER, _INDEX, _LANES))
def store(builder: Builder, target: Value, index: Value, lanes: Value) -> None:
    """Write the lanes ``target[index : index + LANES]``."""
    builder.store(lanes, _address(builder, target, index, LANES), align=4)


@_emits(lambda *_: _LANES(types.float32))
def fill(builder: Builder, number: Value) -> Value:
    """Lanes that all hold one number."""
    return _spread(builder, number)


@_emits(lambda *_: _LANES(_LANES, _LANES))
def maximum(builder: Builder, left: Value, right: Value) -> Value:
    """Larger of two, lane by lane."""
    return _larger(builder, left, right)


@_emits(lambda *_: _LANES(_LANES))
def square_root(builder: Builder, lanes: Value) -> Value:
    """Square root, lane by lane."""
    kind = ir.FunctionType(lanes.type, [lanes.type])
    root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f32")
    return builder.call(root, [lanes])


@_emits(lambda *_: types.float32(_LANES))
def lane_sum(builder: Builder, lanes: Value) -> Value:
    """Sum over the lanes."""
    return _sums(builder, [lanes])


_EXP = (  # Cephes' polynomial for exp
    *(1.0, 1.0, 0.50000001201, 0.16666665459),
    *(0.041665795894, 0.0083334519073, 0.0013981999507, 0.00019875691500),
)


@_emits(lambda *_: _LANES(_LANES))
def exponential(builder: Builder, lanes: Value) -> Value:
    """``exp(x)`` for ``x <= 0``, below exp(-87) constant; relative error below 1e-6.

    ``exp(x) = 2^k exp(r)``, ``x = k log 2 + r``: the power goes straight into the exponent's bits.
    """
    bits = ir.VectorType(_INT, LANES)
    x = _larger(builder, lanes, _constant(lanes, -87.0))
    shifted = _multiply_add(builder, x, _constant(x, 1.0 / np.log(2.0)), _constant(x, -0.5))
    power = builder.fptosi(shifted, bits)
    whole = builder.sitofp(power, x.type)
    r = _multiply_add(builder, whole, _constant(x, -np.log(2.0)), x)
    biased = builder.add(power, ir.Constant(bits, [127] * LANES))
    scale = builder.bitcast(builder.shl(biased, ir.Constant(bits, [23] * LANES)), x.type)
    return builder.fmul(_polynomial(builder, r, [_constant(x, c) for c in _EXP]), scale)


def _polynomial(builder: Builder, x: Value, coefficients: Values) -> Value:
    """Estrin's scheme, whose chain of dependent products is shorter than Horner's."""
    while len(coefficients) > 1:
        pairs = zip(coefficients[::2], coefficients[1::2], strict=True)
        coefficients = [_multiply_add(builder, high, x, low) for low, high in pairs]
        x = builder.fmul(x, x)
    return coefficients[0]


def _define_operator(symbol: Callable[[Kind, Kind], Kind], instruction: str) -> None:
    @_emits(lambda *_: _LANES(_LANES, _LANES))
    def combine(builder: Builder, left: Value, right: Value) -> Value:
        return getattr(builder, instruction)(left, right, flags=_FUSE)

    @overload(symbol)
    def overloaded(left: Kind, right: Kind) -> Callable[[Kind, Kind], Kind] | None:
        @_named(instruction)
        def apply(left: Kind, right: Kind) -> Kind:
            return combine(left, right)

        if isinstance(left, Lanes) and isinstance(right, Lanes):
            return apply
        return None


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")
_define_operator(operator.truediv, "fdiv")

# -- Tiles: tuples of lanes that stay in registers ---------------------------------------------
# A tile's size is the length of a tuple, so that Numba compiles a version for each size in use.

_ONE, _TWO, _THREE, _FOUR = (0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)
_EIGHT, _TWELVE = 2 * _FOUR, 3 * _FOUR


def _unpack(builder: Builder, tile: Value) -> Values:
    return [builder.extract_value(tile, i) for i in range(tile.type.count)]


@_emits(lambda size: types.UniTuple(_HALF, size.count)(size))
def zero_tile(builder: Builder, size: Value) -> Value:
    """Tile of half lanes, all zero."""
    zero = ir.Constant(ir.VectorType(_FLOAT, HALF), [0.0] * HALF)
    return cgutils.pack_array(builder, [zero] * size.type.count)


@_emits(lambda size, *_: types.UniTuple(_LANES, size.count)(size, _POINTER, _INDEX, types.boolean))
def spread_tile(builder: Builder, size: Value, source: Value, index: Value, use: Value) -> Value:
    """Tile whose lanes u all hold ``source[index + u]``, or zero unless `use`."""
    zero, lanes = ir.Constant(_FLOAT, 0.0), []
    for unit in range(size.type.count):
        at = builder.add(index, ir.Constant(index.type, unit))
        number = builder.select(use, _read(builder, source, at, 1), zero)
        lanes.append(_spread(builder, number))
    return cgutils.pack_array(builder, lanes)


@_emits(lambda tile, *_: tile(tile, _LANES, _POINTER, _INDEX, _INDEX))
def add_spread(
    builder: Builder, tile: Value, lanes: Value, source: Value, index: Value, step: Value
) -> Value:
    """``tile[u] += lanes * source[index + u * step]``."""
    sums = []
    for before in _unpack(builder, tile):
        weight = _spread(builder, _read(builder, source, index, 1))
        sums.append(_multiply_add(builder, lanes, weight, before))
        index = builder.add(index, step)
    return cgutils.pack_array(builder, sums)


@_emits(lambda tile, rows, *_: tile(tile, rows, _POINTER, _INDEX, _INDEX, _INDEX))
def add_products(
    builder: Builder, tile: Value, rows: Value, units: Value, i: Value, j: Value, step: Value
) -> Value:
    """``tile[r, c] += units[i + r * step] * units[j + c * step]``, half lanes each."""
    sums, factors = _unpack(builder, tile), []
    for _ in range(rows.type.count):
        factors.append(_read(builder, units, i, HALF))
        i = builder.add(i, step)
    n_columns = len(sums) // len(factors)
    for column in range(n_columns):
        unit = _read(builder, units, j, HALF)
        j = builder.add(j, step)
        for row, factor in enumerate(factors):
            at = row * n_columns + column
            sums[at] = _multiply_add(builder, factor, unit, sums[at])
    return cgutils.pack_array(builder, sums)


@_emits(lambda tile, rows, *_: _VOID(tile, rows, _POINTER, _INDEX, _INDEX))
def add_sums(
    builder: Builder, tile: Value, rows: Value, target: Value, index: Value, step: Value
) -> None:
    """``target[index + r * step + c] += sum of the half lanes tile[r, c]``."""
    lanes = _unpack(builder, tile)
    n_columns = len(lanes) // rows.type.count
    for start in range(0, len(lanes), n_columns):
        address = _address(builder, target, index, n_columns)
        total = _sums(builder, lanes[start : start + n_columns])
        builder.store(builder.fadd(builder.load(address, align=4), total), address, align=4)
        index = builder.add(index, step)


def _sums(builder: Builder, vectors: Values) -> Value:
    """Sum over the lanes of each of 1 or 4 vectors: a scalar, or the vector of the four sums."""
    while vectors[0].type.count > 4:
        vectors = [_add_pairs(builder, v, v, v.type.count // 2, 1) for v in vectors]
    if len(vectors) == 4:
        low, high = (_add_pairs(builder, *vectors[i : i + 2], 4, 2) for i in (0, 2))
        return _add_pairs(builder, low, high, 4, 2)
    pair = _add_pairs(builder, vectors[0], vectors[0], 2, 1)
    return builder.fadd(*(builder.extract_element(pair, _INT(i)) for i in range(2)))


def _add_pairs(builder: Builder, left: Value, right: Value, count: int, step: int) -> Value:
    """Add lanes of two vectors laid end to end: neighbours (step 2), or halves of one (step 1)."""
    picks = [i * step for i in range(count)]
    partners = [i + {1: count, 2: 1}[step] for i in picks]
    return builder.fadd(
        _shuffle(builder, left, right, picks), _shuffle(builder, left, right, partners)
    )


def _define_store(finish: Callable[[Builder, Value, Value, Value], Value]) -> Operation:
    """Make ``target[index + u * step] = finish(tile[u])``, given the leak and the address."""

    @_emits(lambda tile, *_: _VOID(tile, _POINTER, _INDEX, _INDEX, types.float32))
    def store_tile(
        builder: Builder, tile: Value, target: Value, index: Value, step: Value, leak: Value
    ) -> None:
        slope = _spread(builder, leak)
        for lanes in _unpack(builder, tile):
            address = _address(builder, target, index, LANES)
            builder.store(finish(builder, lanes, slope, address), address, align=4)
            index = builder.add(index, step)

    return store_tile


def _rectified(builder: Builder, lanes: Value, leak: Value, _: Value) -> Value:
    """``max(lanes, leak * lanes)``."""
    return _larger(builder, lanes, builder.fmul(lanes, leak))


def _where_active(builder: Builder, lanes: Value, leak: Value, address: Value) -> Value:
    """The lanes, times the leak if the old value is not positive."""
    before = builder.load(address, align=4)
    active = builder.fcmp_ordered(">", before, _constant(before, 0.0))
    return builder.select(active, lanes, builder.fmul(lanes, leak))


store_plain = _define_store(lambda _, lanes, *__: lanes)
store_rectified = _define_store(_rectified)
store_where_active = _define_store(_where_active)

# -- The network -------------------------------------------------------------------------------
# Only the entries have a signature and are cached; the functions that they call are compiled with
# them. Literal integers as arguments would compile the same function twice.

_COMMON: Mapping[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER: Mapping[str, Any] = {"no_cpython_wrapper": True, **_COMMON}
_F = types.float32[::1]

Size: TypeAlias = tuple[int, ...]
"""A tuple whose length is the size of a tile."""

Block: TypeAlias = Callable[[Float32, Float32, Float32, float, float, Float64], None]
"""The derivative of a loss, as `derivative_type` describes it."""


def _read_only(kind: Kind, ndim: int) -> types.Array:
    """Contiguous arrays that need not be writable: a model may lie in mapped memory."""
    return types.Array(kind, ndim, "C", readonly=True)


_D = types.float64[::1]
derivative_type = types.FunctionType(_VOID(_F, _F, _F, types.float64, types.float64, _D))
"""A loss for the kernel: it fills ``slope = factor * derivative(unit * y, unit * mixture)``.

Its arguments are y, mixture, slope, unit, factor and the parameters of the loss, for a whole block.
Targets and predictions are packed in a unit that suits their size. Only the derivative receives
them in the user's unit, in double precision, so that the target may have any unit.

It is a first-class function, since a jitted function as an argument would never hit the cache on
disk.
"""


def _define_product(
    name: str, store_tile: Callable[..., None], *, adjacent: bool, biased: bool
) -> Callable[..., None]:
    """Make ``units[target + j] = bias_j + sum_k weight_kj units[source + k]`` for one use.

    name : name of the compiled function.
    adjacent : whether weights of neighbouring outputs j are adjacent in memory, and `step` is the
        distance from k to k + 1; otherwise those of neighbouring k are, and it is from j to j + 1.
    biased : whether there are biases; if not, `bias` is not read.
    """

    @njit(inline="always", **_INNER)
    def fill_tile(
        size: Size, theta: Pointer, at: int, bias: int, n_sum: int, step: int, units: Pointer,
        source: int, target: int, stride: int, width: int, leak: float,
    ) -> None:  # fmt: skip
        for row in range(0, width, LANES):
            tile = spread_tile(size, theta, bias, biased)
            weight, unit = at, source + row
            for _ in range(n_sum):
                tile = add_spread(tile, load(units, unit), theta, weight, 1 if adjacent else step)
                weight += step if adjacent else 1
                unit += stride
            store_tile(tile, units, target + row, stride, leak)

    @njit(**_INNER)
    @_named(name)
    def product(
        theta: Pointer, start: int, bias: int, n_sum: int, n_out: int, step: int, units: Pointer,
        source: int, target: int, stride: int, width: int, leak: float,
    ) -> None:  # fmt: skip
        for j in range(0, n_out, 4):
            at, b, to = start + (j if adjacent else j * step), bias + j, target + j * stride
            if j + 4 <= n_out:
                fill_tile(_FOUR, theta, at, b, n_sum, step, units, source, to, stride, width, leak)
            elif j + 3 == n_out:
                fill_tile(_THREE, theta, at, b, n_sum, step, units, source, to, stride, width, leak)
            elif j + 2 == n_out:
                fill_tile(_TWO, theta, at, b, n_sum, step, units, source, to, stride, width, leak)
            else:
                fill_tile(_ONE, theta, at, b, n_sum, step, units, source, to, stride, width, leak)

    return product


_hidden_forward = _define_product("hidden_forward", store_rectified, adjacent=True, biased=True)
_output_forward = _define_product("output_forward", store_plain, adjacent=False, biased=True)
_output_backward = _define_product(
    "output_backward", store_where_active, adjacent=True, biased=False
)
_hidden_backward = _define_product(
    "hidden_backward", store_where_active, adjacent=False, biased=False
)


@njit(inline="always", **_INNER)
def _outer_strip(
    size: Size, rows: Size, units: Pointer, left: int, right: int, n_right: int, gradient: Pointer,
    at: int, stride: int, width: int,
) -> None:  # fmt: skip
    whole = n_right // 4 * 4
    for j in range(0, whole, 4):
        tile = zero_tile(size)
        for row in range(0, width, HALF):
            tile = add_products(tile, rows, units, left + row, right + j * stride + row, stride)
        add_sums(tile, rows, gradient, at + j, n_right)
    for j in range(whole, n_right):
        column = zero_tile(rows)
        for row in range(0, width, HALF):
            column = add_products(column, rows, units, left + row, right + j * stride + row, stride)
        add_sums(column, rows, gradient, at + j, n_right)


@njit(**_INNER)
def _add_outer(
    units: Pointer, left: int, n_left: int, right: int, n_right: int, gradient: Pointer,
    start: int, stride: int, width: int,
) -> None:  # fmt: skip
    """``gradient[start + i n_right + j] += sum over rows of units[left + i] units[right + j]``."""
    for i in range(0, n_left, 3):
        a, at = left + i * stride, start + i * n_right
        if i + 3 <= n_left:
            _outer_strip(_TWELVE, _THREE, units, a, right, n_right, gradient, at, stride, width)
        elif i + 2 == n_left:
            _outer_strip(_EIGHT, _TWO, units, a, right, n_right, gradient, at, stride, width)
        else:
            _outer_strip(_FOUR, _ONE, units, a, right, n_right, gradient, at, stride, width)


# The parameters of a layer with a inputs and b outputs are a x b weights, then b biases. Weights of
# hidden layers are (a, b), those of the output layer (b, a): the side that is more often a multiple
# of a tile is contiguous. A row of ones follows the units of each layer. It makes the gradient of
# the biases one more row of that of the weights.


@njit(inline="always", **_INNER)
def _forward(
    theta: Pointer, sizes: Integers, units: Pointer, stride: int, width: int, leak: float
) -> np.intp:
    """All layers, from the inputs at the front of `units`; returns the position of the logits."""
    at, source = np.intp(0), np.intp(0)
    for layer in range(sizes.size - 1):
        a, b = sizes[layer], sizes[layer + 1]
        bias, target = at + a * b, source + (a + 1) * stride
        if layer < sizes.size - 2:
            _hidden_forward(theta, at, bias, a, b, b, units, source, target, stride, width, leak)
        else:
            _output_forward(theta, at, bias, a, b, a, units, source, target, stride, width, leak)
        at, source = bias + b, target
    return source


@njit(inline="always", **_INNER)
def _backward(
    theta: Pointer, sizes: Integers, units: Pointer, logits: int, gradient: Pointer, stride: int,
    width: int, leak: float,
) -> None:  # fmt: skip
    """Add a block's gradient, from that of the logits; it overwrites the units on its way down."""
    at, target = np.intp(0), logits
    for layer in range(sizes.size - 1):
        at += (sizes[layer] + 1) * sizes[layer + 1]
    for layer in range(sizes.size - 2, -1, -1):
        a, b = sizes[layer], sizes[layer + 1]
        source, ones = target - (a + 1) * stride, target - stride
        at -= (a + 1) * b
        if layer == sizes.size - 2:
            _add_outer(units, target, b, source, a, gradient, at, stride, width)
            _add_outer(units, ones, np.intp(1), target, b, gradient, at + a * b, stride, width)
            if layer > 0:
                _output_backward(theta, at, at, b, a, a, units, target, source, stride, width, leak)
        else:
            _add_outer(units, source, a + 1, target, b, gradient, at, stride, width)
            if layer > 0:
                _hidden_backward(theta, at, at, b, a, b, units, target, source, stride, width, leak)
        target = source


# After the units of the output layer, the logits, the workspace has more rows for one block: the
# inverse sums, and the damping by the bound for each candidate, at the distance `stride`; then the
# mixture and the slopes of each output, at the distance `width` that the loss expects.


@njit(**_INNER)
def _bound_logits(
    units: Pointer, logits: int, n_candidates: int, bound: float, stride: int, width: int
) -> None:
    """``g -> B tanh(g / B)``, whose derivative ``1 - tanh^2`` is the damping."""
    zero, unity, double = fill(np.float32(0)), fill(np.float32(1)), fill(np.float32(2))
    damping = logits + (n_candidates + 1) * stride
    for m in range(n_candidates):
        for row in range(m * stride, m * stride + width, LANES):
            g = load(units, logits + row) / fill(bound)
            size = maximum(g, zero - g)
            sign = g / maximum(size, fill(np.float32(1e-30)))
            e = exponential(zero - double * size)
            short = double * e / (unity + e)  # 1 - tanh |g|
            store(units, logits + row, fill(bound) * sign * (unity - short))
            store(units, damping + row, short * (double - short))


@njit(**_INNER)
def _exponentiate(units: Pointer, logits: int, n_candidates: int, stride: int, width: int) -> None:
    """``logits <- exp(g - max g)``, and their inverse sums; the weights are the products."""
    inverse = logits + n_candidates * stride
    for row in range(0, width, LANES):
        top = load(units, logits + row)
        for m in range(1, n_candidates):
            top = maximum(top, load(units, logits + m * stride + row))
        store(units, inverse + row, top)
    for m in range(n_candidates):  # rows innermost: these exponentials do not wait for each other
        for row in range(0, width, LANES):
            at = logits + m * stride + row
            store(units, at, exponential(load(units, at) - load(units, inverse + row)))
    for row in range(0, width, LANES):
        total = load(units, logits + row)
        for m in range(1, n_candidates):
            total = total + load(units, logits + m * stride + row)
        store(units, inverse + row, fill(np.float32(1)) / total)


@njit(**_INNER)
def _mix(
    units: Pointer, logits: int, mixture: int, P: Pointer, start: int, n_candidates: int,
    n_outputs: int, stride: int, width: int,
) -> None:  # fmt: skip
    """``mixture_k = sum_m w_m P_mk``."""
    inverse = logits + n_candidates * stride
    for output in range(n_outputs):
        for row in range(0, width, LANES):
            total = fill(np.float32(0))
            for m in range(n_candidates):
                prediction = load(P, start + (output * n_candidates + m) * width + row)
                total = total + load(units, logits + m * stride + row) * prediction
            store(units, mixture + output * width + row, total * load(units, inverse + row))


@njit(**_INNER)
def _unmix(
    units: Pointer, logits: int, mixture: int, P: Pointer, start: int, weight: Pointer,
    origin: int, n_candidates: int, n_outputs: int, stride: int, width: int,
) -> None:  # fmt: skip
    """``dL/dg_m = w_m (sum_k s_k P_mk - sum_k s_k mixture_k)``, with s the weighted slopes."""
    inverse, slope = logits + n_candidates * stride, mixture + n_outputs * width
    for row in range(0, width, LANES):
        scale = load(weight, origin + row) * load(units, inverse + row)
        level = fill(np.float32(0))
        for output in range(n_outputs):
            at = output * width + row
            s = load(units, slope + at) * scale
            store(units, slope + at, s)
            level = level - s * load(units, mixture + at)
        store(units, mixture + row, level)
    for m in range(n_candidates):
        for row in range(0, width, LANES):
            pull = load(units, mixture + row)
            for output in range(n_outputs):
                prediction = load(P, start + (output * n_candidates + m) * width + row)
                pull = pull + load(units, slope + output * width + row) * prediction
            at = logits + m * stride + row
            store(units, at, load(units, at) * pull)


@njit(**_INNER)
def _damp(units: Pointer, logits: int, n_candidates: int, stride: int, width: int) -> None:
    damping = logits + (n_candidates + 1) * stride
    for m in range(n_candidates):
        for row in range(m * stride, m * stride + width, LANES):
            store(units, logits + row, load(units, logits + row) * load(units, damping + row))


@njit(**_INNER)
def _adam(
    theta: Pointer, gradient: Pointer, decay: Pointer, mean: Pointer, square: Pointer, size: int,
    rate: float, first_correction: float, second_correction: float,
) -> float:  # fmt: skip
    """One step of Adam; returns the squared norm of the gradient with its decay."""
    step = fill(np.float32(rate / first_correction))
    unbias = fill(np.float32(1.0 / np.sqrt(second_correction)))
    norm = fill(np.float32(0))
    for i in range(0, size, LANES):
        g = load(gradient, i) + load(decay, i) * load(theta, i)
        norm = norm + g * g
        m = load(mean, i) * fill(np.float32(0.9)) + g * fill(np.float32(0.1))
        v = load(square, i) * fill(np.float32(0.999)) + g * g * fill(np.float32(0.001))
        store(mean, i, m)
        store(square, i, v)
        scale = square_root(v) * unbias + fill(np.float32(1e-8))
        store(theta, i, load(theta, i) - step * m / scale)
    return lane_sum(norm)


# -- Entries -----------------------------------------------------------------------------------


_entry = partial(entry, **_COMMON)


@njit(inline="always", **_INNER)
def _add_block(
    X: Float32, P: Float32, y: Float32, weight: Float32, origin: int, stride: int, width: int,
    n_outputs: int, sizes: Integers, theta: Float32, gradient: Float32, bound: float, leak: float,
    derivative: Block, unit: float, factor: float, parameters: Float64, shares: Float32,
    workspace: Float32,
) -> None:  # fmt: skip
    """Add the gradient of the rows ``origin : origin + width``."""
    n_inputs, n_candidates = sizes[0], sizes[-1]
    units = pointer(workspace)
    for k in range(n_inputs):
        for row in range(0, width, LANES):
            x = load(pointer(X), origin * n_inputs + k * width + row)
            store(units, k * stride + row, x)
    logits = _forward(pointer(theta), sizes, units, stride, width, leak)
    if bound > 0:
        _bound_logits(units, logits, n_candidates, bound, stride, width)
    _exponentiate(units, logits, n_candidates, stride, width)
    mixture, start = logits + (2 * n_candidates + 1) * stride, origin * n_candidates * n_outputs
    _mix(units, logits, mixture, pointer(P), start, n_candidates, n_outputs, stride, width)
    slope, size = mixture + n_outputs * width, n_outputs * width
    targets = y[origin * n_outputs : (origin + width) * n_outputs]
    mixed, slopes = workspace[mixture : mixture + size], workspace[slope : slope + size]
    derivative(targets, mixed, slopes, unit, factor, parameters)
    for k in range(shares.size):
        for row in range(k * width, (k + 1) * width):
            slopes[row] *= shares[k]
    _unmix(
        units, logits, mixture, pointer(P), start, pointer(weight), origin, n_candidates, n_outputs,
        stride, width,
    )  # fmt: skip
    if bound > 0:
        _damp(units, logits, n_candidates, stride, width)
    _backward(pointer(theta), sizes, units, logits, pointer(gradient), stride, width, leak)


@njit(**_INNER)
def _scale(numbers: Pointer, size: int, factor: float) -> None:
    for i in range(0, size, LANES):
        store(numbers, i, load(numbers, i) * fill(factor))


@_entry(
    types.intp(
        *[_F] * 4, _INDEX, _INDEX, types.intp[::1], *[_F] * 5, types.float32, types.float32,
        types.float32, derivative_type, types.float64, types.float64, _D, _F, types.intp[::1],
        _INDEX, types.float64, _D, _F,
    )
)  # fmt: skip
def train(
    X: Float32, P: Float32, y: Float32, weight: Float32, block: int, n_outputs: int,
    sizes: Integers, theta: Float32, gradient: Float32, moments: Float32, decay: Float32,
    rates: Float32, bound: float, leak: float, tolerance: float, derivative: Block, unit: float,
    factor: float, parameters: Float64, workspace: Float32, order: Integers, batches: int,
    whole: float, powers: Float64, shares: Float32,
) -> int:  # fmt: skip
    """Train one network by Adam over batches of blocks; returns the number of steps taken.

    Parameters
    ----------
    X, P, y, weight : the rows, packed by blocks, with p, K M, K and 1 numbers each.
    block : rows in a full block, a multiple of `LANES` as is the number of all rows.
    n_outputs : K.
    sizes : (D + 1,) number of inputs, of the units of each hidden layer, of candidates.
    theta : parameters, overwritten; padded with zeros to a multiple of `LANES`, as are
        `gradient` (receives the last gradient of the mean loss), `decay` (its product with the
        parameters is added to the gradient) and, twice as long, `moments` (zeros at the start).
    rates : (n_steps,) learning rate of each step.
    bound : bound on the logits; 0 for no bound.
    leak : slope of the hidden units below zero: 0 is ReLU, 1 the identity.
    tolerance : training ends when the norm of the gradient with its decay is below it.
    derivative, unit, factor, parameters : the loss; see `derivative_type`. P and y are in the
        unit.
    workspace : ones, for the units and the further rows of a block.
    order, batches : numbers of the blocks in the order of their use, cut into `batches` equal
        batches, one per step; the first batch follows the last.
    whole : the gradient of a batch is multiplied by ``whole / rows of the batch``, so that it is
        that of a mean.
    powers : (2,) Adam's decay rates to the power of the steps so far; ones at the start.
    shares : (K,) weight of each output in the loss of a row; empty if all are one.
    """
    for step in range(rates.size):
        gradient[:] = 0
        batch, rows = step % batches, 0
        for i in range(batch * order.size // batches, (batch + 1) * order.size // batches):
            start = order[i] * block
            width = min(block, weight.size - start)
            rows += width
            _add_block(
                X, P, y, weight, start, block, width, n_outputs, sizes, theta, gradient, bound,
                leak, derivative, unit, factor, parameters, shares, workspace,
            )  # fmt: skip
        _scale(pointer(gradient), theta.size, np.float32(whole / rows))
        powers[0] *= 0.9
        powers[1] *= 0.999
        norm = _adam(
            pointer(theta), pointer(gradient), pointer(decay), pointer(moments),
            pointer(moments[theta.size :]), theta.size, rates[step], 1.0 - powers[0],
            1.0 - powers[1],
        )  # fmt: skip
        if norm < tolerance * tolerance:
            return step + 1
    return rates.size


# -- Evaluation --------------------------------------------------------------------------------


@njit(**_INNER)
def _standardise(
    X: Float64, origin: int, count: int, mean: Float64, scale: Float64, columns: Float64,
    inputs: Float32, stride: int, width: int,
) -> None:  # fmt: skip
    """Standardise a block, cut off by the guard, and at 1e9: beyond, float32 could overflow."""
    low, high = -np.inf, np.inf
    for k in range(X.shape[1]):
        if columns.shape[0] > 0:
            low, high = columns[7, k], columns[8, k]
        for row in range(count):
            x = (min(max(X[origin + row, k], low), high) - mean[k]) / scale[k]
            inputs[k * stride + row] = min(max(x, -1e9), 1e9)
        for row in range(count, width):
            inputs[k * stride + row] = 0


@njit(**_INNER)
def _add_weights(workspace: Float32, logits: int, share: float, mixed: Float64, count: int) -> None:
    """``mixed_m += share w_m``, in double precision, from exponentials and their inverse sums."""
    n_candidates, stride = mixed.shape
    inverse = workspace[logits + n_candidates * stride :]
    for m in range(n_candidates):
        exponentials, total = workspace[logits + m * stride :], mixed[m]
        for row in range(count):
            total[row] += share * exponentials[row] * inverse[row]


@njit(**_INNER)
def _normalise(mixed: Float64, totals: Float64, count: int) -> None:
    """Divide the weights of each row by their sum; rows are innermost, with one division each."""
    totals[:count] = 0.0
    for m in range(mixed.shape[0]):
        weights = mixed[m]
        for row in range(count):
            totals[row] += weights[row]
    for row in range(count):
        totals[row] = 1.0 / totals[row]
    for m in range(mixed.shape[0]):
        weights = mixed[m]
        for row in range(count):
            weights[row] *= totals[row]


@njit(**_INNER)
def _squash(X: Float64, row: int, columns: Float64, t: Float64) -> float:
    """Squash a row of inputs to t, and return their largest excess."""
    largest = 0.0
    for k in range(X.shape[1]):
        value = (X[row, k] - columns[0, k]) * columns[1, k]
        if value > 1.0:
            value = 1.0 + np.log(value)
        elif value < -1.0:
            value = -1.0 - np.log(-value)
        below, above = columns[2, k] - value, value - columns[3, k]
        largest = max(largest, below * columns[4, k], above * columns[5, k])
        t[k] = value
    return largest


@njit(**_INNER)
def _in_gaps(values: Float64, first: int, gaps: Float64) -> float:
    """Largest excess inside a gap; first : the coordinate of the first value."""
    largest = 0.0
    for g in range(gaps.shape[0]):
        at = np.intp(gaps[g, 0]) - first
        if 0 <= at < values.size:
            inside = min(values[at] - gaps[g, 1], gaps[g, 2] - values[at])
            largest = max(largest, inside * gaps[g, 3])
    return largest


@njit(**_INNER)
def _support(
    X: Float64, row: int, columns: Float64, directions: Float64, ends: Float64,
    landmarks: Float64, spacing: Float64, gaps: Float64, power: float, t: Float64, z: Float64,
) -> float:  # fmt: skip
    """``exp(-u^power)``, u the largest excess over a side of the sample; see `Support`.

    t, z : memory for the squashed inputs, clipped to the sample, and for the directions.
    """
    largest = max(_squash(X, row, columns, t), _in_gaps(t, 0, gaps))
    if largest >= FAR_OUTSIDE:
        return 0.0
    position = 0.0
    for k in range(t.size):
        t[k] = min(max(t[k], columns[2, k]), columns[3, k]) - columns[6, k]
        position = max(position, abs(t[k]) * columns[9, k])
    for j in range(z.size):
        value = 0.0
        for k in range(t.size):
            value += directions[j, k] * t[k]
        largest = max(largest, (ends[0, j] - value) * ends[2, j], (value - ends[1, j]) * ends[3, j])
        z[j] = value
    largest = max(largest, _in_gaps(z, t.size, gaps))
    if landmarks.shape[0] > 0:
        largest = max(largest, _distance(z, position, landmarks, spacing))
    if largest <= 0.0:
        return 1.0
    return np.exp(-(min(largest, 1e3) ** power))


FAR_OUTSIDE = 3.0
"""Excess beyond which the support is zero in double precision."""


@njit(**_INNER)
def _distance(z: Float64, position: float, landmarks: Float64, spacing: Float64) -> float:
    """Excess of the distance from the nearest landmark; see `Measured.distances`."""
    # As near as some labelled rows, wherever they are; most rows end the search early.
    near = min(spacing[3], spacing[5])
    nearest, enough = np.inf, near * near
    for row in range(landmarks.shape[0]):
        square = 0.0
        for j in range(z.size):
            gap = z[j] - landmarks[row, j]
            square += gap * gap
        nearest = min(nearest, square)
        if nearest <= enough:
            return 0.0
    away = min(max(position, spacing[0]), spacing[1]) - spacing[0]
    growth = np.exp(spacing[2] * away)
    distance = np.sqrt(nearest)
    return max((distance / growth - spacing[3]) / spacing[4], (distance - spacing[5]) / spacing[6])


@njit(**_INNER)
def _fade(mixed: Float64, row: int, share: float, towards: Float64, floor: float) -> None:
    """``softmax(share log w + (1 - share) log w_global)``; see `Fading`."""
    n_candidates, top, total = mixed.shape[0], -np.inf, 0.0
    equal = floor * share
    for m in range(n_candidates):
        anchor = (1.0 - equal) * towards[m] + equal / n_candidates
        local = np.log(max(mixed[m, row], _TINY))
        mixed[m, row] = share * local + (1.0 - share) * np.log(anchor)
        top = max(top, mixed[m, row])
    for m in range(n_candidates):
        mixed[m, row] = np.exp(mixed[m, row] - top)
        total += mixed[m, row]
    for m in range(n_candidates):
        mixed[m, row] /= total


@njit(**_INNER)
def _begin(mixed: Float64, origin: int, count: int, constant: Float64, trees: Float64) -> None:
    """Set the weights of the rows to the constant ones, plus those of trees if there are any."""
    for m in range(constant.size):
        mixed[m, :count] = constant[m]
        if trees.shape[0] > 0:
            mixed[m, :count] += trees[origin : origin + count, m]


@njit(**_INNER)
def _write(mixed: Float64, origin: int, count: int, P: Float64, out: Float64) -> None:
    """Write the weights of the rows, or the average of predictions if there are any."""
    for row in range(count):
        if P.shape[0] == 0:
            for m in range(mixed.shape[0]):
                out[origin + row, m] = mixed[m, row]
            continue
        for k in range(P.shape[2]):
            out[origin + row, k] = 0.0
        for m in range(mixed.shape[0]):
            for k in range(P.shape[2]):
                out[origin + row, k] += mixed[m, row] * P[origin + row, m, k]


_TINY = float(np.finfo(np.float64).tiny)
_NUMBERS, _TABLE = _read_only(types.float64, 1), _read_only(types.float64, 2)


@_entry(
    _VOID(
        _TABLE, types.Array(types.float64, 3, "C", readonly=True), types.intp[:, ::1],
        types.intp[::1], types.float64[:, ::1], _read_only(types.float32, 1), _NUMBERS,
        _TABLE, _TABLE, _TABLE, _TABLE, _NUMBERS, _TABLE,
        types.float64, _NUMBERS, types.float64, _F, types.float64[:, ::1],
        types.Array(types.float64, 3, "C", readonly=True), types.float64[:, ::1], _TABLE,
        types.float64[::1],
    )
)  # fmt: skip
def evaluate(
    X: Float64, standards: Float64, networks: Integers, sizes: Integers, settings: Float64,
    thetas: Float32, constant: Float64, columns: Float64, directions: Float64, ends: Float64,
    landmarks: Float64, spacing: Float64, gaps: Float64, power: float, towards: Float64,
    floor: float, workspace: Float32, buffer: Float64, P: Float64, out: Float64, trees: Float64,
    support: Float64,
) -> None:  # fmt: skip
    """Average networks with fixed shares, fade outside the sample, and average predictions.

    Parameters
    ----------
    X : (n, p) inputs.
    standards : (S, 2, p) means and scales by which networks standardise their inputs.
    networks : (G, 4) for each network the index of its standard, begin and end of its sizes in
        `sizes`, and begin of its parameters in `thetas`.
    settings : (G, 3) share, leak and bound of each network; a bound of 0 means no bound.
    constant : (M,) constant weights, which are added to those of the networks.
    columns : (10, p) centre and one over the scale of squashed inputs, their low and high ends, one
        over the reach beyond each, their mean, the ends at which inputs are cut off, and the
        weight of their eccentricity; no rows if weights do not fade.
    directions, ends : (d, p) and (4, d) low and high ends and one over the reach beyond each.
    landmarks, spacing : (l, d) and (7,); see `Measured`.
    gaps : (g, 4) coordinate of each gap, its ends, and one over its reach.
    power, towards, floor : exponent of the support, (M,) the weights far from the sample, and the
        share of equal weights in them in rows with some support.
    workspace, buffer : memory for the units and, (M + 1, block), for the weights of a block of
        rows and their sums.
    P : (n, M, K) predictions; no rows to get the weights.
    out : (n, K) the average of the predictions, or (n, M) the weights.
    trees : (n, M) weights of trees times their shares, which are added; no rows without trees.
    support : (n,) the support, if weights fade; empty if it is not wanted.
    """
    units, n_candidates, block = pointer(workspace), constant.size, buffer.shape[1]
    mixed = buffer[:n_candidates]
    t, z = np.empty(X.shape[1]), np.empty(directions.shape[0])
    for origin in range(0, X.shape[0], block):
        count = min(block, X.shape[0] - origin)
        width = (count + LANES - 1) // LANES * LANES
        _begin(mixed, origin, count, constant, trees)
        standard = np.intp(-1)
        for g in range(networks.shape[0]):
            if networks[g, 0] != standard:
                standard = networks[g, 0]
                mean, scale = standards[standard, 0], standards[standard, 1]
                _standardise(X, origin, count, mean, scale, columns, workspace, block, width)
            theta, shape = pointer(thetas[networks[g, 3] :]), sizes[networks[g, 1] : networks[g, 2]]
            leak, bound = np.float32(settings[g, 1]), np.float32(settings[g, 2])
            logits = _forward(theta, shape, units, block, width, leak)
            if bound > 0:
                _bound_logits(units, logits, n_candidates, bound, block, width)
            _exponentiate(units, logits, n_candidates, block, width)
            _add_weights(workspace, logits, settings[g, 0], mixed, count)
        if networks.shape[0] > 0:
            _normalise(mixed, buffer[n_candidates], count)
        if columns.shape[0] > 0:
            for row in range(count):
                share = _support(
                    X, origin + row, columns, directions, ends, landmarks, spacing, gaps, power,
                    t, z,
                )  # fmt: skip
                if share < 1.0:
                    _fade(mixed, row, share, towards, floor)
                if support.size > 0:
                    support[origin + row] = share
        _write(mixed, origin, count, P, out)


# -- Losses ------------------------------------------------------------------------------------


MOST_COMPILED = 24
"""Number of derivatives that one process compiles; Numba never frees the 1.7 MiB of each."""


Derivative: TypeAlias = Callable[[Array, Array], Array]
"""Derivative of a loss by the prediction, elementwise: y, mixture -> slope."""


@dataclass(frozen=True)
class BlockDerivative:
    """The derivative of a loss for the kernel: a function of a block, and its parameters.

    interpreted : the derivative that the block calls if it is not compiled.
    """

    block: Dispatcher
    parameters: Float64
    interpreted: Derivative | None = None


def compile_derivative(derivative: Derivative) -> BlockDerivative:
    """Turn a loss's derivative into the function of a block that the kernel calls.

    Code that Numba cannot compile runs as it is, on NumPy arrays and one thread at a time. So does
    code after `MOST_COMPILED` derivatives. Threads must take turns, as in `engine.compile_loss`.
    """
    function = derivative
    if isinstance(derivative, partial) and not derivative.args:
        function = derivative.func
    if not isinstance(function, FunctionType):
        return _interpreted(derivative)
    try:
        extra = list(signature(derivative).parameters.values())[2:]
        parameters = np.array([float(parameter.default) for parameter in extra])
        block = _compiled_once(function, len(parameters))
    except Exception:  # many types: Numba's assertions fail on code that it does not support
        return _interpreted(derivative)
    if block is None:
        return _interpreted(derivative)
    return BlockDerivative(block, parameters)


@dataclass(frozen=True)
class _Source:
    """All that determines the compiled function: its code and the values it refers to."""

    code: CodeType
    n_parameters: int
    values: tuple[tuple[str, type, Hashable], ...]

    @classmethod
    def of(cls, function: FunctionType, n_parameters: int) -> _Source:
        """Look up the values that the function refers to; its hash fails if a value has none."""
        code, cells = function.__code__, function.__closure__ or ()
        outside = {
            name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)
        }
        names = {n: function.__globals__[n] for n in _names(code) if n in function.__globals__}
        values = [(name, type(value), value) for name, value in (names | outside).items()]
        return cls(code, n_parameters, tuple(values))


def _names(code: CodeType) -> Iterator[str]:
    """Names in a code and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


_blocks: dict[_Source, Dispatcher | None] = {}
"""Blocks compiled so far; None for code that Numba does not support."""


def _compiled_once(function: FunctionType, n_parameters: int) -> Dispatcher | None:
    """The block of a function; functions with the same code and values share one."""
    source = _Source.of(function, n_parameters)
    if source not in _blocks and len(_blocks) < MOST_COMPILED:
        _blocks[source] = None
        _blocks[source] = _compiled(function, n_parameters)
    return _blocks.get(source)


def _compiled(function: FunctionType, n_parameters: int) -> Dispatcher:
    # Numba does not support keyword-only arguments, so they become ordinary ones.
    code = function.__code__.replace(co_argcount=2 + n_parameters, co_kwonlyargcount=0)
    plain = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    scalar = njit(error_model="numpy")(plain)

    @njit(derivative_type.signature, nogil=True, error_model="numpy")
    def block(
        y: Float32, mixture: Float32, slope: Float32, unit: float, factor: float,
        parameters: Float64,
    ) -> None:  # fmt: skip
        numbers = to_fixed_tuple(parameters, n_parameters)
        for i in range(slope.size):
            slope[i] = factor * scalar(unit * y[i], unit * mixture[i], *numbers)

    return block


_called: WeakValueDictionary[int, BlockDerivative] = WeakValueDictionary()
"""Derivatives that are interpreted, by a number that the kernel can pass."""
_numbers = count()


def _interpreted(derivative: Derivative) -> BlockDerivative:
    block = BlockDerivative(_calling_block(), np.array([float(next(_numbers))]), derivative)
    _called[int(block.parameters[0])] = block
    return block


def _call(
    y: Float32, mixture: Float32, slope: Float32, unit: float, factor: float, number: float
) -> None:
    derivative = _called[int(number)].interpreted
    assert derivative is not None
    targets, predictions = (unit * array.astype(np.float64) for array in (y, mixture))
    slope[:] = factor * derivative(targets, predictions)


@cache
def _calling_block() -> Dispatcher:
    """The one block through which all interpreted derivatives are called."""

    @njit(derivative_type.signature)
    def block(
        y: Float32, mixture: Float32, slope: Float32, unit: float, factor: float,
        parameters: Float64,
    ) -> None:  # fmt: skip
        number = parameters[0]
        with objmode():
            _call(y, mixture, slope, unit, factor, number)

    return block
