"""Everything that reads bytes, fed with damaged ones; each target is one case, and raises where a law is broken."""

import contextlib
import io
import socket
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import crc32c
import pyarrow as pa

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.checkpoint.partition_metadata import parse_partition_metadata
from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.errors import CorruptBatchError, LogStorageError
from sparklog.storage_core.index.offset_index import OffsetIndex
from sparklog.storage_core.index.time_index import TimeIndex
from sparklog.storage_core.index.transaction_index import parse_transaction_index
from sparklog.storage_core.inspect.describe_log import describe_log
from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.convert_log import convert_log
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.recover_segment import PIECE_BYTES, SegmentRecovery, recover_segment, scan_segment
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.read.partition_log import PartitionLog
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_convert import ConvertOptions
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs, scan_batches
from sparklog.storage_core.record.compression import compress, decompress
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.fuzz.mutations import mutate, repair_crcs
from tests.fuzz.seeds import SeedLog, files, logs, streams

__all__ = ["TARGETS", "LawBrokenError", "Target"]

Target = Callable[[Random], None]

_MAX_BATCH_BYTES = 16 << 20
_FAILED = LogStorageError


class LawBrokenError(AssertionError):
    """A decoder did what no bytes may make it do."""


def _demand(holds: bool, law: str) -> None:
    if not holds:
        raise LawBrokenError(law)


def mutated_log(random: Random) -> None:
    """Scan, check and decode a log; records before the change are as they were."""
    seed = random.choice(logs())
    data, first_changed = mutate(random, seed.data, [each.data for each in logs()])
    scan = _scan(data)
    check_crcs(data, scan)
    decoded: list[pa.RecordBatch] = []
    with contextlib.suppress(_FAILED):
        for batch in iter_decoded(
            data, scan, random.choice((1, 1000, 1 << 25, 1 << 25, 1 << 25)), max_batch_bytes=_MAX_BATCH_BYTES
        ):
            batch.validate(full=True)
            decoded.append(batch)
    _demand_records_before(seed, first_changed, decoded)
    if random.random() < 0.2:
        with contextlib.suppress(_FAILED):
            decode_batches(data, scan, max_batch_bytes=_MAX_BATCH_BYTES, include_control=True).validate(full=True)


def arbitrary_section(random: Random) -> None:
    """Decode random records, or a random set of entries, under a header that is sound."""
    section = random.randbytes(random.choice((0, 3, 20, 100, 400)))
    if random.random() < 0.5:
        section = bytes(each % random.choice((3, 16, 40)) for each in section)  # small numbers make lengths that fit
    codec = random.randrange(8)
    if codec < len(CODECS):
        section = bytes(compress(CODECS[codec], section))
    magic = random.choice((0, 1, 2, 2, 2, 3))
    count = random.choice((0, 1, 2, 5, 1000, 2**31 - 1, -1, random.randrange(60)))
    attributes = codec | random.choice((0, 0, 8, 16, 32, 64))
    if magic >= 2:
        head = struct.pack(">iibIhiqqqhii", 49 + len(section), 0, magic, 0, attributes, 5, 7, 9, -1, -1, -1, count)
    else:
        fixed = struct.pack(">bb", magic, attributes & 15) + (struct.pack(">q", 77) if magic else b"")
        fixed += struct.pack(">ii", -1, len(section))
        head = struct.pack(">iI", 4 + len(fixed) + len(section), 0) + fixed
    data = struct.pack(">q", random.choice((0, 5, 2**40, 2**63 - 1, -1))) + head + section
    with contextlib.suppress(_FAILED):
        decode_batches(data, _scan(data), max_batch_bytes=_MAX_BATCH_BYTES).validate(full=True)


def arbitrary_bytes(random: Random) -> None:
    """Scan and decode bytes that nobody wrote."""
    data = random.randbytes(random.choice((0, 16, 17, 26, 61, 62, 200, 700)))
    scan = _scan(data)
    check_crcs(data, scan)
    with contextlib.suppress(_FAILED):
        decode_batches(data, scan, max_batch_bytes=_MAX_BATCH_BYTES).validate(full=True)


def mutated_stream(random: Random) -> None:
    """Decompress a damaged stream; what comes out is never more than allowed."""
    codec = random.choice(CODECS[1:])
    data, _ = mutate(random, random.choice(streams(codec)), streams(codec))
    max_bytes = random.choice((0, 100, 5000, 1 << 20))
    with contextlib.suppress(CorruptBatchError):
        _demand(len(decompress(codec, data, max_bytes, 3)) <= max_bytes, "more came out of a stream than allowed")


def offset_and_time_index(random: Random) -> None:
    """Read, judge and look into index files."""
    base = random.choice((0, 5, 2**40, 2**62))
    index = OffsetIndex(mutate(random, random.choice(files(".index")), files(".index"))[0], base)
    times = TimeIndex(mutate(random, random.choice(files(".timeindex")), files(".timeindex"))[0], base)
    for found in (index, times):
        with contextlib.suppress(_FAILED):
            found.sanity_check()
    for target in (0, base, base + 100, 1_700_000_000_000, 2**63 - 1, -1):
        offset, position = index.lookup(target)
        _demand((offset, position) == (base, 0) or offset in index.offsets, "the offset index found no entry of its")
        times.lookup(target)


def small_files(random: Random) -> None:
    """Parse the small files beside and above a log."""
    suffix, parse = random.choice(_PARSERS)
    data, _ = mutate(random, random.choice(files(suffix)), files(suffix))
    if suffix == ".snapshot" and len(data) > 6 and random.random() < 0.7:
        data = data[:2] + crc32c.crc32c(data[6:]).to_bytes(4, "big") + data[6:]
    with contextlib.suppress(_FAILED):
        parse(data)


_PARSERS: tuple[tuple[str, Callable[[bytes], object]], ...] = (
    (".txnindex", lambda data: parse_transaction_index(data, 0)),
    (".snapshot", parse_producer_snapshot),
    ("offset-checkpoint", parse_offset_checkpoint),
    ("leader-epoch-checkpoint", parse_leader_epochs),
    ("meta.properties", parse_meta_properties),
    ("partition.metadata", parse_partition_metadata),
)


def mutated_directory(random: Random) -> None:
    """Give a damaged log directory to everything that reads one; no reader gives a record that nobody wrote."""
    seed = random.choice(logs())
    data, first_changed = seed.data, len(seed.data)
    if random.random() < 0.8:
        data, first_changed = mutate(random, seed.data, [each.data for each in logs()])
    is_repaired = random.random() < 0.3
    if is_repaired:
        data = repair_crcs(data)
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        directory = Path(folder) / "t-0"
        directory.mkdir()
        names = [_fill(random, directory, data), *(directory / name for name in _NAMES)]
        _read(random, directory, seed, first_changed, is_repaired=is_repaired)
        _serve(random, directory)
        _convert(random, directory, Path(folder) / "u-0")
        _inspect(random, directory, [each for each in names if each.exists()])


def recovered_segment(random: Random) -> None:
    """Recover a damaged segment; whole batches before the change stay, and a second recovery has nothing to do."""
    seed = random.choice(logs())
    data, first_changed = mutate(random, seed.data, [each.data for each in logs()])
    if random.random() < 0.3:
        data = repair_crcs(data)
    intact = max([0, *(end for end in seed.batch_ends.tolist() if end <= first_changed)])
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        files = SegmentFiles(0, Path(folder, "00000000000000000000.log"))
        files.log_path.write_bytes(data)
        with contextlib.suppress(CorruptBatchError):  # offsets go back
            first = _recover(random, files)
            _demand(first.valid_bytes >= intact, f"recovery cut batches before the change: log={seed.name}")
            if not first.is_overflowed:
                again = _recover(random, files)
                same = (again.stop, again.size_bytes, again.offset_index, again.time_index, again.txn_index)
                expected = (None, first.valid_bytes, first.offset_index, first.time_index, first.txn_index)
                _demand(same == expected, f"a second recovery differs: log={seed.name}")


def _recover(random: Random, files: SegmentFiles) -> SegmentRecovery:
    found = scan_segment(files, 200, ProducerStates(), (), random.choice((1, 300, PIECE_BYTES)))
    if not found.is_overflowed:
        recover_segment(found, UNSHARED)
    return found


_NAMES = (
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000009.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)


@cache
def _scratch() -> str | None:
    """Return a folder in memory where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _fill(random: Random, directory: Path, data: bytes) -> Path:
    """Write a log, and files beside it that may be damaged or missing; return the log's path."""
    for name in _NAMES:
        if random.random() < 0.6:
            kind = name if "." not in name or name.startswith("partition") else name[name.index(".") :]
            (directory / name).write_bytes(mutate(random, random.choice(files(kind)), files(kind))[0])
    if random.random() < 0.3:
        (directory / "00000000000000000500.log").write_bytes(mutate(random, data, [])[0])
    path = directory / "00000000000000000000.log"
    path.write_bytes(data)
    return path


def _read(random: Random, directory: Path, seed: SeedLog, first_changed: int, *, is_repaired: bool) -> None:
    read: list[pa.RecordBatch] = []
    with contextlib.suppress(_FAILED):
        reader = LogReader(directory)
        look_ups: tuple[Callable[[], object], ...] = (
            reader.offset_of_max_timestamp,
            lambda: reader.offset_for_time(random.choice(_TIMES)),
        )
        for look_up in look_ups:
            with contextlib.suppress(_FAILED):
                look_up()
        for batch in reader.read(reader.log_start_offset):
            batch.validate(full=True)
            read.append(batch)
    if not is_repaired and read:
        pairs = {(row["key"], row["value"]) for batch in read for row in batch.select(["key", "value"]).to_pylist()}
        _demand(pairs <= _known_pairs(), "a record was read that nobody wrote")
    if read and not is_repaired and not (directory / "00000000000000000500.log").exists():
        intact = min(seed.records_up_to(first_changed), sum(batch.num_rows for batch in read))
        _demand_records_before(seed, first_changed, read, at_least=intact)


_TIMES = (0, 1, 1_700_000_000_000, 1_700_000_000_070, 2**62, -1)


@cache
def _known_pairs() -> frozenset[tuple[bytes | None, bytes | None]]:
    return frozenset(
        (row["key"], row["value"]) for seed in logs() for row in seed.records.select(["key", "value"]).to_pylist()
    )


def _serve(random: Random, directory: Path) -> None:
    """Whatever the index says: what is sent is whole batches, and the next fetch starts behind them."""
    with contextlib.suppress(_FAILED), PartitionLog(LogReader(directory)) as served:
        for _ in range(3):
            offset = random.choice((0, 1, 5, 20, 500, served.log_end_offset))
            ours, theirs = socket.socketpair()
            with ours, theirs:
                sent = served.send_to(ours, offset, random.choice((0, 100, 1000, 1 << 20)))
                data = theirs.recv(sent.bytes_sent) if sent.bytes_sent else b""
            _demand(len(data) == sent.bytes_sent, "a fetch is shorter than it says")
            _demand_whole_batches(directory, data)
            _demand(sent.next_offset > offset or not data, "a fetch goes back")


def _demand_whole_batches(directory: Path, data: bytes) -> None:
    """A fetch ends with a batch, unless one of the log inside of it is damaged: those go out as they lie."""
    whole = _scan(data).valid_bytes
    sources = [path.read_bytes() for path in sorted(directory.glob("*.log"))]
    source = next((each for each in sources if data in each), b"")
    start = source.find(data)
    _demand(start >= 0 and (whole > 0 or not data), "a fetch is no part of the log")
    _demand(whole in (len(data), _scan(source[start:]).valid_bytes), "a fetch is no whole batches")


def _convert(random: Random, directory: Path, target: Path) -> None:
    """A conversion is refused, or holds the records that a reader finds in the source."""
    options = ConvertOptions(magic=random.choice((0, 1, 2)), codec=random.choice((None, "none", "lz4")))
    with contextlib.suppress(_FAILED):
        convert_log(directory, target, options)
        found, expected = (
            [tuple(row.values()) for batch in _batches(each) for row in batch.select(_KEPT).to_pylist()]
            for each in (target, directory)
        )
        _demand(found == expected, "a conversion holds other records than its source")


_KEPT = ["offset", "key", "value"]


def _batches(directory: Path) -> list[pa.RecordBatch]:
    reader = LogReader(directory)
    return list(reader.read(reader.log_start_offset))


def _inspect(random: Random, directory: Path, paths: list[Path]) -> None:
    """The tools that look at everything report, and never break."""
    verify_directory(directory, deep=random.random() < 0.5)
    with contextlib.suppress(_FAILED):
        describe_log(directory)
    options: dict[str, Any] = random.choice(
        ({}, {"deep_iteration": True}, {"print_data_log": True}, {"verify_index_only": True}, {"max_bytes": 300})
    )
    with contextlib.suppress(_FAILED):
        dump_log(paths, DumpOptions(**options), io.StringIO(), io.StringIO())


def _scan(data: bytes) -> BatchScan:
    """Return the batches before the first one that can't be."""
    try:
        return scan_batches(data)
    except CorruptBatchError as error:
        return scan_batches(data, 0, error.position)


def _demand_records_before(
    seed: SeedLog, first_changed: int, found: list[pa.RecordBatch], at_least: int | None = None
) -> None:
    expected = seed.records_up_to(first_changed) if at_least is None else at_least
    if not expected:
        return
    table = pa.Table.from_batches(found) if found else seed.records.schema.empty_table()
    before = pa.Table.from_batches([seed.records.slice(0, expected)])
    same = table.num_rows >= expected and table.slice(0, expected).equals(before)
    _demand(same, f"records before the first changed byte are not as they were: log={seed.name}")


TARGETS: tuple[tuple[Target, int], ...] = (
    (mutated_log, 50),
    (arbitrary_section, 15),
    (arbitrary_bytes, 5),
    (mutated_stream, 12),
    (offset_and_time_index, 6),
    (small_files, 10),
    (mutated_directory, 2),
    (recovered_segment, 3),
)
"""Each target, and its share of the cases."""
