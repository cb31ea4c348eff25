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

A lease is prolonged at a third of its term. One that can't be is lost: the run's signature is taken out of the lock's
file then, so that its executors stop before their next step.
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

from pipeline.control.read_tables import read_rows
from pipeline.control.schemas import LEASES, ControlTable
from storage_core.clock import Clock, SystemClock
from storage_core.errors import LogStorageError, StoreLockedError, WriterFencedError
from storage_core.topic_partition import TopicPartition

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

    def try_update(self, table: ControlTable, assignments: str, condition: str) -> bool:
        """Change the rows that a condition holds for; return whether it was done, or lost a race."""
        ...

    def rows(self, table: ControlTable) -> list[dict[str, Any]]:
        """Return the rows that the table has now."""
        ...


@dataclass(slots=True)
class Leases:
    """What a run got.

    Attributes:
        owner: of the leases: host, process and run.
        epochs: of each log that it got.
        refused: for each log that it did not get, who has it, and until when.
    """

    owner: str
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)
    is_lost: bool = False

    def check(self) -> None:
        """Make sure that the run still has them.

        Raises:
            WriterFencedError: it could not prolong them.
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
    table: LeaseTable, logs: Collection[TopicPartition], run_id: str, clock: Clock, machine: str | None = None
) -> Leases:
    """Lease logs, as many of them as can be had; the caller holds the maintenance lock.

    Args:
        table: of the leases.
        logs: to work on.
        run_id: of the run.
        clock: tells what has expired.
        machine: this one.
    """
    leases = Leases(owner=f"{socket.gethostname()}:{os.getpid()}:{run_id}")
    if not logs:
        return leases
    now_ms = clock.now_ms()
    wanted = {"owner": leases.owner, "machine": machine or machine_id(), "epoch": 1}
    wanted |= {"acquired_ms": now_ms, "expires_ms": now_ms + LEASE_MS}
    rows = [{"topic": each.topic, "partition": each.partition, **wanted} for each in logs]
    for _ in range(_TRIES):  # a race is lost to runs that lease other logs, too
        if table.try_merge(LEASES, rows, _CLAUSES):
            break
    found = {TopicPartition(row["topic"], row["partition"]): row for row in table.rows(LEASES)}
    mine = {log: found[log]["epoch"] for log in logs if log in found and found[log]["owner"] == leases.owner}
    leases.epochs = mine
    leases.refused = {log: _holder(found[log]) if log in found else "nobody" for log in logs if log not in mine}
    return leases


@contextlib.contextmanager
def holding_leases(
    table: LeaseTable, leases: Leases, clock: Clock, fence: Callable[[], None], wait_s: float = LEASE_MS / 3000
) -> Iterator[Leases]:
    """Prolong leases in the background, and give them back at the end.

    Args:
        table: of the leases.
        leases: to hold.
        clock: tells the time.
        fence: called once they are lost: stops who works for this run elsewhere.
        wait_s: between two prolongations.
    """
    is_over = threading.Event()

    def prolong() -> None:
        until_ms = clock.now_ms() + LEASE_MS
        while not is_over.wait(wait_s):
            try:
                until_ms = _prolong(table, leases, clock, until_ms)
            except LogStorageError as error:
                logger.warning("Leases could not be prolonged owner=%s: %s", leases.owner, error)
                if clock.now_ms() >= until_ms:
                    leases.is_lost = True
            if leases.is_lost:
                fence()
                return

    thread = threading.Thread(target=prolong, name="leases", daemon=True)
    thread.start()
    try:
        yield leases
    finally:
        is_over.set()
        thread.join()
    if leases.epochs and not leases.is_lost:
        table.try_update(LEASES, "expires_ms = 0", f"owner = '{leases.owner}'")


def _prolong(table: LeaseTable, leases: Leases, clock: Clock, until_ms: int) -> int:
    """Prolong leases; return until when they last now."""
    wanted_ms = clock.now_ms() + LEASE_MS
    is_done = not leases.epochs or table.try_update(LEASES, f"expires_ms = {wanted_ms}", f"owner = '{leases.owner}'")
    owned = {TopicPartition(row["topic"], row["partition"]) for row in table.rows(LEASES) if _is_owned(row, leases)}
    leases.is_lost = not leases.epochs.keys() <= owned
    return wanted_ms if is_done else until_ms


def _is_owned(row: Mapping[str, Any], leases: Leases) -> bool:
    return bool(row["owner"] == leases.owner)


def _holder(row: Mapping[str, Any]) -> str:
    return f"owner={row['owner']} epoch={row['epoch']} expires_ms={row['expires_ms']}"
