"""Opens the logs of a store, or of any folder of topic-partition directories, for reading.

In a store the ledger has the committed start and end of each log. In a plain folder the files of a log show them,
except a start inside a segment after a deletion of records: it is in `log-start-offset-checkpoint` beside the logs. If
that file is damaged, logs can be listed and checked, but not read: their starts are not guessed.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparklog.pipeline.places.placed_logs import place_logs
from sparklog.pipeline.places.stored_logs import Place, StoredLog, fetch_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.opening.clean_end import find_surplus
from sparklog.sink.past.judge_past import Judgement, LogsNow
from sparklog.sink.past.past_state import PastState, find_past
from sparklog.sink.store.expected_log import expected_log
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_preserved_topics, read_topic_configs
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import (
    CorruptFileError,
    InvalidConfigError,
    LedgerDamagedError,
    LogDirOfflineError,
    UnknownTopicError,
)
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = ["LogView", "StoreView", "open_logs", "open_named", "open_place", "open_stored", "select_logs", "view_stored"]

logger = logging.getLogger(__name__)

_LOG_STARTS = "log-start-offset-checkpoint"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One log.

    Attributes:
        directory: of the log.
        expected: the ledger's facts; None in a plain folder.
        checkpointed_start: its start in the checkpoint beside it; None without one.
        checkpointed_recovery_point: its recovery point in the checkpoint beside it; None without one.
        damaged_checkpoints: the damage of these checkpoints, by file name.
        offline: why its log directory can't be read; None if it can.
        judgement: of an earlier state: what of it can still be read; `expected` starts where the log does today.
        stored: what a store of objects has of it: then nothing lies in `directory`, which only names it.
    """

    log: TopicPartition
    directory: Path
    expected: ExpectedLog | None = None
    checkpointed_start: int | None = None
    checkpointed_recovery_point: int | None = None
    damaged_checkpoints: Mapping[str, str] = field(default_factory=dict)
    offline: str | None = None
    judgement: Judgement | None = None
    stored: StoredLog | None = None

    @property
    def recovery_point(self) -> int | None:
        """The offset below which all records are fsynced; None if no file has it.

        Raises:
            CorruptFileError: the checkpoint beside the log is damaged.
        """
        self._require_sound(_RECOVERY_POINTS)
        return self.checkpointed_recovery_point if self.expected is None else self.expected.recovery_point

    def reader(self) -> LogReader:
        """Return a reader of the committed records.

        Raises:
            LogDirOfflineError: the log directory is offline.
            CorruptFileError: the checkpoint with the log's start is damaged.
            StorageError: the log can't be read.
        """
        self.require_online()
        self.require_start()
        expected = self.expected
        if expected is None:
            return LogReader(self.directory, log_start_offset=self._plain_start())
        return LogReader(
            self.directory,
            log_start_offset=expected.log_start_offset,
            log_end_offset=expected.log_end_offset,
            last_stable_offset=expected.last_stable_offset,
        )

    def require_online(self) -> None:
        """Refuse to read a log whose log directory is offline.

        Raises:
            LogDirOfflineError: the message names the log directory and the reason.
        """
        if self.offline is not None:
            raise LogDirOfflineError(
                f"log directory is offline: log_dir={self.directory.parent} reason={self.offline} log={self.log}"
            )

    def require_start(self) -> None:
        """Refuse a log with unknown start: deleted records would be read again.

        Raises:
            CorruptFileError: the checkpoint with the start is damaged; the message names the file.
        """
        self._require_sound(_LOG_STARTS)

    def _require_sound(self, name: str) -> None:
        if name in self.damaged_checkpoints:
            raise CorruptFileError(self.damaged_checkpoints[name])

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
        past: the earlier state that this is; None for the newest.
        unknown: log directories of a store that its ledger does not name.
        set_aside: `-delete`, `-future` and `-stray` directories beside the logs.
        surplus: bytes above a committed end after a clean close, as an error text; None without.
        damaged_control: why the surplus is unknown; None if it is known.
    """

    root: Path
    logs: tuple[LogView, ...]
    ledger_version: int | None = None
    past: PastState | None = None
    unknown: tuple[Path, ...] = ()
    set_aside: tuple[Path, ...] = ()
    surplus: str | None = None
    damaged_control: str | None = None

    def require_clean_end(self) -> None:
        """Refuse a store whose ledger may have lost commits.

        Raises:
            LedgerDamagedError: there are bytes above a committed end that no crash explains.
        """
        if self.surplus is not None:
            raise LedgerDamagedError(self.surplus)


def open_stored(place: StoragePlace, as_of: AsOf | None = None) -> StoreView:
    """Open a store of objects, and copy nothing: what is read of its logs has to be copied first.

    Raises:
        InvalidConfigError: there is none, or not this version of it.
        LedgerDamagedError: its ledger can't be read.
    """
    return view_stored(place, ObjectLedger.open(place, as_of))


def view_stored(place: StoragePlace, ledger: ObjectLedger) -> StoreView:
    """Return the logs of a store of objects at the version of its ledger."""
    extents = ledger.extents()
    logs = [
        LogView(
            log=log,
            directory=Path(f"{place.address}/{log.directory_name}"),
            expected=expected_log(state, has_gaps=None, preserves_offsets=False),
            stored=StoredLog(place, tuple(extents.get(log, ()))),
        )
        for log, state in ledger.states().items()
    ]
    root = Path(str(place.address))
    return StoreView(root=root, logs=tuple(sorted(logs, key=lambda each: each.log)), ledger_version=ledger.version)


def open_logs(root: Path, as_of: AsOf | PastState | None = None) -> StoreView:
    """Open a store, a folder of log directories, or a single log directory.

    Args:
        as_of: an earlier state of a store, or what finds it; None for the newest.

    Raises:
        LedgerDamagedError: the store's ledger can't be read.
        UnsupportedFormatError: a newer release wrote the store.
        InvalidConfigError: neither ledger nor cuts have such a state, or the folder has no ledger, or two directories
            of one log.
    """
    if (root / "store.properties").exists():
        return _open_store(root, as_of)
    if as_of is not None:
        raise InvalidConfigError(f"earlier versions exist only in a store, which this is not: path={root} {as_of}")
    own = parse_directory_name(root.absolute().name)
    if own and any(root.glob(f"*{LOG}")):
        return StoreView(root=root, logs=(_plain_view(own, root, _Checkpoints.of(root.absolute().parent)),))
    checkpoints, folders = _Checkpoints.of(root), _directories(root)
    logs = [_plain_view(log, path, checkpoints) for path in folders if (log := parse_directory_name(path.name))]
    _check_no_twins(logs)
    return StoreView(
        root=root,
        logs=tuple(sorted(logs, key=lambda each: each.log)),
        set_aside=tuple(path for path in folders if parse_set_aside_name(path.name)),
    )


def open_place(root: Place, name: str | None = None, as_of: AsOf | None = None) -> StoreView:
    """As `open_logs`; of a store of objects it opens a copy of the logs of a name, or of all of its logs."""
    if isinstance(root, StoragePlace):
        return open_logs(fetch_logs(root, name, as_of))
    return open_logs(root, as_of)


def open_named(root: Place, name: str | None, as_of: AsOf | None = None) -> tuple[StoreView, list[LogView]]:
    """Open a place for reading; return it with the logs of this name, or with all of its logs."""
    view = open_place(root, name, as_of)
    view.require_clean_end()
    logs = list(view.logs) if name is None else select_logs(view.logs, name)
    return view, sorted(logs, key=lambda each: each.offline is not None)  # readable logs first: an offline one fails


def select_logs(logs: Sequence[LogView], name: str) -> list[LogView]:
    """Return the logs of `TOPIC` or `TOPIC:PARTITION`.

    Raises:
        UnknownTopicError: there is no such log.
    """
    topic = name.partition(":")[0]
    found = [each for each in logs if each.log.topic == topic and name in (topic, f"{topic}:{each.log.partition}")]
    if not found:
        topics = ", ".join(sorted({each.log.topic for each in logs})) or "none"
        raise UnknownTopicError(f"no log of that name: name={name} topics={topics}")
    return found


def _check_no_twins(logs: Sequence[LogView]) -> None:
    """Refuse two directories of one log, such as `t-0` and `t-00`: it is unknown which one is the log."""
    seen: dict[TopicPartition, Path] = {}
    for each in logs:
        if each.log in seen:
            raise InvalidConfigError(
                f"a log has two directories: log={each.log} path={seen[each.log]} path={each.directory};"
                " move one of them away"
            )
        seen[each.log] = each.directory


def _open_store(root: Path, as_of: AsOf | PastState | None) -> StoreView:
    store = Store.find(root)
    newest = Ledger.open(store.ledger_path)
    now = newest.states()
    past = find_past(store.ledger_path, as_of) if isinstance(as_of, AsOf) else as_of
    states = now if past is None else past.states
    placed = place_logs(store, states, newest)
    readable = {log: path for log, path in placed.directories.items() if log not in placed.offline}
    judged = {} if past is None else LogsNow(now, readable).judge(past.states)
    compacted, preserved = _topics_with_gaps(store)
    logs = [
        LogView(
            log=log,
            directory=placed.directories[log],
            expected=expected_log(
                state if past is None else _begun_today(state, now.get(log)),
                has_gaps=True if log.topic in compacted else None,
                preserves_offsets=log.topic in preserved,
            ),
            offline=placed.offline.get(log),
            judgement=judged.get(log),
        )
        for log, state in states.items()
    ]
    surplus, damaged = _surplus(store, newest) if past is None else (None, None)
    return StoreView(
        root=root,
        logs=tuple(sorted(logs, key=lambda each: each.log)),
        ledger_version=newest.version if past is None else past.ledger_version,
        past=past,
        unknown=placed.unknown,
        set_aside=placed.set_aside,
        surplus=surplus,
        damaged_control=damaged,
    )


def _begun_today(past: LogState, now: LogState | None) -> LogState:
    """Return an earlier row with the log's start of today, if that lies inside it."""
    if now is None or not past.log_start_offset < now.log_start_offset <= past.log_end_offset:
        return past
    return replace(past, log_start_offset=now.log_start_offset)


def _surplus(store: Store, ledger: Ledger) -> tuple[str | None, str | None]:
    """Return surplus bytes above a committed end, or the reason why they are unknown; both do not prevent reading."""
    try:
        return find_surplus(store, ledger.states(), ledger.version), None
    except CorruptFileError as error:
        logger.warning("Bytes above a committed end, if any, are not detected: %s", error)
        return None, str(error)


def _topics_with_gaps(store: Store) -> tuple[set[str], frozenset[str]]:
    """Return the topics whose logs may have gaps; none if the topics' settings are damaged.

    Returns:
        compacted topics, and topics with preserved offsets.
    """
    try:
        configs, preserved = read_topic_configs(store), read_preserved_topics(store)
    except CorruptFileError as error:
        logger.warning("Assuming logs without gaps, neither compacted nor mirrored: %s", error)
        return set(), frozenset()
    return {topic for topic, config in configs.items() if config.is_compacted}, preserved


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """The checkpoint files of a broker's root, and the damage of unreadable ones."""

    offsets: dict[str, dict[TopicPartition, int]]
    damaged: dict[str, str]

    @classmethod
    def of(cls, root: Path) -> "_Checkpoints":
        found = cls({}, {})
        for name in (_LOG_STARTS, _RECOVERY_POINTS):
            path = root / name
            with storage_errors(path):
                data = read_if_there(path) or b""
            try:
                found.offsets[name] = parse_offset_checkpoint(data)
            except CorruptFileError as error:
                found.damaged[name] = f"{error}: path={path}; restore the file or delete it"
        return found


def _plain_view(log: TopicPartition, directory: Path, checkpoints: _Checkpoints) -> LogView:
    return LogView(
        log=log,
        directory=directory,
        checkpointed_start=checkpoints.offsets.get(_LOG_STARTS, {}).get(log),
        checkpointed_recovery_point=checkpoints.offsets.get(_RECOVERY_POINTS, {}).get(log),
        damaged_checkpoints=checkpoints.damaged,
    )


def _directories(folder: Path) -> list[Path]:
    with storage_errors(folder):
        return sorted(path for path in folder.iterdir() if path.is_dir())
