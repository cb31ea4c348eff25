"""Kafka's own dump tool on logs that were converted from one format to another."""

import re
from pathlib import Path

import pytest

from sparklog.storage_core.log.convert_log import convert_log
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_convert import ConvertOptions
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.written_log import Batch, write_log
from tests.kafka.toolbox import KafkaToolbox

pytestmark = pytest.mark.kafka

_GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
_DUMP = "org.apache.kafka.tools.DumpLogSegments"
_HARMLESS = re.compile(r"Non-consecutive offsets in .*|  -?\d+ is followed by \d+")


def _dump(toolbox: KafkaToolbox, files: list[Path], *options: str) -> list[str]:
    """Return what the tool prints; it must find nothing wrong but gaps, which stay where control batches were."""
    run = toolbox.run(_DUMP, *options, "--files", ",".join(map(str, files)))
    complaints = [line for line in run.stderr.decode().splitlines() if not _HARMLESS.fullmatch(line)]
    assert complaints == []
    return run.stdout.decode(errors="replace").splitlines()


def _sources(folder: Path) -> list[Path]:
    """Return every golden log, and one whose segments have several index entries each."""
    golden = [next(path for path in case.iterdir() if path.is_dir()) for case in sorted(_GOLDEN.glob("v[012]-*"))]
    batches = [Batch([1000 + 10 * n + m for m in range(30)], value_bytes=40) for n in range(60)]
    return [*golden, write_log(folder / "large-0", [batches, batches[:20]], codec="lz4").directory]


def _has_zstd(directory: Path) -> bool:
    scans = [scan_batches(path.read_bytes()) for path in directory.glob("*.log")]
    return any(((scan.attributes & 7) == 4).any() for scan in scans)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_convert_log_when_kafka_looks_at_it_then_nothing_is_wrong(
    toolbox: KafkaToolbox, tmp_path: Path, magic: int
) -> None:
    """Every batch is valid, every record is there, and every index entry leads to the batch that it names."""
    expected = 0
    for number, source in enumerate(_sources(tmp_path)):
        codec = "gzip" if magic < 2 and _has_zstd(source) else None
        convert_log(source, tmp_path / f"out-{number}", ConvertOptions(magic=magic, codec=codec))
        reader = LogReader(source)
        expected += sum(batch.num_rows for batch in reader.read(reader.log_start_offset))
    logs = sorted(tmp_path.glob("out-*/*.log"))
    lines = _dump(toolbox, logs, "--deep-iteration")
    batches = [line for line in lines if re.match(r"(baseOffset|offset): ", line)]
    records = [line for line in lines if line.startswith("| ") and "endTxnMarker" not in line]

    assert len(records) == expected
    assert all(line.endswith("isvalid: true") for line in batches)
    assert all(f" magic: {magic} " in line for line in batches)
    assert not any(line.startswith("Found ") for line in lines)
    indexes = sorted([*tmp_path.glob("out-*/*.index"), *tmp_path.glob("out-*/*.timeindex")])
    assert len(indexes) == 2 * len(logs)
    assert any(path.stat().st_size for path in indexes)
    sane = _dump(toolbox, indexes, "--index-sanity-check")
    assert sum(line.endswith((" passed sanity check.", " is empty.")) for line in sane) == len(indexes)
    for line in _dump(toolbox, indexes, "--verify-index-only"):
        assert line.startswith("Dumping ") or line.endswith(" is empty.")
