"""`sparklog truncate`: what it plans, takes back and refuses."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import MAINTENANCE_LOCK
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import LOG, SETTINGS, clean, keyed_rows, write_keyed
from tests.build.ledger_rows import change_row
from tests.build.retained_store import state_of
from tests.build.sink_store import contents, in_process, numbers, open_events, open_store, read_store
from tests.sparklog_command import Sparklog

_FIRST, _SECOND = TopicPartition("events", 0), TopicPartition("events", 1)


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store with 0..99 and then 100..159 in two logs."""
    store = memory_path / "store"
    with closing(open_events(store)) as writer:
        writer.append("q", 0, in_process(numbers(0, 100)))
        writer.append("q", 1, in_process(numbers(100, 160)))
    return store


def _ends(store: Path) -> dict[TopicPartition, int]:
    return {log: state.log_end_offset for log, state in Ledger.open(store / "ledger").states().items()}


def test_truncate_when_not_executed_then_a_plan_and_nothing_is_changed(store: Path, sparklog: Sparklog) -> None:
    """The plan has each log's old and new end, and the offsets that a batch across the new end takes along."""
    before, end = contents(store), _ends(store)[_FIRST]

    ran = sparklog("truncate", store, "--to", "events:0:13")

    assert ran.code == 0, ran.err
    assert f"events-0: ends at offset 13, not {end}: {end - 13} offsets" in ran.out
    assert "are lost, too, with a batch across the new end" in ran.out
    assert "planned: 1 logs" in ran.out
    assert contents(store) == before


def test_truncate_when_executed_then_all_logs_end_there_in_one_version_and_the_stream_goes_on(
    store: Path, sparklog: Sparklog
) -> None:
    """The commit that takes the records back is one for all logs; a replay of them is skipped."""
    before = read_store(store)
    version, ends = Ledger.open(store / "ledger").version, {"events-0": 40, "events-1": 30}

    ran = sparklog("truncate", store, "--to", "events:0:40,events:1:30", "--execute", "--json")

    assert ran.code == 0, ran.err
    assert {each["log"]: each["log_end_offset"] for each in ran.objects[0]["logs"]} == ends
    assert _ends(store) == {_FIRST: 40, _SECOND: 30}
    assert Ledger.open(store / "ledger").version == version + 2
    found = read_store(store)
    for name, end in ends.items():
        assert found[name] == before[name][: len(found[name])]
        assert end - 20 < len(found[name]) <= end
    with closing(open_events(store)) as writer:
        assert writer.append("q", 1, in_process(numbers(100, 160))).replayed
        writer.append("q", 2, in_process(numbers(160, 200)))
    assert sparklog("verify", store).code == 0
    for name, end in ends.items():
        offsets = [each.offset for each in read_store(store)[name] if each not in found[name]]
        assert offsets == [*range(end, end + len(offsets))]


def test_truncate_when_each_log_ends_there_then_nothing_is_changed(store: Path, sparklog: Sparklog) -> None:
    """A second run has nothing to do."""
    assert sparklog("truncate", store, "--to", "events:0:40", "--execute").code == 0
    version = Ledger.open(store / "ledger").version

    ran = sparklog("truncate", store, "--to", "events:0:40", "--execute")

    assert (ran.code, ran.out) == (0, "nothing to truncate: each log ends at its offset\n")
    assert Ledger.open(store / "ledger").version == version


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("events:0", "name a new end as TOPIC:PARTITION:OFFSET: to=events:0"),
        ("events:0:-1", "name a new end as TOPIC:PARTITION:OFFSET"),
        ("events:0:1,events:0:2", "a log is named twice: log=events-0"),
        ("event:0:1", "no such log in the store: log=event-0 topics=events"),
        ("events:0:9999", "the log ends below this offset: log=events-0 offset=9999"),
        ("events:1:1,events:7:1", "no such log in the store: log=events-7"),
    ],
)
@pytest.mark.parametrize("how", [(), ("--execute",)])
def test_truncate_when_an_end_can_not_be_had_then_refused_and_nothing_is_changed(
    store: Path, sparklog: Sparklog, to: str, error: str, how: tuple[str, ...]
) -> None:
    """Also of the logs whose ends could be had."""
    ends, before = _ends(store), contents(store / "logs")

    ran = sparklog("truncate", store, "--to", to, *how)

    assert ran.code != 0
    assert error in ran.err
    assert (_ends(store), contents(store / "logs")) == (ends, before)


@pytest.mark.parametrize("how", [(), ("--execute",)])
def test_truncate_when_compaction_has_passed_the_offset_then_refused(
    memory_path: Path, sparklog: Sparklog, how: tuple[str, ...]
) -> None:
    """Below it are no records that later ones superseded; with these gone, too, keys would have no value at all."""
    store = write_keyed(memory_path / "store")
    clean(store)
    compacted, before = state_of(store, LOG).compacted_offset, contents(store / "logs")

    ran = sparklog("truncate", store, "--to", f"{LOG.topic}:0:{compacted - 1}", *how)

    assert ran.code == 2
    assert f"passed this offset: log={LOG} offset={compacted - 1} compacted_offset={compacted}" in ran.err
    assert contents(store / "logs") == before
    assert sparklog("truncate", store, "--to", f"{LOG.topic}:0:{compacted}", "--execute").code == 0
    assert state_of(store, LOG).log_end_offset == compacted
    assert sparklog("verify", store).code == 0


def test_truncate_when_a_sink_runs_then_refused_and_nothing_is_changed(store: Path, sparklog: Sparklog) -> None:
    """Its next commit would be above what it knows."""
    ends = _ends(store)
    with closing(open_events(store)):
        ran = sparklog("truncate", store, "--to", "events:0:40", "--execute")

    assert ran.code == 3
    assert "writer.lock" in ran.err
    assert _ends(store) == ends


def test_truncate_when_a_maintenance_runs_then_refused_and_nothing_is_changed(store: Path, sparklog: Sparklog) -> None:
    """It may be about to delete or rewrite segments."""
    ends, lock = _ends(store), WriterLock.acquire(store / MAINTENANCE_LOCK)
    try:
        ran = sparklog("truncate", store, "--to", "events:0:40", "--execute")
    finally:
        lock.release()

    assert ran.code == 3
    assert "maintenance.lock" in ran.err
    assert _ends(store) == ends


def test_truncate_when_the_damage_hides_the_offset_then_refused_and_no_log_is_changed(
    store: Path, sparklog: Sparklog
) -> None:
    """Nothing tells where the batch begins that is to go."""
    path = sorted((store / "logs" / "events-1").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    ends, before = _ends(store), contents(store / "logs")

    ran = sparklog("truncate", store, "--to", "events:0:40,events:1:5", "--execute")

    assert ran.code == 1
    assert path.name in ran.err
    assert (_ends(store), contents(store / "logs")) == (ends, before)


def test_truncate_when_the_offset_lies_below_the_start_then_the_log_is_empty_and_starts_there(
    store: Path, sparklog: Sparklog
) -> None:
    """The plan says so."""
    change_row(store, _FIRST, log_start_offset=40)

    ran = sparklog("truncate", store, "--to", "events:0:0", "--execute")

    assert "no record stays, the log starts at offset 0" in ran.out
    state = Ledger.open(store / "ledger").states()[_FIRST]
    assert (state.log_start_offset, state.log_end_offset) == (0, 0)
    assert sparklog("verify", store).code == 0


def test_truncate_as_of_when_a_version_then_all_logs_end_as_they_did_and_those_made_since_are_empty(
    store: Path, sparklog: Sparklog
) -> None:
    """The load of the second micro-batch, and a topic that it made, are taken back."""
    version, before, ends = Ledger.open(store / "ledger").version, read_store(store), _ends(store)
    with closing(open_events(store)) as writer:
        writer.append("q", 2, in_process(numbers(160, 300)))
    with closing(open_store(store, {"since": {}}, topic="since")) as writer:
        writer.append("q", 3, in_process(numbers(0, 10)))

    planned = sparklog("truncate", store, "--as-of", version)
    ran = sparklog("truncate", store, "--as-of", version, "--execute")

    assert planned.code == ran.code == 0, ran.err
    assert "since-0: ends at offset 0, not 10: 10 offsets" in planned.out
    assert "it was made since" in planned.out
    assert f"to the ledger version {version}; --execute does it" in planned.out
    assert "are lost, too" not in ran.out
    assert _ends(store) == {**ends, TopicPartition("since", 0): 0}
    assert read_store(store) == {**before, "since-0": []}
    assert sparklog("verify", store).code == 0
    again = sparklog("truncate", store, "--as-of", version, "--execute")
    assert (again.code, again.out) == (
        0,
        f"nothing to truncate, to the ledger version {version}: each log ends at its offset\n",
    )


def test_truncate_as_of_when_topics_are_named_then_the_others_stay(store: Path, sparklog: Sparklog) -> None:
    """Also a log whose state was overtaken can be left out by that."""
    version = Ledger.open(store / "ledger").version
    with closing(open_store(store, {"other": {}}, topic="other")) as writer:
        writer.append("q", 2, in_process(numbers(0, 10)))
    with closing(open_events(store)) as writer:
        writer.append("q", 3, in_process(numbers(160, 300)))

    assert sparklog("truncate", store, "--as-of", version, "--topics", "ev.*", "--execute").code == 0

    assert _ends(store)[TopicPartition("other", 0)] == 10
    assert sparklog("truncate", store, "--as-of", version, "--topics", "none.*").code == 1


def test_truncate_as_of_when_a_truncation_has_passed_the_state_then_refused(store: Path, sparklog: Sparklog) -> None:
    """The log has grown again, with other records at these offsets: its leader epoch says so."""
    version = Ledger.open(store / "ledger").version
    assert sparklog("truncate", store, "--to", "events:0:40", "--execute").code == 0
    with closing(open_events(store)) as writer:
        writer.append("q", 2, in_process(numbers(160, 400)))
    ends = _ends(store)

    ran = sparklog("truncate", store, "--as-of", version, "--execute")

    assert ran.code == 2
    assert "log=events-0: it was truncated since" in ran.err
    assert _ends(store) == ends


def test_truncate_as_of_when_compaction_has_passed_the_state_then_refused(
    memory_path: Path, sparklog: Sparklog
) -> None:
    """Records of that state may have gone for later ones, which would go, too."""
    store = write_keyed(memory_path / "store", count=100)
    version = Ledger.open(store / "ledger").version
    with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic)) as writer:
        writer.append("q", 99, in_process(keyed_rows(100, 200)))
    clean(store)
    before = contents(store / "logs")

    ran = sparklog("truncate", store, "--as-of", version, "--execute")

    assert ran.code == 2
    assert f"log={LOG}: compaction may have dropped records for later ones" in ran.err
    assert contents(store / "logs") == before


@pytest.mark.parametrize("how", [(), ("--as-of", 1, "--to", "events:0:1"), ("--to", "events:0:1", "--topics", "e.*")])
def test_truncate_when_it_is_not_clear_to_where_then_wrong_use(
    store: Path, sparklog: Sparklog, how: tuple[object, ...]
) -> None:
    """One state, or the end of each log."""
    assert sparklog("truncate", store, *how).code == 2
