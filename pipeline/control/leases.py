"""Leases: which run may work on a log, until when, in which epoch.

`maintenance.lock` keeps runs of one machine from each other, and goes with a process that dies; where several machines
mount a store it may not reach the others. So a run also leases the logs that it is about to work on, in one conditional
MERGE, and reads back which it got: a MERGE that did not fail is no answer, for the rows may be another's.

| the row of a log says                        | the run gets it                                               |
|----------------------------------------------|---------------------------------------------------------------|
| nothing                                      | in epoch 1                                                    |
| expired                                      | in the next epoch                                             |
| another run of this machine                  | in the next epoch: that one is dead, or the lock were its own |
| another run elsewhere, not expired           | not: that run is named                                        |

A lease is prolonged at a third of its term, by the driver without Spark, whose slots may all be taken. One that can't
be is lost a fifteenth of its term, a minute, before others may have it: the run's signature is taken out of the lock's
file then, so that its executors stop before their next step. So clocks of machines may differ by that minute.

Rows are read by other machines, so their times are wall clock. A run's own time goes on from where its wall clock was
when it got its leases, by the monotonic clock, and is not behind the wall clock. So where that is set back by an hour
the run neither believes that it has an hour more than others see, nor prolongs to a time before what its rows say; and
where it is set right behind a pause, in which a virtual machine counts nothing, the run finds that it has lost them.
One that is set too far forward ends the run without need; the next one goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from sparklog.pipeline.control.read_tables import read_rows
from sparklog.pipeline.control.schemas import LEASES, ControlTable
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import LogStorageError, StoreLockedError, WriterFencedError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "LEASE_MS",
    "LeaseTable",
    "Leases",
    "acquire_leases",
    "holding_leases",
    "leased_elsewhere",
    "machine_id",
    "refuse_leased",
]

logger = logging.getLogger(__name__)

LEASE_MS: Final = 15 * 60_000

_TRIES: Final = 3
_MARGINS: Final = 15
"""A term has so many: what a run leaves of it to its executors, who have to stop, and to clocks that differ."""
_LOOKS: Final = 20
"""How often a run looks whether its leases are lost, between two prolongations."""
_LONGEST_LOOK_S: Final = 1.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CLAUSES: Final = """
WHEN MATCHED AND t.owner = s.owner THEN UPDATE SET expires_ms = s.expires_ms
WHEN MATCHED AND (t.expires_ms <= s.acquired_ms OR t.machine = s.machine) THEN UPDATE SET
  owner = s.owner, machine = s.machine, epoch = t.epoch + 1, acquired_ms = s.acquired_ms, expires_ms = s.expires_ms
WHEN NOT MATCHED THEN INSERT *
"""


class LeaseTable(Protocol):
    """What leases need of the control tables."""

    def try_merge(self, table: ControlTable, rows: list[dict[str, Any]], clauses: str) -> bool:
        """Merge rows; return whether it was done, or lost a race."""
        ...

    def try_update(self, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
        """Set columns of an owner's rows; return whether it was done, or lost a race."""
        ...

    def rows(self, table: ControlTable) -> list[dict[str, Any]]:
        """Return the rows that the table has now."""
        ...


@dataclass(slots=True)
class Leases:
    """What a run got.

    Attributes:
        owner: of the leases: host, process and run.
        clock: tells what is left of them.
        term_ms: for which they are had at a time.
        epochs: of each log that it got.
        refused: for each log that it did not get, who has it, and until when.
        until_ms: when they expire.
    """

    owner: str
    clock: Clock
    term_ms: int = LEASE_MS
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)
    until_ms: int = 0
    _ahead_ms: int = field(init=False)
    _is_given_up: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._ahead_ms = self.clock.now_ms() - self.clock.monotonic_ms()

    @property
    def now_ms(self) -> int:
        """The run's time: the wall clock, unless that was set back since."""
        return max(self.clock.now_ms(), self.clock.monotonic_ms() + self._ahead_ms)

    @property
    def is_lost(self) -> bool:
        """Whether another run may have one of them: it took one, or their time is over but for the margin."""
        if self._is_given_up:
            return True
        return bool(self.epochs) and self.now_ms >= self.until_ms - self.term_ms // _MARGINS

    def take_over(self, rows: Mapping[TopicPartition, Mapping[str, Any]]) -> None:
        """Take the time of the leases over from their rows; one that is missing is another run's by now."""
        if self.epochs.keys() - rows.keys():
            self._is_given_up = True
        elif self.epochs and not self.is_lost:
            self.until_ms = min(rows[log]["expires_ms"] for log in self.epochs)

    def give_up(self) -> None:
        """Stay without them, whatever a prolongation that hung brings later: executors have heard of it."""
        self._is_given_up = True

    def check(self) -> None:
        """Make sure that the run still has them.

        Raises:
            WriterFencedError: another run may have one of them.
        """
        if self.is_lost:
            raise WriterFencedError(f"this run has lost its leases, another one may work: owner={self.owner}")


def machine_id() -> str:
    """Return what two processes that see each other's `flock` have in common: the running kernel."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def leased_elsewhere(rows: Collection[Mapping[str, Any]], machine: str, now_ms: int) -> dict[TopicPartition, str]:
    """Return the logs that runs of other machines have, and who until when."""
    return {
        TopicPartition(row["topic"], row["partition"]): _holder(row)
        for row in rows
        if row["machine"] != machine and row["expires_ms"] > now_ms
    }


def refuse_leased(root: Path, clock: Clock | None = None, machine: str | None = None) -> None:
    """Refuse a store of which a run of another machine has leases; whoever takes the maintenance lock calls it first.

    Where the lock does not reach that machine it would be free, and whoever signs it stops the other run's executors.

    Args:
        root: of the store.
        clock: tells what has expired.
        machine: this one.

    Raises:
        StoreLockedError: one has; the message says who and until when.
        UnsupportedFormatError: a newer release wrote the table of leases.
        CorruptFileError: it is damaged.
    """
    now_ms = (clock or SystemClock()).now_ms()
    leased = leased_elsewhere(read_rows(root, LEASES), machine or machine_id(), now_ms)
    if leased:
        log, holder = min(leased.items())
        what = f"a maintenance run of another machine has leased logs: count={len(leased)} log={log} {holder}"
        raise StoreLockedError(f"{what}; wait for its end, or stop it")


def acquire_leases(
    table: LeaseTable,
    logs: Collection[TopicPartition],
    run_id: str,
    clock: Clock,
    machine: str | None = None,
    term_ms: int = LEASE_MS,
) -> Leases:
    """Lease logs, as many of them as can be had; the caller holds the maintenance lock.

    Args:
        table: of the leases.
        logs: to work on.
        run_id: of the run.
        clock: tells what has expired.
        machine: this one.
        term_ms: for which they are had, unless they are prolonged.
    """
    leases = Leases(owner=f"{socket.gethostname()}:{os.getpid()}:{run_id}", clock=clock, term_ms=term_ms)
    if not logs:
        return leases
    now_ms = leases.now_ms
    wanted = {"owner": leases.owner, "machine": machine or machine_id(), "epoch": 1}
    wanted |= {"acquired_ms": now_ms, "expires_ms": now_ms + term_ms}
    rows = [{"topic": each.topic, "partition": each.partition, **wanted} for each in logs]
    for _ in range(_TRIES):  # a race is lost to runs that lease other logs, too
        if table.try_merge(LEASES, rows, _CLAUSES):
            break
    found = _rows_by_log(table)
    mine = {log: found[log] for log in logs if log in found and found[log]["owner"] == leases.owner}
    leases.epochs, leases.until_ms = {log: row["epoch"] for log, row in mine.items()}, now_ms + term_ms
    leases.refused = {log: _holder(found[log]) if log in found else "nobody" for log in logs if log not in mine}
    return leases


@contextlib.contextmanager
def holding_leases(
    table: LeaseTable, leases: Leases, fence: Callable[[], None], wait_s: float | None = None
) -> Iterator[Leases]:
    """Prolong leases in the background, and give them back at the end.

    Who watches their time is not who prolongs them: a disk that hangs must not keep a run from hearing that it lost.

    Args:
        table: of the leases.
        leases: to hold.
        fence: called once they are lost: stops who works for this run elsewhere.
        wait_s: between two prolongations; a third of the term if None.
    """
    wait_s = leases.term_ms / 3000 if wait_s is None else wait_s
    look_s = min(wait_s / _LOOKS, _LONGEST_LOOK_S)
    is_over, is_watched = threading.Event(), threading.Event()
    prolonging = threading.Thread(
        target=_keep_prolonging, args=(table, leases, is_over, wait_s), name="leases", daemon=True
    )
    watching = threading.Thread(target=_watch, args=(leases, fence, is_watched, look_s), name="fence", daemon=True)
    prolonging.start()
    watching.start()
    try:
        yield leases
    finally:
        is_over.set()
        while prolonging.is_alive() and not leases.is_lost:
            prolonging.join(look_s)
        is_watched.set()
        watching.join()
    if leases.epochs and not leases.is_lost:
        table.try_update(LEASES, {"expires_ms": 0}, leases.owner)


def _keep_prolonging(table: LeaseTable, leases: Leases, is_over: threading.Event, wait_s: float) -> None:
    while not is_over.wait(wait_s) and not leases.is_lost:
        try:
            _prolong(table, leases)
        except LogStorageError as error:
            logger.warning("Leases could not be prolonged owner=%s: %s", leases.owner, error)


def _prolong(table: LeaseTable, leases: Leases) -> None:
    """Prolong leases, and see what came of it: a commit that did not fail is no answer."""
    wanted_ms = leases.now_ms + leases.term_ms
    for _ in range(_TRIES):
        if not leases.epochs or table.try_update(LEASES, {"expires_ms": wanted_ms}, leases.owner):
            break
    found = {log: row for log, row in _rows_by_log(table).items() if row["owner"] == leases.owner}
    leases.take_over(found)


def _watch(leases: Leases, fence: Callable[[], None], is_over: threading.Event, look_s: float) -> None:
    """Fence a run whose leases are lost."""
    while not is_over.wait(look_s):
        if not leases.is_lost:
            continue
        leases.give_up()
        try:
            fence()
            return
        except LogStorageError as error:
            logger.warning("A run that lost its leases can't be fenced yet owner=%s: %s", leases.owner, error)


def _rows_by_log(table: LeaseTable) -> dict[TopicPartition, Mapping[str, Any]]:
    return {TopicPartition(row["topic"], row["partition"]): row for row in table.rows(LEASES)}


def _holder(row: Mapping[str, Any]) -> str:
    return f"owner={row['owner']} epoch={row['epoch']} expires_ms={row['expires_ms']}"
