"""What a stream starts with, read from its folders alone: its first line comes before anything slow."""

from pathlib import Path

from sparklog.pipeline.settings.stream_settings import Settings, SourceSettings
from sparklog.pipeline.streaming.checkpoint_check import read_checkpoint

__all__ = ["starting_line", "what_text"]

_KAFKA_TOPICS = ("subscribe", "subscribePattern", "assign")


def starting_line(settings: Settings) -> str:
    """Return what is about to be streamed, where to, and how far that has come."""
    return f"starting: {what_text(settings)}"


def what_text(settings: Settings) -> str:
    """Return what is streamed, where to, and how far that has come."""
    new = "" if (Path(settings.store) / "store.properties").exists() else ", new"
    store = f"{settings.store}{new}, topics {', '.join(settings.topics)}"
    return f"{_source_text(settings.source)} -> {store}; checkpoint {_checkpoint_text(settings.checkpoint)}"


def _source_text(source: SourceSettings) -> str:
    """Return where rows come from; options that may be secrets are left out."""
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
