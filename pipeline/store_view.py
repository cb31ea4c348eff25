"""The logs of a store, or of any folder of topic-partition directories, for the tools that read.

A store's ledger says what is committed. In a plain folder each log speaks for itself, but for its start: after records
were deleted that lies inside a segment, and `log-start-offset-checkpoint` beside the logs has it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sink.ledger import Ledger
from sink.ledger_rows import LogState
from sink.ledger_versions import AsOf, open_ledger_at
from sink.store import Store
from storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from storage_core.errors import CorruptFileError, InvalidConfigError, UnknownTopicError
from storage_core.inspect.findings import ExpectedLog
from storage_core.log.log_files import LOG
from storage_core.log.log_reader import LogReader
from storage_core.log.segments import list_segments
from storage_core.storage.local import storage_errors
from storage_core.topic_partition import TopicPartition, parse_directory_name

__all__ = ["LogView", "StoreView", "open_logs", "select_logs"]

logger = logging.getLogger(__name__)

_LOG_STARTS = "log-start-offset-checkpoint"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One log.

    Attributes:
        directory: of the log.
        expected: what the ledger says of it, None in a plain folder.
        checkpointed_start: where the checkpoint beside it says that it starts; None where there is none.
        checkpointed_recovery_point: the same of its recovery point.
    """

    log: TopicPartition
    directory: Path
    expected: ExpectedLog | None = None
    checkpointed_start: int | None = None
    checkpointed_recovery_point: int | None = None

    @property
    def recovery_point(self) -> int | None:
        """Below it every offset is fsynced, as far as anybody wrote that down."""
        return self.checkpointed_recovery_point if self.expected is None else self.expected.recovery_point

    def reader(self) -> LogReader:
        """Return a reader of the committed records; all of a store's records are stable, for it has no transactions."""
        expected = self.expected
        if expected is None:
            return LogReader(self.directory, log_start_offset=self._plain_start())
        end = expected.log_end_offset
        return LogReader(
            self.directory, log_start_offset=expected.log_start_offset, log_end_offset=end, last_stable_offset=end
        )

    def _plain_start(self) -> int | None:
        """Return the checkpoint's start, or the first segment's if that is higher, as a broker does."""
        if self.checkpointed_start is None:
            return None
        return max(self.checkpointed_start, *(each.base_offset for each in list_segments(self.directory)[:1]), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """Every log of a place, by topic and partition.

    Attributes:
        ledger_version: of the store's ledger; None in a plain folder.
        unknown: log directories of a store that its ledger does not name.
    """

    root: Path
    logs: tuple[LogView, ...]
    ledger_version: int | None = None
    unknown: tuple[Path, ...] = ()


def open_logs(root: Path, as_of: AsOf | None = None) -> StoreView:
    """Find the logs of a store, of a folder of log directories, or the one log that a folder is itself.

    Args:
        root: the store or folder.
        as_of: an earlier version of a store's ledger; None for the newest.

    Raises:
        LedgerDamagedError: the store's ledger can't be read.
        UnsupportedFormatError: a newer release wrote the store.
        InvalidConfigError: the ledger has no such version, or the folder no ledger.
    """
    if (root / "store.properties").exists():
        return _open_store(root, as_of)
    if as_of is not None:
        raise InvalidConfigError(f"only a store has a past, and this folder is none: path={root} {as_of}")
    own = parse_directory_name(root.absolute().name)
    if own and any(root.glob(f"*{LOG}")):
        return StoreView(root=root, logs=(_plain_view(own, root, _Checkpoints.of(root.absolute().parent)),))
    checkpoints = _Checkpoints.of(root)
    logs = [
        _plain_view(log, path, checkpoints) for path in _directories(root) if (log := parse_directory_name(path.name))
    ]
    return StoreView(root=root, logs=tuple(sorted(logs, key=lambda each: each.log)))


def select_logs(logs: Sequence[LogView], name: str) -> list[LogView]:
    """Return the logs that `TOPIC` or `TOPIC:PARTITION` names.

    Raises:
        UnknownTopicError: there is none.
    """
    topic = name.partition(":")[0]
    found = [each for each in logs if each.log.topic == topic and name in (topic, f"{topic}:{each.log.partition}")]
    if not found:
        topics = ", ".join(sorted({each.log.topic for each in logs})) or "none"
        raise UnknownTopicError(f"no log of that name: name={name} topics={topics}")
    return found


def _open_store(root: Path, as_of: AsOf | None) -> StoreView:
    store = Store.find(root)
    ledger = Ledger.open(store.ledger_path) if as_of is None else open_ledger_at(store.ledger_path, as_of)
    states = ledger.states()
    logs = [
        LogView(log=log, directory=store.log_path(state), expected=_expected(state)) for log, state in states.items()
    ]
    known = {each.directory for each in logs}
    log_dirs = {store.log_dir(state.log_dir) for state in states.values()}
    unknown = [
        path
        for log_dir in sorted(log_dirs)
        for path in (_directories(log_dir) if log_dir.is_dir() else ())  # a lost disk: each of its logs says so
        if path not in known and parse_directory_name(path.name)
    ]
    return StoreView(
        root=root,
        logs=tuple(sorted(logs, key=lambda each: each.log)),
        ledger_version=ledger.version,
        unknown=tuple(unknown),
    )


def _expected(state: LogState) -> ExpectedLog:
    return ExpectedLog(
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        active_base_offset=state.active_base_offset,
        active_size_bytes=state.active_size_bytes,
        topic_id=state.topic_id,
        leader_epoch=state.leader_epoch,
        recovery_point=state.recovery_point,
    )


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """What a broker's root says of the logs in it."""

    starts: dict[TopicPartition, int]
    recovery_points: dict[TopicPartition, int]

    @classmethod
    def of(cls, root: Path) -> "_Checkpoints":
        return cls(_read_checkpoint(root / _LOG_STARTS), _read_checkpoint(root / _RECOVERY_POINTS))


def _plain_view(log: TopicPartition, directory: Path, checkpoints: _Checkpoints) -> LogView:
    return LogView(
        log=log,
        directory=directory,
        checkpointed_start=checkpoints.starts.get(log),
        checkpointed_recovery_point=checkpoints.recovery_points.get(log),
    )


def _read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Return what a checkpoint in a broker's root says; one that can't be parsed counts as empty, as in Kafka."""
    with storage_errors(path):
        data = path.read_bytes() if path.is_file() else b""
    try:
        return parse_offset_checkpoint(data)
    except CorruptFileError as error:
        logger.warning("a checkpoint is passed over: %s path=%s", error, path)
        return {}


def _directories(folder: Path) -> list[Path]:
    with storage_errors(folder):
        return sorted(path for path in folder.iterdir() if path.is_dir())
