"""Memory access for the kernels of this package: addresses, single bytes and the machine's `memcpy`.

Small compiled functions here take addresses, never arrays: passing an array counts a reference up and down, which
costs more than encoding a record (measured: 110 ns, against 25), and an indexed loop copies byte by byte (64 ns for
100 bytes, against 4). These functions do not check bounds: a kernel proves that an address is inside its array before
its use, and its argument keeps the array alive.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

__all__ = [
    "BYTES",
    "INT64S",
    "address_of",
    "copy_bytes",
    "inlined",
    "load_byte",
    "load_int32",
    "load_int64",
    "store_byte",
]

BYTES: Final = "Array(uint8, 1, 'C', True)"
"""Signature of a byte column that a kernel only reads; a writable one is accepted too."""

INT64S: Final = "Array(int64, 1, 'C', True)"
"""Signature of an int64 column that a kernel only reads."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_BYTE: Final = cgutils.ir.IntType(8)
_WORD: Final = cgutils.ir.IntType(64)


def inlined(function: _Function) -> _Function:
    """Return a function that kernels may call; it is compiled into each of them."""
    return cast(_Function, register_jitable(forceinline=True)(function))


def _address_of(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _WORD)

    return types.int64(array), generate


def _load_byte(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), _WORD)

    return types.int64(address), generate


def _store_byte(_typing: Any, address: Any, _value: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        builder.store(builder.trunc(arguments[1], _BYTE), pointer)
        return context.get_dummy_value()

    return types.void(address, types.int64), generate


def _copy_bytes(_typing: Any, target: Any, source: Any, _count: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        into, out_of = (builder.inttoptr(address, _BYTE.as_pointer()) for address in arguments[:2])
        cgutils.raw_memcpy(builder, into, out_of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(target, source, types.int64), generate


address_of: Final = cast("Callable[[Any], int]", intrinsic(_address_of))
"""`address_of(array)`: address of a contiguous array's bytes."""

load_byte: Final = cast("Callable[[int], int]", intrinsic(_load_byte))
"""`load_byte(address)`: 0..255."""

store_byte: Final = cast("Callable[[int, int], None]", intrinsic(_store_byte))
"""`store_byte(address, value)`: the low 8 bits of an int64."""

copy_bytes: Final = cast("Callable[[int, int, int], None]", intrinsic(_copy_bytes))
"""`copy_bytes(target, source, count)`: the two must not overlap."""


@inlined
def load_int32(address: int) -> int:
    """Return the big-endian i32 at an address."""
    value = (load_byte(address) << 24) | (load_byte(address + 1) << 16)
    value |= (load_byte(address + 2) << 8) | load_byte(address + 3)
    return value - ((value >> 31) << 32)


@inlined
def load_int64(address: int) -> int:
    """Return the big-endian i64 at an address."""
    return (load_int32(address) << 32) | (load_int32(address + 4) & 0xFFFFFFFF)
