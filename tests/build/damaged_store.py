"""A store whose files tests damage in every way that a repair knows, and what must be true behind the repair."""

from collections.abc import Callable
from pathlib import Path

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.lost_view import known_lost
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from tests.build.sink_store import in_process, numbers, open_store, read_log, rows

__all__ = ["DAMAGES", "END", "LOG", "change", "problems_of_repaired", "segments", "write_store"]

LOG = "t-0"
END = 90

_TOPICS = {"t": {"partitions": 2, "segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100}}


def write_store(path: Path) -> Path:
    """Write ninety numbers to `t-0`, in several segments of several batches, three to `t-1`, and close the sink."""
    writer = open_store(path, _TOPICS, topic="t")
    for number, first in enumerate(range(0, END, 30)):
        frame = numbers(first, first + 30)
        partitions = rows(partition=[0] * frame.num_rows)
        writer.append("q", number, in_process(frame.append_column("partition", partitions.column(0))))
    writer.append("q", 3, in_process(rows(partition=[1] * 3, value=["a", "b", "c"])))
    writer.close()
    return path


def segments(store: Path) -> list[Path]:
    """Return the segments of `t-0` in order."""
    return sorted((store / "logs" / LOG).glob("*.log"))


def change(path: Path, damage: Callable[[bytearray], object]) -> None:
    """Change a file's bytes."""
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)


def _flip_at(position: int) -> Callable[[bytearray], object]:
    return lambda data: data.__setitem__(position, data[position] ^ 0x10)


def _cut_by(count: int) -> Callable[[bytearray], object]:
    return lambda data: data.__delitem__(slice(-count, None))


def _remove(path: Path) -> None:
    path.unlink()


def _remove_directory(store: Path) -> None:
    for path in (store / "logs" / LOG).iterdir():
        path.unlink()
    (store / "logs" / LOG).rmdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "payload": lambda store: change(segments(store)[1], _flip_at(-1)),
    "first batch": lambda store: change(segments(store)[1], _flip_at(70)),
    "length": lambda store: change(segments(store)[1], _flip_at(10)),
    "base offset": lambda store: change(segments(store)[1], _flip_at(7)),
    "leader epoch": lambda store: change(segments(store)[1], _flip_at(15)),
    "active segment's payload": lambda store: change(segments(store)[-1], _flip_at(-1)),
    "active segment's first batch": lambda store: change(segments(store)[-1], _flip_at(70)),
    "active segment cut": lambda store: change(segments(store)[-1], _cut_by(7)),
    "active segment emptied": lambda store: segments(store)[-1].write_bytes(b""),
    "active segment removed": lambda store: _remove(segments(store)[-1]),
    "closed segment cut": lambda store: change(segments(store)[1], _cut_by(7)),
    "closed segment emptied": lambda store: segments(store)[1].write_bytes(b""),
    "closed segment removed": lambda store: _remove(segments(store)[1]),
    "first segment removed": lambda store: _remove(segments(store)[0]),
    "directory removed": _remove_directory,
    "index removed": lambda store: _remove(segments(store)[1].with_suffix(".index")),
    "time index removed": lambda store: _remove(segments(store)[1].with_suffix(".timeindex")),
    "active segment's index removed": lambda store: _remove(segments(store)[-1].with_suffix(".index")),
    "index changed": lambda store: change(segments(store)[1].with_suffix(".index"), _flip_at(7)),
    "time index changed": lambda store: change(segments(store)[1].with_suffix(".timeindex"), _flip_at(7)),
    "index torn": lambda store: change(segments(store)[1].with_suffix(".index"), _cut_by(3)),
    "time index emptied": lambda store: segments(store)[1].with_suffix(".timeindex").write_bytes(b""),
    "epochs removed": lambda store: _remove(store / "logs" / LOG / "leader-epoch-checkpoint"),
    "epochs changed": lambda store: (store / "logs" / LOG / "leader-epoch-checkpoint").write_bytes(b"0\n1\n3 0\n"),
    "topic id removed": lambda store: _remove(store / "logs" / LOG / "partition.metadata"),
    "topic id changed": lambda store: change(store / "logs" / LOG / "partition.metadata", _flip_at(25)),
    "snapshot": lambda store: (store / "logs" / LOG / f"{5:020d}.snapshot").write_bytes(b"x"),
    "leftover": lambda store: (store / "logs" / LOG / f"{0:020d}.log.cleaned").write_bytes(b"x"),
    "orphan index": lambda store: (store / "logs" / LOG / f"{1:020d}.index").write_bytes(b""),
    "checkpoint": lambda store: (store / "logs" / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 999\n"),
    "meta.properties": lambda store: (store / "logs" / "meta.properties").write_bytes(b"version=1\n"),
    "uncommitted bytes": lambda store: change(segments(store)[-1], lambda data: data.extend(b"anything")),
}
"""Everything that a repair of a store mends, by name."""


def problems_of_repaired(store: Path) -> list[str]:
    """Return what is wrong with a repaired store: its check, its ends, records that are neither there nor lost."""
    view = open_logs(store)
    problems: list[str] = []
    result = verify(view, lambda each: problems.append(str(each)) if each.kind != "known" else None, deep=True)
    if not result.is_sound:
        problems.append("not sound")
    state = next(each for each in Ledger.open(Store.find(store).ledger_path).states().values() if each.partition == 0)
    if state.log_end_offset != END:
        problems.append(f"log_end_offset={state.log_end_offset}")
    there = {each.offset: int(each.value or b"-1") for each in read_log(store / "logs" / LOG)}
    problems += [f"offset {offset} holds {value}" for offset, value in there.items() if value != offset]
    lost = {offset for first, last in known_lost(view).get(("t", 0), ()) for offset in range(first, last + 1)}
    if there.keys() & lost:
        problems.append(f"lost, and there: {sorted(there.keys() & lost)}")
    if missing := sorted(set(range(END)) - there.keys() - lost):
        problems.append(f"neither there nor lost: {missing}")
    return problems
