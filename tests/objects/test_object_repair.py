"""Repairs of stores of objects: what is left can be read, what is gone is recorded, nothing else changes."""

import json
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.objects.repair_store import repair_objects
from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.fetch_store import fetch_store
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.objects.repair_objects import find_damage, object_sizes, repair_logs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import Stored, in_process, numbers, read_log, rows
from tests.kill.directory_job import finish
from tests.kill.harness import fork_server
from tests.sparklog_command import Sparklog

_TOPICS = {"events": {"batch.size": 300, "retention.ms": -1}}
_LOG = TopicPartition("events", 0)
_BATCHES, _ROWS = 6, 20


@pytest.fixture
def context() -> ForkServerContext:
    """Processes that start with everything imported."""
    return fork_server()


@pytest.fixture
def local(tmp_path: Path) -> StoragePlace:
    """A folder used as storage, with a store of 120 numbers in six extents."""
    place = StoragePlace(parse_address(f"file://{tmp_path}/store"))
    _append(place, 0, _BATCHES)
    return place


def _append(place: StoragePlace, first: int, last: int) -> None:
    config = SinkConfig.from_options(str(place.address), _TOPICS, topic="events", storage=place.options)
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        for batch in range(first, last):
            writer.append("query", batch, in_process(numbers(_ROWS * batch, _ROWS * batch + _ROWS)))


def _extents(place: StoragePlace) -> list[Extent]:
    return ObjectLedger.open(place).extents()[_LOG]


def _read(place: StoragePlace, folder: Path) -> list[Stored]:
    folder.mkdir()
    fetch_store(ObjectLedger.open(place), folder, lambda _log: True)
    return read_log(folder / "events-0")


def _path(tmp_path: Path, extent: Extent) -> Path:
    return tmp_path / "store" / extent.object


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_repair_when_an_object_is_gone_then_its_offsets_are_recorded_and_the_others_are_read(
    place: StoragePlace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On each storage: a lifecycle rule has removed an object in the middle, and one at the end."""
    _append(place, 0, 4)
    lost = [_extents(place)[1], _extents(place)[3]]
    place.open().remove([each.object for each in lost])
    version = ObjectLedger.open(place).version

    assert repair_objects(place, execute=False, as_json=False) == 1
    assert ObjectLedger.open(place).version == version
    assert "offsets 20..39 are lost: no such object: " in capsys.readouterr().out
    assert repair_objects(place, execute=True, as_json=False) == 0

    assert [each.offset for each in _read(place, tmp_path / "read")] == [*range(20), *range(40, 60)]
    ledger = ObjectLedger.open(place)
    recorded = [(each.first_offset, each.last_offset, each.file) for each in ledger.lost()]
    assert recorded == [(20, 39, lost[0].object), (60, 79, lost[1].object)]
    assert ledger.states()[_LOG].log_end_offset == 80
    assert repair_objects(place, execute=True, as_json=False) == 0
    assert ObjectLedger.open(place).version == ledger.version
    _append(place, 4, 5)
    assert [each.offset for each in _read(place, tmp_path / "again")] == [*range(20), *range(40, 60), *range(80, 100)]


def test_repair_when_a_batch_is_damaged_then_the_others_of_its_object_stay(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Its bytes are kept; describe and verify know what is lost, and maintenance goes on."""
    extent = _extents(local)[2]
    path = _path(tmp_path, extent)
    damaged = path.read_bytes()
    _flip(path, extent.position + 70)

    planned = sparklog("repair", local.address, "--json")
    broken = sparklog("verify", local.address)
    done = sparklog("repair", local.address, "--execute")

    first, last = (json.loads(planned.out.splitlines()[0])[name] for name in ("first_offset", "last_offset"))
    assert (planned.code, broken.code, done.code) == (1, 1, 0), (planned, broken, done)
    assert "repair --execute" in broken.err + broken.out
    assert (first, last - first < _ROWS - 1) == (40, True)
    read = [each.offset for each in _read(local, tmp_path / "read")]
    assert read == [each for each in range(_BATCHES * _ROWS) if not first <= each <= last]
    (kept,) = local.open().list("control/cut")
    assert len(local.open().read(kept.name)) == extent.size_bytes <= len(damaged)
    assert f"{first}..{last}" in sparklog("describe", local.address).out.replace(",", "")
    assert sparklog("verify", local.address).code == 0
    assert [*maintain_objects(MaintainedObjects(local, SystemClock(), 1 << 20))] == []


@pytest.mark.parametrize(("cut", "reason"), [(1, "object has only"), (0, "object has only 0 bytes")])
def test_repair_when_an_object_is_cut_short_then_its_extent_is_lost(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog, cut: int, reason: str
) -> None:
    path = _path(tmp_path, _extents(local)[0])
    path.write_bytes(path.read_bytes()[: -1 if cut else 0])

    done = sparklog("repair", local.address, "--execute")

    assert (done.code, reason in done.out) == (0, True), done
    assert [each.offset for each in _read(local, tmp_path / "read")] == list(range(_ROWS, _BATCHES * _ROWS))


def test_repair_when_a_length_is_damaged_then_no_batch_of_the_extent_is_trusted(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Where a batch begins is not known any more, so neither are the offsets of those after it."""
    extent = _extents(local)[1]
    _flip(_path(tmp_path, extent), extent.position + 11)

    done = sparklog("repair", local.address, "--execute")

    assert "offsets 20..39 are lost" in done.out, done
    assert [each.offset for each in _read(local, tmp_path / "read")] == [*range(20), *range(40, _BATCHES * _ROWS)]


def test_repair_when_maintenance_replaced_the_extents_meanwhile_then_nothing_is_dropped(
    local: StoragePlace, tmp_path: Path
) -> None:
    """What it found damaged is not what the log has now."""
    _append(local, _BATCHES, 17)
    ledger = ObjectLedger.open(local)
    extents, storage = ledger.extents()[_LOG], local.open()
    _path(tmp_path, extents[3]).rename(tmp_path / "aside")
    damage = find_damage(storage, extents, object_sizes(storage))
    (tmp_path / "aside").rename(_path(tmp_path, extents[3]))
    assert [each.lost for each in damage] == [((60, 79),)]
    assert {each.kind for each in maintain_objects(MaintainedObjects(local, SystemClock(), 1 << 20))} == {"merge"}

    assert repair_logs(ledger, {_LOG: damage}, 0) == set()

    assert [each.offset for each in _read(local, tmp_path / "read")] == list(range(17 * _ROWS))
    assert ObjectLedger.open(local).lost() == []


@pytest.mark.kill
@pytest.mark.parametrize("step", ["commit.data", "commit.written"])
def test_repair_when_killed_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, local: StoragePlace, tmp_path: Path, step: str
) -> None:
    """Offsets are recorded in the commit that drops them, so once."""
    extents = _extents(local)
    _path(tmp_path, extents[-1]).unlink()
    assert finish(context, _repair, tmp_path / "store", SPARKLOG_FAULT_POINT=step) == -9

    assert finish(context, _repair, tmp_path / "store") == 0

    assert [(each.first_offset, each.last_offset) for each in ObjectLedger.open(local).lost()] == [(100, 119)]
    assert [each.offset for each in _read(local, tmp_path / "read")] == list(range(100))


def _repair(store: Path) -> None:
    place = StoragePlace(parse_address(f"file://{store}"))
    assert repair_objects(place, execute=True, as_json=False) == 0


def test_extent_when_a_base_offset_is_damaged_inside_a_gap_then_its_checksum_tells(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """No CRC covers base offsets, and the batch still lies between its neighbours."""
    place = StoragePlace(parse_address(f"file://{tmp_path}/store"))
    config = SinkConfig.from_options(str(place.address), _TOPICS, topic="events", offsets="preserved")
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        for batch in range(17):
            offsets = [100 * batch + 10, 100 * batch + 20]
            writer.append("query", batch, in_process(rows(offset=offsets, partition=[0, 0], value=["a", "b"])))
    assert {each.kind for each in maintain_objects(MaintainedObjects(place, SystemClock(), 1 << 20))} == {"merge"}
    (extent,) = _extents(place)
    size = extent.size_bytes // 17
    _flip(_path(tmp_path, extent), extent.position + 5 * size + 7)

    broken = sparklog("verify", place.address)
    done = sparklog("repair", place.address, "--execute")

    assert (broken.code, "other batches than the ledger names" in broken.out) == (1, True), broken
    assert (done.code, "offsets 10..1,620 are lost" in done.out) == (0, True), done
