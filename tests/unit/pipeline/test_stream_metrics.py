"""The figures of a stream for Prometheus."""

from pathlib import Path

from pipeline.stream_metrics import StreamMetrics
from sink.metrics import MicroBatchMetrics
from storage_core.clock import ManualClock

_NOW_MS = 1_700_000_000_000


def _batch(batch_id: int, **figures: int) -> MicroBatchMetrics:
    return MicroBatchMetrics(query_id="q", batch_id=batch_id, **figures)


def test_metrics_when_micro_batches_are_committed_then_counted_and_written(tmp_path: Path) -> None:
    """Counts add up over micro-batches; replayed ones add nothing; the file is replaced as a whole."""
    path, clock = tmp_path / "deep" / "stream.prom", ManualClock(_NOW_MS)
    metrics = StreamMetrics(path, clock)
    metrics.begin()
    assert "sparklog_stream_running 1\n" in path.read_text()
    assert "sparklog_stream_last_commit_timestamp_seconds 1700000000" not in path.read_text()

    metrics.commit(_batch(0, records=10, bytes=700, quarantined=2, commit_ms=5, total_ms=1500))
    metrics.commit(_batch(1, records=5, bytes=300, commit_ms=7, total_ms=250))
    metrics.commit(MicroBatchMetrics(query_id="q", batch_id=2, replayed=True))
    metrics.progress(lag=42, source={"numFilesOutstanding": "3", "avgOffsetsBehindLatest": "1.5", "odd": "x"})
    text = path.read_text()

    assert "# TYPE sparklog_stream_records_total counter\nsparklog_stream_records_total 15\n" in text
    assert "sparklog_stream_bytes_total 1000\n" in text
    assert "sparklog_stream_quarantined_total 2\n" in text
    assert "sparklog_stream_micro_batches_total 2\n" in text
    assert "sparklog_stream_lag_records 42\n" in text
    assert "sparklog_stream_commit_duration_seconds 0.25\n" in text
    assert f"sparklog_stream_last_commit_timestamp_seconds {_NOW_MS // 1000}\n" in text
    assert 'sparklog_stream_source{name="numFilesOutstanding"} 3\n' in text
    assert 'sparklog_stream_source{name="avgOffsetsBehindLatest"} 1.5\n' in text
    assert "odd" not in text

    metrics.end()
    assert "sparklog_stream_running 0\n" in path.read_text()


def test_metrics_when_lag_is_not_known_then_it_is_not_told(tmp_path: Path) -> None:
    """An unknown lag is no lag of 0."""
    metrics = StreamMetrics(tmp_path / "stream.prom", ManualClock(_NOW_MS))
    metrics.progress(lag=None, source={})

    assert "lag" not in (tmp_path / "stream.prom").read_text()
