"""The verb `import`: plans to take a broker's logs into a store, and with `--execute` takes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.places.refuse_store import refuse_store
from sparklog.pipeline.places.stored_logs import Place, fetched_store
from sparklog.pipeline.report import show
from sparklog.pipeline.settings.stream_settings import load_topics
from sparklog.pipeline.stop_request import StopRequest
from sparklog.pipeline.terminal import say_at_once
from sparklog.sink.importing.import_logs import NEW_LOG_DIRS, import_logs, make_store, remove_new_store
from sparklog.sink.importing.plan_import import ImportChoice, ImportPlan, plan_import
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.broker_lock import lock_roots_to_read
from sparklog.sink.opening.access import writing
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log.load.survey import is_log_directory
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["execute_import", "run"]

_STORE = ("these are logs of a store", "mount it for brokers: sparklog mount {store}")


@dataclass(frozen=True, slots=True)
class _Import:
    """A planned or finished import."""

    plan: ImportPlan
    store: Path
    shared: Set[str] | None

    def lines(self) -> Iterator[str]:
        """Return a line per topic, then what is noticed."""
        for topic, logs in self.plan.topics().items():
            offsets = sum(each.state.log_end_offset - each.state.log_start_offset for each in logs)
            size = size_text(sum(each.files.size_bytes for each in logs))
            yield f"{topic}: {len(logs)} partitions, {offsets:,} offsets, {size}"
        yield from self.notes()

    def notes(self) -> Iterator[str]:
        """Return what is not as in the broker's folders."""
        settings = self.plan.settings
        for topic in self.plan.topics():
            if topic in settings.staying:
                if differing := settings.differing[topic]:
                    yield f"{topic}: the store has it, and its settings stay: {'; '.join(differing)}"
            elif topic not in settings.configs:
                yield f"{topic}: its settings are not known, maintenance leaves it alone; --config FILE gives them"
            elif topic in settings.kept_for_ever:
                yield f"{topic}: retention.ms is its broker's default, which is not known; here it is -1"
        for each in self.plan.logs:
            if each.state.first_unstable_offset >= 0:
                yield (
                    f"{each.state.log}: a transaction is open from offset {each.state.first_unstable_offset} on, for"
                    " good: read_committed ends there"
                )
            yield from (f"as a broker's start would: {line}" for line in (*each.files.lost, *each.files.torn))
        yield from self.plan.above
        yield from (f"left out: {line}" for line in self.plan.left_out)

    def verdict(self) -> str:
        """Return the line for people."""
        what = f"{len(self.plan.logs)} logs, {size_text(self.plan.size_bytes)}, into {self.store}"
        if self.shared is None:
            return f"planned: {what}; --execute does it"
        return f"imported: {what}" + (f"; closed segments: {' and '.join(sorted(self.shared))}" if self.shared else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the import for JSON."""
        return {
            "executed": self.shared is not None,
            "store": str(self.store),
            "logs": [
                {
                    "log": str(each.state.log),
                    "topic_id": each.state.topic_id,
                    "log_dir": each.state.log_dir,
                    "log_start_offset": each.state.log_start_offset,
                    "log_end_offset": each.state.log_end_offset,
                    "first_unstable_offset": each.state.first_unstable_offset,
                }
                for each in self.plan.logs
            ],
            "size_bytes": self.plan.size_bytes,
            "notes": [*self.notes()],
        }


def run(
    folders: tuple[Place, ...],
    store: Path,
    topics: str | None,
    log_dir: str | None,
    config: Path | None,
    copies: bool,
    allow_gaps: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Carry the verb out."""
    clock = SystemClock()
    with _on_this_machine(folders, store, topics) as (paths, settings):
        choice = ImportChoice(
            folders=paths,
            topics=topics,
            log_dir=log_dir,
            allow_gaps=allow_gaps
            or not any(isinstance(each, Path) for each in folders),  # a ledger says what is missing
            may_link=not copies,
            now_ms=clock.now_ms(),
            settings=settings if config is None else load_topics(config),
        )
        if execute:
            plan, shared = execute_import(store, choice, clock)
            show(_Import(plan, store, shared), as_json=as_json)
            return
        with _brokers_kept_away(store, paths):
            show(_Import(_plan(store, choice), store, None), as_json=as_json)


@contextlib.contextmanager
def _on_this_machine(
    folders: tuple[Place, ...], store: Path, topics: str | None
) -> Iterator[tuple[tuple[Path, ...], Mapping[str, LogConfig]]]:
    """Copy the logs of stores of objects into folders beside a store, so that segments become links.

    Yields:
        all folders, and the settings of topics in stores of objects.
    """
    paths, settings = list[Path](), dict[str, LogConfig]()
    with contextlib.ExitStack() as copies:
        for each in folders:
            if isinstance(each, Path):
                paths.append(each)
                continue
            fetched = copies.enter_context(fetched_store(each, store, topics))
            settings |= fetched.settings
            paths.append(fetched.folder)
        yield tuple(paths), settings


def execute_import(root: Path, choice: ImportChoice, clock: Clock) -> tuple[ImportPlan, set[Sharing]]:
    """Import logs into a store, which is made if there is none.

    SIGINT or SIGTERM undoes an import that is not committed yet; a second one ends the process, and the next opening
    undoes it.

    Returns:
        what was imported, and how closed segments got there.

    Raises:
        KeyboardInterrupt: a signal has stopped it.
        StoreLockedError: a broker, a sink or a maintenance run is at work.
        LogStorageError: as `plan_import` and `import_logs`.
    """
    with _brokers_kept_away(root, choice.folders):
        is_there, plan = root.exists(), None
        if not (root / "store.properties").exists():
            plan = _plan(root, choice)  # what is refused leaves no new store
        try:
            if plan is not None:
                make_store(root)
            return _execute(root, plan, choice, clock)
        except BaseException:
            if not is_there:
                remove_new_store(root, choice.log_dir)
            raise


def _execute(
    root: Path, plan: ImportPlan | None, choice: ImportChoice, clock: Clock
) -> tuple[ImportPlan, set[Sharing]]:
    """Import into a store that is there; plan it unless a plan was made before the store."""
    refuse_leased(root)
    with writing(root) as written:
        states = written.ledger.states()
        if plan is None or states:  # a sink may have opened the new store in between
            plan = plan_import(written.store, states, _log_dirs(state.log_dir for state in states.values()), choice)
        with StopRequest(say_at_once, "segments") as stop:
            return plan, import_logs(written, plan, clock, partial(_check, stop), may_link=choice.may_link)


def _check(stop: StopRequest) -> None:
    if stop.requested:
        raise KeyboardInterrupt


def _plan(root: Path, choice: ImportChoice) -> ImportPlan:
    if not (root / "store.properties").exists():
        Store.check_folder(root, NEW_LOG_DIRS)
        return plan_import(Store(root, ""), {}, NEW_LOG_DIRS, choice)
    store = Store.find(root)
    states = Ledger.open(store.ledger_path).states()
    return plan_import(store, states, _log_dirs(state.log_dir for state in states.values()), choice)


def _log_dirs(names: Iterator[str]) -> Set[str]:
    return set(names) or set(NEW_LOG_DIRS)


@contextlib.contextmanager
def _brokers_kept_away(store: Path, folders: Sequence[Path]) -> Iterator[None]:
    """Hold the locks of a broker's roots.

    Raises:
        InvalidConfigError: a folder is a store's, or lies in the store or around it.
        StoreLockedError: a broker runs.
    """
    refuse_store(folders, _STORE)
    for folder in folders:
        one, other = folder.resolve(), store.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise InvalidConfigError(f"DIR and STORE lie in each other: path={folder} store={store}")
    roots = [folder.absolute().parent if is_log_directory(folder) else folder for folder in folders]
    with lock_roots_to_read(roots):
        yield
