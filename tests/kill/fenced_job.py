"""A writer that stops itself where it removes or renames a file, and what it writes.

It runs in a process of its own, which `pause_at_call` stops where the kernel is about to be asked, and `pause_in` where
the writer stands between the check of its owner and the deed.
"""

import errno
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.fault_points import OWNED_NAMES_FAULT_POINTS
from sparklog.storage_core.storage import owned_names
from tests.build.sink_store import in_process, numbers, open_store, read_store, rows

__all__ = [
    "BATCH_COUNT",
    "BATCH_ROWS",
    "TOPICS",
    "ended",
    "fail_once",
    "held_for",
    "note_all",
    "open_job",
    "pause_at_call",
    "pause_in",
    "problems",
    "write_batches",
]

TOPICS: dict[str, dict[str, object]] = {"events": {"partitions": 2, "segment.bytes": 600, "batch.size": 200}}
BATCH_COUNT = 4
BATCH_ROWS = 40
_ERROR = "error.txt"
(_HELD,) = OWNED_NAMES_FAULT_POINTS
_ROOT = Path(__file__).resolve().parents[2]


def open_job(store: Path, *, by_force: bool = False, **options: Any) -> StoreWriter:
    """Open the store of the job."""
    given = {"topics": TOPICS, "topic": "events", "on_invalid": "quarantine"} | options
    return open_store(store, take_lock_by_force=by_force, **given)


def write_batches(writer: StoreWriter, count: int = BATCH_COUNT, *, diverts: bool = True) -> None:
    """Write the first micro-batches, each with a row that is diverted; those that are committed are not repeated."""
    for number in range(count):
        good = numbers(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        bad = [rows(value=[f"bad-{number}"], timestamp=[-9])] if diverts else []
        writer.append("job", number, in_process(good, *bad))


def problems(store: Path, *, diverts: bool = True) -> list[str]:
    """Return what is missing of the acknowledged micro-batches, or there twice; only files are believed."""
    found = [
        record.value or b"" for name, log in read_store(store).items() if name.startswith("events") for record in log
    ]
    expected = sorted(str(number).encode() for number in range(BATCH_COUNT * BATCH_ROWS))
    bad = [row["value"] for path in _shown(store / "quarantine") for row in pq.read_table(path).to_pylist()]
    told = []
    if sorted(found) != expected:
        told.append(f"records: {len(set(expected) & set(found))} of {len(expected)} are there, {len(found)} in all")
    if sorted(bad) != [f"bad-{number}".encode() for number in range(BATCH_COUNT) if diverts]:
        told.append(f"diverted rows: {sorted(bad)}")
    return told


def _shown(folder: Path) -> list[Path]:
    """Return the files that Spark and pyarrow would read."""
    found = [path for path in folder.rglob("*.parquet") if path.is_file()]
    return [path for path in found if not any(part.startswith("_") for part in path.relative_to(folder).parts)]


def ended(folder: Path, work: Callable[[], None]) -> None:
    """Do the work and end this process: 0 if it is done, 1 if it was refused, 3 for anything else."""
    try:
        work()
    except LogStorageError as refusal:
        (folder / _ERROR).write_text(f"{type(refusal).__name__}: {refusal}")
        os._exit(1)
    except BaseException:
        (folder / _ERROR).write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)


def pause_at_call(is_meant: Callable[[str, str], bool]) -> None:
    """Stop this process, once, right before a removal or rename for which `is_meant(call, path)` holds."""
    due = threading.Lock()

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            if is_meant(name, os.fspath(path)) and due.acquire(blocking=False):
                _stop()
            return real(path, *args, **options)

        return call

    for name in ("unlink", "rename", "replace", "rmdir"):
        setattr(os, name, wrapped(name, getattr(os, name)))
    shutil.rmtree = wrapped("rmtree", shutil.rmtree)  # type: ignore[assignment]


def fail_once(module: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
    """Let the disk refuse one call, and answer from then on."""
    real, due = getattr(module, name), threading.Lock()

    def call(*args: Any, **options: Any) -> Any:
        if when(*args) and due.acquire(blocking=False):
            raise OSError(errno.EIO, "Input/output error")
        return real(*args, **options)

    setattr(module, name, call)


def pause_in(wanted: str) -> None:
    """Stop this process, once, where it holds its owner for a removal or rename that `held_for` calls so.

    Several threads may come there in the same moment: a second stop would come after the wake-up.
    """
    due = threading.Lock()

    def reach(name: str) -> None:
        if name == _HELD and held_for() == wanted and due.acquire(blocking=False):
            _stop()

    owned_names.reach = reach  # type: ignore[attr-defined]


def _stop() -> None:
    """Stop here: a signal to the process lets this thread go on until another one has taken it."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def note_all(file: Path) -> None:
    """Write down each removal and rename that this process comes to, instead of stopping there."""

    def reach(name: str) -> None:
        if name == _HELD:
            with file.open("a") as lines:
                lines.write(f"{held_for()}\n")

    owned_names.reach = reach  # type: ignore[attr-defined]


def held_for() -> str:
    """Return who asked for the deed that is about to be done, and what it is: `file:line deed`."""
    frame, deed = sys._getframe(1), ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name == owned_names.__file__:
            deed = deed or (frame.f_code.co_name if frame.f_code.co_name != "_held" else "")
        elif deed:
            return f"{Path(name).resolve().relative_to(_ROOT)}:{frame.f_lineno} {deed}"
        frame = frame.f_back  # type: ignore[assignment]
    raise AssertionError("nobody asked")
