"""The verb `read`: prints the records of logs."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import click
import pyarrow as pa

from sparklog.pipeline.places.past_logs import past_of, require_readable
from sparklog.pipeline.places.store_view import LogView, StoreView, open_logs, open_named, select_logs
from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.terminal import say
from sparklog.sink.ledger.versions import AsOf
from sparklog.storage_core.errors import InvalidConfigError, OffsetOutOfRangeError
from sparklog.storage_core.inspect.dump.record_lines import record_lines
from sparklog.storage_core.log.files.segments import list_readable_segments
from sparklog.storage_core.log.producers.transactions import Isolation
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.visible_text import visible

__all__ = ["read_records", "run"]

logger = logging.getLogger(__name__)


def run(
    store: Place,
    name: str,
    start_offset: int | None,
    start_time: int | None,
    limit: int | None,
    isolation: Isolation,
    as_of: AsOf | None,
    as_raw: bool,
    as_json: bool,
) -> None:
    """Carry the verb out."""
    if start_offset is not None and start_time is not None:
        raise click.UsageError("--from and --from-time exclude each other")
    if as_raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    view, logs = open_named(store, name, as_of)
    require_readable(view, logs)
    if view.past is not None:
        say(f"as of {view.past}", err=True)
    texts = _raw_records if as_raw else record_lines if as_json else _record_texts
    for each, batch in read_records(view, logs, start_offset, start_time, limit, isolation):
        for line in texts(each.log, batch):
            click.echo(line)
    if (past := past_of(view, logs)) is not None:
        past.require_readable()  # a compaction beside it has told of itself before it began


def read_records(
    view: StoreView,
    logs: Sequence[LogView],
    start_offset: int | None,
    start_time: int | None,
    limit: int | None,
    isolation: Isolation = "read_uncommitted",
) -> Iterator[tuple[LogView, pa.RecordBatch]]:
    """Yield the records of logs, log by log, each from its start, an offset, or the first record at a time.

    If records are deleted before they are read, and no offset was given, reading continues at the new log start, with
    a warning that names the offsets: as a consumer with `auto.offset.reset=earliest` does. With a start time, this also
    holds for deleted records that may have been as late.

    Args:
        start_offset: of the one log.
        start_time: ms; a log whose records are all earlier is skipped.
        limit: most records in all.
        isolation: which records of transactions to read.

    Raises:
        InvalidConfigError: an offset is given for several logs.
        OffsetOutOfRangeError: the offset is outside the log, or records above it were deleted before they were read;
            without an offset: segments are missing that no deletion explains.
    """
    if start_offset is not None and len(logs) > 1:
        topic = logs[0].log.topic
        raise InvalidConfigError(f"--from={start_offset} needs one log: name {topic}:0 to {topic}:{len(logs) - 1}")
    for each in logs:
        reader = each.reader()
        offset: int | None = reader.log_start_offset if start_offset is None else start_offset
        if start_time is not None:
            reader, offset = _find_time(view, each.log, reader, start_time, isolation)
        if offset is None:
            continue
        read = partial(_read_from_earliest, view, each.log) if start_offset is None else LogReader.read
        for batch in read(reader, offset, limit, isolation=isolation):
            yield each, batch
            limit = None if limit is None else limit - batch.num_rows
        if limit == 0:
            return


def _read_from_earliest(
    view: StoreView, log: TopicPartition, reader: LogReader, offset: int, limit: int | None, *, isolation: Isolation
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a log; skip records that are deleted meanwhile, with a warning."""
    while True:
        try:
            for batch in reader.read(offset, limit, isolation=isolation):
                yield batch
                offset = batch.column("offset")[-1].as_py() + 1
                limit = None if limit is None else limit - batch.num_rows
            return
        except OffsetOutOfRangeError:
            reader = _open_again(view, log)
            if reader.log_start_offset <= offset:  # not deleted, but lost
                raise
        _warn_of_deleted(log, offset, reader.log_start_offset)
        offset = reader.log_start_offset


def _find_time(
    view: StoreView, log: TopicPartition, reader: LogReader, timestamp_ms: int, isolation: Isolation
) -> tuple[LogReader, int | None]:
    """Return a reader of a log and the offset of the first record at a time; None if every record is earlier.

    A look-up uses the segments that it lists. If the first ones were deleted meanwhile, it is repeated in the log as it
    is now; with a warning, unless an earlier record below the result shows that the deleted ones were earlier, too.
    """
    while True:
        found = reader.offset_for_time(timestamp_ms, isolation)
        files = list_readable_segments(reader.directory)
        now = _open_again(view, log) if files and files[0].base_offset > reader.log_start_offset else reader
        if now.log_start_offset <= reader.log_start_offset:
            return reader, None if found is None else found[0]
        before, reader = reader.log_start_offset, now
        if reader.offset_for_time(timestamp_ms, isolation) == reader.offset_for_time(-INT64_MAX, isolation):
            _warn_of_deleted(log, before, reader.log_start_offset)


def _open_again(view: StoreView, log: TopicPartition) -> LogReader:
    """Return a reader of a log as it is now, or as it was, from its start of today."""
    [now] = select_logs(open_logs(view.root, view.past).logs, f"{log.topic}:{log.partition}")
    return now.reader()


def _warn_of_deleted(log: TopicPartition, offset: int, start: int) -> None:
    logger.warning(
        "Records were deleted before they were read: log=%s offsets=%d..%d; continuing at %d",
        *(log, offset, start - 1, start),
    )


def _record_texts(log: TopicPartition, batch: pa.RecordBatch) -> Iterator[str]:
    """Yield a line per record: topic, partition, offset, time, key, value and headers between tabs."""
    for row in batch.to_pylist():
        headers = ",".join(f"{_text(header['key'].encode())}={_text(header['value'])}" for header in row["headers"])
        place = f"{log.topic}:{log.partition}:{row['offset']}"
        fields = [place, iso_time(row["timestamp"]), _text(row["key"]), _text(row["value"])]
        yield "\t".join([*fields, headers] if headers else fields)


def _raw_records(log: TopicPartition, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the same line with the bytes of keys, values and headers unescaped."""
    for row in batch.to_pylist():
        headers = b",".join(header["key"].encode() + b"=" + _raw(header["value"]) for header in row["headers"])
        place = f"{log.topic}:{log.partition}:{row['offset']}\t{iso_time(row['timestamp'])}"
        fields = [place.encode(), _raw(row["key"]), _raw(row["value"])]
        yield b"\t".join([*fields, headers] if headers else fields)


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    return visible(data.decode("utf-8", "surrogateescape").replace("\\", "\\\\"))


def _raw(data: bytes | None) -> bytes:
    return b"null" if data is None else data
