"""Fits a store's logs to the folders of a stopped broker that has their topics; changes none of their files.

Only a trial directory comes, and goes again, where a closed segment may need no copy (`new_log_place.can_share`).

| a log's directory in the broker's folders | what becomes of it |
|---|---|
| holds no record | it is replaced |
| has the batches of the log, and no others | it stays: an earlier mount has put it there |
| has any other record | all is refused: nothing is overwritten |
| has the id of another topic | all is refused, unless the topics were made anew for this |

A broker that leads a log whose batches have higher leader epochs than its own takes the history of the epochs for
wrong, and clients that compare epochs find no record any more. Such epochs are lowered to the broker's.

Source: Kafka LeaderEpochFileCache.assign; KIP-320.
"""

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.sink.mount.place_logs import LOG_STARTS, RECOVERY_POINTS, leader_epochs, may_be_linked
from sparklog.sink.mount.plan_mount import MountedLog, MountPlan
from sparklog.sink.store.new_log_place import can_share, check_rooms
from sparklog.sink.store.set_aside import stored_topic_id
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.leader_epochs import EPOCHS_NAME, assign_leader_epoch, parse_leader_epochs
from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, InvalidConfigError
from sparklog.storage_core.kraft.read_metadata import ClusterMetadata, read_cluster_metadata
from sparklog.storage_core.log.files.names import LOG, parse_base_offset
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.load_root import RootOptions, plan_one_log
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, set_aside_name

__all__ = ["TargetLog", "TargetPlan", "plan_target", "read_offsets"]

_META: Final = "meta.properties"
_OWNER: Final = ("cluster.id", "node.id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLog:
    """A log of the store, and its place in a broker's folder.

    Attributes:
        mounted: the log, as the broker will have it.
        root: the broker's folder.
        is_there: whether the broker has these batches already.
        lowered: entries of its epoch file, if higher epochs of its batches become the last of these; None if they stay.
    """

    mounted: MountedLog
    root: Path
    is_there: bool
    lowered: tuple[tuple[int, int], ...] | None

    @property
    def directory(self) -> Path:
        """Where the broker expects the log."""
        return self.root / self.mounted.log.directory_name

    @property
    def staged(self) -> Path:
        """Where its files are collected; a broker that finds such a name removes it."""
        return self.root / _set_aside(self.mounted.log, "new")

    @property
    def replaced(self) -> Path:
        """Where the broker's empty directory waits until the log is in its place; as `staged`."""
        return self.root / _set_aside(self.mounted.log, "old")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """What is mounted into a broker's folders.

    Attributes:
        logs: by topic and partition.
        may_link: whether closed segments may be the same files under second names: the topics have one replica.
        settings: that were set for the topics at the broker, by topic; None if its folders do not have them.
    """

    logs: tuple[TargetLog, ...]
    may_link: bool
    settings: Mapping[str, Mapping[str, str]] | None

    @property
    def roots(self) -> list[Path]:
        """The broker's folders that get logs."""
        return sorted({each.root for each in self.logs})

    @property
    def placing(self) -> list[TargetLog]:
        """Logs that are not there yet."""
        return [each for each in self.logs if not each.is_there]


def plan_target(
    store: Store, plan: MountPlan, folders: Sequence[Path], *, made_anew: bool = False, now_ms: int
) -> TargetPlan:
    """Fit a plan to a broker's folders. To act on it, the caller keeps the broker away from before until after.

    Args:
        folders: the `log.dirs` of one broker.
        made_anew: whether topics of other ids may get the logs, as they were made for this; they keep their ids.
        now_ms: current time.

    Raises:
        InvalidConfigError: these are no folders of one broker; a topic has another id or number of partitions there; a
            log has records there, or had later ones.
        CorruptFileError: a file that decides this is damaged.
        StorageError: a folder can't be read, or has too little room.
    """
    roots = _check_roots(store, plan, folders)
    metadata = max((read_cluster_metadata(each) or ClusterMetadata() for each in roots), key=lambda m: len(m.topic_ids))
    there = _directories(roots, {each.log for each in plan.logs})
    _check_partitions(plan, roots, metadata)
    logs = []
    for each in plan.logs:
        directory, topic_id = there[each.log], _topic_id(there[each.log])
        if topic_id != each.state.topic_id and not made_anew:
            raise InvalidConfigError(
                f"the target's topic is another one: topic={each.log.topic} target_id={topic_id}"
                f" store_id={each.state.topic_id} path={directory}; --topics-made-anew if it was made for this mount,"
                " otherwise mount a new cluster"
            )
        is_there = directory.name == each.log.directory_name and _has_its_batches(each, directory)
        if not is_there and directory.name == each.log.directory_name:
            _check_empty(each, directory, has_its_id=topic_id == each.state.topic_id, now_ms=now_ms)
        logs.append(_fitted(each, directory, topic_id, is_there=is_there))
    replicas = [count for topic in plan.topics() for count in metadata.replicas.get(topic, {0: 0}).values()]
    may_link = all(count == 1 for count in replicas)
    check_rooms(_room(each, may_link=may_link) for each in logs if not each.is_there)
    return TargetPlan(
        logs=tuple(logs),
        may_link=may_link,
        settings={topic: metadata.settings.get(topic, {}) for topic in plan.topics()} if metadata.topic_ids else None,
    )


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the entries of a broker's checkpoint file; none of a missing one.

    Raises:
        CorruptFileError: it is damaged.
    """
    with storage_errors(path):
        data = read_if_there(path) or b""
    try:
        return parse_offset_checkpoint(data)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}: path={path}; restore it, or delete it") from error


def _set_aside(log: TopicPartition, purpose: str) -> str:
    """Return a `-delete` name; it is the same for each run, so the next one finds what a killed one left."""
    return set_aside_name(log, uuid.uuid5(uuid.NAMESPACE_OID, f"sparklog mount {purpose} {log}").hex, "delete")


def _check_roots(store: Store, plan: MountPlan, folders: Sequence[Path]) -> list[Path]:
    roots = [each.resolve() for each in folders]
    stores = {store.root.resolve(), *(each.directory.parent.resolve() for each in plan.logs)}
    owners = []
    for root in roots:
        if any(root.is_relative_to(each) or each.is_relative_to(root) for each in stores):
            raise InvalidConfigError(f"--into and the store lie in each other: path={root} store={store.root}")
        with storage_errors(root):
            data = read_if_there(root / _META)
        if data is None:
            raise InvalidConfigError(f"no folder of a broker, it has no {_META}: path={root}; name its log.dirs")
        try:
            owners.append({key: parse_meta_properties(data)[key] for key in _OWNER})
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}: path={root / _META}") from error
        for name in (LOG_STARTS, RECOVERY_POINTS):
            read_offsets(root / name)
    if len(set(roots)) < len(roots) or any(each != owners[0] for each in owners):
        raise InvalidConfigError(f"--into must name each of the log.dirs of one broker once: paths={_listed(roots)}")
    return roots


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _directories(roots: Sequence[Path], logs: set[TopicPartition]) -> dict[TopicPartition, Path]:
    """Return where the broker has logs: an empty directory may wait beside, if a mount was killed.

    Raises:
        InvalidConfigError: it does not have a log, or in two folders.
    """
    found = {}
    for log in sorted(logs):
        for name in (log.directory_name, _set_aside(log, "old")):
            places = [root / name for root in roots if (root / name).is_dir()]
            if places:
                break
        if len(places) > 1:
            raise InvalidConfigError(f"two directories for one log: log={log} paths={_listed(places)}")
        if not places:
            raise InvalidConfigError(
                f"the target does not have this log: log={log} paths={_listed(roots)}; name all log.dirs of the broker,"
                f" create the topic with {1 + max(each.partition for each in logs if each.topic == log.topic)}"
                " partitions, as --create-topics does, or leave it out by --topics"
            )
        found[log] = places[0]
    return found


def _check_partitions(plan: MountPlan, roots: Sequence[Path], metadata: ClusterMetadata) -> None:
    """Refuse a topic that has more partitions at the broker: keys would be in others than in the store."""
    with storage_errors("log.dirs"):
        names = [name for root in roots for name in os.listdir(root)]
    there = [log for log in map(parse_directory_name, names) if log is not None]
    there += [each.log for each in plan.logs]
    for topic, logs in plan.topics().items():
        known = {log.partition for log in there if log.topic == topic} | metadata.replicas.get(topic, {}).keys()
        count = max(known) + 1
        if count != len(logs):
            raise InvalidConfigError(
                f"the target has other partitions: topic={topic} target={count} store={len(logs)}; create it with"
                f" {len(logs)}, or leave it out by --topics"
            )


def _topic_id(directory: Path) -> str:
    found = stored_topic_id(directory)
    if found is None:
        raise CorruptFileError(f"a log of the target has no readable partition.metadata: path={directory}")
    return found


def _check_empty(each: MountedLog, directory: Path, *, has_its_id: bool, now_ms: int) -> None:
    """Refuse a log with records, or with offsets that were given to records that are gone."""
    bases, is_filled = [], False
    with storage_errors(directory), os.scandir(directory) as entries:
        for entry in entries:
            is_filled |= LOG in entry.name and entry.stat().st_size > 0
            bases += [parse_base_offset(entry.name) or 0] if entry.name.endswith(LOG) else []
    start = end = max(bases, default=0)
    if is_filled:
        [loaded] = plan_one_log(directory, RootOptions(now_ms=now_ms, jobs=1)).logs
        start, end = loaded.log_start_offset, loaded.log_end_offset
    if start < end:
        raise InvalidConfigError(
            f"the target has records: log={each.log} offsets {start}..{end - 1} path={directory}; nothing is"
            " overwritten: move the records away, or leave the topic out by --topics"
        )
    last, first = each.state.log_end_offset, each.state.log_start_offset
    if end > last or not (has_its_id or end in (0, first)):
        raise InvalidConfigError(
            f"the target has given offsets to records that are gone: log={each.log} target_end={end} store={first}.."
            f"{last - 1} path={directory}; leave the topic out by --topics, or mount a new cluster"
        )


def _has_its_batches(each: MountedLog, directory: Path) -> bool:
    """Whether a broker's directory has exactly the batches of a log, whatever their leader epochs are."""
    active = SegmentFiles(each.state.active_base_offset, each.active_path)
    ours = {(files.base_offset, files.log_path.stat().st_size): files for files in each.closed}
    if each.state.active_size_bytes:
        ours[active.base_offset, each.state.active_size_bytes] = active
    with storage_errors(directory):
        found = [(parse_base_offset(path.name) or 0, path) for path in directory.glob(f"*{LOG}")]
        theirs = {(base, path.stat().st_size): SegmentFiles(base, path) for base, path in found if path.stat().st_size}
    if ours.keys() != theirs.keys():
        return False
    if not ours:
        return max((base for base, _ in found), default=-1) == each.state.log_end_offset
    try:
        return all(_same_batches(files, theirs[base, size], size) for (base, size), files in ours.items())
    except CorruptBatchError:
        return False


def _same_batches(ours: SegmentFiles, theirs: SegmentFiles, size_bytes: int) -> bool:
    """Whether two files have the same batches, by offsets and CRCs, which are right."""
    if theirs.log_path.samefile(ours.log_path):
        return True
    return np.array_equal(_fields(ours, size_bytes), _fields(theirs, size_bytes))


def _fields(files: SegmentFiles, size_bytes: int) -> npt.NDArray[np.int64]:
    """Return offsets, sizes and CRCs of a file's batches below a size, (3, b)."""
    found = [np.empty((3, 0), np.int64)]
    with SegmentReader(files) as reader:
        for chunk in reader.chunks():
            mine = chunk.take(chunk.position + chunk.scan.position < size_bytes)
            reader.check_crcs(mine, mine.scan)
            found.append(np.stack([mine.scan.base_offset, mine.scan.size, mine.scan.crc.astype(np.int64)]))
    return np.concatenate(found, axis=1)


def _room(each: TargetLog, *, may_link: bool) -> tuple[Path, int]:
    """Return the folder of a log, and how many bytes are copied there."""
    mounted, may_link = each.mounted, may_link and each.lowered is None and may_be_linked(each.mounted)
    shares = not mounted.closed or can_share(mounted.closed[0].log_path, mounted.log, each.root, may_link=may_link)
    return each.root, mounted.copied_bytes(shares=shares)


def _fitted(each: MountedLog, directory: Path, topic_id: str, *, is_there: bool) -> TargetLog:
    """Return the log with the broker's topic id, and with no leader epoch above the broker's."""
    path = directory / EPOCHS_NAME
    with storage_errors(path):
        known = parse_leader_epochs(read_if_there(path) or b"")
    entries, broker = leader_epochs(each), known[-1][0] if known else 0
    newest = max((epoch for epoch, _ in entries), default=each.state.leader_epoch)
    lowered, epoch = None, newest
    if newest > broker and not is_there:
        above = min((start for epoch, start in entries if epoch > broker), default=each.state.log_start_offset)
        kept = [entry for entry in entries if entry[0] <= broker]
        lowered, epoch = tuple(assign_leader_epoch(kept, broker, above)), broker
    fitted = replace(
        each,
        state=replace(each.state, topic_id=topic_id, leader_epoch=epoch),
        expected=replace(each.expected, topic_id=topic_id, leader_epoch=epoch),
    )
    return TargetLog(mounted=fitted, root=directory.parent, is_there=is_there, lowered=lowered)
