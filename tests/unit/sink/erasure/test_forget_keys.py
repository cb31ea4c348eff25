"""Keys that are to be forgotten: the list, the search, and a cleaning that erases them."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparklog.sink.erasure.forget_keys import known_erasure, prepare_erasure, search_requests
from sparklog.sink.erasure.forget_request import erased_keys
from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.opening.access import maintaining, writing
from sparklog.sink.operations.delete_topic import delete_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.names import LOG as SEGMENT
from sparklog.storage_core.log.files.names import segment_file_name
from sparklog.storage_core.record.control_records import ControlType
from tests.build.compacted_store import LOG, NOW_MS, SETTINGS, keyed_rows, write_keyed
from tests.build.erased_keys import ask, erase
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, read_store, rows
from tests.build.transaction_log import Marker, control_batch
from tests.build.truncated import truncate_to

_LAG = {**SETTINGS, "min.cleanable.dirty.ratio": 1.0}


def _keys(store: Path) -> set[bytes | None]:
    return {record.key for record in read_store(store)[str(LOG)]}


def test_search_when_keys_were_written_then_it_counts_them_by_segment(tmp_path: Path) -> None:
    """Every record of the keys is found, the active segment is named as such."""
    store = write_keyed(tmp_path / "store")
    request = ask(store, "k3", "k5", "nobody")

    (state,) = search_requests(SearchedFolder(Store.find(store)), [request])

    expected = [record for record in read_store(store)[str(LOG)] if record.key in (b"k3", b"k5")]
    assert state.records_count == len(expected)
    assert [each.is_active for each in state.found].count(True) == 1
    assert state.found[-1].base_offset == state_of(store, LOG).active_base_offset


def test_search_when_a_marker_looks_like_a_key_then_it_is_no_record(tmp_path: Path) -> None:
    """A marker's key is int16 version, int16 type: the bytes of int32 0 and 1. No cleaning takes it by its key."""
    store = write_keyed(tmp_path / "store", count=40)
    with writing(store) as written:
        row = written.ledger.rows[LOG]
        state = written.ledger.state(row)
        end = state.log_end_offset
        markers = [control_batch(Marker(7, each), end + each) for each in (ControlType.ABORT, ControlType.COMMIT)]
        path = written.store.log_path(state) / segment_file_name(state.active_base_offset, SEGMENT)
        path.write_bytes(path.read_bytes()[: state.active_size_bytes] + b"".join(markers))
        values = {
            "log_end_offset": end + 2,
            "recovery_point": end + 2,
            "active_size_bytes": state.active_size_bytes + sum(map(len, markers)),
        }
        written.ledger.correct(np.array([row]), {name: np.array([value]) for name, value in values.items()})
    request = ask(store, "\0\0\0\0", "\0\0\0\1")

    (state_of_request,) = search_requests(SearchedFolder(Store.find(store)), [request])

    assert request.end_offsets[0] == 42
    assert state_of_request.found == []


def test_erasure_when_no_sink_runs_then_all_records_go_and_the_keys_leave_the_list(tmp_path: Path) -> None:
    """The active segment is rolled first; tombstones go as well; what stays on the list are digests."""
    store = write_keyed(tmp_path / "store", _LAG)
    others = {record.offset: record for record in read_store(store)[str(LOG)] if record.key not in (b"k3", b"k5")}
    found = ask(store, "k3", "k5").found

    (settled,) = erase(store)

    assert settled.found == ()
    assert settled.request.found == found
    assert _keys(store) == {b"k0", b"k1", b"k2", b"k4", b"k6"}
    assert {record.offset for record in read_store(store)[str(LOG)]} <= others.keys()
    (request,) = read_requests(Store.find(store))
    assert request.keys is None
    assert request.completed_ms == NOW_MS
    assert b"azM=" not in b"".join(path.read_bytes() for path in (store / "control" / "forgotten").iterdir())


def test_erasure_when_a_sink_runs_then_the_active_segment_waits_for_its_roll(tmp_path: Path) -> None:
    """The sink appends undisturbed; once it has rolled, the next run erases the rest."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        (settled,) = erase(store)
        assert settled.records_count > 0
        assert all(each.is_active for each in settled.found)
        writer.append("q", 100, in_process(keyed_rows(200, 260)))
        end = state_of(store, LOG).log_end_offset

    (settled,) = erase(store)

    assert settled.found == ()
    assert end == state_of(store, LOG).log_end_offset
    assert all(record.offset >= 200 for record in read_store(store)[str(LOG)] if record.key == b"k3")


def test_store_when_rolled_for_an_erasure_then_the_next_record_gets_the_next_offset(tmp_path: Path) -> None:
    """An empty active segment is what a sink goes on in."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    erase(store)

    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        writer.append("q", 100, in_process(keyed_rows(200, 203)))

    assert [record.offset for record in read_store(store)[str(LOG)]][-3:] == [200, 201, 202]


def test_search_when_a_key_comes_back_then_the_request_stays_done(tmp_path: Path) -> None:
    """A request is about what was written before it."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    erase(store)
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        writer.append("q", 100, in_process(keyed_rows(200, 240)))

    (state,) = search_requests(SearchedFolder(Store.find(store)), read_requests(Store.find(store)))

    assert state.found == []
    assert b"k3" in _keys(store)


def test_erasure_when_the_topic_was_made_again_then_its_keys_stay(tmp_path: Path) -> None:
    """A request is about one topic, not about its name; it is done once that topic is gone."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    with writing(store) as written:
        delete_topic(written, LOG.topic, SystemClock())
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        for number in range(10):
            writer.append("again", number, in_process(keyed_rows(20 * number, 20 * number + 20)))
    before = read_store(store)[str(LOG)]

    assert erase(store) == []

    assert read_store(store)[str(LOG)] == before
    (request,) = read_requests(Store.find(store))
    assert (request.keys, request.completed_ms) == (None, NOW_MS)


def test_keys_to_erase_when_two_topics_had_the_name_then_each_has_its_own(tmp_path: Path) -> None:
    """Also before the first one's request is done."""
    store = write_keyed(tmp_path / "store", _LAG, count=20)
    request = ask(store, "k3")

    found = erased_keys([request, replace(request, topic_id="later", keys=pa.array([b"k5"], pa.binary()))])

    assert {topic_id: keys.to_pylist() for topic_id, keys in found.items()} == {
        request.topic_id: [b"k3"],
        "later": [b"k5"],
    }


def test_requests_when_a_file_is_damaged_then_it_is_named(tmp_path: Path) -> None:
    """A list that can't be read is no empty list."""
    store = write_keyed(tmp_path / "store", count=20)
    request = ask(store, "k3")
    path = store / "control" / "forgotten" / f"{request.request_id}.json"
    path.write_bytes(path.read_bytes()[:-40])

    with pytest.raises(CorruptFileError, match=path.name):
        read_requests(Store.find(store))


def test_request_when_records_are_found_then_it_keeps_how_many_in_which_segment(tmp_path: Path) -> None:
    """The figures are written before anything is erased, so that no kill takes them; they say nothing of keys."""
    store = write_keyed(tmp_path / "store", _LAG)
    before = [record.offset for record in read_store(store)[str(LOG)] if record.key == b"k3"]
    bases = sorted(int(path.stem) for path in (store / "logs" / str(LOG)).glob(f"*{SEGMENT}"))
    expected = {
        base: len([each for each in before if base <= each < following])
        for base, following in zip(bases, [*bases[1:], 200], strict=True)
    }

    ask(store, "k3")

    assert [each.found for each in read_requests(Store.find(store))] == [{0: expected, 1: {}}]


def test_request_when_a_log_could_not_be_searched_then_the_next_run_adds_its_figures(tmp_path: Path) -> None:
    """A log that is damaged is not one without records."""
    store = write_keyed(tmp_path / "store", _LAG)
    path = store / "logs" / str(LOG) / f"{0:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:70] + b"?" + whole[71:])
    assert ask(store, "k3").found == {1: {}}
    path.write_bytes(whole)

    (settled,) = erase(store)

    assert settled.request.found_count == 29
    assert sorted(settled.request.found) == [0, 1]


def test_erasure_when_records_wait_in_an_active_segment_then_nothing_is_cleaned_for_them(tmp_path: Path) -> None:
    """A sink may hold it for days: until it rolls, a run reads that log, and writes none."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)):
        (settled,) = erase(store)
        assert settled.records_count > 0
        with maintaining(store) as maintained:
            erasure = prepare_erasure(SearchedFolder(maintained.store), ManualClock(NOW_MS))

        assert [each.request_id for each in erasure.requests] == [settled.request.request_id]
        assert (erasure.closed, erasure.active) == (set(), {LOG})


def test_erasure_when_some_logs_have_no_such_record_then_they_are_neither_cleaned_nor_searched_again(
    tmp_path: Path,
) -> None:
    """Nothing that lies below the end of then can come."""
    store = write_keyed(tmp_path / "store", _LAG)
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        writer.append("q", 100, in_process(rows(partition=[1], key=["other"], value=["x"], timestamp=[NOW_MS])))

    request = ask(store, "k3")

    assert request.cleared == {1}
    known = known_erasure(SearchedFolder(Store.find(store)))
    assert (known.closed, known.active) == ({LOG}, {LOG})
    with maintaining(store) as maintained:
        searched = prepare_erasure(SearchedFolder(maintained.store), ManualClock(NOW_MS))
    assert (searched.closed, searched.active) == ({LOG}, {LOG})
    (settled,) = erase(store)
    assert settled.request.completed_ms == NOW_MS


def test_search_when_a_log_is_cleared_then_a_verification_searches_it_all_the_same(tmp_path: Path) -> None:
    """Somebody may have put a copy from before back."""
    store = write_keyed(tmp_path / "store", _LAG)
    request = replace(ask(store, "k3"), cleared=frozenset({0, 1}))

    (state,) = search_requests(SearchedFolder(Store.find(store)), [request])

    assert state.records_count == 29
    assert state.request is request


def test_request_when_a_log_is_truncated_then_what_gets_its_offsets_later_is_not_meant(tmp_path: Path) -> None:
    """Those records were written after the request; of one that is done they would look like ones that came back."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    erase(store)
    ask(store, "k5")
    truncate_to(store, LOG, 100, ManualClock(NOW_MS))
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        for number in range(5):
            writer.append("later", number, in_process(keyed_rows(100 + 20 * number, 120 + 20 * number)))

    searched = search_requests(SearchedFolder(Store.find(store)), read_requests(Store.find(store)))

    assert len(searched) == 2
    assert [found for each in searched for found in each.found if found.last_offset >= 100] == []


def test_search_when_a_segment_is_lost_then_the_log_is_not_searched(tmp_path: Path) -> None:
    """Whoever restores it brings back what it has of the keys."""
    store = write_keyed(tmp_path / "store", _LAG)
    sorted((store / "logs" / str(LOG)).glob("*.log"))[1].unlink()

    (state,) = search_requests(SearchedFolder(Store.find(store)), [ask(store, "k3")])

    (failure,) = (each.failure for each in state.found)
    assert failure is not None
    assert "a segment is missing" in failure
