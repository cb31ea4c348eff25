"""Compiles kernels ahead of their first call, without the GIL, into numba's on-disk cache.

An explicit signature makes the import compile (or load) the kernel, so no record waits for a compiler, and a call with
other types fails instead of compiling a second version silently.

numba's cache key is a kernel's name and file, without the files of other functions compiled into it. So the name gets a
digest of those files, and a change of one of them makes a new kernel.
"""

import functools
import hashlib
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import event

__all__ = ["READONLY_BYTES", "READONLY_INT64", "kernel"]

READONLY_BYTES: Any = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)
"""Argument type of bytes that Arrow or a mapping owns; writable arrays are accepted too."""

READONLY_INT64: Any = numba.types.Array(numba.types.int64, 1, "C", readonly=True)

logger = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(signature: Any) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function for exactly these argument types.

    Args:
        signature: numba's notation, e.g. `"int64(uint8[::1], int64)"`, or a call of numba's types where an argument
            may be read-only, e.g. `int64(READONLY_BYTES, int64)`.
    """

    def compile_function(function: _Function) -> _Function:
        name = function.__qualname__
        function.__qualname__ = f"{name}-{_digest_of_sources(function.__module__)}"
        try:
            return cast(_Function, numba.njit(signature, cache=True, nogil=True, boundscheck=False)(function))
        finally:
            function.__qualname__ = name

    return compile_function


class _CompilationNotice(event.Listener):
    """Logs the first compilation; loading from the cache logs nothing."""

    def on_start(self, _event: event.Event) -> None:
        """Log the first compilation."""
        _log_compiling()

    def on_end(self, _event: event.Event) -> None:
        """Do nothing."""


@functools.cache
def _log_compiling() -> None:
    logger.info("compiling kernels of this command, once after an update; it takes up to a minute")


event.register("numba:compile", _CompilationNotice())


@functools.cache
def _digest_of_sources(module: str) -> str:
    """Return a digest of the package's modules that a module imports from, directly or not."""
    package, found, waiting = module.partition(".")[0], set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in found and name.partition(".")[0] == package:
            found.add(name)
            values = vars(sys.modules[name]).values()
            waiting += {str(getattr(each, "__module__", "")) for each in values}
    sources = (inspect.getsource(sys.modules[name]) for name in sorted(found - {module}))
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:12]
