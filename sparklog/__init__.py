"""Sparklog's public names."""

from pipeline.reader.data_source import register
from sink.log_sink import LogSink
from sink.metrics import MicroBatchMetrics
from storage_core import errors

__all__ = ["LogSink", "MicroBatchMetrics", "errors", "register"]
