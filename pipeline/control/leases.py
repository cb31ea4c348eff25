"""Leases and fencing: a lease gives one maintenance run a log until a time, in an epoch.

`maintenance.lock` separates runs of one machine, and a dead process loses it. On a shared mount it may not reach other
machines. So a run also leases its logs, in one conditional MERGE, and then reads which ones it got: after a successful
MERGE a row may still belong to another run.

| the log's row                    | the run gets the lease                                                      |
|----------------------------------|-----------------------------------------------------------------------------|
| none                             | in epoch 1                                                                  |
| expired                          | in the next epoch                                                           |
| of another run, this machine     | in the next epoch: that run is dead, or it would hold the lock              |
| of another run elsewhere, valid  | no; the refusal names that run                                              |

The driver prolongs leases after a third of their term, without Spark, whose slots may be busy. If it can't, the run
gives them up a fifteenth of the term (one minute) before they expire: it removes its signature from `maintenance.lock`,
so its executors stop before their next step. So clocks of machines may differ by a minute.

Other machines read the rows, so their times are wall clock. A run's own time is the later one of the wall clock and of
its wall clock at the acquisition plus the monotonic time since. So if the wall clock is set back, the run neither keeps
its leases longer than others see, nor shortens its rows; if it is corrected after a pause of a virtual machine, the run
finds its leases lost. A clock set too far forward ends the run needlessly; the next run continues.
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
"""1/15 of a term is kept as margin for executors to stop and for clock skew."""
_LOOKS: Final = 20
"""Checks for lost leases between two prolongations."""
_LONGEST_LOOK_S: Final = 1.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CLAUSES: Final = """
WHEN MATCHED AND t.owner = s.owner THEN UPDATE SET expires_ms = s.expires_ms
WHEN MATCHED AND (t.expires_ms <= s.acquired_ms OR t.machine = s.machine) THEN UPDATE SET
  owner = s.owner, machine = s.machine, epoch = t.epoch + 1, acquired_ms = s.acquired_ms, expires_ms = s.expires_ms
WHEN NOT MATCHED THEN INSERT *
"""


class LeaseTable(Protocol):
    """The operations on control tables that leases need."""

    def try_merge(self, table: ControlTable, rows: list[dict[str, Any]], clauses: str) -> bool:
        """Merge rows; return False if another commit came first."""
        ...

    def try_update(self, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
        """Set columns of an owner's rows; return False if another commit came first."""
        ...

    def rows(self, table: ControlTable) -> list[dict[str, Any]]:
        """Return the table's present rows."""
        ...


@dataclass(slots=True)
class Leases:
    """The leases of a run.

    Attributes:
        owner: host, process and run.
        clock: for their expiry.
        term_ms: of each prolongation.
        epochs: of each leased log.
        refused: for each log without a lease, the run that has it, and until when.
        until_ms: time of expiry.
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
        """The run's time: the wall clock, unless it was set back."""
        return max(self.clock.now_ms(), self.clock.monotonic_ms() + self._ahead_ms)

    @property
    def is_lost(self) -> bool:
        """Whether another run may have one of the leases: it took one, or only the margin is left."""
        if self._is_given_up:
            return True
        return bool(self.epochs) and self.now_ms >= self.until_ms - self.term_ms // _MARGINS

    def take_over(self, rows: Mapping[TopicPartition, Mapping[str, Any]]) -> None:
        """Take the expiry from the leases' rows; a missing row means that another run has the lease."""
        if self.epochs.keys() - rows.keys():
            self._is_given_up = True
        elif self.epochs and not self.is_lost:
            self.until_ms = min(rows[log]["expires_ms"] for log in self.epochs)

    def give_up(self) -> None:
        """Give the leases up for good: a late prolongation must not revive them after the executors were fenced."""
        self._is_given_up = True

    def check(self) -> None:
        """Check that the run still has its leases.

        Raises:
            WriterFencedError: another run may have one of them.
        """
        if self.is_lost:
            raise WriterFencedError(f"this run has lost its leases, another run may have them: owner={self.owner}")


def machine_id() -> str:
    """Return the id of the running kernel: processes with the same one see each other's `flock`."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def leased_elsewhere(rows: Collection[Mapping[str, Any]], machine: str, now_ms: int) -> dict[TopicPartition, str]:
    """Return the logs leased by runs of other machines, with the run and the expiry."""
    return {
        TopicPartition(row["topic"], row["partition"]): _holder(row)
        for row in rows
        if row["machine"] != machine and row["expires_ms"] > now_ms
    }


def refuse_leased(root: Path, clock: Clock | None = None, machine: str | None = None) -> None:
    """Refuse a store with leases of a run on another machine; call it before taking the maintenance lock.

    If the lock does not reach that machine, it would be free here, and signing it would stop the other run's executors.

    Raises:
        StoreLockedError: there are leases; the message names the run and their expiry.
        UnsupportedFormatError: a newer release wrote the table of leases.
        CorruptFileError: the table is damaged.
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
    """Lease all logs that no other run has; the caller holds the maintenance lock.

    Args:
        term_ms: until the expiry without a prolongation.
    """
    leases = Leases(owner=f"{socket.gethostname()}:{os.getpid()}:{run_id}", clock=clock, term_ms=term_ms)
    if not logs:
        return leases
    now_ms = leases.now_ms
    wanted = {"owner": leases.owner, "machine": machine or machine_id(), "epoch": 1}
    wanted |= {"acquired_ms": now_ms, "expires_ms": now_ms + term_ms}
    rows = [{"topic": each.topic, "partition": each.partition, **wanted} for each in logs]
    for _ in range(_TRIES):  # commits for other logs conflict, too
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
    """Prolong leases in the background, and release them at the end.

    One thread prolongs, another watches the time: a hanging disk must not delay the discovery of lost leases.

    Args:
        fence: called when they are lost: stops the run's executors.
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
    """Prolong leases, then read their rows: a successful commit does not prove that the run has them."""
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
