"""Maintenance of stores of objects: nothing lost, nothing twice, objects few, also beside a writer."""

import os
import random
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.fetch_store import fetch_store
from sparklog.sink.objects.maintaining.maintain_objects import (
    MaintainedObjects,
    ObjectTask,
    maintain_objects,
    plan_objects,
)
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import EVENTS as USUAL_EVENTS
from tests.build.sink_store import Stored, in_process, numbers, read_log, rows
from tests.sparklog_command import Sparklog

EVENTS = {"events": {**USUAL_EVENTS["events"], "retention.ms": -1}}
_NOW_MS = 1_800_000_000_000
_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS


def _open(place: StoragePlace, topics: Mapping[str, Mapping[str, object]] = EVENTS, **options: Any) -> ObjectWriter:
    options = {"topic": next(iter(topics)), **options}
    config = SinkConfig.from_options(str(place.address), topics, storage=place.options, **options)
    assert config.objects is not None
    return ObjectWriter(config, config.objects, SystemClock())


def _maintain(place: StoragePlace, clock: ManualClock | None = None) -> list[ObjectTask]:
    return [*maintain_objects(MaintainedObjects(place, clock or SystemClock(), 1 << 20))]


def _records(place: StoragePlace, tmp_path: Path) -> dict[str, list[Stored]]:
    folder = tmp_path / f"fetched-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    fetch_store(ObjectLedger.open(place), folder, lambda _log: True)
    return {each.name: read_log(each) for each in sorted(folder.iterdir()) if each.is_dir()}


def _numbers(place: StoragePlace, tmp_path: Path) -> list[int]:
    found = _records(place, tmp_path)
    for log in found.values():
        assert [each.offset for each in log] == list(range(len(log)))
    return sorted(int(each.value or b"") for log in found.values() for each in log)


@pytest.fixture
def local(tmp_path_factory: pytest.TempPathFactory) -> StoragePlace:
    """A folder used as storage: for what does not depend on the storage."""
    config = SinkConfig.from_options(f"file://{tmp_path_factory.mktemp('objects')}/store", EVENTS)
    assert config.objects is not None
    return config.objects


def test_extents_when_many_are_small_then_merged_and_read_as_before(place: StoragePlace, tmp_path: Path) -> None:
    with closing(_open(place)) as writer:
        for batch in range(17):
            writer.append("query", batch, in_process(numbers(10 * batch, 10 * batch + 10)))
        before = _records(place, tmp_path)

        done = _maintain(place)

        assert [each.kind for each in done] == ["merge", "merge"]
        ledger = ObjectLedger.open(place)
        assert {log.partition: len(each) for log, each in ledger.extents().items()} == {0: 1, 1: 1}
        assert len(ledger.garbage()) == 17
        assert _records(place, tmp_path) == before
        writer.append("query", 17, in_process(numbers(170, 180)))  # the same writer goes on

    assert _numbers(place, tmp_path) == list(range(180))
    assert _maintain(place) == []


def test_objects_when_let_go_then_removed_after_an_hour(local: StoragePlace, tmp_path: Path) -> None:
    """Readers may have planned with them."""
    clock = ManualClock(_NOW_MS)
    with closing(_open(local)) as writer:
        for batch in range(17):
            writer.append("query", batch, in_process(numbers(10 * batch, 10 * batch + 10)))
    _maintain(local, clock)

    clock.advance(_HOUR_MS - 1000)
    assert _maintain(local, clock) == []
    clock.advance(1000)
    assert [(each.kind, each.what) for each in plan_objects(MaintainedObjects(local, clock, 1))] == [
        ("remove", "17 objects")
    ]
    assert [each.kind for each in _maintain(local, clock)] == ["remove"]

    assert len(list(local.open().list("data"))) == 1
    assert ObjectLedger.open(local).garbage() == {}
    assert _numbers(local, tmp_path) == list(range(170))


def _age(place: StoragePlace, name: str) -> None:
    """Let an object be more than a day older than the others."""
    path = Path("/", place.address.path, name)
    os.utime(path, (path.stat().st_mtime - _DAY_MS / 1000 - 5,) * 2)


def test_objects_when_no_version_ever_named_them_then_garbage_after_a_day(local: StoragePlace) -> None:
    clock = ManualClock(_NOW_MS)
    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
    storage, old = local.open(), "data/query/9/deadbeef/00000-x.batches"
    for name in (old, "data/query/9/deadbeef/00001-y.batches", "data/other"):
        storage.create(name, b"x")
    _age(local, old)
    _age(local, "data/other")

    assert [each.what for each in _maintain(local, clock)] == ["1 objects of crashed tasks, in an hour"]
    assert _maintain(local, clock) == []
    clock.advance(_HOUR_MS)
    assert [each.what for each in _maintain(local, clock)] == ["1 objects"]

    left = [each.name for each in storage.list("data") if "0-" not in each.name]
    assert sorted(left) == ["data/other", "data/query/9/deadbeef/00001-y.batches"]


@pytest.mark.parametrize("hours", [0, 2])
def test_micro_batch_when_its_objects_were_taken_for_orphans_then_its_commit_is_refused(
    local: StoragePlace, tmp_path: Path, hours: int
) -> None:
    """A backfill may be at work for more than a day: its objects are listed, or gone, before they are named."""
    clock = ManualClock(_NOW_MS)

    def stage_slowly(plan: StagePlan) -> list[StageReport]:
        reports = in_process(numbers(10, 20), numbers(20, 30))(plan)
        _age(local, f"{plan.directory}/{reports[0].file}")
        assert len(_maintain(local, clock)) == 1
        clock.advance(hours * _HOUR_MS)
        _maintain(local, clock)
        return reports

    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
        with pytest.raises(StorageError, match=r"given up|no such object"):
            writer.append("query", 1, stage_slowly)
        writer.append("query", 1, in_process(numbers(10, 30)))

    assert _numbers(local, tmp_path) == list(range(30))


def test_maintenance_when_it_sleeps_for_days_then_its_objects_are_not_named(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has merged was taken for an orphan, and the old extents have to stay."""
    clock = ManualClock(_NOW_MS)
    with closing(_open(local)) as writer:
        for batch in range(17):
            writer.append("query", batch, in_process(numbers(10 * batch, 10 * batch + 10)))

    def sleep(step: str) -> None:
        if step != "clean.checkpoint":
            return
        monkeypatch.setattr("sparklog.sink.objects.maintaining.maintain_objects.reach", lambda _step: None)
        for each in local.open().list("data/merged"):
            _age(local, each.name)
        monkeypatch.setattr("sparklog.sink.objects.maintaining.maintain_objects.plan_merges", lambda _extents: [])
        for _ in range(2):
            _maintain(local, clock)
            clock.advance(_HOUR_MS)
        _maintain(local, clock)

    # The newest object gives the storage's time.
    local.open().create("data/query/9/deadbeef/00000-x.batches", b"x")
    monkeypatch.setattr("sparklog.sink.objects.maintaining.maintain_objects.reach", sleep)
    with pytest.raises(StorageError, match=r"no such object"):
        _maintain(local, clock)

    assert _numbers(local, tmp_path) == list(range(170))


def test_maintenance_when_a_writer_commits_a_hundred_times_meanwhile_then_it_still_commits(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries after the version that it has read are tidied away by then."""
    with closing(_open(local)) as writer:
        for batch in range(17):
            writer.append("query", batch, in_process(numbers(10 * batch, 10 * batch + 10)))

        def go_on(step: str) -> None:
            if step == "clean.checkpoint":
                for batch in range(17, 250):
                    writer.append("query", batch, in_process(numbers(10 * batch, 10 * batch + 10)))

        monkeypatch.setattr("sparklog.sink.objects.maintaining.maintain_objects.reach", go_on)
        done = _maintain(local)

    assert [each.what for each in done if each.kind == "merge"] == ["17 extents, 1 after"] * 2
    assert _numbers(local, tmp_path) == list(range(2500))


@pytest.mark.parametrize(("policy", "left"), [("retention.ms", 5), ("retention.bytes", 3)])
def test_retention_when_extents_are_due_then_they_go_by_the_ledger_alone(
    local: StoragePlace, tmp_path: Path, policy: str, left: int
) -> None:
    size = 0
    topics = {"t": {"cleanup.policy": "delete", policy: _DAY_MS}}
    for _ in range(2):  # the first time only to learn the size
        with closing(_open(local, topics)) as writer:
            for batch in range(10):
                at = _NOW_MS - (10 - batch) * _DAY_MS // 5 + 1
                writer.append(
                    "query", batch, in_process(rows(timestamp=[at] * 3, value=[f"{batch}-{n}" for n in range(3)]))
                )
        size = ObjectLedger.open(local).extents()[TopicPartition("t", 0)][0].size_bytes
        topics = {"t": {"cleanup.policy": "delete", policy: _DAY_MS if policy == "retention.ms" else 3 * size}}
    _open(local, topics).close()

    done = _maintain(local, ManualClock(_NOW_MS))

    assert [each.kind for each in done] == ["retain"]
    ledger = ObjectLedger.open(local)
    state = ledger.states()[TopicPartition("t", 0)]
    assert (state.log_start_offset, state.log_end_offset) == (30 - 3 * left, 30)
    assert len(ledger.garbage()) == 10 - left
    assert [each.offset for each in _records(local, tmp_path)["t-0"]] == list(range(30 - 3 * left, 30))


def test_retention_when_all_records_are_due_then_the_log_keeps_its_end(local: StoragePlace, tmp_path: Path) -> None:
    topics = {"t": {"retention.ms": 1000}}
    with closing(_open(local, topics)) as writer:
        writer.append("query", 0, in_process(rows(timestamp=[1000, 2000], value=["a", "b"])))
        _maintain(local, ManualClock(_NOW_MS))
        writer.append("query", 1, in_process(rows(timestamp=[_NOW_MS], value=["c"])))

    assert [(each.offset, each.value) for each in _records(local, tmp_path)["t-0"]] == [(2, b"c")]


def _keyed(batch: int, rng: random.Random) -> dict[str, list[Any]]:
    count = rng.randrange(1, 40)
    keys = [f"k{rng.randrange(12)}" for _ in range(count)]
    values = [None if rng.random() < 0.2 else f"{batch}-{n}" for n in range(count)]
    return {"timestamp": [_NOW_MS - 1000 + batch] * count, "key": keys, "value": values}


@pytest.mark.parametrize("seed", range(4))
def test_compaction_when_run_between_micro_batches_then_each_key_has_its_last_value(
    local: StoragePlace, tmp_path: Path, seed: int
) -> None:
    """With merges, a writer that goes on, and tombstones that go once their horizon has passed."""
    rng, clock = random.Random(seed), ManualClock(_NOW_MS)
    topics = {
        "t": {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": 0.3,
            "delete.retention.ms": 1000,
            "segment.bytes": 2000,
            "batch.size": 300,
        }
    }
    last: dict[str, str | None] = {}
    with closing(_open(local, topics)) as writer:
        for batch in range(30):
            given = _keyed(batch, rng)
            last.update(zip(given["key"], given["value"], strict=True))
            writer.append("query", batch, in_process(rows(**given)))
            if rng.random() < 0.3:
                assert all(each.error is None for each in _maintain(local, clock))
                clock.advance(1000)
                _check_keys(_records(local, tmp_path)["t-0"], last)
    end = ObjectLedger.open(local).states()[TopicPartition("t", 0)].log_end_offset

    for _ in range(3):
        _maintain(local, clock)
        clock.advance(10_000)

    _check_keys(_records(local, tmp_path)["t-0"], last)
    assert ObjectLedger.open(local).states()[TopicPartition("t", 0)].log_end_offset == end
    assert len(_records(local, tmp_path)["t-0"]) < end


def _check_keys(found: list[Stored], last: Mapping[str, str | None]) -> None:
    newest = {(each.key or b"").decode(): each.value and each.value.decode() for each in found}
    assert {key: value for key, value in newest.items() if value is not None} == {
        key: value for key, value in last.items() if value is not None
    }
    assert [each.offset for each in found] == sorted({each.offset for each in found})


def test_maintenance_when_a_writer_commits_all_the_time_then_both_get_on(place: StoragePlace, tmp_path: Path) -> None:
    stop = threading.Event()
    tasks: list[ObjectTask] = []

    def maintain() -> None:
        while not stop.is_set():
            tasks.extend(_maintain(place))

    with closing(_open(place)) as writer:
        writer.append("query", 0, in_process(numbers(0, 5)))
        beside = threading.Thread(target=maintain)
        beside.start()
        try:
            for batch in range(1, 25):
                writer.append("query", batch, in_process(numbers(5 * batch, 5 * batch + 5)))
        finally:
            stop.set()
            beside.join()

    assert all(each.error is None for each in tasks)
    _maintain(place)
    assert _numbers(place, tmp_path) == list(range(125))


def test_runs_when_two_do_the_same_then_one_counts(local: StoragePlace, tmp_path: Path) -> None:
    with closing(_open(local)) as writer:
        for batch in range(40):
            writer.append("query", batch, in_process(numbers(5 * batch, 5 * batch + 5)))
    threads = [threading.Thread(target=_maintain, args=(local,)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert _numbers(local, tmp_path) == list(range(200))
    assert all(len(each) == 1 for each in ObjectLedger.open(local).extents().values())


def test_log_when_an_object_is_gone_then_its_task_fails_and_the_others_do_not(
    local: StoragePlace, sparklog: Sparklog
) -> None:
    topics = {name: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.1} for name in ("a", "b")}
    for name in topics:
        with closing(_open(local, topics, topic=name)) as writer:
            writer.append(name, 0, in_process(rows(key=["k", "k"], value=["1", "2"])))
    [gone] = [each.name for each in local.open().list("data/a")]
    local.open().remove([gone])

    planned = sparklog("maintain", str(local.address))
    assert (planned.code, planned.out.splitlines()[-1]) == (0, "planned: 2 clean; --execute does it")
    done = sparklog("maintain", str(local.address), "--execute")

    assert done.code == 1
    assert gone in done.out
    assert "clean b-0: 2 records, 1 kept" in done.out
    refused = sparklog("maintain", str(local.address), "--rebuild-control")
    assert (refused.code, "--rebuild-control: not for a store of objects" in refused.err) == (2, True)
