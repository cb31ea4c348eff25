"""How a kernel is compiled: ahead of its first call, without the GIL, kept in numba's on-disk cache.

An explicit signature makes the import compile (or load) the kernel, so no record ever waits for a compiler, and a call
with other types fails instead of compiling a second version in silence.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["READONLY_BYTES", "READONLY_INT32", "READONLY_INT64", "kernel"]

READONLY_BYTES: Any = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)
"""Argument type of bytes that Arrow or a mapping owns; writable arrays are accepted too."""

READONLY_INT32: Any = numba.types.Array(numba.types.int32, 1, "C", readonly=True)
READONLY_INT64: Any = numba.types.Array(numba.types.int64, 1, "C", readonly=True)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(signature: Any) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function for exactly these argument types.

    Args:
        signature: numba's notation, e.g. `"int64(uint8[::1], int64)"`, or a call of numba's types where an argument
            may be read-only, e.g. `int64(READONLY_BYTES, int64)`.
    """

    def compile_function(function: _Function) -> _Function:
        return cast(_Function, numba.njit(signature, cache=True, nogil=True, boundscheck=False)(function))

    return compile_function
