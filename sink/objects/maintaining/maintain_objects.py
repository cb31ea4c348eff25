"""Maintenance of a store of objects: retention, compaction, erasure, merges, and the removal of old objects.

Each task reads objects, writes new ones, and commits: extents take the place of others, all or none. A writer may
commit meanwhile; then the task's commit is made again on the newer version, if its extents are all still there. So no
lock is taken, and of two maintenance runs that do the same the second one has worked in vain.

What a crash leaves: objects that no version names. Objects that a commit has let go are garbage, and stay for an hour,
as readers may have planned with them. Objects that no version ever named, of crashed tasks, become garbage after a day;
a commit that names garbage is refused. The hour is counted by the clocks of the machines that run maintenance.
"""

import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparklog.sink.erasure.forget_keys import finish_requests, known_erasure, prepare_erasure
from sparklog.sink.erasure.forget_request import ForgetRequest, erased_keys
from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.fetch_store import known_configs
from sparklog.sink.objects.maintaining.apply_replacements import apply_replacements
from sparklog.sink.objects.maintaining.clean_objects import LogErasure, clean_objects, may_be_due
from sparklog.sink.objects.maintaining.erase_objects import (
    MovedExtents,
    describe_request,
    empty_objects,
    objects_with_dead_bytes,
)
from sparklog.sink.objects.maintaining.retain_objects import ObjectRetention, plan_object_retention, raise_starts
from sparklog.sink.objects.maintaining.searched_objects import SearchedObjects
from sparklog.sink.objects.merge_extents import merge_logs, plan_merges
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["MaintainedObjects", "ObjectTask", "maintain_objects", "plan_objects"]

logger = logging.getLogger(__name__)

_GARBAGE_AGE_MS = 60 * 60 * 1000
_ORPHAN_AGE_MS = 24 * 60 * 60 * 1000
_DATA = "data"
_OWN = re.compile(r"data/(merged/[0-9a-f]{32}|[^/]+/\d+/[0-9a-f]{8}/[^/]+)\.(batches|parquet)")
"""Names that tasks, writers and maintenance give."""
_OVERTAKEN = "skipped: its extents have changed meanwhile"

_Extents = dict[TopicPartition, list[Extent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTask:
    """What maintenance did, or would do.

    Attributes:
        kind: `retain`, `clean`, `erase`, `merge` or `remove`; `forget` for a request that is done, `wait` for one that
            is not, and for a log that it waits for.
        log: that it is about; None for several.
        what: for people.
        error: why it failed; None if it did not.
    """

    kind: str
    log: TopicPartition | None
    what: str
    error: str | None = None


@dataclass(slots=True)
class MaintainedObjects:
    """A store of objects under maintenance.

    Args:
        map_bytes: of the offset map of a cleaning.
    """

    place: StoragePlace
    clock: Clock
    map_bytes: int


def plan_objects(store: MaintainedObjects) -> list[ObjectTask]:
    """Return what a run would do now; of compaction, the logs that it would look at.

    Raises:
        LogStorageError: the store can't be read.
    """
    ledger = ObjectLedger.open(store.place)
    extents, configs, states = ledger.extents(), known_configs(ledger), ledger.states()
    found = [_retained(each) for each in plan_object_retention(states, extents, configs, store.clock.now_ms())]
    erasure = known_erasure(SearchedObjects(ledger))
    for log, state in sorted(states.items()):
        config = configs.get(log.topic)
        if config is None or not config.is_compacted:
            continue
        if log in erasure.closed:
            found.append(ObjectTask(kind="erase", log=log, what="records of keys to forget"))
        elif may_be_due(state, extents.get(log, ()), config, store.clock.now_ms()):
            found.append(ObjectTask(kind="clean", log=log, what="dirty bytes reach min.cleanable.dirty.ratio"))
    found += [
        ObjectTask(kind="merge", log=log, what=f"{len(run):,} small extents")
        for group in plan_merges(extents)
        for log, run in group
    ]
    due = _due_garbage(ledger, store.clock.now_ms())
    return found + ([ObjectTask(kind="remove", log=None, what=f"{len(due):,} objects")] if due else [])


def maintain_objects(store: MaintainedObjects, stop: Callable[[], bool] = lambda: False) -> Iterator[ObjectTask]:
    """Do what is due, task by task; a task that fails does not keep others back.

    Args:
        stop: whether to end before the next task.

    Raises:
        LogStorageError: the ledger can't be read or written.
    """
    ledger = ObjectLedger.open(store.place)
    configs = known_configs(ledger)
    for step in (_retain, _clean, _merge, _remove_garbage, _note_orphans):
        for task in step(store, ledger, configs):
            logger.info("Maintained %s", task)
            yield task
            if stop():
                return


def _retained(each: ObjectRetention) -> ObjectTask:
    last = each.plan.deletions[-1]
    what = f"{len(each.plan.deletions):,} extents, start {each.plan.log_start_offset:,}: {last.reason}"
    return ObjectTask(kind="retain", log=each.log, what=what)


def _retain(store: MaintainedObjects, ledger: ObjectLedger, configs: Mapping[str, LogConfig]) -> Iterator[ObjectTask]:
    """Raise the starts of all logs in one commit."""
    now_ms = store.clock.now_ms()
    planned = plan_object_retention(ledger.states(), ledger.extents(), configs, now_ms)
    if not planned:
        return
    starts = {each.log: each.plan.log_start_offset for each in planned}

    def change(rows: LedgerRows, extents: _Extents) -> LedgerRows:
        return raise_starts(rows, extents, starts)

    ledger.rewrite(change, now_ms)
    yield from map(_retained, planned)


def _clean(store: MaintainedObjects, ledger: ObjectLedger, configs: Mapping[str, LogConfig]) -> Iterator[ObjectTask]:
    """Clean log after log, each in a commit of its own; then look which requests to forget keys are done."""
    searched = SearchedObjects(ledger)
    searched.remove_earlier_forms()
    erasure, now_ms = prepare_erasure(searched, store.clock), store.clock.now_ms()
    keys, extents = erased_keys(erasure.requests), ledger.extents()
    for log, state in sorted(ledger.states().items()):
        config, held = configs.get(log.topic), extents.get(log, ())
        if config is None or not config.is_compacted or not held:
            continue
        found = LogErasure(keys.get(state.topic_id), log in erasure.closed)
        if found.is_found or may_be_due(state, held, config, now_ms):
            yield from _clean_log(store, ledger, state, held, config, found)
    if erasure.requests:
        yield from _finish_erasure(store, ledger, searched, erasure.requests)


def _clean_log(
    store: MaintainedObjects,
    ledger: ObjectLedger,
    state: LogState,
    extents: Sequence[Extent],
    config: LogConfig,
    erasure: LogErasure,
) -> Iterator[ObjectTask]:
    log, now_ms, hash_key = state.log, store.clock.now_ms(), secrets.token_bytes(16)
    try:
        storage = store.place.open()
        done = clean_objects(storage, log, state, extents, config, now_ms, store.map_bytes, hash_key, erasure)
    except LogStorageError as error:
        yield ObjectTask(kind="clean", log=log, what="failed", error=str(error))
        return
    stopped = done.cleaned.stopped.reason if done.cleaned is not None and done.cleaned.stopped is not None else ""
    if done.replacement is None or done.cleaned is None:
        if erasure.is_found:
            why = stopped or done.plan.reason
            yield ObjectTask(kind="wait", log=log, what=f"records of keys to forget: {why}")
        return
    reach("clean.checkpoint")
    applied = apply_replacements(ledger, [done.replacement], now_ms, {log: done.cleaned.first_dirty_offset})
    count = sum(done.cleaned.erased.values())
    erased = f", {count:,} of forgotten keys" if count else ""
    what = f"{done.cleaned.records_before:,} records, {done.cleaned.records_after:,} kept{erased}"
    what += f"; {stopped}" if stopped else ""
    yield ObjectTask(kind="clean" if done.plan.is_due else "erase", log=log, what=what if applied else _OVERTAKEN)


def _finish_erasure(
    store: MaintainedObjects, ledger: ObjectLedger, searched: SearchedObjects, requests: Sequence[ForgetRequest]
) -> Iterator[ObjectTask]:
    """Complete the requests without records left, once the objects that these shared with others are emptied."""
    moved: list[MovedExtents] = []

    def clear_away() -> bool:
        moved.extend(empty_objects(ledger, store.clock))
        ledger.reload()  # a version that is not older than the search
        return not objects_with_dead_bytes(store.place.open(), ledger.extents())

    found = finish_requests(searched, requests, store.clock, clear_away)
    for each in moved:
        what = f"{each.count:,} extents moved out of objects with erased or old records"
        yield ObjectTask(kind="erase", log=each.log, what=what, error=each.error)
    for request in found:
        kind = "wait" if request.request.completed_ms is None else "forget"
        yield ObjectTask(kind=kind, log=None, what=describe_request(request))


def _merge(store: MaintainedObjects, ledger: ObjectLedger, _configs: Mapping[str, LogConfig]) -> Iterator[ObjectTask]:
    """Merge group after group, each in a commit of its own."""
    for group in plan_merges(ledger.extents()):
        try:
            replacements = merge_logs(store.place.open(), group)
        except LogStorageError as error:
            yield ObjectTask(kind="merge", log=group[0][0], what="failed", error=str(error))
            continue
        reach("clean.checkpoint")
        applied = apply_replacements(ledger, replacements, store.clock.now_ms())
        for each in replacements:
            what = f"{len(each.old):,} extents, {len(each.new):,} after"
            yield ObjectTask(kind="merge", log=each.log, what=what if applied else _OVERTAKEN)


def _due_garbage(ledger: ObjectLedger, now_ms: int) -> list[str]:
    return [name for name, since_ms in ledger.garbage().items() if now_ms - since_ms >= _GARBAGE_AGE_MS]


def _remove_garbage(
    store: MaintainedObjects, ledger: ObjectLedger, _configs: Mapping[str, LogConfig]
) -> Iterator[ObjectTask]:
    """Remove garbage, then commit that it is gone: killed between, the next run removes it again."""
    due = _due_garbage(ledger, store.clock.now_ms())
    if not due:
        return
    store.place.open().remove(due)
    reach("tidy.cleaned")
    ledger.rewrite(lambda rows, _extents: rows, store.clock.now_ms(), due)
    yield ObjectTask(kind="remove", log=None, what=f"{len(due):,} objects")


def _note_orphans(
    store: MaintainedObjects, ledger: ObjectLedger, _configs: Mapping[str, LogConfig]
) -> Iterator[ObjectTask]:
    """List objects of crashed tasks as garbage, once they are old by the storage's clock, against the newest object's.

    A task may be at work for longer, or suspended: its commit is refused from then on. Without the list it would name
    objects that are gone.
    """
    listed = [each for each in store.place.open().list(_DATA) if _OWN.fullmatch(each.name)]
    newest_ms = max((each.modified_ms for each in listed), default=0)
    ledger.reload()  # after the listing: a version names what was committed until then
    named = {each.object for held in ledger.extents().values() for each in held} | ledger.garbage().keys()
    named |= {each.object for each in ledger.diverted()}  # as `rewrite` finds out, too, on the version that it changes
    old = [each.name for each in listed if newest_ms - each.modified_ms >= _ORPHAN_AGE_MS]
    orphans = [name for name in old if name not in named]
    if orphans:
        ledger.rewrite(lambda rows, _extents: rows, store.clock.now_ms(), orphans=orphans)
        yield ObjectTask(kind="remove", log=None, what=f"{len(orphans):,} objects of crashed tasks, in an hour")
