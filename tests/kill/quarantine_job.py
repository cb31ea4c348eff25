"""A writer whose micro-batches divert rows, which tests kill or stop while it merges them."""

import os
import traceback
from collections import Counter
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.sink.quarantine.diverted_rows import MERGED_COUNT
from tests.build.sink_store import in_process, open_events, rows

__all__ = ["MICRO_BATCHES", "divert", "expected_rows", "rows_of", "start_diverting"]

_SCHEMA = pa.schema([("value", pa.binary())])
"""Given, for a folder whose files are all hidden has none."""

MICRO_BATCHES = 2 * MERGED_COUNT + 2
"""Two mergers; the second one takes in what the first one made."""


def start_diverting(
    context: ForkServerContext, store: Path, *, take_lock_by_force: bool = False, **environment: str
) -> ForkServerProcess:
    """Write micro-batches with two rows each that are diverted; those that are committed are skipped."""
    process = context.Process(target=_run, args=(store, take_lock_by_force, environment))
    process.start()
    return process


def divert(store: Path, *, take_lock_by_force: bool = False) -> None:
    """Do that in this process."""
    writer = open_events(store, on_invalid="quarantine", take_lock_by_force=take_lock_by_force)
    for number in range(MICRO_BATCHES):
        values = [f"{number}/{row}" for row in range(2)]
        writer.append("query", number, in_process(rows(value=values, timestamp=[-9, None])))
    writer.close()


def rows_of(store: Path) -> Counter[str]:
    """Return what any reader of Parquet folders sees: names that begin with `_` are none of its business."""
    found = ds.dataset(store / "quarantine", format="parquet", schema=_SCHEMA).to_table(columns=["value"])
    return Counter(value.decode() for value in found.column("value").to_pylist())


def expected_rows(micro_batches: int = MICRO_BATCHES) -> Counter[str]:
    """Return what it must see behind so many micro-batches."""
    return Counter(f"{number}/{row}" for number in range(micro_batches) for row in range(2))


def _run(store: Path, take_lock_by_force: bool, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        divert(store, take_lock_by_force=take_lock_by_force)
    except BaseException:
        store.with_name(f"{store.name}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
