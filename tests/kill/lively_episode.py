"""One seed: a store is written, maintained and read, some of these are killed, and in the end all must be right."""

import random
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

from storage_core.clock import SystemClock
from tests.kill.harness import exit_code
from tests.kill.killed_maintenance import KILLS, KilledMaintenance
from tests.kill.lively_checks import problems_of_store
from tests.kill.lively_roles import error_of, start, wait_until_written
from tests.kill.lively_store import forget, log_ends
from tests.kill.lively_stream import LivelyStream

__all__ = ["Episode"]

_LONGEST_S: Final = 2.5
"""Between two kills."""

_DAY_MS: Final = 2 * 86_400_000
"""How far the last runs are ahead: what failed is tried again after a day at the latest."""

_LAST_RUNS: Final = 3
"""The first one takes up what waits, and sets horizons; the second one drops tombstones of a large log, and the third
one those whose key is forgotten."""


class Episode:
    """What a seed makes of a store.

    Attributes:
        store: the store.
        killed: who was killed when, in words.

    Args:
        folder: of the store, which is made.
        seed: says all that is random; a multiple of 3 writes by a stream.
        context: starts processes without Spark.
        maintenance: the job, which goes on to the next store afterwards.
    """

    def __init__(self, folder: Path, seed: int, context: ForkServerContext, maintenance: KilledMaintenance) -> None:
        folder.mkdir()
        self.store, self.killed = folder / "store", list[str]()
        self._context, self._maintenance = context, maintenance
        self._choose = random.Random(seed)
        self._is_stream = seed % 3 == 0
        self._folder = folder
        self._jobs: dict[str, ForkServerProcess | LivelyStream] = {}
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Do it.

        Raises:
            AssertionError: something is wrong; a note says what was killed.
        """
        try:
            self._disturb()
            while self._jobs:
                self._kill(next(iter(self._jobs)))
            self._end()
        except BaseException as error:
            error.add_note(f"killed: {'; '.join(self.killed)}")
            raise
        finally:
            for job in self._jobs.values():
                job.kill()

    def _disturb(self) -> None:
        """Let all of them work, and kill some."""
        choose = self._choose
        self._start("writer")
        wait_until_written(self.store, self._jobs["writer"].is_alive)
        self._start("reader")
        self._maintenance.maintain(self.store)
        victims = ["maintenance", *(choose.choice(("maintenance", "writer", "reader")) for _ in range(2))]
        choose.shuffle(victims)
        forgets_at = choose.randrange(len(victims))
        self._maintenance.wait_for_runs(self.store, 1)
        for number, victim in enumerate(victims):
            if number == forgets_at:
                forget(self.store, SystemClock())
            time.sleep(choose.uniform(0, _LONGEST_S))
            if victim == "maintenance":
                self._kill_maintenance(choose.choice(KILLS))
                continue
            self._kill(victim)
            self._start(victim)
        self._maintenance.wait_for_runs(self.store, 1)

    def _start(self, role: str) -> None:
        if role == "writer" and self._is_stream:
            self._jobs[role] = LivelyStream(self._folder / "stream", self.store)
        else:
            self._jobs[role] = start(self._context, self.store, role)

    def _kill(self, role: str) -> None:
        self._note(role)
        job = self._jobs.pop(role)
        job.kill()
        code = job.exit_code() if isinstance(job, LivelyStream) else exit_code(job)
        if code != -9:
            raise AssertionError(f"{role} has ended: {code} {error_of(self.store, role)}")

    def _kill_maintenance(self, which: str) -> None:
        self._note(f"maintenance: {self._maintenance.kill(which, self._choose)}")
        self._maintenance.maintain(self.store)

    def _end(self) -> None:
        """Let the job do what is left, now that nobody writes, and look at everything."""
        self._maintenance.maintain(self.store, _DAY_MS)
        self._maintenance.wait_for_runs(self.store, _LAST_RUNS + 1)  # one may have begun before
        self._maintenance.rest()
        if wrong := problems_of_store(self.store, self._maintenance.runs(self.store)):
            raise AssertionError("\n".join(wrong))

    def _note(self, what: str) -> None:
        seconds, end = time.monotonic() - self._began_s, min(log_ends(self.store).values())
        self.killed.append(f"{what} after {seconds:.1f} s at offset {end}")
