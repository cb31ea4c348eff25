"""One seed: a store is written, maintained and read, some of these are killed, and in the end all must be right."""

import random
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from tests.kill.harness import exit_code
from tests.kill.killed_maintenance import KILLS, KilledMaintenance
from tests.kill.lively_checks import problems_of_store
from tests.kill.lively_roles import error_of, start, wait_until_written
from tests.kill.lively_store import FORGOTTEN_UNTIL, forget, log_ends
from tests.kill.lively_stream import LivelyStream

__all__ = ["Episode"]

_LONGEST_S: Final = 2.5
"""Between two kills."""

_QUICK_KILLS: Final = ("worker", "worker at a step", "writer", "reader")
"""Those behind which no Spark has to be started again, but for a stream's."""

_AHEAD_MS: Final = 2 * 86_400_000
"""Between two of the last runs: what failed is tried again after a day at the latest."""

_LAST_RUNS: Final = 4
"""At most; a key of a large log may take two of them to be forgotten."""


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
        wait_until_written(self.store, FORGOTTEN_UNTIL, self._jobs["writer"].is_alive)
        self._start("reader")
        self._maintenance.maintain(self.store)
        victims = [choose.choice(KILLS), *(choose.choice(_QUICK_KILLS) for _ in range(2))]
        choose.shuffle(victims)
        forgets_at = choose.randrange(len(victims))
        self._maintenance.wait_for_runs(self.store, 1)
        for number, victim in enumerate(victims):
            if number == forgets_at:
                forget(self.store, SystemClock())
            time.sleep(choose.uniform(0, _LONGEST_S))
            if victim in KILLS:
                self._note(f"maintenance: {self._maintenance.kill(victim, choose)}")
                self._maintenance.maintain(self.store)
            else:
                self._kill(victim)
                self._start(victim)
        wait_until_written(self.store, max(log_ends(self.store).values()), self._jobs["writer"].is_alive)
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

    def _end(self) -> None:
        """Let the job do what is left, now that nobody writes, and look at everything."""
        for number in range(1, _LAST_RUNS + 1):
            self._maintenance.maintain_once_more(self.store, number * _AHEAD_MS)
            if not self._maintenance.runs(self.store)[-1]["failures"] and not self._is_waiting():
                break
        if wrong := problems_of_store(self.store, self._maintenance.runs(self.store)):
            raise AssertionError("\n".join(wrong))

    def _is_waiting(self) -> bool:
        """Whether keys wait to be forgotten."""
        return any(each.completed_ms is None for each in read_requests(Store.find(self.store)))

    def _note(self, what: str) -> None:
        seconds, end = time.monotonic() - self._began_s, min(log_ends(self.store).values())
        self.killed.append(f"{what} after {seconds:.1f} s at offset {end}")
