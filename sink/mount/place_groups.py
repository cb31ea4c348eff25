"""Makes the logs of `__consumer_offsets` for a new cluster, with the offsets of its groups.

A broker builds their indexes as it recovers them at its first start.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.kraft.group_offsets import OFFSETS_TOPIC, GroupOffset
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.storage.local import storage_errors, write_file

__all__ = ["place_groups"]

_FIRST_EPOCH: Final = 0


def place_groups(offsets: Sequence[GroupOffset], partition: int, topic_id: str, root: Path, *, commit_ms: int) -> None:
    """Make the log of one partition in a log directory, without a sync.

    Args:
        offsets: of its groups.
        commit_ms: when they count as committed: a broker drops older ones after a while.
    """
    # Costs 0.3 s, which a mount without groups need not wait for.
    from sparklog.storage_core.kraft.offset_batches import render_offsets

    target = root / f"{OFFSETS_TOPIC}-{partition}"
    with storage_errors(target):
        target.mkdir()
        write_file(target / segment_file_name(0, LOG), render_offsets(offsets, commit_ms))
        write_file(target / "leader-epoch-checkpoint", render_leader_epochs([(_FIRST_EPOCH, 0)]))
        write_file(target / "partition.metadata", render_partition_metadata(topic_id))
