"""What runs beside a stream that is killed: `sparklog read` and `sparklog verify`, again and again, each looked at."""

import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path

from sparklog.storage_core.topic_partition import TopicPartition
from tests.kill.numbered_rows import LOGS, log_ends, micro_batches

__all__ = ["Beside", "problem_of_order"]

_PATIENCE_S = 240.0
_PAUSE_S = 2.0


class Beside:
    """Both loops; a fault that one of them finds is kept, and ends it.

    Attributes:
        faults: what was found.
        reads, verifications: how many ended well.

    Args:
        store: to look at, which is there.
    """

    def __init__(self, store: Path) -> None:
        self.faults: list[str] = []
        self.reads = self.verifications = 0
        self._store, self._is_over = store, threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(look,)) for look in (self._read_next, self._verify)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let both end what they do."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, look: Callable[[], None]) -> None:
        while not self._is_over.wait(_PAUSE_S) and not self.faults:
            try:
                look()
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")

    def _read_next(self) -> None:
        log = LOGS[self.reads % len(LOGS)]
        committed = log_ends(self._store).get(log, 0)
        code, out, err = _run("read", str(self._store), f"{log.topic}:{log.partition}")
        if code:
            raise AssertionError(f"read {log}: exit code {code}: {err[-2000:]}")
        lines = [line.split("\t") for line in out.splitlines()]
        offsets = [int(line[0].rpartition(":")[2]) for line in lines]
        problem = _problem_of_offsets(log, committed, offsets, _deleted(err))
        problem = problem or problem_of_order([line[3] for line in lines], micro_batches(self._store))
        if problem:
            raise AssertionError(f"read {log}: {problem}")
        self.reads += 1

    def _verify(self) -> None:
        code, out, err = _run("verify", str(self._store), "--json")
        if code:
            found = defaultdict(list)
            for line in out.splitlines():
                found[json.loads(line).get("rule", "")].append(line)
            raise AssertionError(f"verify: exit code {code}: {err[-1000:]} {[each[:3] for each in found.values()]}")
        self.verifications += 1


def _deleted(err: str) -> set[int]:
    """Return the offsets that a reader says were deleted before it read them."""
    ranges = re.findall(r"Records were deleted before they were read: log=\S+ offsets=(\d+)\.\.(\d+);", err)
    return {offset for first, last in ranges for offset in range(int(first), int(last) + 1)}


def _problem_of_offsets(log: TopicPartition, committed: int, offsets: list[int], deleted: set[int]) -> str | None:
    """Return a gap, or that a committed record is not there; of one log only records are deleted."""
    if deleted and log.topic != "short":
        return f"{len(deleted)} records are told to be deleted"
    if offsets and offsets != [each for each in range(offsets[0], offsets[-1] + 1) if each not in deleted]:
        return "offsets have a gap"
    if offsets and offsets[0] and log.topic != "short":
        return f"begins at {offsets[0]}"
    if committed and (not offsets or offsets[-1] + 1 < committed):
        return f"ends at {offsets[-1:]}, {committed} were committed before"
    return None


def problem_of_order(values: list[str], batches: dict[int, int]) -> str | None:
    """Return a row that is there twice, or out of order.

    Rows come in the order of micro-batches, and each file's in one piece. Of two files of one micro-batch Spark takes
    the larger one first.

    Args:
        values: of one log's records, `<file>/<row>`.
        batches: the micro-batch of each file.
    """
    files = [(int(name), list(rows)) for name, rows in groupby(values, lambda value: value.partition("/")[0])]
    for (before, _), (after, _) in pairwise(files):
        if batches[before] > batches[after]:
            return f"file {after} of micro-batch {batches[after]} is behind file {before} of {batches[before]}"
    if len({number for number, _ in files}) < len(files):
        return f"a file's rows are there twice, or in pieces: {[number for number, _ in files]}"
    for _, rows in files:
        for row, following in pairwise(rows):
            if row >= following:
                return f"{following} is there twice, or out of order: behind {row}"
    return None


def _run(*arguments: str) -> tuple[int, str, str]:
    command = [str(Path(sys.executable).with_name("sparklog")), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()
