"""The first line of a stream: source, store and progress, read from local files before Spark starts."""

from pathlib import Path

from sparklog.pipeline.settings.stream_settings import Settings, SourceSettings
from sparklog.pipeline.streaming.checkpoint_check import read_checkpoint

__all__ = ["starting_line", "what_text"]

_KAFKA_TOPICS = ("subscribe", "subscribePattern", "assign")


def starting_line(settings: Settings) -> str:
    """Return the line that a stream prints before Spark starts."""
    return f"starting: {what_text(settings)}"


def what_text(settings: Settings) -> str:
    """Return source, store and progress of a stream."""
    is_known = settings.objects is not None or (Path(settings.store) / "store.properties").exists()
    new = "" if is_known else ", new"
    store = f"{settings.store}{new}, topics {', '.join(settings.topics)}"
    return f"{_source_text(settings.source)} -> {store}; checkpoint {_checkpoint_text(settings.checkpoint)}"


def _source_text(source: SourceSettings) -> str:
    """Return the source, without options that may be secrets."""
    if source.format != "kafka":
        return f"{source.format} {source.path}" if source.path else source.format
    topics = ((name, source.option(name)) for name in _KAFKA_TOPICS)
    what = ", ".join(f"{name} {value}" for name, value in topics if value)
    return f"kafka {what} at {source.option('kafka.bootstrap.servers')}"


def _checkpoint_text(checkpoint: str) -> str:
    found = read_checkpoint(checkpoint)
    if found is None:
        return f"{checkpoint}, not a folder of this machine" if "://" in checkpoint else f"{checkpoint}, new"
    planned = f", micro-batch {found.planned} is planned" if found.planned > found.committed else ""
    return f"{checkpoint}, query {found.query_id}, {found.committed + 1:,} micro-batches done{planned}"
