"""What a task reads, and what it leaves out."""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import crc32c
import pyarrow as pa
import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.log_bounds import find_bounds
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.plan import ReadTask, plan_tasks
from sparklog.pipeline.reader.read_task import read_task
from sparklog.storage_core.errors import CorruptBatchError, InvalidRecordError, StorageError
from tests.build.written_log import Batch, WrittenLog, write_log

_HEADER_BYTES = 61


def _log(folder: Path, codec: str = "none") -> WrittenLog:
    """Three segments of forty batches of ten records."""
    times = [[Batch(list(range(10))) for _ in range(40)] for _ in range(3)]
    return write_log(folder / "t-0", times, codec=codec, index_interval_bytes=900)


def _tasks(folder: Path, **options: str) -> list[ReadTask]:
    parsed = parse_options({"path": str(folder), **options}, "batch")
    bounds = find_bounds(open_logs(folder).logs, parsed)
    wanted = {log: (each.start_offset, each.end_offset) for log, each in bounds.items()}
    return plan_tasks(wanted, bounds, parsed)


def _read(folder: Path, **options: str) -> list[pa.RecordBatch]:
    return [rows for task in _tasks(folder, **options) for rows in read_task(task)]


def _offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for rows in batches for offset in rows.column("offset").to_pylist()]


def _lossy(folder: Path) -> list[int]:
    return _offsets(_read(folder, failOnDataLoss="false"))


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("parts", ["1", "7"])
def test_read_task_when_a_log_is_sound_then_each_record_comes_once(tmp_path: Path, parts: str) -> None:
    """Over all tasks the records are those of the log, in order."""
    log = _log(tmp_path, "zstd")

    assert _offsets(_read(tmp_path, minPartitions=parts)) == log.offsets


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_read_task_when_a_byte_is_flipped_then_the_error_names_file_and_position(tmp_path: Path, codec: str) -> None:
    """Damage fails the task, says where it is, and how to read the rest."""
    log = _log(tmp_path, codec)
    path, position, size, *_ = log.batches[54]
    _flip(path, position + size - 3)

    with pytest.raises(CorruptBatchError) as caught:
        _read(tmp_path)

    assert f"file={path}" in str(caught.value)
    assert f"position={position}" in str(caught.value)
    assert "failOnDataLoss=false" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda size: size - 3, id="record"),
        pytest.param(lambda _: 17, id="crc"),
        pytest.param(lambda _: 60, id="records count"),
        pytest.param(lambda _: 22, id="codec"),
    ],
)
def test_read_task_when_damage_may_be_left_out_then_only_its_batch_is_missing(
    tmp_path: Path, damage: Callable[[int], int], caplog: pytest.LogCaptureFixture
) -> None:
    """A batch whose length is right costs its own records, and the log says which."""
    log = _log(tmp_path)
    path, position, size, first, last = log.batches[54]
    _flip(path, position + damage(size))

    with caplog.at_level(logging.WARNING):
        found = _lossy(tmp_path)

    assert found == [offset for offset in log.offsets if not first <= offset <= last]
    assert f"offsets={first}..{last}" in caplog.text
    assert str(path) in caplog.text
    assert f"ranges=1 offsets={last - first + 1}" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(8, id="length"),
        pytest.param(11, id="a little too long"),
        pytest.param(16, id="magic"),
        pytest.param(0, id="base offset"),
        pytest.param(7, id="base offset, a little"),
        pytest.param(26, id="last offset delta"),
    ],
)
def test_read_task_when_a_header_lies_then_little_around_it_is_missing(tmp_path: Path, damage: int) -> None:
    """Behind a batch that does not tell where it ends, the index leads to the next sound one."""
    log = _log(tmp_path)
    path, position, _, first, _ = log.batches[54]
    _flip(path, position + damage)

    found = _lossy(tmp_path)

    assert found == sorted(set(found))
    assert set(found) <= set(log.offsets)
    missing = sorted(set(log.offsets) - set(found))
    assert first - 10 <= missing[0] <= first + 10
    assert missing[-1] < 800, "the segment behind the damaged one is whole"
    assert len(missing) <= 100


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize(
    ("place", "bit"),
    [
        pytest.param(26, 0x10, id="last offset delta, a little"),
        pytest.param(23, 0x01, id="last offset delta"),
        pytest.param(8, 0x10, id="length"),
        pytest.param(11, 0x10, id="length, a little"),
        pytest.param(100, 0x10, id="record"),
    ],
)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_read_task_when_a_large_batch_is_damaged_then_its_neighbours_are_read(
    tmp_path: Path, place: int, bit: int, codec: str, isolation: str
) -> None:
    """A header that lies costs its own batch, also where the next one lies beyond what is read at once."""
    batches = [Batch([number] * 10, value_bytes=150_000) for number in range(6)]
    log = write_log(tmp_path / "t-0", [batches], codec=codec)
    tasks = _tasks(tmp_path, failOnDataLoss="false", **{"kafka.isolation.level": isolation})
    path, position, _, first, last = log.batches[1]
    data = bytearray(path.read_bytes())
    data[position + place] ^= bit
    path.write_bytes(data)

    found = _offsets([rows for task in tasks for rows in read_task(task)])

    assert found == [offset for offset in log.offsets if not first <= offset <= last]


@pytest.mark.parametrize(
    ("bits", "isolation", "found_of_it", "lost"),
    [
        pytest.param(0x10, "read_uncommitted", range(20, 30), "10..19", id="transactional"),
        pytest.param(0x10, "read_committed", range(0), "20..29", id="of an unknown transaction"),
        pytest.param(0x20, "read_uncommitted", range(0), "10..19", id="control"),
    ],
)
def test_read_task_when_a_batch_behind_damage_is_transactional_then_it_is_not_read_on_its_own(
    tmp_path: Path, bits: int, isolation: str, found_of_it: range, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a batch alone nobody knows whether its transaction was aborted."""
    log = write_log(tmp_path / "t-0", [[Batch([number] * 10, value_bytes=1000) for number in range(6)]])
    tasks = _tasks(tmp_path, failOnDataLoss="false", **{"kafka.isolation.level": isolation})
    (path, second, *_), (_, third, size, *_) = log.batches[1:3]
    data = bytearray(path.read_bytes())
    data[second + 26] ^= 0x10
    data[third + 22] |= bits
    data[third + 17 : third + 21] = crc32c.crc32c(bytes(data[third + 21 : third + size])).to_bytes(4, "big")
    path.write_bytes(data)

    with caplog.at_level(logging.WARNING):
        found = _offsets([rows for task in tasks for rows in read_task(task)])

    assert found == [*range(10), *found_of_it, *range(30, 60)]
    assert f"offsets={lost}" in caplog.text


@pytest.mark.parametrize(("place", "bit"), [(7, 1), (7, 2), (7, 4), (7, 8), (7, 64), (6, 1), (6, 2), (5, 1), (0, 128)])
@pytest.mark.parametrize("number", [0, 6, 25, 29, 30, 47, 59])
def test_read_task_when_a_base_offset_is_wrong_then_no_record_has_another_one_s_offset(
    tmp_path: Path, number: int, place: int, bit: int
) -> None:
    """It is outside the CRC: only the neighbours and the index tell."""
    sizes = [20, 300, 3000]
    segments = [[Batch([0] * 10, value_bytes=sizes[n % 3]) for n in range(start, start + 30)] for start in (0, 30)]
    log = write_log(tmp_path / "t-0", segments, index_interval_bytes=2000)
    tasks = _tasks(tmp_path, failOnDataLoss="false")
    path, position, *_ = log.batches[number]
    data = bytearray(path.read_bytes())
    data[position + place] ^= bit
    path.write_bytes(data)

    rows = [batch for task in tasks for batch in read_task(task)]

    found = _offsets(rows)
    keys = [key for batch in rows for key in batch.column("key").to_pylist()]
    assert keys == [f"k{offset % 10}".encode() for offset in found]
    assert found == sorted(set(found))
    assert len(found) >= len(log.offsets) - 60


def test_read_task_when_there_is_no_index_then_the_rest_of_the_segment_is_missing(tmp_path: Path) -> None:
    """Without an index nothing tells where the next batch is; the next segment's name does."""
    log = _log(tmp_path)
    path, position, _, first, _ = log.batches[54]
    _flip(path, position + 8)
    path.with_suffix(".index").unlink()

    assert _lossy(tmp_path) == [offset for offset in log.offsets if not first <= offset < 800]


def test_read_task_when_a_segment_is_gone_then_its_records_are_missing(tmp_path: Path) -> None:
    """A segment that was removed after planning is passed over, as long as its directory can be listed."""
    log = _log(tmp_path)
    parsed = parse_options({"path": str(tmp_path), "failOnDataLoss": "false"}, "batch")
    bounds = find_bounds(open_logs(tmp_path).logs, parsed)
    tasks = plan_tasks(dict.fromkeys(bounds, (0, 1200)), bounds, parsed)
    log.batches[0][0].unlink()

    assert _offsets([rows for task in tasks for rows in read_task(task)]) == list(range(400, 1200))


def test_read_task_when_a_segment_can_not_be_read_then_the_error_names_it(tmp_path: Path) -> None:
    """A disk that refuses is an error with the file, whatever data loss is to do: what lies there may be whole."""
    path = _log(tmp_path).batches[54][0]
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)  # a file that the system refuses to open, whoever asks

    with pytest.raises(StorageError, match=f"path={path}"):
        _read(tmp_path)
    with pytest.raises(StorageError, match=f"path={path}"):
        _lossy(tmp_path)


@pytest.mark.parametrize("size", [0, 5, 61, 100, 1000])
def test_read_task_when_the_end_is_torn_then_it_ends_there_without_an_error(tmp_path: Path, size: int) -> None:
    """The last batch of a running or killed writer is no damage."""
    log = _log(tmp_path)
    path = log.batches[-1][0]
    os.truncate(path, size)

    found = _offsets(_read(tmp_path))

    assert found == log.offsets[: len(found)]
    assert len(found) >= 800


def test_read_task_when_every_batch_is_damaged_then_it_ends(tmp_path: Path) -> None:
    """However much is damaged, reading ends, with nothing."""
    log = _log(tmp_path)
    for path, position, size, *_ in log.batches:
        _flip(path, position + size - 3)

    assert _lossy(tmp_path) == []


def test_read_task_when_segments_hold_anything_then_rows_are_those_of_the_log(tmp_path: Path) -> None:
    """Whatever a segment's bytes are, no row is wrong, none comes twice, and reading ends."""
    log = _log(tmp_path)
    paths = sorted({batch[0] for batch in log.batches})
    for seed in range(12):
        original = [path.read_bytes() for path in paths]
        for path, data in zip(paths, original, strict=True):
            start = (seed * 977) % (len(data) - 200)
            path.write_bytes(data[:start] + os.urandom(200 if seed % 2 else 31) + data[start + 200 :])

        found = _lossy(tmp_path)

        assert found == sorted(set(found) & set(log.offsets))
        for path, data in zip(paths, original, strict=True):
            path.write_bytes(data)


def test_read_task_when_a_timestamp_does_not_fit_then_it_is_an_error_or_null(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark can't hold the largest of Kafka's timestamps; the message names the record."""
    write_log(tmp_path / "t-0", [[Batch([5, 2**62, 7])]])

    with pytest.raises(InvalidRecordError, match=f"offset=1 timestamp_ms={2**62}"):
        _read(tmp_path)
    with caplog.at_level(logging.WARNING):
        (rows,) = _read(tmp_path, failOnDataLoss="false")
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [5000, None, 7000]
    assert "null instead: records=1" in caplog.text


def test_read_task_when_asked_for_headers_then_they_come(tmp_path: Path) -> None:
    """`includeHeaders` adds their column."""
    _log(tmp_path)

    (without, *_), (with_headers, *_) = _read(tmp_path), _read(tmp_path, includeHeaders="true")

    assert with_headers.schema.names == [*without.schema.names, "headers"]
    assert with_headers.column("headers").null_count == with_headers.num_rows
