"""A broker's logs into a store: `sparklog import --execute` against copying the folder, with links and with bytes."""

import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench, noise_note
from benchmarks.one_segment import write_segment
from benchmarks.rounds import Contender, run_rounds
from benchmarks.table import Table, Verdict
from sparklog.pipeline.brokers.import_logs import execute_import
from sparklog.sink.importing.plan_import import ImportChoice
from sparklog.sink.place.patch_headers import patch_headers
from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.files.clean_shutdown import mark_clean_shutdown
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.storage.local import write_file

__all__ = ["run"]

_LOGS = 4
_SEGMENTS = 8


def run(bench: Bench) -> None:
    """Import the logs of a root that was shut down cleanly, again and again, each time into a new store."""
    source = _write_root(bench, bench.pick(32, 2) * 1_000_000)
    size_mb = sum(path.stat().st_size for path in source.rglob("*.log")) / 1e6
    target = bench.fresh("imported")
    clear = partial(shutil.rmtree, target, ignore_errors=True)
    contenders = [
        Contender(name="import", run=partial(_import, source, target, may_link=True), clean=clear),
        Contender(name="import --copy", run=partial(_import, source, target, may_link=False), clean=clear),
        Contender(name="cp -a, sync", run=partial(_copy, "-a", source, target), clean=clear),
        Contender(name="cp -al, sync", run=partial(_copy, "-al", source, target), clean=clear),
    ]
    results = run_rounds(contenders, warmups=1, rounds=bench.pick(7, 2))
    rows = [(name, f"{each.median:.3f}", f"{size_mb / each.median:,.0f}") for name, each in results.items()]
    notes = (
        f"{size_mb:,.0f} MB in {_LOGS} logs of {_SEGMENTS} segments, one filesystem, page cache; all of it durable",
        noise_note(results.values()),
    )
    bench.add(Table("Import of a broker's logs", ("what", "seconds", "MB/s"), rows, notes))
    ratio = results["import --copy"].median / results["cp -a, sync"].median
    linked = results["import"].median / results["cp -a, sync"].median
    bench.judge(
        Verdict(
            what="import, in time of a copy",
            wanted="1.0 with copies",
            aim="links",
            measured=f"{ratio:.2f} with copies, {linked:.2f} with links",
            is_met=min(ratio, linked) <= 1,
            is_aim_met=linked <= 0.5,
        )
    )
    shutil.rmtree(source)


def _write_root(bench: Bench, segment_bytes: int) -> Path:
    """Write logs whose segments have the same records at following offsets."""
    root, options = bench.fresh("broker"), EncodeOptions(partition_leader_epoch=0)
    first = write_segment(bench.fresh("segment"), segment_bytes, options)
    data = np.fromfile(first, np.uint8)
    scan = scan_batches(data.data)
    count, epochs = int(scan.last_offset[-1]) + 1, np.zeros(len(scan), np.int32)
    for log in range(_LOGS):
        directory = root / f"imported-{log}"
        directory.mkdir(parents=True)
        for number in range(_SEGMENTS):
            patch_headers(data, scan.position, scan.base_offset + number * count, epochs)
            data.tofile(directory / segment_file_name(number * count, LOG))
            for suffix in (INDEX, TIMEINDEX):  # their offsets are relative
                shutil.copy(first.with_suffix(suffix), directory / segment_file_name(number * count, suffix))
        write_file(directory / "leader-epoch-checkpoint", render_leader_epochs([(0, 0)]))
    mark_clean_shutdown(root)
    shutil.rmtree(first.parent)
    return root


def _import(source: Path, target: Path, *, may_link: bool) -> None:
    execute_import(target, ImportChoice(folders=(source,), may_link=may_link, now_ms=1), SystemClock())


def _copy(option: str, source: Path, target: Path) -> None:
    subprocess.run(["cp", option, source, target], check=True)
    subprocess.run(["sync", "-f", target], check=True)
