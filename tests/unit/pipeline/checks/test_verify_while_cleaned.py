"""Verify beside a cleaning."""

import threading
from contextlib import closing
from pathlib import Path

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.log.files.names import LOG as LOG_SUFFIX
from tests.build.compacted_store import LOG, SETTINGS, clean, keyed_rows, write_keyed
from tests.build.retained_store import names
from tests.build.sink_store import in_process, open_store


def _problems(store: Path) -> list[str]:
    found: list[str] = []
    verify(open_logs(store), lambda each: found.append(f"{each.file}: {each.what}"))
    return found


def test_verify_when_a_swap_ends_meanwhile_then_looked_at_again(memory_path: Path) -> None:
    """A log between two names of a segment is one that is about to be whole."""
    store = write_keyed(memory_path / "store")
    clean(store)
    directory = store / "logs" / LOG.directory_name
    path = directory / names(store, LOG_SUFFIX, LOG)[0]
    swap = path.with_name(f"{path.name}.swap")
    path.rename(swap)
    assert _problems(store)

    timer = threading.Timer(0.1, lambda: swap.rename(path))
    timer.start()
    assert _problems(store) == []
    timer.join()


def test_verify_when_a_sink_writes_checkpoint_files_meanwhile_then_no_log_ends_too_early(memory_path: Path) -> None:
    """Files that speak of all logs are compared with a ledger that is not older than they are."""
    store = write_keyed(memory_path / "store")
    view = open_logs(store)
    with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic)) as writer:
        writer.append("later", 0, in_process(keyed_rows(0, 50)))

    found = verify(view, lambda _finding: None)

    assert [str(each) for each in found.findings if each.rule == "offset-checkpoint"] == []


def test_verify_when_everything_of_a_segment_went_then_no_gap(memory_path: Path) -> None:
    """Where a topic is compacted any offset may be missing, also if no batch shows it."""
    store = write_keyed(memory_path / "store", count=100)
    clean(store)
    closed = names(store, LOG_SUFFIX, LOG)[:-1]
    for name in closed:
        for suffix in (LOG_SUFFIX, ".index", ".timeindex"):
            (store / "logs" / LOG.directory_name / name).with_suffix(suffix).write_bytes(b"")

    assert _problems(store) == []


def test_verify_when_a_topic_is_not_compacted_then_a_gap_is_one(memory_path: Path) -> None:
    """The same files of a log that keeps everything lack records."""
    store = write_keyed(memory_path / "store", {"cleanup.policy": "delete"}, count=100)
    first = store / "logs" / LOG.directory_name / names(store, LOG_SUFFIX, LOG)[0]
    for suffix in (LOG_SUFFIX, ".index", ".timeindex"):
        first.with_suffix(suffix).write_bytes(b"")

    assert any("the next one starts at" in each for each in _problems(store))


def test_verify_when_segments_are_cleaned_all_the_time_then_nothing_is_found(memory_path: Path) -> None:
    """A cleaner and a sink at work break no rule."""
    store = write_keyed(memory_path / "store")
    done, found = threading.Event(), list[str]()

    def look() -> None:
        while not done.is_set():
            verify(
                open_logs(store),
                lambda each: found.append(f"{each.file}: {each.what}") if each.kind not in HARMLESS_KINDS else None,
            )

    looking = threading.Thread(target=look)
    looking.start()
    with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic)) as writer:
        for number in range(10, 40):
            first = 20 * number
            writer.append("q", number, in_process(keyed_rows(first, first + 20)))
            clean(store)
    done.set()
    looking.join()

    assert found == []
