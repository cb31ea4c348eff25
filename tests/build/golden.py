"""Logs that a real broker wrote, with what its own consumer and dump tool said about them: `tests/data/golden`.

- `<case>/<case>-0/`: the log directory after a clean shutdown.
- `<case>/expected.json`: what a consumer read, and the broker's answers to time lookups.
- `<case>/dump.txt`: what Kafka 4.3.1's dump tool wrote to standard output.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from sparklog.storage_core.checkpoint.partition_metadata import parse_partition_metadata
from sparklog.storage_core.kraft.bootstrap_checkpoint import render_bootstrap_checkpoint
from sparklog.storage_core.kraft.metadata_records import PartitionMetadata, TopicMetadata, topic_records

__all__ = ["GoldenLog", "copy_broker_root", "golden_logs", "golden_root", "write_cluster_metadata"]

_FOLDER = Path(__file__).resolve().parents[1] / "data" / "golden"


@dataclass(frozen=True)
class GoldenLog:
    """One case."""

    folder: Path

    @property
    def name(self) -> str:
        """The case's name."""
        return self.folder.name

    @cached_property
    def directory(self) -> Path:
        """The log directory."""
        return next(path for path in self.folder.iterdir() if path.is_dir())

    @cached_property
    def expected(self) -> dict[str, Any]:
        """What the consumer read."""
        loaded: dict[str, Any] = json.loads((self.folder / "expected.json").read_text())
        return loaded

    @cached_property
    def dump(self) -> str:
        """What the dump tool wrote."""
        return (self.folder / "dump.txt").read_text()


def golden_logs(pattern: str = "v[012]-*") -> list[Any]:
    """Return the cases whose names match, every one of formats v0, v1 and v2 if none is given, as pytest parameters."""
    folders = sorted(_FOLDER.glob(pattern))
    if not folders:
        raise LookupError(f"no golden log: folder={_FOLDER} pattern={pattern}")
    return [pytest.param(GoldenLog(folder), id=folder.name) for folder in folders]


def golden_root() -> Path:
    """Return the folder of the files that a broker keeps beside its logs."""
    return _FOLDER / "root"


def copy_broker_root(folder: Path, *names: str, is_clean: bool = True) -> Path:
    """Make a broker's root of some cases and return it; the files of others stay out of its checkpoints."""
    folder.mkdir()
    for name in names:
        [log] = (each for each in (_FOLDER / name).iterdir() if each.is_dir())
        shutil.copytree(log, folder / log.name, copy_function=shutil.copy2)
    for name in ("meta.properties", "log-start-offset-checkpoint"):
        shutil.copy2(golden_root() / name, folder / name)
    if is_clean:
        (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return folder


def write_cluster_metadata(root: Path, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Write a broker's copy of the metadata log: the settings of topics whose first partitions are in its root."""
    partition, records = PartitionMetadata(0, (1,), ("VcFCsRUtRBeW5AD8_OkHlA",), 0), list[bytes]()
    for topic, properties in settings.items():
        topic_id = parse_partition_metadata((root / f"{topic}-0" / "partition.metadata").read_bytes())
        records += topic_records(TopicMetadata(topic, topic_id, (partition,), properties))
    (root / "__cluster_metadata-0").mkdir()
    (root / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(render_bootstrap_checkpoint(records, 0))
