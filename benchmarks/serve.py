"""Serving a log's bytes over TCP: `sendfile` from the page cache beside read-and-send."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench, noise_note
from benchmarks.one_segment import write_segment
from benchmarks.rounds import Contender, run_rounds
from benchmarks.table import Table, ratio_text
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.read.partition_log import PartitionLog

__all__ = ["run"]

_FETCH_BYTES = 1 << 20
_SEND_FILE, _READ_AND_SEND = "send_to (sendfile)", "read and send"
_LARGE_FETCHES = "send_to, 16 MiB a fetch"

_PEER = """
import socket, sys
size, peer = int(sys.argv[2]), socket.create_connection(("127.0.0.1", int(sys.argv[1])))
room = bytearray(1 << 20)
while True:
    left = size
    while left:
        taken = peer.recv_into(room, min(left, len(room)), socket.MSG_TRUNC)
        if not taken:
            sys.exit()
        left -= taken
    peer.sendall(b"!")
"""
"""Takes bytes and lets the kernel throw them away, so that it is the sender that is measured."""


def run(bench: Bench) -> None:
    """Send one log again and again."""
    directory = bench.fresh("serve-0")
    path = write_segment(directory, bench.pick(512, 64) << 20)
    size = path.stat().st_size
    with PartitionLog(LogReader(directory)) as log, _peer(size) as peer:
        contenders = [
            Contender(name=_SEND_FILE, units=size, run=lambda: _send_file(log, peer)),
            Contender(name=_LARGE_FETCHES, units=size, run=lambda: _send_file(log, peer, 16 * _FETCH_BYTES)),
            Contender(name=_READ_AND_SEND, units=size, run=lambda: _read_and_send(path, peer)),
        ]
        results = run_rounds(contenders, warmups=1, rounds=bench.pick(15, 3))
    baseline = results[_READ_AND_SEND]
    rows = [
        (
            name,
            f"{result.units / 1e6 / result.median:.0f}",
            f"{1e9 / result.core_rate:.3f}",
            ratio_text(result, baseline),
            f"{np.median(result.core_ratios(baseline)):.2f}",
        )
        for name, result in results.items()
    ]
    notes = (
        f"{size / 1e6:.0f} MB of 16 KiB batches in the page cache, {_FETCH_BYTES >> 20} MiB a fetch, TCP locally",
        "CPU of the serving process; `send_to` finds whole batches for each fetch, read-and-send only copies",
        noise_note(results.values()),
    )
    headers = ("what", "MB/s", "CPU s per GB", "time, of read and send", "CPU, of read and send")
    bench.add(Table("Serving bytes to a socket", headers, rows, notes))
    bench.fresh("serve-0")


def _send_file(log: PartitionLog, peer: socket.socket, max_bytes: int = _FETCH_BYTES) -> None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = log.send_to(peer, offset, max_bytes).next_offset
    _wait(peer)


def _read_and_send(path: Path, peer: socket.socket) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        position = 0
        while data := os.pread(descriptor, _FETCH_BYTES, position):
            peer.sendall(data)
            position += len(data)
    finally:
        os.close(descriptor)
    _wait(peer)


def _wait(peer: socket.socket) -> None:
    """Wait until the peer has taken everything."""
    if peer.recv(1) != b"!":
        raise RuntimeError("the peer of the benchmark is gone")


@contextmanager
def _peer(size: int) -> Iterator[socket.socket]:
    """Give a connection to a process that takes `size` bytes, says so, and starts again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        process = subprocess.Popen([sys.executable, "-c", _PEER, port, str(size)])
        connection, _ = server.accept()
    try:
        with connection:
            yield connection
    finally:
        process.wait(10)
