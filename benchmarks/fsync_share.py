"""What bringing the logs onto the disk costs a micro-batch, flush policy by flush policy."""

import statistics

from pyspark.sql import DataFrame

from benchmarks.bench import Bench, noise_note
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.rows import ROWS_TEXT
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict, ratio_text
from sparklog.sink.log_sink import LogSink
from sparklog.sink.metrics import MicroBatchMetrics

__all__ = ["run"]

_LOGS = 8
_FILES = 2
_MICRO_BATCHES = 4
_NEVER = "never"


def run(bench: Bench) -> None:
    """Time a few micro-batches in a row into a store of each policy, large ones and small ones."""
    shares: dict[int, float] = {}
    rows: list[tuple[str, ...]] = []
    results: list[Result] = []
    for records in (bench.million, bench.million // 100):
        writers = _writers(bench, records)
        timed = run_rounds([each.contender() for each in writers], warmups=1, rounds=bench.pick(5, 1))
        rows += [_row(each, records, timed[each.name], timed[_NEVER]) for each in writers]
        shares[records] = writers[0].share()
        results += timed.values()
    notes = (
        f"{ROWS_TEXT}; {_LOGS} logs, {_MICRO_BATCHES} micro-batches in a row into a new store, each of so many records",
        "sync: logs, indexes and folders; the ledger is synced by every commit, whatever the policy: part of commit",
        noise_note(results),
    )
    headers = (
        "records",
        "flush policy",
        "s",
        "of which place, sync, commit (ms)",
        "sync's share",
        "time against never",
    )
    bench.add(Table(f"Cost of syncing {_LOGS} logs", headers, rows, notes))
    bench.judge(_verdict(*shares.items()))


class _Writer:
    """Writes one frame as several micro-batches, into a store that is new each time."""

    def __init__(self, bench: Bench, name: str, frame: DataFrame, policy: dict[str, object]) -> None:
        self.name = name
        self.metrics: list[MicroBatchMetrics] = []
        self._bench = bench
        self._frame = frame
        self._policy = policy
        self._sink: LogSink

    def contender(self) -> Contender:
        return Contender(name=self.name, prepare=self._open, run=self._write, clean=self._close, units=_MICRO_BATCHES)

    def share(self) -> float:
        """Return which part of a micro-batch's time the syncs are."""
        kept = self.metrics[_MICRO_BATCHES:]  # the first round is to warm up
        return sum(each.sync_ms for each in kept) / sum(each.total_ms for each in kept)

    def mean_ms(self, name: str) -> float:
        """Return the mean of a duration; where only some micro-batches sync, a median would hide them."""
        durations: list[float] = [getattr(each, name) for each in self.metrics[_MICRO_BATCHES:]]
        return statistics.mean(durations)

    def _open(self) -> None:
        properties = {"partitions": _LOGS, **self._policy}
        self._sink = LogSink(self._bench.fresh("store"), topics={TOPIC: properties}, topic=TOPIC)

    def _write(self) -> None:
        self.metrics += [
            self._sink.write(self._frame, query_id="bench", batch_id=number) for number in range(_MICRO_BATCHES)
        ]

    def _close(self) -> None:
        self._sink.close()
        self._bench.fresh("store")


def _writers(bench: Bench, records: int) -> list[_Writer]:
    frame = bench.frame(bench.rows_folder(_FILES, records))
    two = 2 * records // _LOGS * 9 // 10  # keys spread unevenly: a little less than what two micro-batches bring a log
    policies: dict[str, dict[str, object]] = {
        "every commit": {},
        "every second commit": {"flush.messages": two},
        "every second": {"flush.ms": 1000},
        _NEVER: {"flush.messages": "never"},
    }
    return [_Writer(bench, name, frame, policy) for name, policy in policies.items()]


def _row(writer: _Writer, records: int, result: Result, never: Result) -> tuple[str, ...]:
    steps = ", ".join(f"{writer.mean_ms(name):.0f}" for name in ("place_ms", "sync_ms", "commit_ms"))
    seconds = result.median / _MICRO_BATCHES
    return (
        f"{records:,}",
        writer.name,
        f"{seconds:.3f}",
        steps,
        f"{writer.share():.1%}",
        ratio_text(result, never),
    )


def _verdict(large: tuple[int, float], small: tuple[int, float]) -> Verdict:
    return Verdict(
        what=f"syncs of a micro-batch into {_LOGS} logs, as a share of it",
        wanted="reported",
        aim="below 10 %",
        measured=", ".join(f"{share:.1%} of {records:,} records" for records, share in (large, small)),
        is_met=True,
        is_aim_met=large[1] < 0.1,
    )
