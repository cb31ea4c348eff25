"""Keys that were forgotten and come back with an import: found by `verify`, erased by the next maintenance run."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.sink.erasure.forget_keys import ask_to_forget
from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.importing.import_logs import import_logs
from sparklog.sink.importing.plan_import import ImportChoice, plan_import
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import delete_topic
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_preserved_topics
from sparklog.storage_core.clock import SystemClock
from tests.build.compacted_store import LOG, SETTINGS, write_keyed
from tests.build.erased_keys import ask, erase
from tests.build.golden import copy_broker_root
from tests.build.sink_store import in_process, open_store, read_store, rows
from tests.sparklog_command import Sparklog


def _keys(store: Path) -> set[bytes | None]:
    return {record.key for record in read_store(store)[str(LOG)]}


def _append_k3(store: Path, *numbers: int) -> None:
    with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic)) as writer:
        for number in numbers:
            writer.append("later", number, in_process(rows(partition=[0], key=["k3"], value=["new"])))


@pytest.fixture
def store(tmp_path: Path, sparklog: Sparklog) -> Path:
    """A store whose erased keys came back: its topic was deleted, and imported from a mount that is older."""
    store = write_keyed(tmp_path / "store")
    assert sparklog("mount", store, "--new-cluster", "--out", tmp_path / "cluster", "--execute").code == 0
    ask(store, "k3", "k5")
    erase(store)
    with writing(store) as written:
        delete_topic(written, LOG.topic, SystemClock())
    ran = sparklog("import", tmp_path / "cluster" / "data", store, "--execute")
    assert ran.code == 0, ran.err
    return store


def test_import_when_forgotten_keys_come_back_then_verify_names_their_records(store: Path, sparklog: Sparklog) -> None:
    """Also above the end that the log had at the request."""
    ran = sparklog("verify", store)

    assert {b"k3", b"k5"} <= _keys(store)
    assert ran.code == 1
    assert "records of keys that were erased" in ran.out


def test_maintenance_when_forgotten_keys_came_back_then_erases_them_again(store: Path, sparklog: Sparklog) -> None:
    """Other keys stay; the request is done again, and has no keys any more."""
    others = _keys(store) - {b"k3", b"k5"}

    (settled,) = erase(store)

    assert settled.found == ()
    assert _keys(store) == others
    (request,) = read_requests(Store.find(store))
    assert (request.keys, request.completed_ms is None) == (None, False)
    assert sparklog("verify", store).code == 0


def test_maintenance_when_none_of_them_is_back_then_the_request_stays_done(store: Path) -> None:
    """The search is done once; a later record of a forgotten key is a new one."""
    erase(store)
    _append_k3(store, 0)

    assert erase(store) == []

    assert b"k3" in _keys(store)


def test_verify_when_what_came_back_ends_below_the_request_then_later_records_are_new_ones(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """The request's end was one of the log that was deleted; the imported one goes on at lower offsets."""
    store = write_keyed(tmp_path / "store")
    assert sparklog("mount", store, "--new-cluster", "--out", tmp_path / "cluster", "--execute").code == 0
    _append_k3(store, *range(3))
    ask(store, "k3")
    erase(store)
    with writing(store) as written:
        delete_topic(written, LOG.topic, SystemClock())
    assert sparklog("import", tmp_path / "cluster" / "data", store, "--execute").code == 0
    erase(store)

    _append_k3(store, 3)

    ran = sparklog("verify", store)
    assert b"k3" in _keys(store)
    assert ran.code == 0, ran.out


@pytest.mark.parametrize("is_undone", [True, False])
def test_import_when_it_is_undone_then_requests_and_settings_are_as_before_it(
    tmp_path: Path, sparklog: Sparklog, is_undone: bool
) -> None:
    """A log that a stream makes in its place has no gaps, and keeps its records of forgotten keys."""
    store, topic, other = tmp_path / "store", "v2-segments", copy_broker_root(tmp_path / "other", "v2-segments")
    assert sparklog("import", other, store, "--execute").code == 0
    found = Store.find(store)
    (other / f"{topic}-0").rename(other / f"{topic}-1")
    ask_to_forget(SearchedFolder(found), topic, pa.array([b"none"], pa.binary()), SystemClock())
    (store / "control" / "topic-configs.json").unlink()

    def check() -> None:
        if is_undone and read_requests(found)[0].end_offsets.get(1):
            raise KeyboardInterrupt

    with writing(store) as written:
        plan = plan_import(found, written.ledger.states(), ("logs",), ImportChoice(folders=(other,)))
        try:
            import_logs(written, plan, SystemClock(), check, may_link=True)
        except KeyboardInterrupt:
            assert is_undone

    (request,) = read_requests(found)
    assert request.end_offsets == {0: 240, 1: 0 if is_undone else 240}
    assert read_preserved_topics(found) == (frozenset() if is_undone else {topic})
