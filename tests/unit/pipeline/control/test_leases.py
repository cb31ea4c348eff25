"""Leases: one owner per epoch, whoever races; what is lost stops its run."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.pipeline.control.leases import LEASE_MS, acquire_leases, holding_leases, leased_elsewhere
from sparklog.pipeline.control.schemas import LEASES
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.control_tables import DeltaLeaseTable, put_rows
from tests.build.maintained_logs import NOW_MS
from tests.build.manual_clock import ManualClock

_A, _B, _C = (TopicPartition("t", number) for number in range(3))


def test_leases_when_logs_are_free_then_the_first_epoch(memory_path: Path) -> None:
    """A second run of another machine gets only what the first one has not, and hears who has the rest."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    first = acquire_leases(table, [_A, _B], "r1", clock, "here")
    second = acquire_leases(table, [_B, _C], "r2", clock, "there")

    assert first.epochs == {_A: 1, _B: 1}
    assert second.epochs == {_C: 1}
    assert second.refused == {_B: f"owner={first.owner} epoch=1 expires_ms={NOW_MS + LEASE_MS}"}
    elsewhere = leased_elsewhere(table.rows(LEASES), "here", NOW_MS)
    assert list(elsewhere) == [_C]
    assert leased_elsewhere(table.rows(LEASES), "here", NOW_MS + LEASE_MS) == {}


def test_leases_when_expired_then_the_next_epoch(memory_path: Path) -> None:
    """A run that died elsewhere keeps nobody for longer than its term."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    acquire_leases(table, [_A], "r1", clock, "there")
    clock.advance(LEASE_MS - 1)
    assert acquire_leases(table, [_A], "r2", clock, "here").epochs == {}
    clock.advance(1)

    assert acquire_leases(table, [_A], "r3", clock, "here").epochs == {_A: 2}


def test_leases_when_their_owner_died_on_this_machine_then_at_once(memory_path: Path) -> None:
    """Who holds the maintenance lock knows that no other run of this machine lives."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    acquire_leases(table, [_A], "r1", clock, "here")

    assert acquire_leases(table, [_A], "r2", clock, "here").epochs == {_A: 2}


def test_leases_when_given_back_then_anybody_may_have_them(memory_path: Path) -> None:
    """A run that ends well leaves nothing to wait for."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    with holding_leases(table, leases, fence=lambda: None):
        pass

    assert acquire_leases(table, [_A], "r2", clock, "here").epochs == {_A: 2}


def test_leases_when_many_race_then_each_epoch_has_one_owner(memory_path: Path) -> None:
    """A merge that did not fail is no answer: what is read back is."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    put_rows(memory_path, LEASES, [])
    owned: list[tuple[int, str]] = []

    def race(number: int) -> None:
        for turn in range(3):
            leases = acquire_leases(table, [_A], f"{number}-{turn}", clock, f"m{number}")
            owned.extend((epoch, leases.owner) for epoch in leases.epochs.values())
            if leases.epochs:
                table.try_update(LEASES, {"expires_ms": 0}, leases.owner)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, range(4)))

    epochs = [epoch for epoch, _ in owned]
    assert len(epochs) == len(set(epochs)) > 0


def test_leases_when_the_owners_clock_is_set_back_then_lost_when_others_may_have_them(memory_path: Path) -> None:
    """Its term is over for machines whose clocks are right, whatever its own says."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    clock.set_wall(-3_600_000)
    clock.advance(LEASE_MS)

    assert leases.is_lost


def test_leases_when_the_owners_clock_is_set_back_then_are_prolonged_all_the_same(memory_path: Path) -> None:
    """From when they were had, by what passed since: no row says that a lease ends before it does."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    clock.set_wall(-3_600_000)
    clock.advance(LEASE_MS // 2)
    with holding_leases(table, leases, lambda: None, wait_s=0.01):
        deadline = time.monotonic() + 20
        while leases.until_ms == NOW_MS + LEASE_MS and time.monotonic() < deadline:
            time.sleep(0.01)
        expires = [row["expires_ms"] for row in table.rows(LEASES)]

    assert expires == [NOW_MS + LEASE_MS // 2 + LEASE_MS]


def test_leases_when_the_owner_was_paused_and_its_clock_is_right_again_then_lost(memory_path: Path) -> None:
    """A virtual machine that stood still counts nothing meanwhile; once its clock is set it knows."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    clock.set_wall(LEASE_MS)

    assert leases.is_lost


def test_leases_when_taken_over_then_the_run_is_stopped(memory_path: Path) -> None:
    """A run that slept past its term finds another's name, lets its executors stop, and may write nothing more."""
    table, clock, fenced = DeltaLeaseTable(memory_path), ManualClock(NOW_MS), threading.Event()
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    leases.check()
    clock.advance(LEASE_MS)
    assert acquire_leases(table, [_A], "r2", clock, "here").epochs == {_A: 2}

    with holding_leases(table, leases, fenced.set, wait_s=0.01):
        assert fenced.wait(10)
        with pytest.raises(WriterFencedError, match="lost its leases"):
            leases.check()
    assert [row["epoch"] for row in table.rows(LEASES) if row["expires_ms"] > clock.now_ms()] == [2]


class _StuckTable(DeltaLeaseTable):
    """A table on a disk that hangs, or whose changes always lose."""

    def __init__(self, store: Path, *, hangs: bool) -> None:
        super().__init__(store)
        self.is_asked, self.goes_on = threading.Event(), threading.Event()
        if not hangs:
            self.goes_on.set()

    def try_update(self, *_: object) -> bool:
        self.is_asked.set()
        self.goes_on.wait()
        return False


@pytest.mark.parametrize("hangs", [True, False])
def test_leases_when_they_can_not_be_prolonged_then_lost_before_others_may_have_them(
    memory_path: Path, hangs: bool
) -> None:
    """A minute before: clocks differ, and executors need time to stop."""
    table, clock, fenced = _StuckTable(memory_path, hangs=hangs), ManualClock(NOW_MS), threading.Event()
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    with holding_leases(table, leases, fenced.set, wait_s=0.01):
        assert table.is_asked.wait(10)
        clock.advance(LEASE_MS - 60_001)
        leases.check()
        assert not fenced.wait(0.05)
        clock.advance(1)
        with pytest.raises(WriterFencedError, match="lost its leases"):
            leases.check()
        assert fenced.wait(10)
        assert acquire_leases(DeltaLeaseTable(memory_path), [_A], "r2", clock, "here").epochs == {}
    table.goes_on.set()


def test_leases_when_given_up_then_a_late_prolongation_brings_them_not_back(memory_path: Path) -> None:
    """Executors have stopped by then."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    leases.give_up()
    leases.take_over({_A: {"expires_ms": NOW_MS + 9 * LEASE_MS}})

    assert leases.is_lost


def test_leases_when_a_run_goes_on_then_they_are_prolonged(memory_path: Path) -> None:
    """Nobody else gets a log while its run lives, however long that takes."""
    table, clock = DeltaLeaseTable(memory_path), ManualClock(NOW_MS)
    leases = acquire_leases(table, [_A], "r1", clock, "there")
    with holding_leases(table, leases, lambda: None, wait_s=0.01):
        clock.advance(LEASE_MS // 2)
        until, waited = NOW_MS + LEASE_MS + LEASE_MS // 2, threading.Event()
        while [row["expires_ms"] for row in table.rows(LEASES)] != [until]:
            waited.wait(0.01)
        clock.advance(LEASE_MS - 1 - LEASE_MS // 2)
        assert acquire_leases(table, [_A], "r2", clock, "here").epochs == {}
