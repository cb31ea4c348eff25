"""A stream that has read nothing yet notices that records were deleted, whatever happened to the log since."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.stream_reader import KafkaLogStreamReader
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import OffsetOutOfRangeError
from tests.build.retained_store import COUNT, LOG, delete_records, names, state_of, write_aged
from tests.build.sink_store import in_process, open_store, rows

_START, _END = {"aged": {"0": 0, "1": 0}}, {"aged": {"0": COUNT, "1": 0}}
_EPOCHS = "leader-epoch-checkpoint"


def _only_committed(store: Path) -> None:
    """The ledger lets the log start later, and nothing else was done: a retention is at work, or was killed."""
    raise_log_starts(Store.find(store), {LOG: 100}, SystemClock())


def _repaired_epochs(store: Path) -> None:
    """The epoch file was damaged after a deletion, and repaired."""
    delete_records(store, int(names(store)[2].removesuffix(".log")))
    (store / "logs" / LOG.directory_name / _EPOCHS).write_bytes(b"0\n1\nxx\n")
    _repair(store)


def _repaired_after_loss(store: Path) -> None:
    """The first segment was lost, and the log starts behind it since its repair."""
    (store / "logs" / LOG.directory_name / names(store)[0]).unlink()
    _repair(store)


def _full_disk(store: Path) -> None:
    """The epochs could not be replaced while records were deleted."""
    (store / "logs" / LOG.directory_name / f"{_EPOCHS}.tmp").symlink_to("/dev/full")
    delete_records(store, int(names(store)[2].removesuffix(".log")))


def _repair(store: Path) -> None:
    result = execute_repair(store, RepairOptions(), SystemClock(), lambda _: None)
    assert result.is_sound


@pytest.mark.parametrize("change", [_only_committed, _repaired_epochs, _repaired_after_loss, _full_disk])
def test_stream_when_records_went_before_its_first_micro_batch_then_data_loss(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """A late start counts as that of a mirror only where nothing speaks of a deletion."""
    store = write_aged(tmp_path / "store")
    change(store)
    start = state_of(store).log_start_offset
    assert start > 0

    with pytest.raises(OffsetOutOfRangeError, match=f"records are missing: log=aged-0 offset=0 start={start}"):
        KafkaLogStreamReader(parse_options({"path": str(store)}, "stream")).partitions(_START, _END)


def test_stream_when_a_mirror_begins_late_then_nothing_was_lost_until_records_are_deleted(tmp_path: Path) -> None:
    """A repair of other files leaves it a log of which nobody deleted anything."""
    store = _write_mirror(tmp_path / "store")
    reader = KafkaLogStreamReader(parse_options({"path": str(store)}, "stream"))
    (store / "logs" / LOG.directory_name / "partition.metadata").unlink()
    _repair(store)
    assert len(reader.partitions(_START, {"aged": {"0": 5100, "1": 0}})) == 1

    raise_log_starts(Store.find(store), {LOG: 5050}, SystemClock())

    with pytest.raises(OffsetOutOfRangeError, match="records are missing"):
        reader.partitions(_START, {"aged": {"0": 5100, "1": 0}})


def _write_mirror(store: Path) -> Path:
    with closing(open_store(store, {"aged": {"partitions": 2}}, offsets="preserved")) as writer:
        count = 100
        offsets = list(range(5000, 5000 + count))
        batch = rows(topic=["aged"] * count, partition=[0] * count, offset=offsets, value=["v"] * count)
        writer.append("q", 0, in_process(batch))
    return store
