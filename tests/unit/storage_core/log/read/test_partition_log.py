"""Whole batches to a socket, from the one that holds the offset."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptFileError, OffsetOutOfRangeError, StorageError
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.read.partition_log import PartitionLog
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from tests.build.written_log import Batch, WrittenLog, write_log

_EVERYTHING = 1 << 30


class _Peer:
    """The other end of a connection: takes everything in a thread of its own."""

    def __init__(self, receive_bytes: int = 1 << 16) -> None:
        self.socket, self._theirs = socket.socketpair()
        self._parts: list[bytes] = []
        self._receive_bytes = receive_bytes
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while data := self._theirs.recv(self._receive_bytes):
            self._parts.append(data)

    def received(self) -> bytes:
        """Close the connection and return what came through."""
        self.socket.close()
        self._thread.join()
        self._theirs.close()
        return b"".join(self._parts)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three segments: 40, 30 and 20 batches of three records."""
    segments = [[Batch([1000 + n, 1001 + n, 1002 + n]) for n in range(count)] for count in (40, 30, 20)]
    return write_log(tmp_path / "t-0", segments)


@pytest.fixture
def served(log: WrittenLog) -> Iterator[PartitionLog]:
    """The log, ready to be served."""
    with PartitionLog(LogReader(log.directory)) as opened:
        yield opened


def _send(served: PartitionLog, offset: int, max_bytes: int) -> tuple[bytes, int]:
    peer = _Peer()
    try:
        result = served.send_to(peer.socket, offset, max_bytes)
    finally:
        data = peer.received()
    assert len(data) == result.bytes_sent
    return data, result.next_offset


def _expected(log: WrittenLog, offset: int, max_bytes: int) -> bytes:
    """Return what a fetch must give, found by looking at every batch."""
    behind = [each for each in log.batches if each[4] >= offset]
    path, start, size, *_ = behind[0]
    end = start + size
    for other, position, more, *_ in behind[1:]:
        if other != path or position + more - start > max_bytes:
            break
        end = position + more
    return path.read_bytes()[start:end]


@pytest.mark.parametrize("max_bytes", [0, 1, 150, 500, 2_000, 6_000, _EVERYTHING])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 59, 119, 120, 121, 200, 209, 210, 268, 269])
def test_send_to_when_offset_in_log_then_sends_whole_batches_from_it(
    log: WrittenLog, served: PartitionLog, offset: int, max_bytes: int
) -> None:
    """What comes out begins with the batch of the offset, ends with a whole one, and is one segment's."""
    data, next_offset = _send(served, offset, max_bytes)
    scan = scan_batches(data)

    assert data == _expected(log, offset, max_bytes)
    assert scan.valid_bytes == len(data)
    assert not len(check_crcs(data, scan))
    assert next_offset == scan.last_offset[-1] + 1
    assert offset in decode_batches(data).column("offset").to_pylist()


@pytest.mark.parametrize("max_bytes", [1, 777, 4_000, _EVERYTHING])
def test_send_to_when_asked_again_and_again_then_gives_the_log_once(
    log: WrittenLog, served: PartitionLog, max_bytes: int
) -> None:
    """Fetches that follow each other give every byte of every segment, none twice."""
    offset, data = 0, b""
    while offset < served.log_end_offset:
        part, offset = _send(served, offset, max_bytes)
        data += part

    assert data == b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))
    assert _send(served, offset, max_bytes) == (b"", offset)


@pytest.mark.parametrize("log_end_offset", [3, 60, 120, 210, 267])
def test_send_to_when_end_is_committed_then_never_passes_it(log: WrittenLog, log_end_offset: int) -> None:
    """Bytes behind the end that the ledger names are nobody's business, whatever the index says of them."""
    with PartitionLog(LogReader(log.directory, log_start_offset=0, log_end_offset=log_end_offset)) as served:
        offset = 0
        while offset < log_end_offset:
            data, offset = _send(served, offset, _EVERYTHING)
            assert scan_batches(data).last_offset[-1] < log_end_offset

        assert offset == log_end_offset
        assert _send(served, offset, 100) == (b"", log_end_offset)


@pytest.mark.parametrize("offset", [-1, 5, 271])
def test_send_to_when_offset_outside_then_refuses(log: WrittenLog, offset: int) -> None:
    """Below the start and behind the end there is nothing to send."""
    with PartitionLog(LogReader(log.directory, log_start_offset=6, log_end_offset=270)) as served:
        left, right = socket.socketpair()
        with left, right, pytest.raises(OffsetOutOfRangeError):
            served.send_to(left, offset, 100)


def test_send_to_when_segment_deleted_then_says_the_offset_is_gone(log: WrittenLog, served: PartitionLog) -> None:
    """Retention may take the first segment while the log is served."""
    for path in log.directory.glob("00000000000000000000.*"):
        path.unlink()
    left, right = socket.socketpair()
    with left, right, pytest.raises(OffsetOutOfRangeError, match="is gone"):
        served.send_to(left, 0, 100)


def test_send_to_when_cleaner_merges_segments_then_goes_on_in_the_merged_one(
    log: WrittenLog, served: PartitionLog
) -> None:
    """A listed segment that is gone lies in the one before it, under a name that is open already."""
    first, second = (log.directory / f"{base:020}.log" for base in (0, 120))
    assert _send(served, 0, _EVERYTHING)[1] == 120
    merged = first.read_bytes() + second.read_bytes()
    first.with_suffix(".merged").write_bytes(merged)
    first.with_suffix(".merged").rename(first)
    expected = second.read_bytes()
    for path in log.directory.glob("00000000000000000120.*"):
        path.unlink()

    assert _send(served, 120, _EVERYTHING) == (expected, 210)


def test_send_to_when_offsets_are_missing_then_goes_on_behind_the_gap(tmp_path: Path) -> None:
    """An offset that compaction removed is answered with the next batch, in the next segment if need be."""
    written = write_log(tmp_path / "t-0", [[Batch([1]), Batch([2], gap=5)], [Batch([3], gap=13)]])
    for suffix in (".log", ".index", ".timeindex"):
        path = written.directory / f"00000000000000000007{suffix}"
        path.rename(path.with_name(f"00000000000000000020{suffix}"))
    with PartitionLog(LogReader(written.directory)) as served:
        inside = _send(served, 3, _EVERYTHING)
        between = _send(served, 15, _EVERYTHING)

    assert decode_batches(inside[0]).column("offset").to_pylist() == [6]
    assert between == ((written.directory / "00000000000000000020.log").read_bytes(), 21)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 64, bytes(64), b"\0\0\0\x03\0\0\0\x09" * 8])
def test_send_to_when_index_is_wrong_then_sends_the_same(log: WrittenLog, served: PartitionLog, damage: bytes) -> None:
    """The index only makes it quicker: without it, or with another one, the batches are the same."""
    for path in log.directory.glob("*.index"):
        path.write_bytes(damage)
    for offset in (0, 50, 119, 130, 269):
        assert _send(served, offset, 3_000)[0] == _expected(log, offset, 3_000)


def test_send_to_when_batch_behind_is_damaged_then_sends_those_before(log: WrittenLog, served: PartitionLog) -> None:
    """A length that can't be ends the fetch in front of it."""
    path, position, *_ = log.batches[2]
    data = bytearray(path.read_bytes())
    data[position + 8 : position + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    path.with_suffix(".index").write_bytes(b"")

    assert _send(served, 0, _EVERYTHING) == (bytes(data[:position]), 6)


def test_send_to_when_offsets_go_back_then_fetches_go_on(log: WrittenLog, served: PartitionLog) -> None:
    """A wrong base offset, which no CRC covers, ends a fetch: the next one must not ask for the same again."""
    path, position, *_ = log.batches[1]
    data = bytearray(path.read_bytes())
    data[position : position + 8] = bytes(8)
    path.write_bytes(data)
    path.with_suffix(".index").write_bytes(b"")

    assert _send(served, 0, _EVERYTHING) == (bytes(data[:position]), 3)
    assert _send(served, 3, _EVERYTHING)[1] == 120


def test_send_to_when_socket_does_not_block_then_waits_for_it(log: WrittenLog, served: PartitionLog) -> None:
    """A full socket buffer is no reason to send half a batch."""
    for timeout in (0, 30):
        peer = _Peer(receive_bytes=100)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        peer.socket.settimeout(timeout)
        try:
            result = served.send_to(peer.socket, 0, _EVERYTHING)
        finally:
            received = peer.received()

        assert received == _expected(log, 0, _EVERYTHING)
        assert result.bytes_sent == len(_expected(log, 0, _EVERYTHING))


def test_send_to_when_nobody_receives_then_times_out(tmp_path: Path) -> None:
    """The socket's own timeout holds."""
    written = write_log(tmp_path / "t-0", [[Batch([1], value_bytes=1 << 20)]])
    left, right = socket.socketpair()
    left.settimeout(0.01)
    with left, right, PartitionLog(LogReader(written.directory)) as served, pytest.raises(TimeoutError):
        served.send_to(left, 0, _EVERYTHING)


def test_send_to_when_peer_is_gone_then_raises_its_error(served: PartitionLog) -> None:
    """A broken connection is the caller's matter, not the disk's."""
    left, right = socket.socketpair()
    right.close()
    with left, pytest.raises(ConnectionError):
        served.send_to(left, 0, _EVERYTHING)


def test_send_some_when_socket_is_full_then_returns_zero_and_goes_on_later(tmp_path: Path) -> None:
    """An event loop sends what fits, and the rest when there is room."""
    log = write_log(tmp_path / "t-0", [[Batch([1], value_bytes=1 << 20)] * 3])
    left, right = socket.socketpair()
    left.setblocking(False)
    with left, right, PartitionLog(LogReader(log.directory)) as served:
        chosen = served.slice(0, _EVERYTHING)
        received, refused = b"", 0
        while chosen.remaining_bytes:
            if chosen.send_some(left) == 0:
                refused += 1
                received += right.recv(1 << 16)
        while len(received) < chosen.size_bytes:
            received += right.recv(1 << 16)
        assert chosen.send_some(left) == 0

    assert refused
    assert received == _expected(log, 0, _EVERYTHING)
    assert chosen.next_offset == 3


def test_send_some_when_file_was_cut_then_refuses(log: WrittenLog, served: PartitionLog) -> None:
    """Bytes that went away meanwhile are an error, not an endless wait."""
    chosen = served.slice(0, _EVERYTHING)
    log.batches[0][0].write_bytes(b"")
    left, right = socket.socketpair()
    with left, right, pytest.raises(CorruptFileError, match="was cut"):
        chosen.send_some(left)


def test_send_some_when_log_was_closed_then_refuses(served: PartitionLog) -> None:
    """A slice of a closed segment sends nothing: its descriptor may be another file's by now."""
    chosen = served.slice(0, _EVERYTHING)
    served.close()
    left, right = socket.socketpair()
    with left, right, pytest.raises(StorageError, match="was closed"):
        chosen.send_some(left)


@pytest.mark.parametrize("case", ["v0-segments", "v0-gzip", "v1-segments", "v1-snappy", "v2-segments"])
def test_send_to_when_broker_wrote_the_log_then_every_format_is_served(case: str) -> None:
    """Entries of v0 and v1 go out whole, wrappers too."""
    directory = Path(__file__).resolve().parents[4] / "data" / "golden" / case / f"{case}-0"
    with PartitionLog(LogReader(directory)) as served:
        offset, data = served.log_start_offset, b""
        while offset < served.log_end_offset:
            part, offset = _send(served, offset, 500)
            assert scan_batches(part).valid_bytes == len(part)
            data += part

    assert data == b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
