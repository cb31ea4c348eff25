"""`dump-log --deep-iteration` beside Kafka's own dump tool, over the same segment, to nowhere."""

import os
import statistics
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench, noise_note
from benchmarks.kafka_sink import ServerToolbox
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.table import Table, Verdict
from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches
from tests.kafka.toolbox import KafkaToolbox, KafkaUnavailableError

__all__ = ["run"]

_TOOL = "org.apache.kafka.tools.DumpLogSegments"
_NAME = "00000000000000000000.log"
_START = "Kafka's tool, one batch"
_VALUE_BYTES = 90
_CASES = (
    ("uncompressed, records", "none", "deep_iteration"),
    ("uncompressed, contents", "none", "print_data_log"),
    ("zstd, records", "zstd", "deep_iteration"),
)


def run(bench: Bench) -> None:
    """Time both tools; the start of the JVM is measured over a log of one batch and taken off."""
    try:
        toolbox = ServerToolbox(KafkaToolbox.obtain().jars)
    except KafkaUnavailableError as error:
        _not_measured(bench, str(error))
        return
    rows = bench.million
    logs = {codec: _log(bench, codec, rows) for codec in ("none", "zstd")}
    small = _log(bench, "none", 1, "small")
    contenders = [Contender(name=_START, run=lambda: _kafka(toolbox, small, "deep_iteration"))]
    for name, codec, option in _CASES:
        contenders += [
            Contender(name=f"Kafka's tool, {name}", run=partial(_kafka, toolbox, logs[codec], option)),
            Contender(name=f"dump-log, {name}", run=partial(_ours, logs[codec], option)),
        ]
    results = run_rounds(contenders, warmups=1, rounds=bench.pick(7, 2))
    _report(bench, results, rows)


def _log(bench: Bench, codec: str, rows: int, name: str = "") -> Path:
    """Write a segment of records with a key of 10 bytes and a value of 90."""
    folder = bench.folder / f"dumped-{name or codec}"
    folder.mkdir()
    numbers = np.arange(rows)
    columns = RecordColumns(
        key=pa.array([f"key-{number % 1_000_000:06}".encode() for number in range(rows)]),
        value=pa.array([f"value-{number}-".encode().ljust(_VALUE_BYTES, b"x") for number in range(rows)]),
        timestamp=1_700_000_000_000 + numbers,
        headers=None,
        offset=numbers,
    )
    encoded = encode_batches(columns, numbers, np.array([0, rows]), EncodeOptions(codec=codec))
    (folder / _NAME).write_bytes(encoded.data.tobytes())
    return folder / _NAME


def _kafka(toolbox: KafkaToolbox, log: Path, option: str) -> None:
    command = toolbox.command(_TOOL, "--files", str(log), f"--{option.replace('_', '-')}")
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def _ours(log: Path, option: str) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        options = DumpOptions(deep_iteration=option == "deep_iteration", print_data_log=option == "print_data_log")
        if not dump_log([log], options, nowhere, nowhere):
            raise RuntimeError(f"the dump found damage in what was just written: {log}")


def _factors(results: dict[str, Result], name: str) -> tuple[float, float]:
    """Return how many times as long Kafka's tool takes, by wall clock and by CPU time."""
    ours, theirs, start = results[f"dump-log, {name}"], results[f"Kafka's tool, {name}"], results[_START]
    wall = [(a - b) / c for a, b, c in zip(theirs.seconds, start.seconds, ours.seconds, strict=True)]
    cpu = [(a - b) / c for a, b, c in zip(theirs.cpu_seconds, start.cpu_seconds, ours.cpu_seconds, strict=True)]
    return statistics.median(wall), statistics.median(cpu)


def _report(bench: Bench, results: dict[str, Result], rows: int) -> None:
    table = [(name, f"{each.median:.2f}", f"{each.cpu_median:.2f}") for name, each in results.items()]
    factors = [(name, *_factors(results, name)) for name, _, _ in _CASES]
    table += [(f"factor, {name}", f"{wall:.1f}", f"{cpu:.1f}") for name, wall, cpu in factors]
    notes = (
        f"{rows:,} records of 100 B, output to nowhere; the factors leave out what Kafka's tool takes for one batch, "
        "which is the start of its JVM",
        "Kafka's tool runs with the optimising compiler",
        noise_note(results.values()),
    )
    bench.add(Table("Dumping a segment", ("what", "s", "CPU s"), table, notes))
    wall = factors[0][1]
    bench.judge(_verdict(f"{wall:.1f} x", wall >= 2, wall >= 5))


def _verdict(measured: str, is_met: bool | None, is_aim_met: bool | None) -> Verdict:
    return Verdict(
        what="dump-log --deep-iteration against Kafka's tool, JVM start excluded",
        wanted="2 x its speed",
        aim="5 x",
        measured=measured,
        is_met=is_met,
        is_aim_met=is_aim_met,
    )


def _not_measured(bench: Bench, reason: str) -> None:
    text = f"not measured: {reason}"
    bench.judge(_verdict(text, None, None))
    bench.add(Table("Dumping a segment", ("what",), [(f"**{text}**",)]))
