"""What a maintenance plans for logs that nobody appends to."""

from contextlib import closing
from pathlib import Path

from tests.compacted_store import LOG, SETTINGS, write_keyed
from tests.erased_keys import ask
from tests.retained_store import state_of
from tests.sink_store import contents, open_store
from tests.sparklog_command import Sparklog

_QUIET = {**SETTINGS, "max.compaction.lag.ms": 3_600_000, "min.cleanable.dirty.ratio": 1.0}


def test_maintain_when_a_quiet_log_is_overdue_then_the_plan_says_that_it_is_rolled(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Nothing is rolled without --execute."""
    store = write_keyed(memory_path / "store", _QUIET)
    before = contents(store)

    ran = sparklog("maintain", store)

    assert "keyed-0  compact  do" in ran.out
    assert "rolls the active segment first: its first time is " in ran.out
    assert "max.compaction.lag.ms=3600000; dirty since" in ran.out
    (planned,) = sparklog("maintain", store, "--json").objects
    assert planned["works"][0]["first_uncleanable_offset"] == 200
    assert contents(store) == before


def test_maintain_when_a_sink_holds_the_store_then_the_plan_rolls_nothing(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Active segments are the sink's."""
    store = write_keyed(memory_path / "store", _QUIET)
    with closing(open_store(store, {LOG.topic: _QUIET}, topic=LOG.topic)):
        (planned,) = sparklog("maintain", store, "--json").objects

    work = planned["works"][0]
    assert work["first_uncleanable_offset"] == state_of(store, LOG).active_base_offset
    assert "rolls" not in work["reason"]


def test_maintain_when_keys_to_erase_lie_in_an_active_segment_then_the_plan_rolls_it(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Also of a log that is not due; without --execute nothing happens."""
    store = write_keyed(memory_path / "store", {"min.cleanable.dirty.ratio": 1.0})
    ask(store, "k3")
    before = contents(store)

    (planned,) = sparklog("maintain", store, "--json").objects

    work = planned["works"][0]
    assert (work["action"], work["decision"]) == ("erase", "do")
    assert "rolls the active segment first: it has keys to erase" in work["reason"]
    assert work["first_uncleanable_offset"] == 200
    assert contents(store) == before
