"""Whether a micro-batch sixteen times as large takes sixteen times as long."""

import statistics

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.rounds import run_rounds
from benchmarks.rows import link_copies
from benchmarks.stores import MicroBatchWriter
from benchmarks.table import Table, Verdict, cpu_ratio_text, ratio_text

__all__ = ["run"]

_LOGS = 8
_COPIES = 4


def run(bench: Bench) -> None:
    """Time one million records and sixteen, in turns."""
    small, large = bench.million, 16 * bench.million
    large_folder = bench.folder / "rows" / "large"
    if not large_folder.exists():
        link_copies(bench.rows_folder(FILES, large // _COPIES), large_folder, _COPIES)
    folders = {small: bench.rows_folder(FILES, small), large: large_folder}
    properties = {"partitions": _LOGS, "compression.type": "uncompressed"}
    writers = {
        rows: MicroBatchWriter(f"{rows:,} records", bench.frame(folder), bench.folder / "store", properties)
        for rows, folder in folders.items()
    }
    contenders = [writer.contender(units=rows) for rows, writer in writers.items()]
    results = run_rounds(contenders, warmups=bench.pick(2, 1), rounds=bench.pick(5, 2))
    few, many = (results[writers[rows].name] for rows in (small, large))
    table = [
        (
            name,
            f"{result.median:.2f}",
            f"{result.median / result.units * 1e6:.2f}",
            f"{result.cpu_median / result.units * 1e6:.2f}",
        )
        for name, result in results.items()
    ]
    notes = (
        f"uncompressed, {_LOGS} logs; time per record of the larger over that of the smaller: {ratio_text(many, few)},"
        f" CPU {cpu_ratio_text(many, few)}",
        noise_note(results.values()),
    )
    headers = ("micro-batch", "s", "us per record", "CPU us per record")
    bench.add(Table("Time per record, small and large micro-batches", headers, table, notes))
    ratio = statistics.median(many.ratios(few))
    bench.judge(
        Verdict(
            what="time per record, 16 M against 1 M records",
            wanted="not above 1.15",
            aim="1.05",
            measured=f"{ratio:.2f}",
            is_met=ratio <= 1.15,
            is_aim_met=ratio <= 1.05,
        )
    )
