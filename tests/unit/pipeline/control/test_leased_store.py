"""A store that a run of another machine maintains, where no lock of ours reaches that machine."""

import time
from pathlib import Path

import pytest

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.control.schemas import LEASES
from sparklog.sink.ledger.intents import Truncation, render_intents
from sparklog.sink.opening.access import MAINTENANCE_LOCK
from sparklog.storage_core.errors import StoreLockedError
from tests.build.compacted_store import LOG, write_keyed
from tests.build.control_tables import put_rows, set_version
from tests.build.ledger_rows import change_row
from tests.build.maintained_logs import NOW_MS
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents
from tests.sparklog_command import Sparklog

_TERM_MS = 10**6
_STREAM = """
store: {store}
checkpoint: {store}.checkpoint
source: {{format: rate}}
records: {{topic: "'keyed'", value: value}}
topics: {{keyed: {{partitions: 2}}}}
"""


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with a signature in the lock that nobody on this machine holds, and half a replacement of a segment."""
    store = write_keyed(memory_path / "store", {"cleanup.policy": "compact,delete"})
    (store / MAINTENANCE_LOCK).write_text('{"host": "far"}\n')
    segment = min((store / "logs" / "keyed-0").glob("*.log"))
    segment.rename(f"{segment}.swap")
    return store


def _lease(store: Path, machine: str, expires_ms: int) -> None:
    lease = {"topic": "keyed", "partition": 1, "owner": "far:1:r", "machine": machine, "epoch": 4}
    put_rows(store, LEASES, [{**lease, "acquired_ms": NOW_MS, "expires_ms": expires_ms}])


@pytest.mark.parametrize(
    "arguments",
    [
        ["maintain", "STORE", "--execute"],
        ["maintain", "STORE", "--execute", "--rebuild-control"],
        ["retain", "STORE", "--execute"],
        ["delete-records", "STORE", "keyed:0", "--before", "5", "--execute"],
        ["delete-topic", "STORE", "keyed", "--execute"],
        ["move-log", "STORE", "keyed:0", "--to", "more", "--execute"],
        ["repair", "STORE", "--execute"],
        ["stream", "--config", "STORE.yaml", "--take-lock-by-force"],
    ],
    ids=lambda arguments: " ".join(each for each in arguments if each[0] not in "STORE."),
)
def test_verb_when_a_run_elsewhere_has_a_lease_then_refused_and_nothing_changed(
    sparklog: Sparklog, store: Path, arguments: list[str]
) -> None:
    """Nothing is signed, for that would stop the other run's executors, and nothing of it is finished."""
    expires_ms = time.time_ns() // 1_000_000 + _TERM_MS
    _lease(store, "far", expires_ms)
    Path(f"{store}.yaml").write_text(_STREAM.format(store=store))
    before = contents(store)
    ran = sparklog(*(each.replace("STORE", str(store)) for each in arguments))

    assert ran.code == 3
    assert f"owner=far:1:r epoch=4 expires_ms={expires_ms}" in ran.err
    assert contents(store) == before


def test_stream_when_it_would_finish_a_truncation_then_refused_while_a_run_elsewhere_has_a_lease(
    sparklog: Sparklog, store: Path
) -> None:
    """That takes the maintenance lock; a stream with nothing to finish goes on beside the other run."""
    _lease(store, "far", time.time_ns() // 1_000_000 + _TERM_MS)
    Path(f"{store}.yaml").write_text(_STREAM.format(store=store))
    truncation = Truncation(offset=0, log_start_offset=0, lost_from=0, began_ms=0)
    change_row(store, LOG, intent=render_intents((truncation,)))
    before = contents(store)

    assert "owner=far:1:r" in sparklog("stream", "--config", f"{store}.yaml").err
    assert contents(store) == before


def test_refuse_leased_when_the_lease_is_over_or_this_machines_then_not_refused(memory_path: Path) -> None:
    """What died elsewhere keeps nobody for longer than its term; of this machine's runs the lock tells."""
    clock = ManualClock(NOW_MS)
    refuse_leased(memory_path, clock, "here")
    _lease(memory_path, "here", NOW_MS + 1)
    refuse_leased(memory_path, clock, "here")
    with pytest.raises(StoreLockedError, match="leased logs: count=1 log=keyed-1 owner=far:1:r"):
        refuse_leased(memory_path, clock, "there")
    clock.advance(1)
    refuse_leased(memory_path, clock, "there")


def test_rebuild_when_the_leases_can_not_be_read_then_planned_all_the_same(sparklog: Sparklog, store: Path) -> None:
    """It is the remedy that every other verb names."""
    put_rows(store, LEASES, [])
    set_version(store, LEASES, 9)

    assert "--rebuild-control" in sparklog("retain", store, "--execute").err
    assert "control/leases: would be set aside" in sparklog("maintain", store, "--rebuild-control").out
