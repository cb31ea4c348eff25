"""Upgrading a store of an older layout: what it held stays, and what can't be upgraded is refused."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.operations.upgrade_store import plan_upgrade, upgrade_store
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import forget_topic_config
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError, UnsupportedFormatError
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.ledger_rows import change_row
from tests.build.older_store import make_older
from tests.build.sink_store import contents, in_process, numbers, open_events, open_store, stored_numbers
from tests.sparklog_command import Sparklog

_LOCKS = ("writer.lock", "maintenance.lock")


@pytest.fixture(params=[2, 3])
def layout(request: pytest.FixtureRequest) -> int:
    """Each layout that can be upgraded."""
    return int(request.param)


@pytest.fixture
def store(memory_path: Path, layout: int) -> Path:
    """A closed store of an older layout with 0..99 in `events`, and micro-batches of two queries."""
    store = memory_path / "store"
    with closing(open_events(store)) as writer:
        writer.append("first", 7, in_process(numbers(0, 60)))
        writer.append("second", 3, in_process(numbers(60, 100)))
    make_older(store, {"first": 7, "second": 3}, layout)
    return store


def test_store_when_of_an_older_layout_then_refused_with_the_command_that_upgrades_it(
    store: Path, layout: int, sparklog: Sparklog
) -> None:
    """By whatever opens it, and nothing is changed."""
    before = contents(store)
    remedy = rf"layout.version={layout}.*sparklog upgrade {store} --execute"

    with pytest.raises(UnsupportedFormatError, match=remedy):
        open_events(store)
    with pytest.raises(UnsupportedFormatError, match=remedy):
        open_events(store, take_lock_by_force=True)
    with pytest.raises(UnsupportedFormatError, match=remedy):
        open_logs(store)
    assert "sparklog upgrade" in sparklog("describe", store).err
    assert contents(store) == before


def test_upgrade_then_rows_micro_batches_and_version_are_kept_and_writing_goes_on(
    store: Path, sparklog: Sparklog
) -> None:
    """A replay of what was committed before is no second copy."""
    assert plan_upgrade(store) == 2
    assert "--execute does it" in sparklog("upgrade", store).out
    version = json.loads((store / "control" / "ledger-version.writer.json").read_text())["ledger_version"]

    assert "upgraded: 2 logs" in sparklog("upgrade", store, "--execute").out

    ledger = Ledger.open(store / "ledger")
    assert ledger.version == version + 1
    assert (ledger.transaction_version("first"), ledger.transaction_version("second")) == (7, 3)
    states = ledger.all_states()
    assert {(each.cleaner_limit_offset, each.intent, each.owes) for each in states} == {(-1, "", "")}
    assert {(each.compacted_offset, each.first_unstable_offset) for each in states} == {(-1, -1)}
    assert stored_numbers(store) == list(range(100))
    with closing(open_events(store)) as writer:
        assert writer.append("first", 7, in_process(numbers(0, 60))).replayed
        writer.append("first", 8, in_process(numbers(100, 120)))
        for number in range(105):  # the ledger is tidied on the way
            writer.append("idle", number, in_process())
    assert stored_numbers(store) == list(range(120))
    assert Ledger.open(store / "ledger").transaction_version("second") == 3
    assert sparklog("verify", store).code == 0


def test_upgrade_when_topics_are_compacted_or_unknown_then_their_logs_count_as_compacted(
    memory_path: Path, layout: int
) -> None:
    """The older layouts do not say how far a cleaner has come: it may have come to the end."""
    store = memory_path / "store"
    topics: dict[str, dict[str, object]] = {
        "plain": {},
        "compacted": {"cleanup.policy": "compact"},
        "both": {"cleanup.policy": "compact,delete"},
        "unknown": {},
    }
    for batch_id, topic in enumerate(topics):
        with closing(open_store(store, topics, topic=topic)) as writer:
            writer.append("q", batch_id, in_process(numbers(0, 10)))
    forget_topic_config(Store.find(store), "unknown", UNSHARED)
    make_older(store, {"q": 3}, layout)

    upgrade_store(store)

    found = {state.topic: state.compacted_offset for state in Ledger.open(store / "ledger").all_states()}
    assert found == {"plain": -1, "compacted": 10, "both": 10, "unknown": 10}


def test_upgrade_when_the_layout_is_3_and_something_is_left_to_do_then_it_is_done_later(memory_path: Path) -> None:
    """Its rows say so already, and the next opening finishes it."""
    store = memory_path / "store"
    with closing(open_events(store)) as writer:
        writer.append("q", 0, in_process(numbers(0, 100)))
    change_row(store, TopicPartition("events", 0), intent='[{"kind": "delete"}]')
    make_older(store, {"q": 0}, 3)

    assert upgrade_store(store) == 2

    open_store(store, {"others": {}}).close()
    assert [each.topic for each in Ledger.open(store / "ledger").all_states()] == ["events", "others"]


def test_upgrade_when_the_store_has_no_logs_then_it_is_an_empty_store(memory_path: Path, layout: int) -> None:
    """There is no data file to replace."""
    store = memory_path / "store"
    open_events(store).close()
    ledger = Ledger.open_beside_writer(store / "ledger")
    ledger.change(lambda rows: rows.without(np.arange(2)), UNSHARED)
    make_older(store, {"q": 1}, layout)

    assert upgrade_store(store) == 0

    assert Ledger.open(store / "ledger").states() == {}


def test_open_logs_when_as_of_a_version_before_the_upgrade_then_it_is_a_wrong_setting(store: Path) -> None:
    """Such a version is whole, but has rows of another layout."""
    before = json.loads((store / "control" / "ledger-version.writer.json").read_text())["ledger_version"]
    upgrade_store(store)

    for version in (before - 1, before):
        with pytest.raises(InvalidConfigError, match=rf"is older than the store's layout.*: version={version} "):
            open_logs(store, AsOf(version=version))
    assert open_logs(store, AsOf(version=before + 1)).ledger_version == before + 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pending-directories.json", '{"version": 0, "deletions": [], "moves": [], "roots": ["logs"]}'),
        ("pending-truncations.json", '{"version": 0, "truncations": [{}]}'),
        ("truncated-offsets.json", "not json"),
        ("offline-log-dirs.json", '{"disk": "look"}'),
    ],
)
def test_upgrade_when_something_is_left_to_do_in_layout_2_then_refused_and_nothing_changes(
    store: Path, name: str, content: str
) -> None:
    """The release that wrote it finishes it; the message names the file."""
    (store / "control" / name).write_text(content)
    before = contents(store, without=_LOCKS)

    for upgrade in (plan_upgrade, upgrade_store):
        with pytest.raises(InvalidConfigError, match=rf"{name}; open and close the store once with the release"):
            upgrade(store)

    assert contents(store, without=_LOCKS) == before


def test_upgrade_when_the_files_of_the_layout_before_name_nothing_then_they_go(store: Path) -> None:
    """Each of them stays for ever once it was written."""
    (store / "control" / "offline-log-dirs.json").write_text("{}")
    (store / "control" / "pending-truncations.json").write_text('{"version": 0, "truncations": []}')

    upgrade_store(store)

    left = {path.name for path in (store / "control").glob("*.json")}
    assert left.isdisjoint({"offline-log-dirs.json", "pending-truncations.json"})


@pytest.mark.parametrize("lock", _LOCKS)
def test_upgrade_when_the_store_was_not_closed_well_then_refused(store: Path, lock: str) -> None:
    """What lies above committed ends is for the release that wrote it."""
    (store / lock).write_text('{"pid": 1}')

    for upgrade in (plan_upgrade, upgrade_store):
        with pytest.raises(InvalidConfigError, match=f"was not closed well.*{lock}"):
            upgrade(store)


def test_upgrade_when_the_ledger_is_damaged_then_refused_and_nothing_changes(store: Path) -> None:
    """A changed row would become the truth."""
    newest = max((store / "ledger" / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace('"sparklog.rows_crc32c":"', '"sparklog.rows_crc32c":"0'))
    before = contents(store, without=_LOCKS)

    with pytest.raises(LedgerDamagedError, match="not what was committed"):
        upgrade_store(store)

    assert contents(store, without=_LOCKS) == before


def test_upgrade_when_done_already_then_refused(store: Path) -> None:
    """There is nothing to upgrade."""
    upgrade_store(store)

    with pytest.raises(UnsupportedFormatError, match=r"layout.version=4, wanted is 2 or 3"):
        upgrade_store(store)
