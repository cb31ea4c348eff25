"""The verb `stream`: runs a query from a settings file until it ends.

Imports Spark only after the settings are valid and the first line is printed.
"""

from pathlib import Path

from sparklog.pipeline.settings.stream_settings import load_settings
from sparklog.pipeline.terminal import say_at_once

__all__ = ["run"]


def run(
    config: str,
    overrides: tuple[str, ...],
    available_now: bool,
    take_lock_by_force: bool,
    metrics_file: Path | None,
) -> None:
    """Carry the verb out."""
    trigger = ("trigger={available_now: true}",) if available_now else ()
    settings = load_settings(config, (*overrides, *trigger))
    from sparklog.pipeline.streaming.start import starting_line

    say_at_once(starting_line(settings))
    from sparklog.pipeline.streaming.job import run_stream
    from sparklog.pipeline.streaming.metrics import figures_of
    from sparklog.sink.spark.errors import silence_spark_loggers

    silence_spark_loggers()
    with settings.places.locating(), figures_of(metrics_file) as figures:
        run_stream(settings, say_at_once, take_lock_by_force=take_lock_by_force, figures=figures)
