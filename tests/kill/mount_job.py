"""Mounts into a stopped broker's folder that tests kill, and what such a mount may leave."""

import shutil
from contextlib import closing
from pathlib import Path

from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.brokers.mounting.into_broker import execute_mount_into
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.load.load_root import LoadedRoot, RootOptions, load_roots
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.broker_target import make_target
from tests.build.sink_store import Stored, in_process, log_directories, numbers, open_events, read_log

__all__ = ["find_problems", "is_mounted", "run_mount", "start_broker", "write_places"]

_STARTS = {"events-0": 20, "events-1": 0}
"""Where the store's logs start; the first one inside a segment."""


def write_places(folder: Path) -> Path:
    """Make a store of 160 numbers, and beside it a broker's folder with empty logs; return the store."""
    store = folder / "store"
    with closing(open_events(store)) as writer:
        for turn in range(4):
            writer.append("q", turn, in_process(numbers(turn * 40, (turn + 1) * 40)))
    found = Store.find(store)
    raise_log_starts(found, {TopicPartition("events", 0): _STARTS["events-0"]}, SystemClock())
    ids = {log.topic: state.topic_id for log, state in Ledger.open(found.ledger_path).states().items()}
    target = make_target(folder / "target", {"events": 2, "own": 1}, ids | {"own": "QwPJrpf0TCG88m6Shk8vCg"})
    (target / "log-start-offset-checkpoint").write_text("0\n1\nown 0 0\n")
    return store


def run_mount(store: Path) -> None:
    """Mount all logs into the broker's folder beside the store."""
    choice = MountChoice.find(store, None, None, allow_gaps=False)
    execute_mount_into(choice, [store.parent / "target"], made_anew=False, now_ms=SystemClock().now_ms())


def start_broker(target: Path) -> LoadedRoot:
    """Do to the folder what a broker's start does: it removes what is set aside, and makes what is missing."""
    for each in target.glob("*-delete"):
        shutil.rmtree(each)
    for log in _STARTS:
        if not (target / log).exists():
            shutil.copytree(target / "own-0", target / log)
            metadata = next(target.parent.glob("store/logs/events-0/partition.metadata"))
            shutil.copyfile(metadata, target / log / "partition.metadata")
    [root] = load_roots([target], RootOptions(now_ms=SystemClock().now_ms(), jobs=2))
    return root


def is_mounted(store: Path) -> bool:
    """Whether the broker's folder has all logs, and nothing is left to do."""
    target = store.parent / "target"
    return not find_problems(store) and all(any(_records(target / log)) for log in _STARTS) and not _set_aside(target)


def find_problems(store: Path) -> list[str]:
    """Return what a broker that starts now would find: a log that is there in part, another log that has changed."""
    copy = store.parent / "copy"
    shutil.copytree(store.parent / "target", copy)
    try:
        root = start_broker(copy)
        expected = {name: _records(directory) for name, directory in log_directories(store).items()}
        found = [] if {str(each.log) for each in root.logs} == {*_STARTS, "own-0"} else [f"other logs: {root.logs}"]
        for each in root.logs:
            name, records = str(each.log), _records(each.directory)
            if records not in ([], expected.get(name, [])):
                found.append(f"{name}: in part, {len(records)} records")
            if records and each.log_start_offset != _STARTS[name]:
                found.append(f"{name}: starts at {each.log_start_offset}")
            if each.lost_bytes:
                found.append(f"{name}: a broker would cut it: {each.steps}")
        return found
    finally:
        shutil.rmtree(copy)


def _records(directory: Path) -> list[Stored]:
    return read_log(directory)


def _set_aside(target: Path) -> list[Path]:
    return list(target.glob("*-delete"))
