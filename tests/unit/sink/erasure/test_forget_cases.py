"""Erasures that meet something: other requests, retention, transactions, old formats, deleted records, many keys."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparklog.sink.erasure.forget_keys import search_requests
from sparklog.sink.erasure.request_files import put_request, read_requests
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.opening.access import maintaining, writing
from sparklog.sink.operations.retain_logs import execute_plans, plan_logs
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.log.files.names import LOG as SEGMENT
from sparklog.storage_core.log.files.names import segment_file_name
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.retention.plan_retention import plan_record_deletion
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.cleaned_log import data, marker
from tests.build.compacted_store import LOG, NOW_MS, SETTINGS, keyed_rows, write_keyed
from tests.build.erased_keys import ask, erase
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, read_store
from tests.plain.legacy_scalar import pack_entry
from tests.plain.scalar import decode_records

_LAG = {**SETTINGS, "min.cleanable.dirty.ratio": 1.0}
_CLOCK = ManualClock(NOW_MS)


def _keys(store: Path) -> set[bytes | None]:
    return {record.key for record in read_store(store)[str(LOG)]}


def _append(store: Path, *batches: bytes, count: int) -> None:
    """Put batches of other writers behind those of the log's active segment."""
    with writing(store) as written:
        row = written.ledger.rows[LOG]
        state = written.ledger.state(row)
        path = written.store.log_path(state) / segment_file_name(state.active_base_offset, SEGMENT)
        path.write_bytes(path.read_bytes()[: state.active_size_bytes] + b"".join(batches))
        end = state.log_end_offset + count
        values = {"log_end_offset": end, "recovery_point": end, "active_size_bytes": path.stat().st_size}
        written.ledger.correct(np.array([row]), {name: np.array([value]) for name, value in values.items()})


def test_erasure_when_two_requests_have_a_key_then_one_run_does_both(tmp_path: Path) -> None:
    """Both report the records; the keys of both leave the list."""
    store = write_keyed(tmp_path / "store", _LAG)
    first, second = ask(store, "k3"), ask(store, "k3", "k5")

    erase(store)

    done = {each.request_id: each for each in read_requests(Store.find(store))}
    assert all(each.keys is None for each in done.values())
    assert done[first.request_id].found_count < done[second.request_id].found_count
    assert _keys(store) == {b"k0", b"k1", b"k2", b"k4", b"k6"}


def test_erasure_when_a_key_is_written_again_behind_it_then_later_runs_leave_it(tmp_path: Path) -> None:
    """Who comes back is not forgotten for ever."""
    store = write_keyed(tmp_path / "store", _LAG)
    ask(store, "k3")
    erase(store)
    with closing(open_store(store, {LOG.topic: _LAG}, topic=LOG.topic)) as writer:
        for number in range(4):
            writer.append("later", number, in_process(keyed_rows(200 + 20 * number, 220 + 20 * number)))
    ask(store, "k5")

    erase(store)

    assert b"k3" in _keys(store)
    assert b"k5" not in _keys(store)


def test_erasure_when_its_run_was_killed_behind_the_cleaning_then_the_next_one_reports_all(
    tmp_path: Path,
) -> None:
    """The figures were written before anything was erased."""
    store = write_keyed(tmp_path / "store", _LAG)
    request = ask(store, "k3")
    erase(store)
    put_request(Store.find(store), request, UNSHARED)

    (settled,) = erase(store)

    assert settled.request.completed_ms == NOW_MS
    assert settled.request.found == request.found
    assert settled.request.found_count == 29


def test_erasure_when_retention_works_on_the_topic_too_then_done(tmp_path: Path) -> None:
    """`compact,delete`: what is cleaned may go by age as well."""
    store = write_keyed(tmp_path / "store", {**_LAG, "cleanup.policy": "compact,delete", "retention.bytes": 2500})
    ask(store, "k3")
    with maintaining(store) as maintained:
        execute_plans(maintained, plan_logs(maintained.store, _CLOCK), _CLOCK)

    (settled,) = erase(store)

    assert settled.request.completed_ms == NOW_MS
    assert b"k3" not in _keys(store)
    assert state_of(store, LOG).log_start_offset > 0


def test_erasure_when_records_lie_below_the_logs_start_then_they_go_as_well(tmp_path: Path) -> None:
    """Nobody reads them any more, but they are in the first segment still."""
    store = write_keyed(tmp_path / "store", _LAG)
    with maintaining(store) as maintained:
        start = plan_logs(maintained.store, _CLOCK, {LOG}, lambda facts, _: plan_record_deletion(facts, 20))
        execute_plans(maintained, start, _CLOCK)
    request = ask(store, "k3")
    assert min(request.found[0]) < 20 == state_of(store, LOG).log_start_offset

    erase(store)

    segments = sorted((store / "logs" / str(LOG)).glob(f"*{SEGMENT}"))
    assert not any(b"\x04k3" in path.read_bytes() for path in segments)


def test_erasure_when_the_transaction_of_a_record_was_aborted_then_it_goes(tmp_path: Path) -> None:
    """No consumer sees it, and it is on the disk."""
    store = write_keyed(tmp_path / "store", _LAG)
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    _append(store, data(200, ("secret", "1"), **producer), marker(201, 7, ControlType.ABORT), count=2)
    assert ask(store, "secret").found_count == 1

    (settled,) = erase(store)

    assert settled.request.completed_ms == NOW_MS
    assert not any(b"secret" in path.read_bytes() for path in (store / "logs" / str(LOG)).iterdir())


def test_erasure_when_a_transaction_is_open_then_the_request_waits_for_its_end(tmp_path: Path) -> None:
    """A cleaner gets no further than what is stable; what lies before is erased."""
    store = write_keyed(tmp_path / "store", _LAG)
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    _append(store, data(200, ("secret", "1"), **producer), count=1)
    request = ask(store, "secret", "k3")

    (waiting,) = erase(store)

    assert waiting.request.completed_ms is None
    assert 0 < waiting.records_count < request.found_count


@pytest.mark.parametrize("magic", [0, 1])
def test_erasure_when_a_segment_has_an_old_format_then_its_records_are_found_and_go(tmp_path: Path, magic: int) -> None:
    """Logs of old brokers have them."""
    store = write_keyed(tmp_path / "store", _LAG)
    path = store / "logs" / str(LOG) / segment_file_name(0, SEGMENT)
    path.write_bytes(b"".join(pack_entry(record, magic) for record in decode_records(path.read_bytes())))
    for index in path.parent.glob(f"{path.stem}.*index"):
        index.write_bytes(b"")
    assert ask(store, "k3").found[0][0] > 0

    (settled,) = erase(store)

    assert settled.request.completed_ms == NOW_MS
    assert b"k3" not in _keys(store)


def test_search_when_many_keys_were_forgotten_then_one_pass_finds_all_of_theirs(tmp_path: Path) -> None:
    """However many there are."""
    store = write_keyed(tmp_path / "store", _LAG)
    request = ask(store, *(f"n{each}" for each in range(100_000)), "k3")

    (state,) = search_requests(SearchedFolder(Store.find(store)), [request])

    assert isinstance(request.keys, pa.Array)
    assert (request.count, state.records_count) == (100_001, 29)
