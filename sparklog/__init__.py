"""Sparklog's public names.

Each is imported when it is asked for: a task or a reading verb that needs a module of the package would otherwise wait
for all of PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparklog.pipeline.reader.data_source import register
    from sparklog.sink.log_sink import LogSink
    from sparklog.sink.metrics import MicroBatchMetrics
    from sparklog.storage_core import errors

__all__ = ["LogSink", "MicroBatchMetrics", "errors", "register"]

_MODULES: Final = {
    "LogSink": "sparklog.sink.log_sink",
    "MicroBatchMetrics": "sparklog.sink.metrics",
    "register": "sparklog.pipeline.reader.data_source",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("sparklog.storage_core.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
