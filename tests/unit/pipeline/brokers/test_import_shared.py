"""Closed segments that a broker and a store share: whatever the store does later, the broker's files stay."""

import errno
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.pipeline.verbs.move_log import execute_move
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import clean_logs, plan_cleanings
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import BUDGET
from tests.build.golden import copy_broker_root, write_cluster_metadata
from tests.build.sink_store import contents, in_process, log_directories, open_store, rows
from tests.build.truncated import truncate_to
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.system_calls import watched
from tests.sparklog_command import Sparklog

_LOG = TopicPartition("v2-compact", 0)
_SETTINGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A stopped broker's root with a compacted log of several segments."""
    root = copy_broker_root(tmp_path / "broker", "v2-compact-before")
    write_cluster_metadata(root, {_LOG.topic: _SETTINGS})
    return root


def _append(store: Path, number: int = 0) -> None:
    with closing(open_store(store, {_LOG.topic: dict(_SETTINGS)}, topic=_LOG.topic)) as writer:
        writer.append("query", number, in_process(rows(key=["k"] * 3, value=["v"] * 3)))


def _append_by_force(store: Path) -> None:
    settings: dict[str, dict[str, object]] = {_LOG.topic: dict(_SETTINGS)}
    with closing(open_store(store, settings, topic=_LOG.topic, take_lock_by_force=True)) as writer:
        writer.append("query", 0, in_process(rows(key=["k"], value=["v"])))


def _truncate(store: Path) -> None:
    truncate_to(store, _LOG, 100, SystemClock())
    _append(store)


def _clean(store: Path) -> None:
    clock = SystemClock()
    with maintaining(store) as maintained:
        plans = plan_cleanings(maintained.store, {}, clock)
        (row,) = clean_logs(maintained, plans, BUDGET, clock)
    assert row.outcome == "cleaned"


def _move(store: Path) -> None:
    execute_move(store, _LOG, "moved")
    _append(store)


def _delete(store: Path) -> None:
    execute_deletion(store, _LOG.topic, SystemClock(), lambda *_: None, lambda _seconds: None)


@pytest.mark.parametrize("change", [_append, _append_by_force, _truncate, _clean, _move, _delete])
def test_import_when_on_one_filesystem_then_files_are_shared_and_the_store_changes_none_of_them(
    broker: Path, tmp_path: Path, sparklog: Sparklog, change: Callable[[Path], None]
) -> None:
    """The broker finds every byte as it was."""
    before, store = contents(broker), tmp_path / "store"
    ran = sparklog("import", broker, store, "--execute")
    assert ran.code == 0, ran.err
    assert "closed segments: hard link" in ran.out or "closed segments: reflink" in ran.out

    change(store)

    assert contents(broker) == before
    assert change is _delete or sparklog("verify", store, "--deep").code == 0


def test_import_when_records_are_deleted_then_the_broker_keeps_them(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A name goes, not the file."""
    before, store = contents(broker), tmp_path / "store"
    assert sparklog("import", broker, store, "--execute").code == 0

    assert sparklog("delete-records", store, f"{_LOG.topic}:0", "--before", 150, "--execute").code == 0

    assert (
        len(list(log_directories(store)[str(_LOG)].glob("*.log"))) < len(list(broker.rglob("v2-compact-0/*.log"))) + 1
    )
    assert contents(broker) == before


def test_import_when_its_plan_may_not_write_then_it_is_printed(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Somebody who may only read sees it, too; whether closed segments need copies is not known to him."""
    plan, before = FaultPlan(Fault("mkdir", 1, errno.EACCES, lasts=True)), contents(tmp_path)

    with watched(tmp_path, plan):
        ran = sparklog("import", broker, tmp_path / "store")

    assert ran.code == 0, ran.err
    assert "planned: 1 logs" in ran.out
    assert [call.kind for call in plan.failed] == ["mkdir"]
    assert contents(tmp_path) == before
