"""SIGINT and SIGTERM stop a job: the first one at the next safe point, the second one at once."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopRequest"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_FAILED = 1


class StopRequest:
    """Records the first signal and ends the process at the second; restores the earlier handlers at the end.

    Outside the main thread, where Python sets no handlers, it does nothing.

    Args:
        report: gets one line when the job is to stop; called inside the signal handler.
        unit: what the job finishes before it stops, for that line.

    Attributes:
        requested: whether a signal has come.
    """

    def __init__(self, report: Callable[[str], None], unit: str) -> None:
        self._report = report
        self._unit = unit
        self._before: dict[signal.Signals, Any] = {}
        self.requested = False

    def __enter__(self) -> "StopRequest":
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def install(self) -> None:
        """Set the handlers; again after a library replaced them, as the start of Spark does."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            before = signal.signal(number, self._note)
            self._before.setdefault(number, before)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            sys.stderr.flush()
            os._exit(_EXIT_FAILED)
        self.requested = True
        self._report(f"{signal.Signals(number).name}: stopping after the running {self._unit}; again to stop at once")
