"""What the passes of a loading decide from names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.names import segment_file_name
from sparklog.storage_core.log.load.plan import (
    LeftoverPlan,
    complete_swap_logs,
    name_offset,
    plan_leftovers,
    plan_segments,
)


def _name(base: int, suffix: str) -> str:
    return segment_file_name(base, suffix)


def test_plan_leftovers_when_nothing_is_on_its_way_then_plans_nothing() -> None:
    """Segments, snapshots and small files stay as they are."""
    names = [_name(0, ".log"), _name(0, ".index"), _name(5, ".snapshot"), "leader-epoch-checkpoint"]

    plan = plan_leftovers(names, {})

    assert not plan
    assert plan.names_after(names) == {name: name for name in names}


def test_plan_leftovers_when_files_are_deleted_then_they_go_but_those_of_the_metadata_log() -> None:
    """Whatever its kind a `.deleted` file goes; `.checkpoint.deleted` is not this pass's business."""
    names = [_name(0, ".log.deleted"), _name(7, ".snapshot.deleted"), "0-1.checkpoint.deleted"]

    assert plan_leftovers(names, {}) == LeftoverPlan(deleted=(_name(0, ".log.deleted"), _name(7, ".snapshot.deleted")))


def test_plan_leftovers_when_a_replacement_is_unfinished_then_its_swaps_are_void() -> None:
    """A swap at or above the smallest `.cleaned` offset is part of what was not complete; one below is complete."""
    names = [_name(0, ".log.swap"), _name(5, ".log.cleaned"), _name(5, ".index.swap"), _name(9, ".log.swap")]

    assert complete_swap_logs(names) == [_name(0, ".log.swap")]
    plan = plan_leftovers(names, {_name(0, ".log.swap"): 5})

    assert plan.void_swaps == (_name(5, ".index.swap"), _name(9, ".log.swap"))
    assert plan.cleaned == (_name(5, ".log.cleaned"),)
    assert plan.renamed == (_name(0, ".log.swap"),)


def test_plan_leftovers_when_replacements_are_complete_then_originals_in_their_range_go() -> None:
    """From the smallest swap's base up to where the largest ends, files of every kind go, and the swap's come."""
    names = [_name(base, suffix) for base in (0, 5, 10, 15) for suffix in (".log", ".index", ".snapshot")]
    swaps = [_name(5, ".index.swap"), _name(5, ".log.swap")]

    plan = plan_leftovers([*names, *swaps], {_name(5, ".log.swap"): 12})

    assert set(plan.replaced) == {_name(base, suffix) for base in (5, 10) for suffix in (".log", ".index", ".snapshot")}
    assert plan.renamed == (_name(5, ".log.swap"), _name(5, ".index.swap"))
    after = plan.names_after([*names, *swaps])
    assert after[_name(5, ".log")] == _name(5, ".log.swap")
    assert sorted(after) == sorted(
        [name for name in names if name not in plan.replaced] + [_name(5, ".log"), _name(5, ".index")]
    )


def test_plan_leftovers_when_only_an_index_is_left_to_rename_then_nothing_is_replaced() -> None:
    """The `.log` took its name before: its range does not count any more."""
    names = [_name(0, ".log"), _name(0, ".index.swap")]

    assert plan_leftovers(names, {}) == LeftoverPlan(renamed=(_name(0, ".index.swap"),))


def test_plan_leftovers_when_told_where_a_sink_works_then_leaves_its_files_alone() -> None:
    """What is on its way at the active segment or above is undone by the sink, and voids nothing below."""
    names = [_name(0, ".log.swap"), _name(9, ".log.x7.cleaned"), _name(9, ".log.deleted")]

    plan = plan_leftovers(names, {_name(0, ".log.swap"): 4}, below=9)

    assert plan == LeftoverPlan(renamed=(_name(0, ".log.swap"),), deleted=(_name(9, ".log.deleted"),))


@pytest.mark.parametrize("name", ["x.log.swap", "5.log.cleaned", ".swap"])
def test_name_offset_when_there_is_none_then_names_the_file(name: str) -> None:
    """A file on its way without an offset is refused: nobody can tell what it stands for."""
    with pytest.raises(CorruptFileError, match=f"file={name}"):
        name_offset(name)


def test_plan_segments_when_files_are_missing_then_says_which() -> None:
    """An index without a log goes; a log without offset index is recovered; one without time index gets one."""
    names = [_name(0, ".log"), _name(0, ".index"), _name(5, ".log"), _name(5, ".timeindex"), _name(7, ".txnindex")]

    found = plan_segments([*names, _name(9, ".index"), _name(5, ".snapshot"), "x.log", "5.log"])

    assert found.base_offsets == (0, 5)
    assert set(found.orphans) == {_name(7, ".txnindex"), _name(9, ".index")}
    assert found.without_index == {5}
    assert found.without_time_index == {0}
    assert found.snapshots == (5,)


_SUFFIXES = st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
_STATES = st.sampled_from(["", ".deleted", ".cleaned", ".swap"])
_NAMES = st.sets(
    st.builds(lambda base, suffix, state: _name(base, suffix + state), st.integers(0, 9), _SUFFIXES, _STATES)
)


@given(_NAMES, st.integers(1, 4))
def test_plan_leftovers_when_done_then_nothing_is_left_to_do(names: set[str], length: int) -> None:
    """The files that are there afterwards ask for nothing more, and each comes from one that was there."""
    plan = plan_leftovers(names, {name: name_offset(name) + length for name in complete_swap_logs(names)})

    after = plan.names_after(names)

    assert not plan_leftovers(after, {name: name_offset(name) + length for name in complete_swap_logs(after)})
    assert set(after.values()) <= names
    done = [*plan.deleted, *plan.void_swaps, *plan.cleaned, *plan.replaced, *plan.renamed]
    assert len(done) == len(set(done))


@given(_NAMES, st.integers(0, 12))
def test_plan_leftovers_when_killed_while_renaming_then_a_second_one_ends_alike(names: set[str], steps: int) -> None:
    """However many files took their names before a kill: the same names hold the same files in the end."""

    def ends(files: dict[str, str]) -> dict[str, int]:
        return {name: name_offset(files[name]) + 2 for name in complete_swap_logs(files)}

    def carry_out(files: dict[str, str], limit: int) -> dict[str, str]:
        plan = plan_leftovers(files, ends(files))
        gone = {*plan.deleted, *plan.void_swaps, *plan.cleaned, *plan.replaced}
        files = {name: content for name, content in files.items() if name not in gone}
        for name in plan.renamed[:limit]:
            files[name.removesuffix(".swap")] = files.pop(name)
        return files

    complete = {_name(base, suffix + ".swap") for base in (2, 4) for suffix in (".log", ".index", ".timeindex")}
    files = {name: name for name in names if not name.endswith(".swap")} | {name: name for name in complete}
    whole = carry_out(files, len(files))

    assert carry_out(carry_out(files, steps), len(files)) == whole
