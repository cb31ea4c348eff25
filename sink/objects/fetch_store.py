"""Copies logs of a store of objects into a folder of log directories, as a broker has them."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.fetch_log import fetch_log
from sparklog.sink.objects.ledger_part import LedgerPart
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["fetch_store", "known_configs"]

_LOG_STARTS = "log-start-offset-checkpoint"


def fetch_store(
    ledger: ObjectLedger | LedgerPart, folder: Path, is_wanted: Callable[[TopicPartition], bool]
) -> dict[str, LogConfig]:
    """Copy the logs of a ledger's version into a folder that exists; the files are not synced.

    Args:
        is_wanted: whether a log is copied; may raise to end the copying.

    Returns:
        the settings of each known topic.

    Raises:
        LedgerDamagedError: the ledger can't be read, or contradicts itself.
        LogStorageError: an object can't be read.
    """
    extents, starts = ledger.extents(), dict[TopicPartition, int]()
    configs, usual = known_configs(ledger), LogConfig()
    for log, state in ledger.states().items():
        if is_wanted(log):
            config = configs.get(log.topic, usual)
            _fetch(ledger.place.open(), state, extents.get(log, []), folder / log.directory_name, config)
            starts[log] = state.log_start_offset
    path = folder / _LOG_STARTS
    with storage_errors(path):
        write_file(path, render_offset_checkpoint(starts))
    return configs


def known_configs(ledger: ObjectLedger | LedgerPart) -> dict[str, LogConfig]:
    """Return the settings of each known topic; the others must not get Kafka's defaults.

    Raises:
        InvalidConfigError: this release does not know a property.
    """
    return {topic: LogConfig.from_properties(given) for topic, given in ledger.settings().items()}


def _fetch(storage: ObjectStorage, state: LogState, extents: list[Extent], directory: Path, config: LogConfig) -> None:
    reached = extents[-1].end_offset if extents else state.log_start_offset
    overlap = any(after.base_offset < before.end_offset for before, after in pairwise(extents))
    if reached != state.log_end_offset or overlap:
        raise LedgerDamagedError(
            f"the ledger contradicts itself: log={state.log} log_end_offset={state.log_end_offset}"
            f" end_of_extents={reached} {overlap=} address={storage.address}"
        )
    with storage_errors(directory):
        directory.mkdir()
        write_file(directory / "partition.metadata", render_partition_metadata(state.topic_id))
        if not extents:
            write_file(directory / segment_file_name(state.log_start_offset, LOG), b"")
    if extents:
        fetch_log(storage, extents, directory, config)
