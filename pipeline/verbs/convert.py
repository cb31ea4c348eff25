"""The verb `convert`: copies logs into a new folder, in another message format."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sparklog.pipeline.places.store_view import LogView, open_logs
from sparklog.pipeline.report import to_json
from sparklog.pipeline.terminal import say
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint, render_offset_checkpoint
from sparklog.storage_core.errors import InvalidConfigError, UnknownTopicError
from sparklog.storage_core.log.convert_log import ConversionReport, convert_log
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.record.batch_convert import ConvertOptions
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.new_folder import new_folder
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.storage.owned_names import UNSHARED, replace_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["run"]

_FORMATS = {"v0": 0, "v1": 1, "v2": 2}

_STARTS = "log-start-offset-checkpoint"

_LOSSES = {
    "records_without_headers": "{:,} records lost their headers",
    "records_without_timestamp": "{:,} records lost their timestamp",
    "control_batches": "{:,} control batches were dropped",
    "empty_batches": "{:,} batches without records were dropped",
    "batches_without_producer": "{:,} batches lost their producer id, epoch and sequence",
    "batches_without_transaction": "{:,} batches lost their transaction: readers see aborted records, too",
    "batches_without_delete_horizon": "{:,} batches lost the delete horizon of their tombstones",
}


def run(store: Path, wanted: str, out: Path, compression_type: str | None, as_json: bool) -> None:
    """Carry the verb out."""

    def report(done: ConversionReport) -> None:
        if not as_json:
            say(*_lines(done))

    options = ConvertOptions(magic=_FORMATS[wanted], codec=compression_type)
    reports = _convert(store, out, options, report)
    if as_json:
        say(to_json({"out": str(out), "format": wanted, "logs": [each.as_dict() for each in reports]}))


def _convert(
    root: Path, out: Path, options: ConvertOptions, report: Callable[[ConversionReport], None]
) -> list[ConversionReport]:
    """Write every log of a store, a folder of logs, or one log directory, in another format.

    Args:
        root: only read; of a store, the committed records.
        out: new folder of log directories; must not exist, or be empty. It gets its name when it is complete.
        report: gets each log after it is written.

    Raises:
        InvalidConfigError: `out` exists, or lies inside `root`.
        UnknownTopicError: there is no log.
        LogStorageError: a log can't be read, or not be written in this format; then there is no `out`.
    """
    if out.resolve().is_relative_to(root.resolve()):
        raise InvalidConfigError(f"--out lies inside the folder to convert: path={out}")
    view = open_logs(root)
    view.require_clean_end()
    if not view.logs:
        raise UnknownTopicError(f"no log to convert: path={root}")
    reports = []
    with new_folder(out) as folder:
        starts = _log_starts(view.root, view.logs)
        for each in view.logs:
            end_offset = each.expected.log_end_offset if each.expected else None
            done = convert_log(each.directory, folder / each.log.directory_name, options, log_end_offset=end_offset)
            reports.append(done)
            report(done)
        if starts:
            with storage_errors(folder):
                replace_file(UNSHARED, folder / _STARTS, render_offset_checkpoint(starts))
    return reports


def _lines(done: ConversionReport) -> list[str]:
    """Return a line with the counts of a log, and one for each kind of loss."""
    counts = done.counts
    lines = [
        f"{done.log}: {done.segments:,} segments, {counts.copied_batches:,} batches copied,"
        f" {counts.rebuilt_batches:,} rebuilt with {counts.rebuilt_records:,} records,"
        f" {size_text(done.bytes_before)} -> {size_text(done.bytes_after)}"
    ]
    losses = [text.format(getattr(counts, name)) for name, text in _LOSSES.items() if getattr(counts, name)]
    if done.end_offset_after < done.log_end_offset:
        losses.append(f"the log ends at offset {done.end_offset_after:,}, not {done.log_end_offset:,}")
    return lines + [f"{done.log}: lost: {loss}" for loss in losses]


def _log_starts(root: Path, logs: Sequence[LogView]) -> dict[TopicPartition, int]:
    """Return start offsets above a log's first segment, from the ledger or from the root's checkpoint."""
    checkpointed: dict[TopicPartition, int] = {}
    for path in (root / _STARTS, root.absolute().parent / _STARTS):
        with storage_errors(path):
            is_own = path.parent == root or logs[0].directory == root
            if is_own and path.is_file():
                checkpointed = parse_offset_checkpoint(read_file(path))
    starts = {}
    for each in logs:
        start = each.expected.log_start_offset if each.expected else checkpointed.get(each.log, 0)
        segments = list_segments(each.directory)
        if segments and start > segments[0].base_offset:
            starts[each.log] = start
    return starts
