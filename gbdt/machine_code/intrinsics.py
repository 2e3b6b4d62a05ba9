"""The few instructions that kernels need and Python has no word for, as numba's code generator makes them.

Kernels know them by name only (`Intrinsic`), so that nothing here, and no numba, is loaded where nothing is compiled.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import BaseTuple
from numba.core.types.misc import MemInfoPointer
from numba.extending import intrinsic

# The C library's function. Its result says only whether a signal came first.
sleep_microseconds = types.ExternalFunction("usleep", types.int32(types.uint32))


@intrinsic
def float_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float64 whose IEEE representation is the given int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@intrinsic
def single_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 whose IEEE representation is the given int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@intrinsic
def bits_from_float(typing_context: Any, value: Any) -> Any:
    """The IEEE representation of a float64, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@intrinsic
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: the same bits on every machine, and one instruction on all but very old ones."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The number of the lowest set bit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), generate


@intrinsic
def borrowed(typing_context: Any, arrays: Any) -> Any:
    """The same array (or tuple of arrays) without reference counts, while the caller of the kernel holds them.

    Every view of a counted array, and every call that is inlined with it, costs two atomic operations (measured: a
    seventh of the time to grow a tree over many features).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _uncounted(context, builder, signature.return_type, arguments[0])

    return arrays(arrays), generate


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, BaseTuple):
        items = [
            _uncounted(context, builder, item_kind, builder.extract_value(value, position))
            for position, item_kind in enumerate(kind)
        ]
        return context.make_tuple(builder, kind, items)
    make = context.make_array(kind)
    source, result = make(context, builder, value), make(context, builder)
    for name in ("data", "shape", "strides", "itemsize", "nitems"):
        setattr(result, name, getattr(source, name))
    result.meminfo = context.get_constant_null(MemInfoPointer(types.voidptr))
    result.parent = context.get_constant_null(types.pyobject)
    return result._getvalue()


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask the processor to bring array[index] (counted over the flat array) into its caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        )
        address = builder.bitcast(builder.gep(data, [arguments[1]]), pointer)
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def relax(typing_context: Any) -> Any:
    """Tell the processor that this thread only waits, so that the other thread of its core gets the room."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine() in ("x86_64", "AMD64"):
            pause = builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), ir.FunctionType(ir.VoidType(), []))
            builder.call(pause, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def store_word(typing_context: Any, buffer: Any, position: Any, word: Any) -> Any:
    """Write eight bytes from any position of a byte array on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(buffer, types.int64, types.int64), generate


@intrinsic
def load_word(typing_context: Any, buffer: Any, position: Any) -> Any:
    """The eight bytes from any position of a byte array on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.int64(buffer, types.int64), generate


@intrinsic
def add_up_fours(typing_context: Any, parts: Any, before: Any, sums: Any, n_fours: Any) -> Any:
    """Write the running sums of the first 4 * n_fours parts, beginning with `before`; return the last.

    One by one, each addition waits for the one before. Here four of them are added within a register, and only what
    all before them add up to is waited for.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        four = ir.VectorType(number, 4)
        zeros = four([0] * 4)
        source, target = (
            builder.bitcast(
                context.make_array(signature.args[k])(context, builder, arguments[k]).data, four.as_pointer()
            )
            for k in (0, 2)
        )

        def places(value: Any, chosen: list[int]) -> Any:
            return builder.shuffle_vector(value, zeros, ir.VectorType(ir.IntType(32), 4)(chosen))

        carry = cgutils.alloca_once(builder, four)
        first = builder.insert_element(zeros, arguments[1], ir.IntType(32)(0))
        builder.store(places(first, [0] * 4), carry)
        with cgutils.for_range(builder, arguments[3]) as loop:
            own = builder.load(builder.gep(source, [loop.index]), align=8)
            own = builder.add(own, places(own, [4, 0, 4, 2]))
            own = builder.add(own, places(own, [4, 4, 1, 1]))
            so_far = builder.load(carry)
            builder.store(builder.add(own, so_far), builder.gep(target, [loop.index]), align=8)
            builder.store(builder.add(so_far, places(own, [3] * 4)), carry)
        return builder.extract_element(builder.load(carry), ir.IntType(32)(0))

    return types.int64(parts, types.int64, sums, types.int64), generate


@intrinsic
def fetch_and_add(typing_context: Any, shared: Any, position: Any, amount: Any) -> Any:
    """Add to a counter in one step that no other thread can interrupt; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

    return types.int64(shared, types.int64, types.int64), generate


@intrinsic
def fetch(typing_context: Any, shared: Any, position: Any) -> Any:
    """A counter as other threads left it last."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(shared, types.int64), generate


@intrinsic
def exchange(typing_context: Any, shared: Any, position: Any, value: Any) -> Any:
    """Write a value and return what was there, in one step."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.atomic_rmw("xchg", pointer, arguments[2], "seq_cst")

    return types.int64(shared, types.int64, types.int64), generate


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return cgutils.gep(builder, array.data, arguments[1])


# Rows that `lowest_leaves` works on, in registers of so many bytes.
_LANES, _LANES_PER_REGISTER = 128, 32


@intrinsic
def lowest_leaves(
    typing_context: Any, starts: Any, first_plane: Any, last_plane: Any, comparisons: Any, ranks: Any, leaves: Any
) -> Any:
    """Write to leaves[lane] which leaf of a tree each of 128 rows ends in; see `dmlgbm.gbdt.kernels.ranked_predict`.

    A byte of a *plane* has one bit for each of eight neighbouring leaves. Loops of numba store and load the bytes of
    all rows at every comparison, and find the lowest bits one by one; here all of it stays in registers (1.2 instead of
    7 ns a row and tree).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addresses = [
            context.make_array(signature.args[k])(context, builder, arguments[k]).data if k not in (1, 2) else None
            for k in range(len(arguments))
        ]
        _LowestLeaves(builder, addresses).write(arguments[1], arguments[2])
        return context.get_dummy_value()

    return types.void(starts, types.int64, types.int64, comparisons, ranks, leaves), generate


class _LowestLeaves:
    """Builds the code of `lowest_leaves`."""

    def __init__(self, builder: Any, addresses: list[Any]) -> None:
        self._builder = builder
        byte = ir.IntType(8)
        self._bytes = ir.VectorType(byte, _LANES_PER_REGISTER)
        self._starts = addresses[0]
        self._comparisons, self._ranks, self._leaves = (
            builder.bitcast(address, byte.as_pointer()) for address in addresses[3:]
        )
        self._registers = range(_LANES // _LANES_PER_REGISTER)

    def write(self, first_plane: Any, last_plane: Any) -> None:
        builder, number = self._builder, ir.IntType(64)
        lowest, before, plane = ([self._variable(0) for _ in self._registers] for _ in range(3))
        with cgutils.for_range(builder, builder.sub(last_plane, first_plane)) as loop:
            # The last plane first: an earlier one with a bit left takes its place.
            within_tree = builder.sub(builder.sub(builder.sub(last_plane, first_plane), loop.index), number(1))
            position = builder.add(first_plane, within_tree)
            self._clear_bits(position, plane)
            n_before = self._everywhere(builder.trunc(builder.shl(within_tree, number(3)), ir.IntType(8)))
            for k in self._registers:
                left = builder.load(plane[k])
                has_bit = builder.icmp_unsigned("!=", left, self._bytes([0] * _LANES_PER_REGISTER))
                builder.store(builder.select(has_bit, left, builder.load(lowest[k])), lowest[k])
                builder.store(builder.select(has_bit, n_before, builder.load(before[k])), before[k])
        count_zeros = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(self._bytes, [self._bytes, ir.IntType(1)]), "llvm.cttz.v32i8"
        )
        for k in self._registers:
            zeros = builder.call(count_zeros, [builder.load(lowest[k]), ir.IntType(1)(0)])
            leaf = builder.add(builder.load(before[k]), zeros)
            builder.store(leaf, self._register_at(self._leaves, number(0), k), align=1)

    def _clear_bits(self, position: Any, plane: list[Any]) -> None:
        """Leave the bits of the leaves that a row may end in, by the comparisons of this plane."""
        builder, number = self._builder, ir.IntType(64)
        for k in self._registers:
            builder.store(self._bytes([-1] * _LANES_PER_REGISTER), plane[k])
        first = builder.load(builder.gep(self._starts, [position]))
        last = builder.load(builder.gep(self._starts, [builder.add(position, number(1))]))
        with cgutils.for_range_slice(builder, first, last, number(1), number) as (index, _):
            comparison = builder.gep(self._comparisons, [builder.shl(index, number(3))])
            row = builder.zext(builder.load(builder.bitcast(comparison, ir.IntType(32).as_pointer())), number)
            beyond = self._everywhere(builder.load(builder.gep(comparison, [number(4)])))
            kept = self._everywhere(builder.load(builder.gep(comparison, [number(5)])))
            for k in self._registers:
                ranks = builder.load(self._register_at(self._ranks, row, k), align=1)
                goes_left = builder.sext(builder.icmp_signed(">", beyond, ranks), self._bytes)
                left = builder.and_(builder.load(plane[k]), builder.or_(kept, goes_left))
                builder.store(left, plane[k])

    def _variable(self, value: int) -> Any:
        """A place that the code generator turns into a register."""
        place = cgutils.alloca_once(self._builder, self._bytes)
        self._builder.store(self._bytes([value] * _LANES_PER_REGISTER), place)
        return place

    def _everywhere(self, value: Any) -> Any:
        single = self._builder.insert_element(self._bytes(ir.Undefined), value, ir.IntType(32)(0))
        places = ir.VectorType(ir.IntType(32), _LANES_PER_REGISTER)
        return self._builder.shuffle_vector(single, self._bytes(ir.Undefined), places([0] * _LANES_PER_REGISTER))

    def _register_at(self, base: Any, offset: Any, register: int) -> Any:
        address = self._builder.gep(base, [self._builder.add(offset, ir.IntType(64)(register * _LANES_PER_REGISTER))])
        return self._builder.bitcast(address, self._bytes.as_pointer())
