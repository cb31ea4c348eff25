"""Whether a commit of the ledger stays as quick, and its folder as small, after very many of them."""

import time
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench, noise_note
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.table import Table, Verdict
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.storage.owned_names import UNSHARED

__all__ = ["run"]

_LOGS = 100
_ROUNDS = 100
_FILE_AGE_S = 61  # after which a replaced data file goes with the next commit


def run(bench: Bench) -> None:
    """Time commits of an old ledger and of a new one, in turns."""
    commits = bench.pick(100_000, 3_000)
    old = _Committer(bench.fresh("old-ledger"))
    started = time.perf_counter()
    for _ in range(commits):
        old.commit()
    mean_ms = (time.perf_counter() - started) / commits * 1000
    new = _Committer(bench.fresh("new-ledger"))
    names = f"commits after {commits:,} others", f"the first {_ROUNDS} commits"
    contenders = [Contender(name=name, run=each.commit) for name, each in zip(names, (old, new), strict=True)]
    results = run_rounds(contenders, warmups=0, rounds=_ROUNDS)
    busy = old.size_text()
    time.sleep(_FILE_AGE_S)
    old.commit()
    notes = (
        f"{_LOGS} logs, every one changed by each commit, all synced to disk; in turns",
        f"the {commits:,} commits took {mean_ms:.1f} ms each, at full speed",
        f"the old ledger's folder: {busy} right after them, {old.size_text()} a minute later",
        noise_note(results.values()),
    )
    rows = [(name, f"{result.median * 1000:.2f}", f"{_tenth(result):.2f}") for name, result in results.items()]
    bench.add(Table("Ledger commit", ("what", "median ms", "90 % below, ms"), rows, notes))
    _judge(bench, commits, results[names[0]].median / results[names[1]].median, old.size_text())
    bench.fresh("old-ledger")
    bench.fresh("new-ledger")


class _Committer:
    """Commits to a ledger of its own as a sink does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ledger = Ledger.create(folder, UNSHARED)
        self._ledger.add([_state(number) for number in range(_LOGS)], UNSHARED)
        self._rows = np.arange(_LOGS)
        self._commits = 0

    def commit(self) -> None:
        self._commits += 1
        ends = np.full(_LOGS, self._commits * 10, np.int64)
        names = ("log_end_offset", "active_size_bytes", "max_timestamp_ms", "updated_ms")
        self._ledger.update(self._rows, dict.fromkeys(names, ends), ("bench", self._commits), 0, UNSHARED)

    def size_text(self) -> str:
        sizes = [file.stat().st_size for file in self._folder.rglob("*") if file.is_file()]
        return f"{len(sizes):,} files, {sum(sizes) / 1e6:.1f} MB"


def _state(partition: int) -> LogState:
    return LogState(
        topic="bench",
        partition=partition,
        log_dir="logs",
        topic_id="AAAAAAAAAAAAAAAAAAAAAA",
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        active_base_offset=0,
        active_size_bytes=0,
        max_timestamp_ms=-1,
        leader_epoch=0,
        updated_ms=0,
    )


def _tenth(result: Result) -> float:
    return float(np.quantile(result.seconds, 0.9)) * 1000


def _judge(bench: Bench, commits: int, ratio: float, size: str) -> None:
    bench.judge(
        Verdict(
            what=f"ledger commit with {_LOGS} logs, after {commits:,} commits against the first",
            wanted="within 1.3, folder bounded",
            aim="1.1",
            measured=f"{ratio:.2f}; {size}",
            is_met=ratio <= 1.3,
            is_aim_met=ratio <= 1.1,
        )
    )
