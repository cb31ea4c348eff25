"""A disk that refuses: the n-th call of a kind fails, or every one from there on, or bytes run out in the middle."""

import errno
import os
from collections import Counter
from dataclasses import dataclass, field

from tests.faults.system_calls import Call

__all__ = ["Fault", "FaultPlan"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and at which call.

    Attributes:
        kind: of the calls that are counted; see `system_calls.KINDS`.
        number: which of them fails, from 1.
        error: the `errno` of the answer.
        lasts: whether every later call that changes something fails, too.
        is_short: whether the call writes half of its bytes first, and only the next one fails: a disk that fills up.
        is_made: whether the call is made, and only its answer is an error: nobody knows what became of it.
    """

    kind: str
    number: int
    error: int = errno.EIO
    lasts: bool = False
    is_short: bool = False
    is_made: bool = False

    def __str__(self) -> str:
        ways = [name for name in ("lasts", "is_short", "is_made") if getattr(self, name)]
        return " ".join([f"{self.kind}:{self.number}", errno.errorcode[self.error], *ways])


@dataclass
class FaultPlan:
    """Answers calls as a fault says; without one it counts them.

    Attributes:
        counts: calls seen, by kind.
        failed: the calls that failed.
    """

    fault: Fault | None = None
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[Call] = field(default_factory=list)
    _is_due: bool = False

    def before(self, call: Call) -> int:
        """Fail, cut short or let pass."""
        self.counts[call.kind] += 1
        fault = self.fault
        if fault is None or fault.is_made:
            return call.size_bytes
        if self._is_due and (fault.lasts or call.kind == fault.kind) and call.kind != "open":
            self._is_due = fault.lasts
            self._fail(call, fault)
        if call.kind == fault.kind and self.counts[call.kind] == fault.number:
            self._is_due = fault.lasts or fault.is_short
            if not fault.is_short:
                self._fail(call, fault)
            return max(call.size_bytes // 2, 1)
        return call.size_bytes

    def after(self, call: Call) -> None:
        """Fail a call that was made."""
        fault = self.fault
        if fault and fault.is_made and call.kind == fault.kind and self.counts[call.kind] == fault.number:
            self._fail(call, fault)

    def _fail(self, call: Call, fault: Fault) -> None:
        self.failed.append(call)
        raise OSError(fault.error, os.strerror(fault.error), None if call.descriptor >= 0 else call.path)
