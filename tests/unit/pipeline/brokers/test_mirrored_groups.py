"""Which offsets of consumer groups belong to a store that has changed since, or that several queries write."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.mount.plan_mount import plan_mount
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import delete_topic
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.past.past_state import PastState
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.broker_target import make_target
from tests.build.cut_store import HOUR_MS, forget_past
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store
from tests.build.truncated import truncate_to
from tests.plain.model_source import ModelLog, ModelSource, model_mirror
from tests.sparklog_command import Sparklog

_TRUNCATED = "where the log was truncated since or its writer changed"
_IDS = {"t": random_id(), "u": random_id()}


def _offset(offset: int, group: str = "g", topic: str = "t") -> GroupOffset:
    return GroupOffset(group=group, topic=topic, partition=0, offset=offset)


def _mirror(store: Path, end: int, *groups: GroupOffset, cluster: str = "model", topics: str = "tu") -> None:
    """Mirror a cluster whose logs end there."""
    logs = {(topic, 0): ModelLog(list(range(end)), end=end) for topic in topics}
    ids = {topic: _IDS[topic] for topic in topics}
    with closing(model_mirror(store, ModelSource(ids, logs, groups=list(groups), cluster=cluster))) as mirror:
        while mirror.advance():
            pass


def _append(store: Path, clock: ManualClock, batch_id: int, topic: str = "t") -> None:
    with closing(open_store(store, {topic: {}}, topic=topic, clock=clock)) as writer:
        writer.append("stream", batch_id, in_process(numbers(0, 200)))


def _clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


def _given(store: Path, past: PastState | None = None) -> list[GroupOffset]:
    found = Store.find(store)
    return [*plan_mount(found, Ledger.open(found.ledger_path), None, allow_gaps=True, past=past).groups.given]


@pytest.mark.parametrize("clusters", ["ab", "ba"])
def test_groups_when_a_second_cluster_was_mirrored_then_its_offsets_alone_count(
    memory_path: Path, clusters: str
) -> None:
    """Whatever the clusters' ids are; a group that it has not is gone, and topics that it has not keep theirs."""
    store = memory_path / "store"
    _mirror(store, 100, _offset(100), _offset(7, "gone"), _offset(9, topic="u"), cluster=clusters[0])

    _mirror(store, 500, _offset(500), cluster=clusters[1], topics="t")

    assert _given(store) == [_offset(500), _offset(9, topic="u")]


def test_groups_when_the_log_was_truncated_below_and_has_grown_again_then_not_given(
    memory_path: Path, sparklog: Sparklog
) -> None:
    """Other records lie there now, which the group has not seen."""
    store = memory_path / "store"
    _mirror(store, 300, _offset(300), _offset(200, "below"))
    truncate_to(store, TopicPartition("t", 0), 200, _clock())
    _append(store, _clock(), 0)

    ran = sparklog("mount", store, "--new-cluster", "--out", memory_path / "out", "--allow-gaps")
    restored = sparklog("restore-groups", store, "--csv", "--groups", "g, b.*")

    assert (restored.code, restored.out) == (0, "below,t,0,200\n")
    assert restored.err == f"warning: not given to its group: g: t-0 offset 300 is above 200, {_TRUNCATED}\n"
    assert _given(store) == [_offset(200, "below")]
    assert f"warning: not given to its group: g: t-0 offset 300 is above 200, {_TRUNCATED}" in ran.out


def test_group_when_it_was_ahead_of_the_mirror_and_another_stream_has_appended_then_not_given(
    memory_path: Path, sparklog: Sparklog
) -> None:
    """At its offset lie other records than the source's; those between the mirror's end and there it has not seen."""
    store, source = (
        memory_path / "store",
        ModelSource({"t": _IDS["t"]}, {("t", 0): ModelLog(list(range(500)), end=500)}),
    )
    source.groups = [_offset(100, "with"), _offset(300, "ahead")]
    with closing(model_mirror(store, source, max_offsets=100)) as mirror:
        assert mirror.advance()
    assert _given(store) == [_offset(100, "with")]

    for batch_id in range(2):
        _append(store, _clock(), batch_id)
    ran = sparklog("mount", store, "--new-cluster", "--out", memory_path / "out", "--allow-gaps")

    assert _given(store) == [_offset(100, "with")]
    assert "warning: not given to its group: ahead: t-0 offset 300 was above the log's end" in ran.out


def test_groups_when_the_topic_was_deleted_and_another_has_its_name_then_not_given(
    memory_path: Path, sparklog: Sparklog
) -> None:
    """The offset counts records of the earlier topic."""
    store = memory_path / "store"
    _mirror(store, 100, _offset(50), _offset(9, topic="u"))
    with writing(store) as written:
        delete_topic(written, "t", _clock())
    _append(store, _clock(), 0)

    ran = sparklog("mount", store, "--new-cluster", "--out", memory_path / "out")

    assert _given(store) == [_offset(9, topic="u")]
    assert f"offset 50 is of another topic of that name: its_id={_IDS['t']}" in ran.out


def test_groups_when_their_rows_are_gone_then_the_plan_says_so(memory_path: Path, sparklog: Sparklog) -> None:
    """As beside a mirror that has gone on, or in a copy that took its files in the wrong order."""
    store, table = memory_path / "store", memory_path / "store" / "control" / "group_offsets"
    _mirror(store, 100, _offset(50))
    table.rename(memory_path / "before")
    _mirror(store, 110, _offset(60))
    for path in (memory_path / "store" / "control").glob("group_offsets"):
        path.rename(memory_path / "after")
    (memory_path / "before").rename(table)

    mounted = sparklog("mount", store, "--new-cluster", "--out", memory_path / "out")
    restored = sparklog("restore-groups", store, "--csv")

    assert _given(store) == []
    gone = "the offsets of consumer groups are gone, so no group gets one: query=mirror-model micro_batch=1"
    assert f"warning: {gone}" in mounted.out
    assert restored.code == 2
    assert gone in restored.err


def _version(store: Path) -> int:
    return Ledger.open(Store.find(store).ledger_path).version


@pytest.fixture
def version(memory_path: Path) -> int:
    """Version of a store's ledger at which a group had less; the store goes on to a later one."""
    store = memory_path / "store"
    _mirror(store, 200, _offset(50))
    version = _version(store)
    _mirror(store, 250, _offset(180))
    return version


def test_restore_groups_when_as_of_an_earlier_state_then_the_offsets_of_then(
    memory_path: Path, version: int, sparklog: Sparklog
) -> None:
    """The later offset lies in the earlier log, too: the group would miss the records between."""
    store = memory_path / "store"

    then = sparklog("restore-groups", store, "--csv", "--as-of", version)
    now = sparklog("restore-groups", store, "--csv")

    assert (then.code, then.out, now.out) == (0, "g,t,0,50\n", "g,t,0,180\n"), then.err


def test_restore_groups_when_as_of_a_cut_then_the_offsets_of_then(memory_path: Path, sparklog: Sparklog) -> None:
    """Also once the ledger has gone on by more micro-batches than the last ones."""
    store, clock = memory_path / "store", _clock()
    _mirror(store, 100, _offset(50))
    clock.advance(2 * HOUR_MS)
    _append(store, clock, 0, topic="v")
    for end in range(101, 112):
        _mirror(store, end, _offset(end))
    forget_past(store)
    table = CutTable(cuts_path(store))

    ran = sparklog("restore-groups", store, "--csv", "--as-of", table.read(table.times()[0]).ledger_version)

    assert (ran.code, ran.out) == (0, "g,t,0,50\n"), ran.err


@pytest.mark.parametrize("ids", [_IDS, {topic: random_id() for topic in "tu"}])
def test_mount_into_when_as_of_an_earlier_state_then_it_prints_how_groups_get_the_offsets_of_then(
    memory_path: Path, version: int, sparklog: Sparklog, ids: dict[str, str]
) -> None:
    """The printed command, typed as it stands, names that state; of today's it names none."""
    store, target = memory_path / "store", make_target(memory_path / "target", {"t": 1, "u": 1}, ids)
    options = ("mount", store, "--into", target, *(() if ids == _IDS else ("--topics-made-anew",)))
    csv = "" if ids == _IDS else " --csv"

    then, now = sparklog(*options, "--as-of", version), sparklog(*options)

    assert f"consumer groups: sparklog restore-groups --as-of {version}{csv}, once the broker runs" in then.out, (
        then.err
    )
    assert f"consumer groups: sparklog restore-groups{csv}, once the broker runs" in now.out, now.err


@pytest.fixture
def damaged(memory_path: Path) -> Path:
    """A store whose mirror's newest micro-batch has unreadable offsets of groups."""
    store = memory_path / "store"
    _mirror(store, 100, _offset(50))
    (file,) = (store / "control" / "group_offsets").glob("*.parquet")
    file.write_bytes(bytes(reversed(file.read_bytes())))
    return store


def test_groups_when_rows_of_an_earlier_micro_batch_are_damaged_then_the_mirror_and_a_mount_go_on(
    memory_path: Path,
) -> None:
    """Nobody needs them."""
    store = memory_path / "store"
    _mirror(store, 100, _offset(50))
    (file,) = (store / "control" / "group_offsets").glob("*.parquet")
    _mirror(store, 110, _offset(60))
    file.write_bytes(bytes(reversed(file.read_bytes())))

    for number in range(111, 121):
        _mirror(store, number, _offset(number))

    assert _given(store) == [_offset(120)]


def test_groups_when_the_newest_rows_are_damaged_then_the_error_names_the_file_and_what_to_do(damaged: Path) -> None:
    """They may be all that is left of the groups, so nobody goes on without them by himself."""
    folder = damaged / "control" / "group_offsets"
    told = r"group offsets can't be read: path=.*control/group_offsets; move its folder away: .*file=part-.*\.parquet"

    with pytest.raises(LedgerDamagedError, match=told):
        _mirror(damaged, 110, _offset(60))
    with pytest.raises(LedgerDamagedError, match=told):
        _given(damaged)
    folder.rename(damaged / "away")

    assert _given(damaged) == []
    _mirror(damaged, 110, _offset(60))
    assert _given(damaged) == [_offset(60)]


def test_groups_when_a_mirror_goes_on_for_long_then_data_files_of_dropped_rows_go(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the minute that readers may need them."""
    store, clock = memory_path / "store", ManualClock(0)
    monkeypatch.setattr("sparklog.sink.delta.tidy.time", SimpleNamespace(monotonic=lambda: clock.monotonic_ms() / 1000))
    source = ModelSource({"t": _IDS["t"]}, {("t", 0): ModelLog(list(range(100)), end=100)})
    with closing(model_mirror(store, source)) as mirror:
        for offset in range(30):
            source.groups = [_offset(offset)]
            assert mirror.advance()
            clock.advance(100_000)

    assert len([*(store / "control" / "group_offsets").glob("*.parquet")]) < 12


def test_groups_when_a_mirror_has_none_then_nothing_is_said(memory_path: Path, sparklog: Sparklog) -> None:
    """No group is another thing than rows that are gone."""
    store = memory_path / "store"
    _mirror(store, 100)

    ran = sparklog("mount", store, "--new-cluster", "--out", memory_path / "out")

    assert "groups" not in ran.out


def test_groups_when_a_stream_writes_too_then_each_cut_names_the_mirrors_micro_batch(memory_path: Path) -> None:
    """Also the cut before the stream's first commit, and with a mirror that goes on."""
    store, clock = memory_path / "store", _clock()
    _mirror(store, 100, _offset(50))
    for batch_id in range(2):
        clock.advance(2 * HOUR_MS)
        _append(store, clock, batch_id, topic="v")
    for end in range(101, 112):
        _mirror(store, end, _offset(end))

    table = CutTable(cuts_path(store))
    cuts = [table.read(each) for each in table.times()]
    pasts = [PastState(states=cut.rows.states, ledger_version=cut.ledger_version, cut=cut) for cut in cuts]

    assert [_given(store, past) for past in pasts] == [[_offset(50)]] * 2


def test_mirror_when_a_cut_is_damaged_then_warns_once_and_keeps_the_rows_of_all_micro_batches(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No record depends on a cut, and which rows cuts need can't be told."""
    store, clock = memory_path / "store", _clock()
    _mirror(store, 100, _offset(50))
    clock.advance(2 * HOUR_MS)
    _append(store, clock, 0, topic="v")
    (file,) = cuts_path(store).glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    source = ModelSource({"t": _IDS["t"]}, {("t", 0): ModelLog(list(range(112)), end=112)})
    caplog.clear()

    with closing(model_mirror(store, source, max_offsets=1)) as mirror:
        for _ in range(12):
            source.groups = [_offset(mirror.batches)]
            assert mirror.advance()

    assert caplog.text.count("Rows of consumer groups stay until the table of cuts can be read: ") == 1
    assert file.name in caplog.text
    file.write_bytes(whole)
    cut = CutTable(cuts_path(store)).read(CutTable(cuts_path(store)).times()[0])
    assert _given(store, PastState(states=cut.rows.states, ledger_version=cut.ledger_version, cut=cut)) == [_offset(50)]
