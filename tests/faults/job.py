"""The work that faults interrupt: six files of rows, two per micro-batch, into four logs that roll in each.

It is the job that the kill tests run, in this process; what a store must hold at the end is theirs, too.
"""

from pathlib import Path

import pyarrow.parquet as pq

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.config import SinkConfig
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from tests.build.sink_store import in_process
from tests.kill.records import FILES_PER_MICRO_BATCH, TOPICS, problems_of, read_input, write_input

__all__ = ["MICRO_BATCHES", "append", "batch_values", "open_job", "problems", "visible_values", "write_job"]

MICRO_BATCHES = 3
_ROWS = 60


def write_job(folder: Path) -> None:
    """Write the input of a job."""
    write_input(folder / "input", files=MICRO_BATCHES * FILES_PER_MICRO_BATCH, rows=_ROWS)


def open_job(folder: Path) -> StoreWriter:
    """Open the store of a job for writing."""
    return StoreWriter(SinkConfig.from_options(folder / "store", TOPICS, on_invalid="quarantine"), SystemClock())


def append(writer: StoreWriter, folder: Path, number: int) -> bool:
    """Append one micro-batch, as the query would that reads the input; return whether it was committed before."""
    files = sorted((folder / "input").glob("*.parquet"))[number * FILES_PER_MICRO_BATCH :][:FILES_PER_MICRO_BATCH]
    splits = (pq.read_table(path).to_batches(max_chunksize=40) for path in files)
    return writer.append("job", number, in_process(*splits)).replayed


def visible_values(folder: Path) -> list[bytes]:
    """Return the values of all records that readers of the store see, sorted."""
    return sorted(
        value
        for log in open_logs(folder / "store").logs
        for reader in [log.reader()]
        for batch in reader.read(reader.log_start_offset)
        for value in batch.column("value").to_pylist()
    )


def batch_values(folder: Path, count: int) -> list[bytes]:
    """Return the values of the records of the first so many micro-batches, sorted."""
    paths = sorted((folder / "input").glob("*.parquet"))[: count * FILES_PER_MICRO_BATCH]
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    return sorted(row["value"].encode() for row in rows if row["topic"] is not None)


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a store to which the whole input was written."""
    return problems_of(folder / "store", read_input(folder / "input"))
