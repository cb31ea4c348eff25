from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.inspect.repair.plan import HeaderPatch, LogRepair, LostOffsets, SegmentRewrite, plan_repair
from sparklog.storage_core.inspect.verify.findings import ExpectedLog, Finding, LogReport

_BASE = 100
_NAME = f"{_BASE:020d}.log"
_EXPECTED = ExpectedLog(
    log_start_offset=0,
    log_end_offset=150,
    active_base_offset=_BASE,
    active_size_bytes=900,
    topic_id="q1Sh-9_ISia_zwGINzRvyQ",
    leader_epoch=0,
)


def _plan(tmp_path_factory: pytest.TempPathFactory, *findings: Finding, is_store: bool = True) -> LogRepair:
    report = LogReport(tmp_path_factory.getbasetemp() / "t-0", bytes_checked=10_000)
    report.findings += findings
    return plan_repair(report, _EXPECTED if is_store else None, {_NAME: 900, "x.cleaned": 1})


def _damage(first: int, last: int | None, position: int = 300) -> Finding:
    return Finding(
        log="t-0",
        file=_NAME,
        kind="damage",
        rule="crc",
        what="wrong CRC",
        position=position,
        end_position=position + 100,
        first_offset=first,
        last_offset=last,
    )


def test_plan_repair_when_damage_is_in_the_middle_then_left_out_and_lost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Damaged bytes go, their offsets are written down, and the ledger takes the size over."""
    plan = _plan(tmp_path_factory, _damage(110, 119))

    assert plan.rewrites == [SegmentRewrite(base_offset=_BASE, used_bytes=900, left_out=((300, 400),))]
    assert plan.lost == [LostOffsets(110, 119, _NAME, "wrong CRC")]
    assert plan.checks_size
    assert plan.leftovers == ["x.cleaned"]


def test_plan_repair_when_a_stores_end_is_damaged_then_an_empty_batch_holds_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The committed end never goes back."""
    (rewrite,) = _plan(tmp_path_factory, _damage(140, 149)).rewrites

    assert rewrite.fill == (140, 149)


def test_plan_repair_when_a_plain_logs_end_is_damaged_then_only_cut(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without a ledger nobody promised the offsets behind the last sound batch."""
    plan = _plan(tmp_path_factory, _damage(140, None), is_store=False)

    assert (plan.rewrites[0].fill, plan.checks_size) == (None, False)


def test_plan_repair_when_two_batches_are_damaged_then_one_rewrite(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A segment is written once, whatever is wrong with it."""
    plan = _plan(tmp_path_factory, _damage(140, 145, 700), _damage(110, 119))

    assert [each.left_out for each in plan.rewrites] == [((300, 400), (700, 800))]
    assert len(plan.lost) == 2


def test_plan_repair_when_a_header_field_is_wrong_then_set_to_what_is_due(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Base offset and leader epoch lie outside the CRC: nothing is lost."""
    place = {"log": "t-0", "file": _NAME, "kind": "damage", "what": "", "first_offset": 110, "last_offset": 119}
    offset = Finding(**place, rule="base-offset", position=300, due=110)  # type: ignore[arg-type]
    epoch = Finding(**place, rule="leader-epoch", position=400, end_position=600, due=0)  # type: ignore[arg-type]

    plan = _plan(tmp_path_factory, offset, epoch)

    assert plan.rewrites[0].patches == (
        HeaderPatch("base_offset", 300, 301, 110),
        HeaderPatch("leader_epoch", 400, 600, 0),
    )
    assert plan.lost == []


def test_plan_repair_when_most_batches_have_another_epoch_then_the_file_is_wrong(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """One file against many batches: the file is written anew."""
    epoch = Finding(
        log="t-0", file=_NAME, kind="damage", rule="leader-epoch", what="", position=0, end_position=9000, due=3
    )

    plan = _plan(tmp_path_factory, epoch)

    assert (plan.rewrites, plan.written) == ([], {"leader-epoch-checkpoint": b"0\n1\n0 0\n"})


def test_plan_repair_when_the_epoch_file_is_wrong_then_the_epoch_starts_with_the_log() -> None:
    """An epoch from 0 on would say of a log that starts later that nobody deleted anything from it."""
    report = LogReport(Path("t-0"))
    report.add("checkpoint", "leader-epoch-checkpoint", "leader-epoch-checkpoint", "is missing")

    plan = plan_repair(report, replace(_EXPECTED, log_start_offset=70, leader_epoch=2), {_NAME: 900})

    assert plan.written == {"leader-epoch-checkpoint": b"0\n1\n2 70\n"}


def test_plan_repair_when_the_first_segment_is_lost_then_the_epoch_starts_where_the_log_will() -> None:
    """Whoever has not read the lost offsets yet has to learn that they are gone."""
    report = LogReport(Path("t-0"))
    report.add_offsets("missing", "segment", _NAME, "is missing", (0, 99))

    plan = plan_repair(report, _EXPECTED, {_NAME: 900})

    assert (plan.log_start_offset, plan.written) == (_BASE, {"leader-epoch-checkpoint": b"0\n1\n0 100\n"})


def test_plan_repair_when_indexes_are_wrong_then_built_once_for_each_segment(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A segment's indexes are built together; a segment that is written anew gets them anyway."""
    index = Finding(log="t-0", file=f"{0:020d}.index", kind="index", rule="offset-index", what="")
    times = Finding(log="t-0", file=f"{0:020d}.timeindex", kind="index", rule="time-index", what="")
    other = Finding(log="t-0", file=f"{_BASE:020d}.index", kind="index", rule="offset-index", what="")

    assert _plan(tmp_path_factory, index, times, other, _damage(110, 119)).rebuilds == [0]


def test_plan_repair_when_records_were_written_wrong_then_left_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What lies under a right CRC was written like that; it is said, not touched."""
    wrong = Finding(log="t-0", file=_NAME, kind="damage", rule="records", what="", position=0, end_position=90)

    plan = _plan(tmp_path_factory, wrong)

    assert (plan.left, plan.rewrites) == ([wrong], [])


def test_plan_repair_when_something_cannot_be_read_then_the_log_is_left_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What a disk refuses to give may be whole: nothing is taken for lost because of it."""
    unreadable = Finding(log="t-0", file=_NAME, kind="damage", rule="unreadable", what="", position=300)
    end = Finding(log="t-0", file=_NAME, kind="missing", rule="ledger-end", what="", first_offset=120, last_offset=149)

    plan = _plan(tmp_path_factory, unreadable, end)

    assert (plan.steps(), plan.left) == ([], [unreadable])


def test_plan_repair_when_the_directory_is_gone_then_made_with_its_end(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A lost log starts where its active segment did, and ends where it did."""
    gone = Finding(
        log="t-0", file="t-0", kind="missing", rule="directory", what="gone", first_offset=0, last_offset=149
    )

    plan = _plan(tmp_path_factory, gone)

    assert plan.makes_directory
    assert plan.rewrites == [SegmentRewrite(base_offset=_BASE, used_bytes=0, fill=(100, 149))]
    assert plan.log_start_offset == _BASE
    assert plan.lost == [LostOffsets(0, 149, "t-0", "gone")]
    assert plan.written.keys() == {"partition.metadata", "leader-epoch-checkpoint"}
    assert plan.written["leader-epoch-checkpoint"] == b"0\n1\n0 100\n"


def test_plan_repair_when_a_base_offset_is_in_doubt_then_its_segments_indexes_stay(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """An index may be the only witness: it is not built anew from the offset that is in doubt."""
    place = {"log": "t-0", "file": _NAME, "position": 300, "what": "", "first_offset": 110, "last_offset": 119}
    index = Finding(log="t-0", file=f"{_BASE:020d}.index", kind="index", rule="offset-index", what="")
    other = Finding(log="t-0", file=f"{0:020d}.index", kind="index", rule="offset-index", what="")
    for doubt in (
        Finding(**place, kind="damage", rule="base-offset"),  # type: ignore[arg-type]
        Finding(**place, kind="gap", rule="gap", due=110),  # type: ignore[arg-type]
    ):
        plan = _plan(tmp_path_factory, doubt, index, other)

        assert (plan.rebuilds, plan.rewrites) == ([0], [])
        assert plan.left == [doubt, index]


def test_plan_repair_when_a_base_offset_is_in_doubt_then_other_damage_in_its_segment_stays_too(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Without the damaged bytes the next check would take the doubtful offsets for right."""
    doubt = Finding(log="t-0", file=_NAME, kind="damage", rule="base-offset", what="", position=600)

    plan = _plan(tmp_path_factory, _damage(110, 119), doubt)

    assert (plan.rewrites, plan.lost, plan.checks_size) == ([], [], False)
    assert {each.rule for each in plan.left} == {"base-offset", "crc"}


def test_plan_repair_when_a_batch_is_there_twice_then_left_out_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The copy goes; its offsets are there already."""
    copy = Finding(log="t-0", file=_NAME, kind="damage", rule="surplus", what="", position=300, end_position=400)

    plan = _plan(tmp_path_factory, copy)

    assert ([each.left_out for each in plan.rewrites], plan.lost) == ([((300, 400),)], [])


def test_plan_repair_when_an_aborted_transactions_end_is_damaged_then_left(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Without its marker a transaction has no end: such bytes stay, other damage beside them goes."""
    report = LogReport(tmp_path_factory.getbasetemp() / "t-0", bytes_checked=10_000)
    report.findings += [_damage(110, 119), _damage(130, 135, 700)]
    report.aborted[_BASE] = [AbortedTransaction(0, 7, 105, 115, 105)]

    plan = plan_repair(report, None, {_NAME: 900})

    assert [each.left_out for each in plan.rewrites] == [((700, 800),)]
    assert [(each.rule, each.position) for each in plan.left] == [("marker", 300)]
    assert [each.first for each in plan.lost] == [130]
