"""Ours beside a broker that does the same to the same bytes, in turns.

The broker is down between rounds, and its log says how long it took.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.kafka_sink import ServerToolbox
from benchmarks.table import Verdict
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["TIMEOUT_S", "BesideBroker", "broker_output", "judge_factor", "stopped_broker"]

TIMEOUT_S: Final = 600
"""How long one round of either may take."""

_FOLDER: Final = "broker"


@dataclass(slots=True, kw_only=True)
class BesideBroker:
    """Seconds over the same bytes, round by round.

    Attributes:
        core, clock: ours; `broker` its own.
        peak_mb: memory that ours took at most.
    """

    size_bytes: int
    core: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    broker: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    def measure(self, module: str, *arguments: object) -> dict[str, Any]:
        """Take one round of ours in a process of its own; return what it printed."""
        command = [sys.executable, "-m", module, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
        found: dict[str, Any] = json.loads(done.stdout)
        self.core.append(found["core_seconds"])
        self.clock.append(found["seconds"])
        self.peak_mb = max(self.peak_mb, found["peak_mb"])
        return found

    def speed(self, seconds: list[float]) -> float:
        """Return MB/s, the median of the rounds."""
        return self.size_bytes / 1e6 / statistics.median(seconds)

    def speed_text(self, seconds: list[float]) -> str:
        """Return MB/s, or that nobody took the time."""
        return f"{self.speed(seconds):.0f}" if seconds else "did not run"

    @property
    def factor(self) -> float | None:
        """How many times as fast ours is by the clock; None without a broker."""
        return statistics.median(self._ratios) if self.broker else None

    @property
    def factor_text(self) -> str:
        """The same with its range; nothing without a broker."""
        return f"{self.factor:.1f} ({min(self._ratios):.1f} to {max(self._ratios):.1f})" if self.broker else ""

    @property
    def _ratios(self) -> list[float]:
        return [theirs / ours for theirs, ours in zip(self.broker, self.clock, strict=True)]


@contextmanager
def stopped_broker(
    bench: Bench, settings: Mapping[str, object], *topics: TopicSpec
) -> Iterator[tuple[KafkaBroker | None, str]]:
    """Give a broker that is down and has these topics, or the reason why there is none, which is said loudly, too."""
    folder = bench.fresh(_FOLDER)
    folder.mkdir()
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(KafkaBroker(ServerToolbox(KafkaToolbox.obtain().jars), folder))
            broker.format()
            broker.start(settings)
            broker.create_topics(*topics)
            broker.stop()
            found: tuple[KafkaBroker | None, str] = broker, ""
        except (KafkaUnavailableError, KafkaToolError) as error:
            text = f"THE COMPARISON WITH A BROKER DID NOT RUN: {error}"
            print(f"\n{'!' * 20} {text} {'!' * 20}", file=sys.stderr, flush=True)
            found = None, f"**{text}**"
        yield found
    bench.fresh(_FOLDER)


def broker_output(bench: Bench) -> str:
    """Return what the broker has said since its last start."""
    newest = max((bench.folder / _FOLDER).glob("broker-*.log"), key=lambda path: path.stat().st_mtime_ns)
    return newest.read_text(errors="replace")


def judge_factor(bench: Bench, what: str, factor: float | None, wanted: float, aim: float) -> None:
    """Keep the verdict about a factor."""
    bench.judge(
        Verdict(
            what=what,
            wanted=f"{wanted:g} x its speed",
            aim="the same" if aim == wanted else f"{aim:g} x",
            measured="did not run" if factor is None else f"{factor:.1f} x",
            is_met=None if factor is None else factor >= wanted,
            is_aim_met=None if factor is None else factor >= aim,
        )
    )
