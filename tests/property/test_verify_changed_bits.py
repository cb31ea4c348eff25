"""Every single bit of small logs changed, one at a time: what finds it, and what nothing can find.

The short form takes each bit of headers and small files, and every seventh of records; SPARKLOG_MUTATION_FULL=1 takes
them all.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, render_producer_snapshot
from sparklog.storage_core.inspect.verify.findings import ExpectedLog, LogReport
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.written_log import Batch, WrittenLog, write_log

_GOLDEN = Path(__file__).resolve().parent.parent / "data" / "golden"
_IS_FULL = os.environ.get("SPARKLOG_MUTATION_FULL") == "1"
_STRIDE = 1 if _IS_FULL else 7

_V2_RULES = {
    **{field: {"base-offset", "gap"} for field in range(8)},
    **{field: {"length", "crc"} for field in range(8, 12)},
    **{field: {"leader-epoch"} for field in range(12, 16)},
    16: {"magic", "crc", "length"},
}


def _bits(path: Path, stride: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (position, bit, changed content) of a file; the caller puts the content there."""
    data = path.read_bytes()
    for place in range(0, len(data) * 8, stride):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << (place % 8)
        yield place // 8, place % 8, bytes(changed)


def _verify_changed(path: Path, content: bytes, expected: ExpectedLog | None) -> LogReport:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        return verify_directory(path.parent, expected)
    finally:
        path.write_bytes(before)


def _starts(path: Path) -> list[tuple[int, int, int]]:
    scan = scan_batches(path.read_bytes())
    return list(zip(scan.position.tolist(), scan.size.tolist(), scan.magic.tolist(), strict=True))


@pytest.fixture
def log(memory_path: Path) -> WrittenLog:
    """Two segments of three batches, of which the middle one is indexed."""
    segments = [[Batch([1000 + s * 100 + b, 1050], value_bytes=9) for b in range(3)] for s in range(2)]
    return write_log(memory_path / "t-0", segments, start_offset=100, index_interval_bytes=50)


@pytest.mark.parametrize("with_ledger", [True, False])
def test_verify_when_any_bit_of_a_v2_batch_changes_then_found_by_the_check_of_its_field(
    log: WrittenLog, with_ledger: bool
) -> None:
    """Every single bit of a `.log` is found, and by the check that its field has, in a store and in a plain folder."""
    expected = log.expected if with_ledger else None
    missed = []
    for path in sorted(log.directory.glob(f"*{LOG}")):
        batches = _starts(path)
        for position, bit, content in _bits(path, 1 if with_ledger and _IS_FULL else _STRIDE):
            start = max(each for each, _, _ in batches if each <= position)
            rules = {each.rule for each in _verify_changed(path, content, expected).findings}
            if not rules & _V2_RULES.get(position - start, {"crc"}):
                missed.append((path.name, position, bit, rules))
    assert missed == []


@pytest.mark.parametrize(
    "case",
    ["v0-none", "v0-gzip", "v0-snappy", "v0-lz4", "v1-none", "v1-gzip", "v1-snappy", "v1-lz4", "v2-transactional"],
)
def test_verify_when_a_bit_under_a_crc_changes_in_a_brokers_log_then_found(memory_path: Path, case: str) -> None:
    """In logs that brokers wrote, every bit that a CRC covers is found, and every bit of the rest of a header."""
    source = next(path for path in (_GOLDEN / case).iterdir() if path.is_dir())
    directory = Path(shutil.copytree(source, memory_path / source.name))
    assert verify_directory(directory).findings == []
    missed = []
    for path in sorted(directory.glob(f"*{LOG}")):
        batches = _starts(path)
        for position, bit, content in _bits(path, 1 if _IS_FULL else 61):
            start, _, magic = max(each for each in batches if each[0] <= position)
            if not _verify_changed(path, content, None).findings and not _is_explained(
                position - start, start, batches, magic
            ):
                missed.append((path.name, position, bit))
    assert missed == []


def _is_explained(field: int, start: int, batches: list[tuple[int, int, int]], magic: int) -> bool:
    """Whether nothing in a plain folder can tell: the offset of a log's last entry, and the only epoch there is."""
    is_last = start == batches[-1][0]
    return (is_last and field < 8) or (magic == 2 and 12 <= field < 16)


def test_verify_when_any_bit_of_an_index_changes_then_found(log: WrittenLog) -> None:
    """Every bit of every index entry is found, in closed and active segments."""
    missed = [
        (path.name, position, bit)
        for path in sorted([*log.directory.glob("*.index"), *log.directory.glob("*.timeindex")])
        for position, bit, content in _bits(path, 1)
        if not _verify_changed(path, content, log.expected).findings
    ]
    assert missed == []


def test_verify_when_any_bit_of_a_transaction_index_changes_then_found(memory_path: Path) -> None:
    """Every bit of the index of aborted transactions is found."""
    source = _GOLDEN / "v2-transactional" / "v2-transactional-0"
    directory = Path(shutil.copytree(source, memory_path / source.name))
    (path,) = directory.glob("*.txnindex")
    missed = [
        (position, bit)
        for position, bit, content in _bits(path, 1)
        if not any(each.rule == "txn-index" for each in _verify_changed(path, content, None).findings)
    ]
    assert missed == []


def test_verify_when_any_bit_of_a_snapshot_changes_then_found(log: WrittenLog) -> None:
    """Every bit of a producer snapshot is found."""
    path = log.directory / f"{106:020d}.snapshot"
    state = ProducerState(
        producer_id=7,
        producer_epoch=1,
        last_sequence=2,
        last_offset=105,
        offset_delta=0,
        timestamp=1000,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )
    path.write_bytes(render_producer_snapshot([state]))
    missed = [
        (position, bit)
        for position, bit, content in _bits(path, 1)
        if not any(each.rule == "snapshot" for each in _verify_changed(path, content, log.expected).findings)
    ]
    assert missed == []


def test_verify_when_any_bit_of_the_topic_id_changes_then_found_where_a_ledger_tells(log: WrittenLog) -> None:
    """In a store every bit of `partition.metadata` is found."""
    path = log.directory / "partition.metadata"
    missed = [
        (position, bit)
        for position, bit, content in _bits(path, 1)
        if not _verify_changed(path, content, log.expected).findings
    ]
    assert missed == []


def test_verify_when_any_bit_of_the_epoch_file_changes_then_found_unless_it_says_the_same(log: WrittenLog) -> None:
    """In a store every bit of the epochs is found; before the log's first offset an epoch may start anywhere."""
    path = log.directory / "leader-epoch-checkpoint"
    missed = [content for _, _, content in _bits(path, 1) if not _verify_changed(path, content, log.expected).findings]

    assert [parse_leader_epochs(content)[0][0] for content in missed] == [0] * len(missed)
    assert all(len(parse_leader_epochs(content)) == 1 for content in missed)
    assert all(parse_leader_epochs(content)[0][1] < 100 for content in missed)


def test_bits_when_taken_then_each_is_another_one(tmp_path: Path) -> None:
    """The changes are single bits, all different."""
    (tmp_path / "x").write_bytes(b"ab")

    assert len({content for _, _, content in _bits(tmp_path / "x", 1)}) == 16
