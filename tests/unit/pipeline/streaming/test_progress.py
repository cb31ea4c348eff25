from dataclasses import dataclass, field
from typing import Any

import pytest

from sparklog.pipeline.streaming.progress import ProgressLines, format_line, source_lag
from sparklog.sink.metrics import MicroBatchMetrics


@dataclass(frozen=True)
class _Source:
    endOffset: str | None  # noqa: N815
    latestOffset: str | None  # noqa: N815


@dataclass(frozen=True)
class _Progress:
    """What Spark reports of a micro-batch, as far as a line needs it."""

    batchId: int  # noqa: N815
    sources: list[_Source] = field(default_factory=list)
    durationMs: dict[str, int] = field(default_factory=lambda: {"triggerExecution": 2000})  # noqa: N815


def _metrics(batch_id: int, **counts: Any) -> MicroBatchMetrics:
    return MicroBatchMetrics(query_id="q", batch_id=batch_id, records=1000, bytes=4_000_000, total_ms=500, **counts)


def test_format_line_when_trigger_time_is_known_then_rates_over_the_whole_trigger() -> None:
    """Rates are of the trigger, engine included; the sink's own time stands in where Spark has not told."""
    assert (
        format_line(_metrics(3, rolls=2), 2000) == "batch 3: 1,000 records in 2.00 s, 500 records/s, 2.0 MB/s, 2 rolls"
    )
    assert "in 0.50 s, 2,000 records/s" in format_line(_metrics(3))


def test_format_line_when_rows_were_diverted_or_source_lags_then_said() -> None:
    """Quarantined rows and the lag are in the line only where there is something to say."""
    line = format_line(_metrics(0, quarantined=7), lag=12)

    assert line.endswith(", 0 rolls, 7 quarantined, lag 12")


def test_format_line_when_replayed_then_nothing_was_done() -> None:
    """A micro-batch the store had already is told as such."""
    line = format_line(MicroBatchMetrics(query_id="q", batch_id=5, replayed=True))

    assert line == "batch 5: was committed before, nothing to do"


@pytest.mark.parametrize(
    ("offsets", "lag"),
    [
        ([('{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":7}}')], 4),
        ([('{"t":{"0":5}}', '{"t":{"0":9,"1":3}}')], 7),
        ([('{"t":{"0":9}}', '{"t":{"0":5}}')], 0),
        ([('{"t":{"0":5}}', None)], None),
        ([('{"logOffset":1}', '{"logOffset":1}')], None),
        ([("5", "9")], None),
        ([("RateStream", "RateStream")], None),
        ([], None),
    ],
)
def test_source_lag_when_offsets_are_kafkas_then_sum_over_partitions(
    offsets: list[tuple[str | None, str | None]], lag: int | None
) -> None:
    """Only offsets that count records, as Kafka's do, give a lag."""
    assert source_lag(offsets) == lag


def test_progress_lines_when_spark_has_not_reported_then_line_waits_for_it() -> None:
    """A line is held back until Spark's report of the micro-batch is there, so that it has the lag."""
    lines: list[str] = []
    progress = ProgressLines(lines.append)
    progress.add(_metrics(0))
    progress.add(_metrics(1))

    progress.flush([])
    assert lines == []
    progress.flush([_Progress(0, [_Source('{"t":{"0":1}}', '{"t":{"0":3}}')])])
    assert [line.rpartition(", ")[2] for line in lines] == ["lag 2"]
    assert progress.are_waiting


def test_progress_lines_when_query_has_ended_then_all_are_told_and_counted() -> None:
    """At the end every line goes out, with or without Spark's part."""
    lines: list[str] = []
    progress = ProgressLines(lines.append)
    progress.add(_metrics(0))
    progress.add(_metrics(1))

    progress.flush([], is_last=True)

    assert len(lines) == 2
    assert (progress.batches, progress.records, progress.are_waiting) == (2, 2000, False)
