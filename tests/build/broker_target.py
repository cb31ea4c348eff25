"""A stopped broker's folder with empty logs, as a broker makes them for new topics."""

from collections.abc import Mapping
from pathlib import Path

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.kraft.bootstrap_checkpoint import render_bootstrap_checkpoint
from sparklog.storage_core.kraft.metadata_records import PartitionMetadata, TopicMetadata, topic_records
from tests.build.golden import golden_root

__all__ = ["make_target"]

_DIRECTORY_ID = "VcFCsRUtRBeW5AD8_OkHlA"


def make_target(
    root: Path,
    partitions: Mapping[str, int],
    ids: Mapping[str, str],
    settings: Mapping[str, Mapping[str, str]] | None = None,
    *,
    replicas: tuple[int, ...] = (1,),
    epoch: int = 2,
) -> Path:
    """Make the folder, and return it.

    Args:
        partitions: number of each topic.
        ids: of each topic.
        settings: of topics, in the broker's copy of the cluster's metadata.
        replicas: nodes of each partition.
        epoch: the newest leader epoch of each log.
    """
    root.mkdir()
    (root / "meta.properties").write_bytes(render_meta_properties("c" * 22, 1, _DIRECTORY_ID))
    (root / ".kafka_cleanshutdown").write_bytes((golden_root() / ".kafka_cleanshutdown").read_bytes())
    records = list[bytes]()
    for topic, count in partitions.items():
        for number in range(count):
            log = root / f"{topic}-{number}"
            log.mkdir()
            for suffix in (".log", ".index", ".timeindex"):
                (log / f"{0:020}{suffix}").touch()
            (log / "partition.metadata").write_bytes(render_partition_metadata(ids[topic]))
            (log / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
        placed = tuple(
            PartitionMetadata(number, replicas, (_DIRECTORY_ID,) * len(replicas), epoch) for number in range(count)
        )
        records += topic_records(TopicMetadata(topic, ids[topic], placed, (settings or {}).get(topic, {})))
    (root / "__cluster_metadata-0").mkdir()
    (root / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(render_bootstrap_checkpoint(records, 0))
    return root
