"""A stream that has committed is killed and stopped, again and again, beside maintenance, readers and verifications.

A kill is armed only once the process that is to die has committed a micro-batch of its own: what is acknowledged is at
stake each time. `make kill-test` takes 68 kills; `SPARKLOG_SEED=<n>` repeats a seed.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kill.beside import Beside
from tests.kill.numbered_rows import NumberedRows, commits, problems_of_rows
from tests.kill.sparklog_process import SparklogProcess
from tests.seeds import GIVEN, take_seed

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_IS_LONG = os.environ.get("SPARKLOG_KILL_ROUNDS") is not None
_EPISODES = (4 if _IS_LONG else 1) if GIVEN is None else 1
_KINDS = (
    *("driver", "jvm", "all", "stop all, kill", "stop the driver, take over", "stop all, take over"),
    *("daemon", "worker", "stop the driver, go on", "stop all, go on", "stop a worker, go on") * 2,
    "worker",
)
_SHORT_KINDS = ("worker", "driver", "stop all, take over")
_AHEAD = 30
"""How many files lie ready: more than a stream takes between two looks."""

_PATIENCE_S = 240.0
_HELD = ("holds the store", "maintenance", "StoreLocked")
"""Why a stream may end without a kill: maintenance holds the store for a moment."""


class _Episode:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rows, self.done = NumberedRows(folder), list[str]()
        self._folder, self._choose = folder, random.Random(seed)
        self._dying: list[SparklogProcess] = []
        self._acknowledged = 0
        self._stream = self._start()

    def run(self, kinds: list[str]) -> None:
        """Deliver one kill of each kind, and look at what is left."""
        self._choose.shuffle(kinds)
        beside, maintenance = None, None
        try:
            self._wait_for_commit()
            beside = Beside(self.rows.store)
            maintenance = SparklogProcess(self._folder / "maintain.log", *self._maintain())
            for kind in kinds:
                before = self._wait_for_commit()
                time.sleep(self._choose.uniform(0, 1.5))
                self._deliver(kind)
                self.done.append(f"{kind} behind micro-batch {before}")
                print(self.done[-1], flush=True)  # a run takes long: what was delivered is known before its end
                assert not beside.faults, f"{beside.faults} {self.done}"
                assert not maintenance.has_ended, f"maintain has ended: {maintenance.said[-3000:]} {self.done}"
            self._wait_for_commit()
            assert self._stream.stop() == 0, self._stream.said[-3000:]
            beside.end()
            assert maintenance.stop() == 0, maintenance.said[-3000:]
        finally:
            for process in (self._stream, *self._dying, *([maintenance] if maintenance else [])):
                process.kill()
            if beside is not None:
                beside.end()
        assert not beside.faults, f"{beside.faults} {self.done}"
        runs = [line for line in maintenance.said.splitlines() if re.search(r"; run \d+-\w+$", line)]
        working = [line for line in runs if not line.startswith("nothing")]
        print(
            f"{commits(self.rows.store)} micro-batches, {beside.reads} reads, {beside.verifications} verifications,"
            f" {len(runs)} maintenance runs, {len(working)} of them with something to do"
        )
        assert working or not _IS_LONG
        self._take_note(self._stream)
        assert commits(self.rows.store) >= self._acknowledged
        assert problems_of_rows(self.rows.store) == [], self.done

    def _maintain(self) -> tuple[str, ...]:
        return "maintain", "--config", str(self.rows.settings), "--execute"

    def _start(self, *options: str) -> SparklogProcess:
        self.rows.extend(commits(self.rows.store) + _AHEAD)
        log = self._folder / "stream.log"
        return SparklogProcess(log, "stream", "--config", str(self.rows.settings), *options)

    def _wait_for_commit(self) -> int:
        """Return how many micro-batches are committed, once the stream that runs now has committed one of its own.

        A stream that a kill of a worker has ended, or that found the store held, is started again.
        """
        deadline, seen = time.monotonic() + _PATIENCE_S, commits(self.rows.store)
        while (now := commits(self.rows.store)) <= seen:
            self.rows.extend(now + _AHEAD)
            if self._stream.has_ended:
                self._take_note(self._stream)
                assert self._may_have_ended(), f"the stream has ended: {self._stream.said[-3000:]} {self.done}"
                self._stream.kill()
                self._stream, seen = self._start(), commits(self.rows.store)
            assert time.monotonic() < deadline, f"no commit: {self._stream.said[-3000:]} {self.done}"
            time.sleep(0.1)
        self.rows.extend(now + _AHEAD)
        for process in self._dying:
            process.kill()
        self._dying.clear()
        return now

    def _may_have_ended(self) -> bool:
        was_hurt = bool(self.done) and self.done[-1].startswith(("worker", "daemon", "stop a worker"))
        return was_hurt or any(words in self._stream.said for words in _HELD)

    def _deliver(self, kind: str) -> None:
        what, _, then = kind.partition(", ")
        role = {"stop the driver": "driver", "stop all": "all", "stop a worker": "worker"}.get(what, what)
        number = signal.SIGSTOP if what.startswith("stop") else signal.SIGKILL
        self._signal(role, number)
        if then == "go on":
            time.sleep(self._choose.uniform(0.5, 3))
            self._stream.signal("all", signal.SIGCONT, self._choose.choice)
        elif then == "take over":
            self._take_over(role)
        elif then == "kill" or role in ("driver", "jvm", "all"):
            self._let_die(then)

    def _signal(self, role: str, number: int) -> None:
        """Send a signal to a process of the stream; one that an earlier kill has ended by now is started again."""
        while not self._stream.signal(role, number, self._choose.choice):
            assert self._stream.has_ended or role == "daemon", f"no {role}: {self._stream.said[-2000:]}"
            if not self._stream.has_ended:
                role = "worker"  # Spark replaces a killed daemon only once it needs another worker
            self._wait_for_commit()

    def _let_die(self, then: str) -> None:
        """Start the next stream beside what is left of the one that dies; only its driver is waited for."""
        if then == "kill":
            time.sleep(self._choose.uniform(0.5, 3))
            self._stream.signal("all", signal.SIGKILL, self._choose.choice)
        deadline = time.monotonic() + _PATIENCE_S
        while not self._stream.has_ended:
            assert time.monotonic() < deadline, f"the driver lives on: {self._stream.said[-3000:]}"
            time.sleep(0.1)
        self._take_note(self._stream)
        self._dying.append(self._stream)
        self._stream = self._start()

    def _take_over(self, role: str) -> None:
        """Let another stream take the store by force and commit, and then the stopped one go on: it has to end."""
        old, before, deadline = self._stream, commits(self.rows.store), time.monotonic() + _PATIENCE_S
        self._stream = self._start("--take-lock-by-force")
        self._dying.append(old)
        while commits(self.rows.store) <= before:
            self.rows.extend(commits(self.rows.store) + _AHEAD)
            if self._stream.has_ended:  # a maintenance run has to end first
                assert any(words in self._stream.said for words in _HELD), self._stream.said[-3000:]
                self._stream.kill()
                self._stream = self._start("--take-lock-by-force")
            assert time.monotonic() < deadline, f"nobody takes over: {self._stream.said[-3000:]}"
            time.sleep(0.1)
        old.signal("all" if role == "all" else "driver", signal.SIGCONT, self._choose.choice)
        assert old.wait() != 0, old.said[-3000:]
        self._dying.remove(old)
        self._take_note(old)

    def _take_note(self, stream: SparklogProcess) -> None:
        """Remember what a stream said that it had committed."""
        told = [int(number) for number in re.findall(r"\bbatch (\d+): [\d,]+ records", stream.said)]
        self._acknowledged = max([self._acknowledged, *(number + 1 for number in told)])


@pytest.mark.parametrize("number", range(_EPISODES))
def test_stream_when_killed_behind_commits_then_each_acknowledged_row_is_there_once(
    memory_path: Path, number: int
) -> None:
    """Neither lost nor twice, in the logs and in quarantine; readers and verifications beside it find no fault."""
    episode = _Episode(memory_path / "episode", take_seed(number))

    episode.run(list(_KINDS if _IS_LONG else _SHORT_KINDS))

    kinds = Counter(line.partition(" behind")[0] for line in episode.done)
    print(f"delivered: {dict(kinds)}")
