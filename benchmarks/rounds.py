"""Contenders timed in turns: what slows the machine down for a while slows all of them."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.processes import cpu_use

__all__ = ["Contender", "Result", "nothing", "run_rounds"]


def nothing() -> None:
    """Do nothing, before or after a timed run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One of the things compared.

    Attributes:
        run: what is timed.
        units: how many records (or bytes) one run takes, where contenders differ in that.
        prepare, clean: what is done before and after each timed run, not timed.
    """

    name: str
    run: Callable[[], object]
    units: float = 1
    prepare: Callable[[], None] = nothing
    clean: Callable[[], None] = nothing


@dataclass(slots=True)
class Result:
    """What a contender took, round by round.

    Attributes:
        units: per run.
        seconds: wall clock.
        cpu_seconds: of this process tree.
        core_seconds: CPU time of this process alone: what one core takes for it, whatever else the machine does.
        other_cores: cores that other processes kept busy meanwhile.
    """

    units: float = 1
    seconds: list[float] = field(default_factory=list)
    core_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    other_cores: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the wall clock seconds."""
        return statistics.median(self.seconds)

    @property
    def cpu_median(self) -> float:
        """Median of the CPU seconds."""
        return statistics.median(self.cpu_seconds)

    @property
    def core_rate(self) -> float:
        """Units per second of one core."""
        return self.units / statistics.median(self.core_seconds)

    def core_ratios(self, baseline: "Result") -> list[float]:
        """Return our time per unit on one core over the baseline's, round by round."""
        return _ratios(self.core_seconds, baseline.core_seconds, baseline.units / self.units)

    def ratios(self, baseline: "Result") -> list[float]:
        """Return our time per unit over the baseline's, round by round."""
        return _ratios(self.seconds, baseline.seconds, baseline.units / self.units)

    def cpu_ratios(self, baseline: "Result") -> list[float]:
        """Return our CPU time per unit over the baseline's, round by round."""
        return _ratios(self.cpu_seconds, baseline.cpu_seconds, baseline.units / self.units)


def run_rounds(contenders: Sequence[Contender], *, warmups: int, rounds: int) -> dict[str, Result]:
    """Run every contender once a round; warm-up rounds are not kept.

    Each round starts with another contender, so that none always follows the same one.
    """
    results = {each.name: Result(units=each.units) for each in contenders}
    for number in range(warmups + rounds):
        shift = number % len(contenders)
        for contender in (*contenders[shift:], *contenders[:shift]):
            measured = Result() if number < warmups else results[contender.name]
            contender.prepare()
            os.sync()  # what others left to the kernel to write is not this one's bill
            _time(contender.run, measured)
            contender.clean()
    return results


def _ratios(mine: Sequence[float], others: Sequence[float], scale: float) -> list[float]:
    return [scale * each / max(other, 1e-9) for each, other in zip(mine, others, strict=True)]


def _time(run: Callable[[], object], result: Result) -> None:
    cpu, core, started = cpu_use(), time.process_time(), time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    result.core_seconds.append(time.process_time() - core)
    used = cpu_use().since(cpu)
    result.seconds.append(seconds)
    result.cpu_seconds.append(used.ours)
    result.other_cores.append(max(used.machine - used.ours, 0.0) / seconds)
