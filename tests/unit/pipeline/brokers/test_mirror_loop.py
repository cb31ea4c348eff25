"""A mirror between a plain model of a cluster and a real store."""

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparklog.pipeline.brokers.source_topics import SourceTopic, open_transaction_problems
from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.deleted_records import has_deleted_records
from sparklog.sink.ledger.group_table import GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.mount.plan_groups import GroupPlan, find_groups, plan_groups
from sparklog.sink.opening.access import WRITER_LOCK
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.sink.store.topic_configs import read_other_properties, read_topic_configs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError, WriterFencedError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.golden import copy_broker_root
from tests.build.maintained_logs import log_state
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import read_store
from tests.plain.model_source import ModelLog, ModelSource, ModelTarget, model_mirror
from tests.sparklog_command import Sparklog


def _source() -> ModelSource:
    logs = {
        ("a", 0): ModelLog([*range(0, 40), *range(60, 90)], end=100),
        ("a", 1): ModelLog(list(range(25, 70)), start=25, end=70),
        ("b", 0): ModelLog([], start=7, end=7),
    }
    return ModelSource({"a": random_id(), "b": random_id()}, logs)


def _advance(store: Path, source: ModelSource, **options: Any) -> int:
    """Mirror until there is nothing to do; return the number of micro-batches."""
    with closing(model_mirror(store, source, **options)) as mirror:
        while mirror.advance():
            pass
        return mirror.batches


def _offsets(store: Path) -> dict[str, list[int]]:
    return {log: [each.offset for each in records] for log, records in read_store(store).items()}


def _groups_of(store: Path) -> GroupPlan:
    ledger = Ledger.open(Store.find(store).ledger_path)
    groups = find_groups(GroupTable(store), ledger.transaction_version)
    return plan_groups(Store.find(store), groups, ledger.states())


def _spans(store: Path) -> dict[str, tuple[int, int]]:
    states = Ledger.open(Store.find(store).ledger_path).states()
    return {str(log): (state.log_start_offset, state.log_end_offset) for log, state in states.items()}


def test_mirror_when_the_source_has_gaps_then_offsets_ends_ids_and_settings_are_its_own(memory_path: Path) -> None:
    """In one micro-batch or in many; a log without a record ends where it does at the source."""
    source, store, other = _source(), memory_path / "store", memory_path / "other"

    assert _advance(store, source) == 1
    assert _advance(store, source) == 0
    assert _advance(other, source, max_offsets=30) > 3

    expected = {"a-0": [*range(0, 40), *range(60, 90)], "a-1": list(range(25, 70)), "b-0": []}
    assert _offsets(store) == _offsets(other) == expected
    assert _spans(store) == _spans(other) == {"a-0": (0, 100), "a-1": (25, 70), "b-0": (7, 7)}
    found = Store.find(store)
    assert {each.topic: each.topic_id for each in Ledger.open(found.ledger_path).states().values()} == source.ids
    assert read_topic_configs(found)["a"].segment_bytes == 600
    assert read_topic_configs(found)["a"].retention_ms == -1
    assert read_topic_configs(found)["a"].flush_messages == 1
    assert read_other_properties(found) == {each: {"min.insync.replicas": "2"} for each in "ab"}


def test_mirror_when_topics_and_partitions_appear_then_the_next_micro_batch_has_them(memory_path: Path) -> None:
    """Without a new start of the verb."""
    source, store = _source(), memory_path / "store"
    with closing(model_mirror(store, source)) as mirror:
        assert mirror.advance()
        source.logs["a", 2] = ModelLog([0, 1], end=2)
        source.ids["c"] = random_id()
        source.logs["c", 0] = ModelLog([5], start=5, end=6)
        source.logs["a", 0].offsets.append(100)
        source.logs["a", 0].end = 101
        assert mirror.advance()
        assert not mirror.advance()

    found = _offsets(store)
    assert (found["a-2"], found["c-0"], found["a-0"][-1]) == ([0, 1], [5], 100)
    assert _spans(store)["c-0"] == (5, 6)


@pytest.fixture
def mirrored(memory_path: Path) -> tuple[Path, ModelSource]:
    """A store that is up to date with its source."""
    store, source = memory_path / "store", _source()
    _advance(store, source)
    return store, source


def test_mirror_when_it_took_the_store_by_force_and_lost_it_so_then_a_new_topic_does_not_bring_it_back(
    memory_path: Path,
) -> None:
    """The force is for the writer that was there at the start, not for the mirror's successor."""
    source, store = _source(), memory_path / "store"
    suspended = model_mirror(store, source, take_lock_by_force=True)
    assert suspended.advance()
    with closing(model_mirror(store, source, take_lock_by_force=True)) as successor:
        successor.advance()
        source.ids["c"] = random_id()
        source.logs["c", 0] = ModelLog([5], start=5, end=6)

        with pytest.raises(WriterFencedError):
            suspended.advance()
        suspended.close()
        assert successor.advance()


def test_mirror_when_a_topic_was_made_anew_then_refused_and_nothing_changes(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """Records of two topics never come into one log."""
    store, source = mirrored
    before, source.ids["a"] = _spans(store), random_id()

    with pytest.raises(InvalidConfigError, match=rf"topic=a source_id={source.ids['a']}.*delete-topic STORE a"):
        _advance(store, source)
    assert _spans(store) == before


class _WhileRead(ModelTarget):
    """A sink whose source changes while it is read: the topic `a` gets other records, and another id or end."""

    new_id: str | None = None
    end = 200

    def write(self, *given: Any) -> MicroBatchMetrics:
        """Read what is there by then."""
        self._source.ids["a"] = self.new_id or self._source.ids["a"]
        self._source.logs["a", 0].offsets[-10:] = range(self.end - 10, self.end)
        self._source.logs["a", 0].end = self.end
        return super().write(*given)


@pytest.mark.parametrize("has_records", [True, False])
def test_mirror_when_a_topic_is_made_anew_while_it_is_read_then_refused_and_nothing_changes(
    mirrored: tuple[Path, ModelSource], has_records: bool
) -> None:
    """Neither its records nor its groups' offsets come into the old log."""
    store, source = mirrored
    source.groups = [GroupOffset(group="g", topic="a", partition=0, offset=60)]
    source.logs["a", 0].end += 10 * has_records

    class Target(_WhileRead):
        new_id = random_id()

    with pytest.raises(InvalidConfigError, match=rf"topic=a source_id={Target.new_id}.*delete-topic STORE a"):
        _advance(store, source, target=Target)
    assert _spans(store)["a-0"] == (0, 100)
    assert _groups_of(store) == GroupPlan()


@pytest.mark.parametrize("is_below_the_store", [True, False])
def test_mirror_when_a_log_goes_back_below_what_is_read_then_that_is_not_committed(
    mirrored: tuple[Path, ModelSource], is_below_the_store: bool
) -> None:
    """After an unclean election other records have these offsets: they are read again, or the log went back."""
    store, source = mirrored
    source.logs["a", 0].end = 150

    class Target(_WhileRead):
        end = 90 if is_below_the_store else 120

    with closing(model_mirror(store, source, target=Target)) as mirror:
        if is_below_the_store:
            with pytest.raises(InvalidConfigError, match="log=a-0 source_end=90 store_end=100"):
                mirror.advance()
        else:
            assert not mirror.advance()
        assert _spans(store)["a-0"] == (0, 100)
        if not is_below_the_store:
            assert mirror.advance()
            assert _spans(store)["a-0"] == (0, 120)


def test_mirror_when_a_topic_is_deleted_between_two_questions_then_the_next_round_mirrors_the_others(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """The deleted topic's records stay in the store."""
    store, source = mirrored
    with closing(model_mirror(store, source)) as mirror:
        source.leaving = "a"
        source.logs["b", 0] = ModelLog([7], start=7, end=8)

        assert not mirror.advance()
        assert mirror.advance()

    assert _spans(store) == {"a-0": (0, 100), "a-1": (25, 70), "b-0": (7, 8)}


def test_mirror_when_the_source_went_back_then_refused_and_names_the_offsets(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """New records at these offsets would be missed; no offset is named from which on it would be right again."""
    store, source = mirrored
    source.logs["a", 0].end = 90

    with pytest.raises(InvalidConfigError, match=r"log=a-0 source_end=90 store_end=100.*90\.\.99") as refused:
        _advance(store, source)
    assert "offsets below 90 may differ, too" in str(refused.value)
    assert "--to a:0:OFFSET --execute" in str(refused.value)


def test_mirror_when_the_store_has_records_of_a_transaction_that_is_open_at_the_source_then_other_logs_go_on(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """As after an import: the source's log did not go back, it ends above its last stable offset."""
    store, source = mirrored
    source.logs["a", 0].unstable = 60
    source.logs["a", 1].offsets.append(70)
    source.logs["a", 1].end = 71

    assert _advance(store, source) == 1
    assert _spans(store) == {"a-0": (0, 100), "a-1": (25, 71), "b-0": (7, 7)}


def test_mirror_when_a_transaction_of_an_import_stays_open_in_the_store_then_refused(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """A mirror brings no marker: the transaction would end `read_committed` for good."""
    store, source = mirrored
    lock = WriterLock.acquire(store / WRITER_LOCK)
    ledger = Ledger.open_for_writing(Store.find(store).ledger_path, lock, follows_crash=False)
    row = ledger.rows[TopicPartition("a", 0)]
    ledger.correct(np.array([row]), {"first_unstable_offset": np.array([60])})
    lock.sign_off()
    lock.release()
    source.logs["a", 0].offsets.append(100)
    source.logs["a", 0].end = 101
    before = _spans(store)

    with pytest.raises(InvalidConfigError, match=r"log=a-0 offset=60.*sparklog truncate STORE --to a:0:60 --execute"):
        _advance(store, source)
    assert _spans(store) == before


def test_mirror_when_it_names_a_truncation_of_an_imported_transaction_then_that_goes_and_the_mirror_goes_on(
    memory_path: Path, sparklog: Sparklog
) -> None:
    """Also if the topic's settings are not known: its broker's cleaner has not passed an open transaction."""
    name, store = "v2-transactional-open", memory_path / "store"
    broker = copy_broker_root(memory_path / "broker", name)
    assert sparklog("import", broker, store, "--execute").code == 0
    (state,) = Ledger.open(store / "ledger").all_states()
    source = ModelSource({name: state.topic_id}, {(name, 0): ModelLog(list(range(10)), end=10)})

    with pytest.raises(InvalidConfigError, match="sparklog truncate STORE --to") as refused:
        _advance(store, source)
    (offset,) = re.findall(r"sparklog truncate STORE --to (\S+) --execute", str(refused.value))
    ran = sparklog("truncate", store, "--to", offset, "--execute")

    assert ran.code == 0, ran.err
    assert _advance(store, source) == 1
    assert _spans(store) == {f"{name}-0": (0, 10)}


def test_mirror_when_compaction_has_passed_a_transaction_that_is_open_then_no_truncation_is_named() -> None:
    """It would be refused."""
    state = log_state("a", 0, first_unstable_offset=60, compacted_offset=61)

    (problem,) = open_transaction_problems({"a": SourceTopic("", 1)}, [state])

    assert "truncate" not in problem


def test_mirror_when_records_are_deleted_before_they_were_mirrored_then_refused_unless_gaps_are_allowed(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """The gap is the user's decision; with it the mirror goes on at the source's start."""
    store, source = mirrored
    log = source.logs["a", 0]
    log.offsets, log.start, log.end = list(range(150, 160)), 150, 160

    with pytest.raises(InvalidConfigError, match=r"log=a-0 offsets 100\.\.149; --allow-gaps"):
        _advance(store, source)
    assert _advance(store, source, allow_gaps=True) == 1
    assert _offsets(store)["a-0"][-11:] == [89, *range(150, 160)]
    assert _spans(store)["a-0"] == (0, 160)


def test_mirror_when_micro_batches_are_small_then_names_all_offsets_that_are_gone(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """Not those of the next micro-batch alone."""
    store, source = mirrored
    log = source.logs["a", 0]
    log.offsets, log.start, log.end = list(range(150, 160)), 150, 160

    with pytest.raises(InvalidConfigError, match=r"log=a-0 offsets 100\.\.149; --allow-gaps"):
        _advance(store, source, max_offsets=10)


def test_mirror_when_a_log_was_empty_and_its_first_records_are_deleted_then_refused_unless_gaps_are_allowed(
    memory_path: Path,
) -> None:
    """A log belongs to the mirror from its opening on, with or without a record."""
    source, store = ModelSource({"a": random_id()}, {("a", 0): ModelLog()}), memory_path / "store"
    assert _advance(store, source) == 0
    source.logs["a", 0] = ModelLog(list(range(50, 100)), start=50, end=100)

    with pytest.raises(InvalidConfigError, match=r"log=a-0 offsets 0\.\.49; --allow-gaps"):
        _advance(store, source)
    assert _advance(store, source, allow_gaps=True) == 1
    assert _spans(store) == {"a-0": (50, 100)}


def test_mirror_when_a_new_log_starts_above_0_then_the_store_is_sound_before_and_after_its_first_record(
    memory_path: Path,
) -> None:
    """Its start is the source's from the opening on, and no reader takes it for a deletion."""
    source, store = ModelSource({"a": random_id()}, {("a", 0): ModelLog(start=25, end=25)}), memory_path / "store"
    for last in (25, 40):
        source.logs["a", 0] = ModelLog(list(range(30, last)), start=25, end=last)
        _advance(store, source)
        findings: list[Finding] = []
        verify(open_logs(store), findings.append, deep=True)

        assert _spans(store) == {"a-0": (25, last)}
        assert [str(each) for each in findings if each.kind not in ("known", "nothing", "gap")] == []
        assert not has_deleted_records(store / "logs" / "a-0", 25)


def test_mirror_when_a_time_is_given_then_ends_at_the_first_later_record(memory_path: Path) -> None:
    """A log without later records ends where it did at the start; what comes meanwhile waits for the next run."""
    source, store = _source(), memory_path / "store"
    with closing(model_mirror(store, source, until=1065, max_offsets=40)) as mirror:
        assert mirror.advance()
        source.logs["b", 0] = ModelLog([7], start=7, end=8)
        while mirror.advance():
            pass
        assert mirror.is_done

    assert _spans(store) == {"a-0": (0, 65), "a-1": (25, 65), "b-0": (7, 7)}


def test_mirror_when_a_time_is_to_come_then_goes_on_until_it_has_passed(memory_path: Path) -> None:
    """What the source gets before that time belongs to it."""
    source, store, clock = _source(), memory_path / "store", ManualClock(1_000)
    with closing(model_mirror(store, source, clock, until=1_105)) as mirror:
        assert mirror.advance()
        assert (mirror.advance(), mirror.is_done) == (False, False)
        source.logs["a", 0].offsets += range(100, 110)
        source.logs["a", 0].end = 110
        clock.advance(200)
        while mirror.advance():
            pass
        assert mirror.is_done

    assert _spans(store)["a-0"] == (0, 105)


def test_mirror_when_only_groups_go_on_then_an_empty_micro_batch_has_their_offsets(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """They belong to the version of the ledger that they come with; groups of other topics are left out."""
    store, source = mirrored
    offset = GroupOffset(group="g", topic="a", partition=0, offset=60)
    source.groups = [offset, GroupOffset(group="g", topic="other", partition=0, offset=1)]

    assert _advance(store, source) == 1
    assert _advance(store, source) == 0

    assert _groups_of(store) == GroupPlan((offset,))


def test_mirror_when_groups_never_rest_then_it_is_done_with_the_sources_records(memory_path: Path) -> None:
    """With `--until` the last micro-batch has the groups of its time; what they read after that is for the next run."""
    source, store = _source(), memory_path / "store"
    with closing(model_mirror(store, source, until="now")) as mirror:
        for offset in range(3):
            source.groups = [GroupOffset(group="g", topic="a", partition=0, offset=offset)]
            mirror.advance()

        assert (mirror.is_done, mirror.batches) == (True, 1)


def test_mirror_when_it_has_other_topics_than_before_then_groups_of_the_others_stay(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """Their logs stay as they are, too: two runs with different patterns may share a store."""
    store, source = mirrored
    offsets = [GroupOffset(group="g", topic=topic, partition=0, offset=7) for topic in "ab"]
    source.groups = offsets
    _advance(store, source)
    del source.ids["a"]
    source.logs = {("b", 0): ModelLog([7], start=7, end=8)}
    source.groups = [replace(offsets[1], offset=8)]
    _advance(store, source)

    assert _groups_of(store) == GroupPlan((offsets[0], source.groups[0]))


def test_group_when_its_offset_is_outside_its_log_then_listed_and_not_given(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """Above the end it would miss the records to come; below the start its own policy would decide."""
    store, source = mirrored
    spans = [("a", 0, 101), ("a", 0, 100), ("a", 1, 24), ("a", 1, 25), ("b", 0, 7)]
    source.groups = [
        GroupOffset(group=f"g{number}", topic=topic, partition=partition, offset=offset)
        for number, (topic, partition, offset) in enumerate(spans)
    ]
    _advance(store, source)

    found = Store.find(store)
    ledger = Ledger.open(found.ledger_path)
    mounted = {log: state for log, state in ledger.states().items() if log.topic == "a"}
    plan = plan_groups(found, find_groups(GroupTable(store), ledger.transaction_version), mounted)

    assert [each.group for each in plan.given] == ["g1", "g3"]
    assert [str(each) for each in plan.refused] == [
        "g0: a-0 offset 101 is above the log's end 100",
        "g2: a-1 offset 24 is below the log's start 25",
        "g4: b-0 offset 7 is of a log that is not there",
    ]


def test_mirror_when_settings_change_at_the_source_then_the_store_has_them(
    mirrored: tuple[Path, ModelSource],
) -> None:
    """Looked at again after a minute, also if no topic appears."""
    store, source = mirrored
    clock = ManualClock(SystemClock().now_ms())
    with closing(model_mirror(store, source, clock)) as mirror:
        mirror.advance()
        source.given["retention.bytes"] = "1000"
        mirror.advance()
        assert read_topic_configs(Store.find(store))["a"].retention_bytes == -1
        clock.advance(60_001)
        mirror.advance()

        assert read_topic_configs(Store.find(store))["a"].retention_bytes == 1000
