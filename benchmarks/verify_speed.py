"""How fast `verify` reads logs that lie in the page cache, on one core."""

import shutil
from pathlib import Path

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict
from sparklog.sink.log_sink import LogSink
from sparklog.storage_core.inspect.verify.verify_log import verify_directory

__all__ = ["run"]

_LOGS = 8
_SHALLOW = "verify, uncompressed"


def run(bench: Bench) -> None:
    """Time the check of batches, and the deep one of every record."""
    plain, packed = _write(bench, "uncompressed"), _write(bench, "zstd")
    contenders = [
        _contender(_SHALLOW, plain, deep=False),
        _contender("verify, zstd", packed, deep=False),
        _contender("verify every record, uncompressed", plain, deep=True),
        _contender("verify every record, zstd", packed, deep=True),
    ]
    results = run_rounds(contenders, warmups=1, rounds=bench.pick(7, 3))
    rows = [(name, f"{result.units / 1e6:.0f}", f"{result.core_rate / 1e6:.0f}") for name, result in results.items()]
    notes = (
        f"{_LOGS} logs, indexes included, bytes as they lie on disk, per second of CPU time of this process",
        noise_note(results.values()),
    )
    bench.add(Table("Verification, one core, from the page cache", ("what", "MB", "MB/s"), rows, notes))
    _judge(bench, results[_SHALLOW])
    for store in (plain, packed):
        shutil.rmtree(store)


def _write(bench: Bench, codec: str) -> Path:
    store = bench.fresh(f"verified-{codec}")
    properties = {"partitions": _LOGS, "compression.type": codec}
    frame = bench.frame(bench.rows_folder(FILES, 4 * bench.million))
    with LogSink(store, topics={TOPIC: properties}, topic=TOPIC) as sink:
        sink.write(frame, query_id="bench")
    return store


def _logs(store: Path) -> list[Path]:
    return sorted((store / "logs").glob(f"{TOPIC}-*"))


def _size(store: Path) -> int:
    return sum(file.stat().st_size for log in _logs(store) for file in log.iterdir())


def _contender(name: str, store: Path, *, deep: bool) -> Contender:
    def run() -> None:
        reports = [verify_directory(log, deep=deep) for log in _logs(store)]
        if any(report.findings for report in reports):
            raise RuntimeError(f"verification found damage in what was just written: {reports}")

    return Contender(name=name, units=_size(store), run=run)


def _judge(bench: Bench, result: Result) -> None:
    rate = result.core_rate / 1e6
    bench.judge(
        Verdict(
            what="verify, one core, from the page cache",
            wanted="500 MB/s",
            aim="1 GB/s",
            measured=f"{rate:.0f} MB/s",
            is_met=rate >= 500,
            is_aim_met=rate >= 1000,
        )
    )
