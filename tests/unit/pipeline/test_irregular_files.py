"""A FIFO in the place of a file keeps no command waiting, and a command that needs the file says what is there."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import LogStorageError
from tests.build.sink_store import EVENTS, in_process, numbers, open_store, rows
from tests.sparklog_command import Sparklog

_PATIENCE_S = 30.0
_SEGMENT = "00000000000000000000"
_LOG_FILES = tuple(
    f"logs/events-0/{name}"
    for name in (
        f"{_SEGMENT}.log",
        f"{_SEGMENT}.index",
        f"{_SEGMENT}.timeindex",
        f"{_SEGMENT}.txnindex",
        "active.log",
        "active.index",
        "active.timeindex",
        f"{_SEGMENT}.snapshot",
        "leader-epoch-checkpoint",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata",
    )
)
_ROOT_FILES = (
    "logs/.lock",
    "logs/.kafka_cleanshutdown",
    "logs/meta.properties",
    "logs/meta.properties.tmp",
    "logs/recovery-point-offset-checkpoint",
    "logs/recovery-point-offset-checkpoint.tmp",
    "logs/replication-offset-checkpoint",
    "logs/log-start-offset-checkpoint",
    "logs/cleaner-offset-checkpoint",
)
_STORE_FILES = (
    "store.properties",
    "writer.lock",
    "maintenance.lock",
    "takeover.lock",
    "control/topic-configs.json",
    "control/topic-configs.json.tmp",
    "control/forgotten/0123456789abcdef0123456789abcdef.json",
    "control/lost_ranges/_delta_log/00000000000000000000.json",
    "control/runs/_delta_log/00000000000000000000.json",
    "ledger/_delta_log/newest",
    "ledger/_delta_log/_last_checkpoint",
    "ledger/data",
    "quarantine/data",
)
_IN_STORE = (*_LOG_FILES, *_ROOT_FILES, *_STORE_FILES)
_IN_FOLDER = (*_LOG_FILES, *_ROOT_FILES)


def _open(store: Path, **options: Any) -> StoreWriter:
    """Open a store whose deleted files wait for nobody."""
    return open_store(store, {"events": {**EVENTS["events"], "file.delete.delay.ms": 0}}, topic="events", **options)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with some closed segments, whose sink ended well."""
    store = tmp_path_factory.mktemp("irregular") / "store"
    sink = _open(store, on_invalid="quarantine")
    sink.append("q", 0, in_process(numbers(0, 100), rows(value=["diverted"], timestamp=[-9])))
    sink.close()
    return store


def _place(store: Path, name: str) -> Path:
    """Return the file that a name stands for; newest ones have names that only the store knows."""
    place = store / name
    if place.name.startswith("active."):
        return max(place.parent.glob(f"*{place.suffix}"))
    if place.name == "newest":
        return max(place.parent.glob("0*.json"))
    if name == "ledger/data":
        return max(place.parent.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    if name == "quarantine/data":
        return next(place.parent.rglob("*.parquet"))
    return place


@contextmanager
def _fifo(path: Path) -> Iterator[list[Path]]:
    """Put a FIFO in the place of a file; yields a list that gets its path once somebody has waited for it."""
    hung: list[Path] = []
    ended = threading.Event()
    kept = path.with_name(path.name + ".kept")  # as the file may be renamed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(kept)
    kept.rename(path)
    descriptor_of = os.open(path, os.O_PATH)

    def free() -> None:
        if ended.wait(_PATIENCE_S):
            return
        hung.append(path)
        while not ended.wait(0.02):
            os.close(os.open(f"/proc/self/fd/{descriptor_of}", os.O_RDWR | os.O_NONBLOCK))

    thread = threading.Thread(target=free)
    thread.start()
    try:
        yield hung
    finally:
        ended.set()
        thread.join()
        os.close(descriptor_of)


def _check(written: Path, folder: Path, names: tuple[str, ...], run: Callable[[Path, Path], str | None]) -> None:
    """Try work with a FIFO in the place of each file; what it says of the work that failed names the file."""
    problems = []
    for number, name in enumerate(names):
        store = Path(shutil.copytree(written, folder / str(number)))
        place = _place(store, name)
        with _fifo(place) as hung:
            said = run(store, place)
        if hung:
            problems.append(f"waits for {name}")
        elif said is not None and place.name not in said and "is a FIFO, and no regular file" not in said:
            problems.append(f"{name}: {said}")
        shutil.rmtree(store)
    assert not problems, "\n" + "\n".join(problems)


_STORE_VERBS = (
    ("describe",),
    ("describe", "events"),
    ("offsets", "events"),
    ("offsets", "events", "--time", "1700000000000"),
    ("offsets", "events", "--time", "max-timestamp"),
    ("read", "events"),
    ("read", "events:0", "--from-time", "0"),
    ("read", "events", "--isolation", "read_committed"),
    ("verify",),
    ("verify", "--deep"),
    ("repair",),
    ("repair", "--execute"),
    ("retain",),
    ("retain", "--execute"),
    ("delete-records", "events:0", "--before", "50"),
    ("delete-records", "events:0", "--before", "50", "--execute"),
    ("delete-topic", "events"),
    ("delete-topic", "events", "--execute"),
    ("move-log", "events:0", "--to", "other"),
    ("move-log", "events:0", "--to", "other", "--execute"),
    ("maintain",),
    ("forget", "--verify"),
)
_FOLDER_VERBS = (
    ("describe",),
    ("offsets", "events", "--time", "1700000000000"),
    ("read", "events"),
    ("verify", "--deep"),
    ("repair",),
    ("repair", "--execute"),
    ("recover",),
    ("recover", "--execute"),
)
_DUMPED = (*_LOG_FILES[:7], f"logs/events-0/{_SEGMENT}.snapshot", "logs/events-0/leader-epoch-checkpoint")


@pytest.mark.parametrize("verb", _STORE_VERBS, ids=" ".join)
def test_verb_when_a_fifo_lies_in_a_store_then_it_ends(
    written: Path, memory_path: Path, sparklog: Sparklog, verb: tuple[str, ...]
) -> None:
    """Whatever a verb needs of a store, it does not wait for a file that nobody writes."""

    def run(store: Path, _place: Path) -> str | None:
        ran = sparklog(verb[0], store, *verb[1:])
        return ran.out + ran.err if ran.code else None

    _check(written, memory_path, _IN_STORE, run)


@pytest.mark.parametrize("verb", _FOLDER_VERBS, ids=" ".join)
def test_verb_when_a_fifo_lies_among_logs_then_it_ends(
    written: Path, memory_path: Path, sparklog: Sparklog, verb: tuple[str, ...]
) -> None:
    """The same for a folder of logs that is no store."""

    def run(store: Path, _place: Path) -> str | None:
        ran = sparklog(verb[0], store / "logs", *verb[1:])
        return ran.out + ran.err if ran.code else None

    _check(_as_broker(written, memory_path), memory_path, _IN_FOLDER, run)


def _as_broker(written: Path, folder: Path) -> Path:
    copy = Path(shutil.copytree(written, folder / "broker"))
    meta = copy / "logs" / "meta.properties"
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if "sparklog" not in line))
    (copy / "store.properties").unlink()
    shutil.rmtree(copy / "ledger")
    return copy


def test_convert_when_a_fifo_lies_among_logs_then_it_ends(written: Path, memory_path: Path, sparklog: Sparklog) -> None:
    """It writes a folder of its own, and reads what lies in the other one."""

    def run(store: Path, _place: Path) -> str | None:
        ran = sparklog("convert", store, "--to", "v1", "--out", store.with_name(f"{store.name}.out"))
        return ran.out + ran.err if ran.code else None

    _check(written, memory_path, _IN_STORE, run)


def test_dump_log_when_it_is_told_a_fifo_then_it_ends(written: Path, memory_path: Path, sparklog: Sparklog) -> None:
    """Also one with the name of an index, beside a segment that can be read."""

    def run(_store: Path, place: Path) -> str | None:
        ran = sparklog("dump-log", "--deep-iteration", "--files", place)
        return ran.out + ran.err if ran.code else None

    _check(written, memory_path, _DUMPED, run)


def test_sink_when_a_fifo_lies_in_a_store_then_it_opens_or_names_it(written: Path, memory_path: Path) -> None:
    """So do its micro-batches and its end."""

    def run(store: Path, _place: Path) -> str | None:
        try:
            sink = _open(store)
            try:
                sink.append("q", 1, in_process(numbers(100, 200)))
            finally:
                sink.close()
        except LogStorageError as error:
            return str(error)
        return None

    _check(written, memory_path, _IN_STORE, run)
