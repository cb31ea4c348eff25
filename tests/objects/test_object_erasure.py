"""Erasure in stores of objects: the records of forgotten keys go, all others stay, and the keys leave the list."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.maintenance.forget import search_forgotten
from sparklog.sink.erasure import forget_keys as forget_module
from sparklog.sink.erasure.forget_keys import RequestState
from sparklog.sink.erasure.forget_request import ForgetRequest, completed
from sparklog.sink.objects import merge_extents
from sparklog.sink.objects.maintaining import maintain_objects as maintain_module
from sparklog.sink.objects.maintaining.maintain_objects import ObjectTask
from sparklog.sink.objects.maintaining.retain_objects import raise_starts
from sparklog.sink.objects.maintaining.searched_objects import SearchedObjects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.keyed_objects import (
    KEYED,
    append_keyed,
    forget,
    keyed_rows,
    latest_records,
    maintain,
    request_names,
    stored_bytes,
    stored_records,
    without,
)
from tests.build.sink_store import in_process, open_store
from tests.sparklog_command import Sparklog

_HOUR_MS = 60 * 60 * 1000
_LOG, _OTHER = TopicPartition("keyed", 0), TopicPartition("keyed", 1)
_K2 = b"\x04k2"
"""A key with its length, as a record has it."""


@pytest.fixture
def local(tmp_path: Path) -> StoragePlace:
    """A folder used as storage: for what does not depend on the storage."""
    return StoragePlace(parse_address(f"file://{tmp_path}/store"))


@pytest.fixture
def garbage_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader is at work."""
    monkeypatch.setattr(maintain_module, "_GARBAGE_AGE_MS", 0)


def test_erasure_when_maintenance_runs_then_the_records_go_and_the_keys_leave_the_list(
    place: StoragePlace, tmp_path: Path
) -> None:
    """On each storage; the logs are not due, others keep every record with its offset."""
    append_keyed(place, 0, 4)
    before = latest_records(place, tmp_path / "before")
    request = forget(place, "k3", "k6", "nobody")
    assert request.found_count == 2 * 4 * 4  # keys, batches, records

    done = maintain(place)

    assert [(each.kind, each.log and each.log.partition) for each in done] == [
        ("erase", 0),
        ("erase", 1),
        ("forget", None),
    ]
    assert all(each.error is None for each in done)
    assert latest_records(place, tmp_path / "after") == without(before, b"k3", b"k6")
    (state,) = search_forgotten(place, "keyed")
    assert state.found == []
    assert (state.request.keys, state.request.count, state.request.found) == (None, 3, request.found)
    (name,) = request_names(place)
    assert b"azM=" not in place.open().read(name)
    assert maintain(place) == []


def _drop_first_extent(place: StoragePlace, log: TopicPartition) -> None:
    """Drop it as retention does."""
    ledger = ObjectLedger.open(place)
    start = ledger.extents()[log][0].end_offset
    ledger.rewrite(lambda rows, extents: raise_starts(rows, extents, {log: start}), 0)


@pytest.mark.usefixtures("garbage_goes_at_once")
@pytest.mark.parametrize("is_merged", [False, True])
def test_bytes_when_erased_records_share_objects_with_other_logs_then_gone_with_the_garbage(
    local: StoragePlace, tmp_path: Path, is_merged: bool
) -> None:
    """Keys k0, k2, ... lie in partition 0: the other log's records move to other objects."""
    append_keyed(local, 0, 20 if is_merged else 3)
    if is_merged:
        assert [each.kind for each in maintain(local)][:2] == ["merge", "merge"]
        maintain(local)
    before = latest_records(local, tmp_path / "before")
    assert _K2 in stored_bytes(local)
    forget(local, "k2")

    done = maintain(local)
    maintain(local)

    assert done[-1].kind == "forget" or done[-2].kind == "forget"
    assert _K2 not in stored_bytes(local)
    assert latest_records(local, tmp_path / "after") == without(before, b"k2")


@pytest.mark.usefixtures("garbage_goes_at_once")
def test_bytes_when_a_cleaning_has_dropped_them_before_then_gone_with_the_request(
    local: StoragePlace, tmp_path: Path
) -> None:
    """A part that no version names stays in its object as long as the other log's part is in use."""
    append_keyed(local, 0, 3, {"min.cleanable.dirty.ratio": 0.1})
    forget(local, "k2")
    for _ in range(3):
        _drop_first_extent(local, _LOG)

    done = maintain(local)
    maintain(local)

    assert "forget" in [each.kind for each in done]
    assert _K2 not in stored_bytes(local)


def test_record_of_a_forgotten_key_when_it_was_written_after_the_request_then_it_may_stay(
    local: StoragePlace, tmp_path: Path
) -> None:
    """What a cleaning meets goes; a later record of the key stays, and the request is done."""
    append_keyed(local, 0, 2)
    forget(local, "k2")
    maintain(local)

    append_keyed(local, 2, 3)

    assert maintain(local) == []
    assert search_forgotten(local, None)[0].found == []
    found = [each.offset for each in stored_records(local, tmp_path / "after") if each.key == b"k2"]
    assert min(found) >= 40


def test_records_when_they_are_too_young_then_the_request_waits_and_nothing_is_written_anew(
    local: StoragePlace, tmp_path: Path
) -> None:
    append_keyed(local, 0, 2, {"min.compaction.lag.ms": _HOUR_MS})
    forget(local, "k2")
    _drop_first_extent(local, _OTHER)  # dead bytes, which nobody needs to clear away yet
    held = ObjectLedger.open(local).extents()

    for _ in range(2):
        log, request = maintain(local)
        assert (log.kind, log.log, request.kind) == ("wait", _LOG, "wait")
        assert "8 records left" in request.what

    assert ObjectLedger.open(local).extents() == held
    append_keyed(local, 2, 3, {"min.compaction.lag.ms": 0})
    assert [each.kind for each in maintain(local)] == ["erase", "erase", "forget"]
    assert search_forgotten(local, None)[0].records_count == 0


def test_object_when_it_is_gone_then_the_log_fails_and_the_request_waits(local: StoragePlace) -> None:
    append_keyed(local, 0, 2)
    forget(local, "k2", "k3")
    extent = ObjectLedger.open(local).extents()[TopicPartition("keyed", 0)][0]
    local.open().remove([extent.object])

    done = maintain(local)

    assert [each.kind for each in done if each.error is not None] == ["clean", "clean"]  # the object was that of both
    assert done[-1].kind == "wait"
    (state,) = search_forgotten(local, None)
    assert state.request.completed_ms is None
    assert len(state.unsearched) == 2


def test_request_when_two_runs_change_it_then_the_first_change_stays(local: StoragePlace) -> None:
    """The slower run must not put the keys of a request that is done back on the list."""
    append_keyed(local, 0, 2)
    forget(local, "k2")
    slow = SearchedObjects(ObjectLedger.open(local))
    (request,) = slow.requests()
    maintain(local)

    slow.put(request)

    (now,) = SearchedObjects(ObjectLedger.open(local)).requests()
    assert (now.keys, now.completed_ms is None) == (None, False)
    assert len(request_names(local)) == 1


def test_request_when_another_run_has_changed_it_twice_then_a_slow_change_neither_counts_nor_stays(
    local: StoragePlace,
) -> None:
    """The forms in between are removed, so their numbers are free; the slow one has the keys."""
    append_keyed(local, 0, 2)
    forget(local, "k2")
    slow, quick = (SearchedObjects(ObjectLedger.open(local)) for _ in range(2))
    (request,) = slow.requests()
    assert quick.requests() == [request]
    assert quick.put(request)
    assert quick.put(completed(request, 7))

    assert not slow.put(request)

    (name,) = request_names(local)
    assert name.endswith(".2.json")
    assert slow.requests()[0].completed_ms == 7


def test_request_when_made_while_a_run_is_at_work_then_not_done_before_its_records_are_gone(
    local: StoragePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run knew the ledger before the records were written."""
    append_keyed(local, 0, 1)
    retain = maintain_module._retain

    def write_and_forget(*given: object) -> Iterator[ObjectTask]:
        append_keyed(local, 1, 2)
        forget(local, "k2")
        return retain(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(maintain_module, "_retain", write_and_forget)
        maintain(local)
    maintain(local)

    assert search_forgotten(local, None)[0].found == []


def test_copy_when_it_comes_between_a_cleaning_and_the_last_search_then_its_records_are_found_again(
    local: StoragePlace, sparklog: Sparklog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run must not complete the request, or the next one has to begin it again."""
    source = tmp_path / "source"
    with closing(open_store(source, KEYED, topic="keyed")) as writer:
        writer.append("query", 0, in_process(keyed_rows(0)))
    assert sparklog("copy", source, local.address, "--execute").code == 0
    forget(local, "k2")
    finish = forget_module.finish_requests

    def copy_first(
        store: SearchedObjects, requests: Sequence[ForgetRequest], clock: Clock, clear_away: Callable[[], bool]
    ) -> list[RequestState]:
        searched = store.states

        def copy_after_the_search() -> object:
            found = searched()
            assert sparklog("copy", source, local.address, "--execute").code == 0
            return found

        monkeypatch.setattr(store, "states", copy_after_the_search)
        return finish(store, requests, clock, clear_away)

    with monkeypatch.context() as patch:
        patch.setattr(maintain_module, "finish_requests", copy_first)
        maintain(local)
    (state,) = search_forgotten(local, None)
    assert (state.records_count, state.request.completed_ms) == (4, None)

    maintain(local)

    assert search_forgotten(local, None)[0].found == []


def test_verify_when_a_request_is_done_meanwhile_then_nothing_is_wrong(
    local: StoragePlace, sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished request is read before the logs."""
    append_keyed(local, 0, 2)
    forget(local, "k2")
    requests = SearchedObjects.requests

    def done_meanwhile(store: SearchedObjects) -> list[ForgetRequest]:
        with monkeypatch.context() as patch:
            patch.setattr(SearchedObjects, "requests", requests)
            maintain(local)
        return requests(store)

    monkeypatch.setattr(SearchedObjects, "requests", done_meanwhile)

    ran = sparklog("verify", local.address)

    assert (ran.code, "erased" in ran.out) == (0, True)


def test_records_below_the_log_start_when_forgotten_then_erased_too(local: StoragePlace) -> None:
    """Retention drops whole extents; the start may lie inside of one."""
    append_keyed(local, 0, 20)
    maintain(local)  # merged: one extent
    ObjectLedger.open(local).rewrite(lambda rows, extents: raise_starts(rows, extents, {_LOG: 200}), 0)
    forget(local, "k2")

    maintain(local)

    assert search_forgotten(local, None)[0].found == []


def test_copy_when_it_brings_forgotten_keys_back_then_verify_names_them_and_maintenance_erases_them(
    local: StoragePlace, sparklog: Sparklog, tmp_path: Path
) -> None:
    """The store of the machine has them still: ask there, too."""
    source = tmp_path / "source"
    with closing(open_store(source, KEYED, topic="keyed")) as writer:
        writer.append("query", 0, in_process(keyed_rows(0)))
    assert sparklog("copy", source, local.address, "--execute").code == 0
    forget(local, "k2")
    maintain(local)
    assert search_forgotten(local, None)[0].records_count == 0
    with closing(open_store(source, KEYED, topic="keyed")) as writer:
        writer.append("query", 1, in_process(keyed_rows(1)))

    assert sparklog("copy", source, local.address, "--execute").code == 0

    assert search_forgotten(local, None)[0].records_count == 4
    ran = sparklog("verify", local.address)
    assert ran.code == 1
    assert "has 4 records of keys that were erased" in ran.out
    maintain(local)
    assert sparklog("forget", local.address, "--verify").code == 0


def test_forget_when_typed_with_an_address_then_as_for_a_store_of_this_machine(
    local: StoragePlace, sparklog: Sparklog, tmp_path: Path
) -> None:
    append_keyed(local, 0, 2)
    keys = tmp_path / "keys.txt"
    keys.write_bytes(b"k2\nk3\n")

    asked = sparklog("forget", local.address, "keyed", "--keys", keys)

    assert asked.code == 0
    assert "2 keys of topic keyed: waits for maintenance, 16 records left of 16" in asked.out
    assert sparklog("forget", local.address, "--verify").code == 1
    pending = sparklog("verify", local.address)
    assert (pending.code, "erasure pending, 16 records" in pending.out) == (0, True)
    planned = sparklog("maintain", local.address)
    assert "planned: 2 erase; --execute does it" in planned.out
    ran = sparklog("maintain", local.address, "--execute")
    assert ran.code == 0
    assert "erase keyed-0: 40 records, 4 kept, 8 of forgotten keys" in ran.out
    assert "2 keys of topic keyed: done" in ran.out
    assert "done: 2 erase, 1 forget" in ran.out
    assert sparklog("forget", local.address, "--verify").code == 0
    assert "objects that no version names may hold erased records" in sparklog("verify", local.address).out


def test_forget_when_it_can_erase_nothing_then_refused(local: StoragePlace, sparklog: Sparklog, tmp_path: Path) -> None:
    append_keyed(local, 0, 1, {"cleanup.policy": "delete"})
    keys = tmp_path / "keys.txt"
    keys.write_bytes(b"k2\n")

    refused = sparklog("forget", local.address, "keyed", "--keys", keys)
    unknown = sparklog("forget", local.address, "others", "--keys", keys)
    absent = sparklog("forget", f"{local.address}-not", "--verify")

    assert (refused.code, "cleanup.policy=delete" in refused.err) == (2, True)
    assert (unknown.code, "no topic 'others'" in unknown.err) == (1, True)
    assert absent.code == 2
    assert request_names(local) == []


def test_request_when_it_is_damaged_then_named(local: StoragePlace, sparklog: Sparklog, tmp_path: Path) -> None:
    append_keyed(local, 0, 1)
    forget(local, "k2")
    (path,) = (tmp_path / "store" / "control" / "forgotten").iterdir()
    path.write_bytes(b"{")

    ran = sparklog("maintain", local.address, "--execute")

    assert ran.code == 1
    assert f"a request to forget keys is damaged: path={local.address}/control/forgotten/{path.name}" in ran.err
    assert "Traceback" not in ran.err
    assert "a request to forget keys is damaged" in sparklog("verify", local.address).out


def test_object_when_another_part_of_it_is_damaged_then_said_and_others_are_emptied(local: StoragePlace) -> None:
    """The request waits: the damaged object has erased records beside the part that can't be moved."""
    append_keyed(local, 0, 3)
    request = forget(local, "k2")
    finish = forget_module.finish_requests

    def damage_first(*given: Any) -> list[RequestState]:
        extent = ObjectLedger.open(local).extents()[_OTHER][1]
        path = Path("/", local.address.path, extent.object)
        data = bytearray(path.read_bytes())
        data[extent.position + 70] ^= 1
        path.write_bytes(data)
        return finish(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maintain_module, "finish_requests", damage_first)
        patch.setattr(merge_extents, "_OBJECT_BYTES", 1)  # each extent moves by itself
        done = maintain(local)

    moved = [each for each in done if each.kind == "erase" and each.log == _OTHER]
    assert [each.error is not None for each in moved] == [False, True, False]
    assert done[-1].kind == "wait"
    assert SearchedObjects(ObjectLedger.open(local)).requests()[0].request_id == request.request_id
    assert SearchedObjects(ObjectLedger.open(local)).requests()[0].completed_ms is None
