import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.written_log import Batch, WrittenLog, write_log

_SUFFIXES = (LOG, INDEX, TIMEINDEX)


class _Cleaner(threading.Thread):
    """Replaces segments by files of the same content again and again, in the order of Kafka's cleaner."""

    def __init__(self, log: WrittenLog, groups: list[list[int]]) -> None:
        super().__init__()
        self.rounds = 0
        self._directory = log.directory
        self._groups = groups
        self._stops = threading.Event()

    def run(self) -> None:
        while not self._stops.is_set():
            for group in self._groups:
                self._replace(group)
            self.rounds += 1

    def stop(self) -> None:
        self._stops.set()
        self.join()

    def _replace(self, bases: list[int]) -> None:
        old = [base for base in bases if self._path(base, LOG).exists()]
        if not old:
            return
        content = b"".join(self._path(base, LOG).read_bytes() for base in old)
        self._path(bases[0], LOG, ".cleaned").write_bytes(content)
        self._path(bases[0], LOG, ".cleaned").rename(self._path(bases[0], LOG, ".swap"))
        for base in old:
            for suffix in _SUFFIXES:
                if self._path(base, suffix).exists():
                    self._path(base, suffix).rename(self._path(base, suffix, ".deleted"))
        self._path(bases[0], LOG, ".swap").rename(self._path(bases[0], LOG))
        for path in self._directory.glob("*.deleted"):
            path.unlink()

    def _path(self, base: int, suffix: str, further: str = "") -> Path:
        return self._directory / f"{base:020d}{suffix}{further}"


@contextmanager
def _cleaning(log: WrittenLog, groups: list[list[int]]) -> Iterator[_Cleaner]:
    cleaner = _Cleaner(log, groups)
    cleaner.start()
    try:
        yield cleaner
    finally:
        cleaner.stop()


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Ten segments of four batches of three records."""
    segments = [[Batch([s * 100 + b, 5, s * 100 + b + 1]) for b in range(4)] for s in range(10)]
    return write_log(tmp_path / "t-0", segments)


def _offsets(reader: LogReader, start: int) -> list[int]:
    return [offset for batch in reader.read(start, chunk_bytes=300) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("merges", [False, True])
def test_read_when_segments_are_replaced_all_the_time_then_every_record_once(log: WrittenLog, merges: bool) -> None:
    """A cleaner at work changes nothing of what is read, for readers that are kept and for new ones."""
    bases = sorted(int(path.stem) for path in log.directory.glob("*.log"))
    groups = [bases[:3], bases[3:5], bases[5:9]] if merges else [[base] for base in bases[:9]]
    kept = LogReader(log.directory, log_start_offset=0, log_end_offset=120)

    with _cleaning(log, groups) as cleaner:
        while cleaner.rounds < 40:
            for reader in (kept, LogReader(log.directory, log_start_offset=0, log_end_offset=120)):
                assert _offsets(reader, 7) == log.offsets[7:]
                assert reader.offset_for_time(100) == (12, 100)
                assert reader.offset_of_max_timestamp() == (119, 904)
