"""The figures of a stream for Prometheus."""

from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.streaming.metrics import StreamMetrics, figures_of
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.storage_core.errors import StorageError, StoreLockedError
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import open_store
from tests.sparklog_command import Sparklog

_NOW_MS = 1_700_000_000_000


def _batch(batch_id: int, **figures: Any) -> MicroBatchMetrics:
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


def test_stream_when_another_writer_holds_the_store_then_the_file_stays(sparklog: Sparklog, tmp_path: Path) -> None:
    """The file is the running stream's."""
    path, config = tmp_path / "stream.prom", tmp_path / "file.yaml"
    path.write_text("sparklog_stream_running 1\n")
    config.write_text(
        f"store: {tmp_path}/store\ncheckpoint: {tmp_path}/c\nsource: {{format: rate}}\n"
        "records: {topic: \"'t'\", value: value}\ntopics: {t: {}}\n"
    )
    writer = open_store(tmp_path / "store", {"t": {}}, topic="t")

    ran = sparklog("stream", "--config", config, "--metrics-file", path)
    writer.close()

    assert ran.code == 3
    assert "another writer" in ran.err
    assert path.read_text() == "sparklog_stream_running 1\n"


def test_figures_of_when_a_start_fails_then_the_stream_does_not_run(tmp_path: Path) -> None:
    """Until the sink is open the file stays; a refused stream never writes it."""
    path = tmp_path / "stream.prom"
    with pytest.raises(StoreLockedError), figures_of(path):
        raise StoreLockedError("another writer holds the store")
    assert not path.exists()

    with pytest.raises(StorageError), figures_of(path):
        raise StorageError("no space")
    assert "sparklog_stream_running 0\n" in path.read_text()
