"""Verify beside a writer and maintenance: each pair of files that it compares changes between its looks.

A check starts from a view of the store; what happens between that and the check stands for what happens meanwhile.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import StoreView, open_logs
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import delete_topic
from sparklog.sink.operations.move_log import move_log
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.log.files import deleted_files
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import LOG as KEYED
from tests.build.compacted_store import SETTINGS, clean, keyed_rows, write_keyed
from tests.build.damaged_store import segments, write_store
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import LOG as AGED
from tests.build.retained_store import delete_records, write_aged
from tests.build.sink_store import in_process, open_store
from tests.build.truncated import truncate_to


def _problems(view: StoreView, progress: Callable[[int], None] = lambda _: None) -> list[str]:
    found = verify(view, lambda _: None, jobs=1, progress=progress).findings
    return [str(each) for each in found if each.kind not in HARMLESS_KINDS]


def test_verify_when_epochs_rise_before_names_go_then_no_offset_lacks_an_epoch(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention lets the ledger's log start rise, then the epochs, then takes names away: the log start is read again.

    At each step a newly opened check finds nothing either: what a crash leaves there is sound.
    """
    store = write_aged(memory_path / "store")
    view, found = open_logs(store), []
    mark_deleted = deleted_files.mark_deleted

    def verify_before_names_go(*args: object) -> None:
        found.append((_problems(view), _problems(open_logs(store))))
        mark_deleted(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("sparklog.storage_core.retention.delete_segments.mark_deleted", verify_before_names_go)
    delete_records(store, 120)

    assert found == [([], [])]
    assert _problems(view) == []


def test_verify_when_an_active_segment_was_closed_and_cleaned_meanwhile_then_it_is_not_missed(
    memory_path: Path,
) -> None:
    """The older ledger names a segment that has become a part of another one."""
    store = write_keyed(memory_path / "store", count=80)
    view = open_logs(store)
    with closing(open_store(store, {KEYED.topic: SETTINGS}, topic=KEYED.topic)) as writer:
        for number in range(5):
            writer.append("later", number, in_process(keyed_rows(100 * number, 100 * number + 40)))
    clean(store)
    clean(store)  # what the first one left of several segments fits into one
    assert view.logs[0].expected is not None
    active = f"{view.logs[0].expected.active_base_offset:020}.log"
    assert not (store / "logs" / KEYED.directory_name / active).exists()

    assert _problems(view) == []


def _cut(store: Path) -> None:
    truncate_to(store, AGED, 70, ManualClock())


def _empty_above(store: Path) -> None:
    truncate_fully_and_start_at(store, AGED, 500, ManualClock())


def _empty_below(store: Path) -> None:
    delete_records(store, 120)
    truncate_fully_and_start_at(store, AGED, 50, ManualClock())


@pytest.mark.parametrize("truncate", [_cut, _empty_above, _empty_below])
def test_verify_when_a_log_is_truncated_meanwhile_then_nothing_is_missed(
    memory_path: Path, truncate: Callable[[Path], None]
) -> None:
    """The older ledger names an end, or a start, that the log has no more."""
    store = write_aged(memory_path / "store")
    view = open_logs(store)
    truncate(store)

    assert _problems(view) == []


@pytest.mark.parametrize("step", ["truncate.committed", "truncate.filled", "truncate.finished"])
@pytest.mark.parametrize("truncate", [_cut, _empty_above, _empty_below])
def test_verify_when_a_truncation_is_under_way_then_files_of_before_are_no_fault(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, truncate: Callable[[Path], None]
) -> None:
    """Segments, epochs and checkpoint files follow the ledger: its rows say so until they are written."""
    store = write_aged(memory_path / "store")
    found = _verify_at(
        step,
        store,
        open_logs(store),
        monkeypatch,
        "sparklog.sink.operations.truncate_logs",
        "sparklog.sink.opening.finish_truncation",
    )

    truncate(store)

    assert found == [([], [])]


def _verify_at(
    step: str, store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch, *modules: str
) -> list[tuple[list[str], list[str]]]:
    """Let a step check the store, from a view of before and from a new one; return the list that takes the findings."""
    found: list[tuple[list[str], list[str]]] = []

    def reach(name: str) -> None:
        if name == step:
            found.append((_problems(view), _problems(open_logs(store))))

    for module in modules:
        monkeypatch.setattr(f"{module}.reach", reach)
    return found


@pytest.mark.parametrize("step", ["delete-topic.committed", "delete-topic.renamed"])
def test_verify_when_a_topic_is_deleted_meanwhile_then_its_logs_are_not_missed(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The ledger comes first, then names, then the checkpoint files that still name the topic."""
    store = write_keyed(write_aged(memory_path / "store"))
    view = open_logs(store)
    found = _verify_at(
        step, store, view, monkeypatch, "sparklog.sink.operations.delete_topic", "sparklog.sink.opening.finish_intents"
    )

    with writing(store) as written:
        delete_topic(written, AGED.topic, SystemClock())

    assert found == [([], [])] * len(found) != []
    assert _problems(view) == []


def test_verify_when_a_topic_of_the_same_name_is_made_meanwhile_then_the_new_one_is_checked(memory_path: Path) -> None:
    """Its id, its start and its end are others."""
    store = write_aged(memory_path / "store")
    view = open_logs(store)
    with writing(store) as written:
        delete_topic(written, AGED.topic, SystemClock())
    write_aged(store, count=60)

    assert _problems(view) == []


@pytest.mark.parametrize("step", ["move.intended", "move.copied", "move.committed", "move.renamed"])
def test_verify_when_a_log_is_moved_meanwhile_then_it_is_checked_where_it_is(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its directory has another name on another disk, and checkpoint files of both disks come last."""
    topics = {"t": {"partitions": 2}}
    with closing(open_store(memory_path / "store", topics, topic="t", log_dirs=["logs", "more"])) as writer:
        writer.append("q", 0, in_process(keyed_rows(0, 40)))
    store = memory_path / "store"
    view = open_logs(store)
    found = _verify_at(
        step, store, view, monkeypatch, "sparklog.sink.operations.move_log", "sparklog.sink.opening.finish_intents"
    )

    with writing(store) as written:
        move_log(written, TopicPartition("t", 0), "more")

    assert found == [([], [])] * len(found) != []
    assert _problems(view) == []


def test_verify_when_a_log_gets_its_name_behind_the_view_then_it_is_checked_under_it(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger does not change when a moved directory is renamed."""
    topics = {"t": {"partitions": 2}}
    store = memory_path / "store"
    with closing(open_store(store, topics, topic="t", log_dirs=["logs", "more"])) as writer:
        writer.append("q", 0, in_process(keyed_rows(0, 40)))
    views: list[StoreView] = []
    monkeypatch.setattr(
        "sparklog.sink.operations.move_log.reach",
        lambda name: views.append(open_logs(store)) if name == "move.committed" else None,
    )

    with writing(store) as written:
        move_log(written, TopicPartition("t", 0), "more")

    assert [_problems(view) for view in views] == [[]]


def test_verify_when_a_repair_writes_losses_down_meanwhile_then_they_are_known(memory_path: Path) -> None:
    """The list of lost offsets was read before the repair: it is read again with the ledger."""
    store = write_store(memory_path / "store")
    view, first = open_logs(store), segments(store)[0]
    data = bytearray(first.read_bytes())
    data[80] ^= 0x10
    first.write_bytes(data)
    repaired: list[bool] = []

    def repair_once(_bytes: int) -> None:
        if not repaired:
            repaired.append(True)
            execute_repair(store, RepairOptions(), ManualClock(), lambda _step: None)

    assert _problems(view, repair_once) == []
    assert repaired
