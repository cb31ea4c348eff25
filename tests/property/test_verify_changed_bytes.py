import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from tests.build.written_log import Batch, WrittenLog, write_log

_BATCHES = st.builds(
    Batch,
    st.lists(st.integers(-1, 10**13), min_size=1, max_size=5),
    value_bytes=st.sampled_from([0, 7, 60, 300]),
)
_SEGMENTS = st.lists(st.lists(_BATCHES, min_size=1, max_size=6), min_size=1, max_size=4)
_CODECS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])


def _flip(log: WrittenLog, number: int, position: int, mask: int) -> LogReport:
    """Verify with one byte of one batch changed, and put it back."""
    path, start, _, _, _ = log.batches[number]
    data = bytearray(path.read_bytes())
    data[start + position] ^= mask
    path.write_bytes(data)
    try:
        return verify_directory(log.directory, log.expected)
    finally:
        data[start + position] ^= mask
        path.write_bytes(data)


@settings(deadline=None, max_examples=50)
@given(_SEGMENTS, _CODECS, st.integers(0, 10**12), st.data())
def test_verify_directory_finds_and_places_any_changed_byte(
    segments: list[list[Batch]], codec: str, start: int, data: st.DataObject
) -> None:
    """One changed byte of a `.log` is found with its file, position and offsets; an untouched log has no finding."""
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "t-0", segments, codec=codec, start_offset=start)
        assert verify_directory(log.directory, log.expected, deep=True).findings == []
        for _ in range(10):
            number = data.draw(st.integers(0, len(log.batches) - 1))
            path, begin, size, base, last = log.batches[number]
            position = data.draw(st.one_of(st.integers(0, 60), st.integers(0, size - 1)))
            report = _flip(log, number, position, data.draw(st.integers(1, 255)))

            hits = [f for f in report.findings if f.kind == "damage" and f.file == path.name and f.position == begin]
            assert hits, (position, [str(each) for each in report.findings])
            assert (hits[0].first_offset, hits[0].last_offset) == (base, last), str(hits[0])


@pytest.mark.parametrize("with_ledger", [True, False])
def test_verify_directory_finds_every_byte_of_a_log(tmp_path: Path, with_ledger: bool) -> None:
    """Not one byte of a small dense log can change unnoticed, with a ledger or without."""
    segments = [[Batch([1000 + s, 900 + b], value_bytes=9) for b in range(3)] for s in range(2)]
    log = write_log(tmp_path / "t-0", segments, start_offset=100)
    log.expected = log.expected if with_ledger else None
    draw = random.Random(5)

    missed = [
        (number, position)
        for number, batch in enumerate(log.batches)
        for position in range(batch[2])
        if not _flip(log, number, position, draw.randint(1, 255)).findings
    ]
    assert missed == []


@settings(deadline=None, max_examples=30)
@given(_SEGMENTS, st.data())
def test_verify_directory_finds_any_changed_byte_where_offsets_have_gaps(
    segments: list[list[Batch]], data: st.DataObject
) -> None:
    """Where gaps are allowed too, every byte but those of a base offset is found; a legal log has no finding."""
    gaps = [[replace(batch, gap=data.draw(st.integers(0, 50))) for batch in batches] for batches in segments]
    gaps = [[replace(batches[0], gap=0), *batches[1:]] for batches in gaps]
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "t-0", gaps)
        assert log.expected is not None
        log.expected = replace(log.expected, has_gaps=True)
        assert verify_directory(log.directory, log.expected, deep=True).findings == []
        for _ in range(10):
            number = data.draw(st.integers(0, len(log.batches) - 1))
            path, begin, size, _, _ = log.batches[number]
            report = _flip(log, number, data.draw(st.integers(8, size - 1)), data.draw(st.integers(1, 255)))

            assert any(f.kind == "damage" and f.file == path.name and f.position == begin for f in report.findings)


@settings(deadline=None, max_examples=30)
@given(_SEGMENTS, st.data())
def test_verify_directory_finds_any_cut(segments: list[list[Batch]], data: st.DataObject) -> None:
    """A file that was cut anywhere, also at a batch border, is found."""
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "t-0", segments)
        path = log.batches[data.draw(st.integers(0, len(log.batches) - 1))][0]
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])

        assert verify_directory(log.directory, log.expected).findings
