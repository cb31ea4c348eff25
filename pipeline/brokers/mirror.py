"""The verb `mirror`: brings topics of a Kafka cluster into a store, with their offsets, ids and settings."""

from contextlib import closing
from functools import partial
from pathlib import Path

from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.terminal import say_at_once

__all__ = ["run"]


def run(
    bootstrap_server: str,
    topics: str,
    store: Path,
    command_config: Path | None,
    every: str,
    take_lock_by_force: bool,
    conf: tuple[str, ...],
    log_dirs: tuple[str, ...],
    until: int | str | None,
    codec: str | None,
    max_offsets: int,
    allow_gaps: bool,
) -> None:
    """Carry the verb out."""
    from sparklog.storage_core.errors import InvalidConfigError
    from sparklog.storage_core.quantity_text import parse_duration

    properties = ClientProperties.read(bootstrap_server, command_config)
    every_ms = parse_duration(every)
    if every_ms is None or every_ms <= 0:
        raise InvalidConfigError(f"--every is no duration such as 5s: every={every}")
    if wrong := [each.partition("=")[0] for each in conf if "=" not in each]:
        raise InvalidConfigError(f"--conf takes NAME=VALUE: name={wrong[0]}")
    say_at_once(f"starting: {topics} at {bootstrap_server} -> {store}")
    from sparklog.pipeline.brokers.kafka_admin import KafkaAdmin
    from sparklog.pipeline.brokers.mirror_frame import SparkTarget
    from sparklog.pipeline.brokers.mirror_loop import Mirror, MirrorOptions
    from sparklog.pipeline.spark.session import running_session
    from sparklog.pipeline.stop_request import StopRequest
    from sparklog.pipeline.streaming.job import look_at_store
    from sparklog.sink.spark.errors import silence_spark_loggers
    from sparklog.storage_core.clock import SystemClock, wait_until

    root = store.absolute()
    wanted = MirrorOptions(
        store=root,
        topics=topics,
        log_dirs=log_dirs or ("logs",),
        until=until,
        max_offsets=max_offsets,
        codec=codec,
        allow_gaps=allow_gaps,
        take_lock_by_force=take_lock_by_force,
    )
    silence_spark_loggers()
    look_at_store(root, take_lock_by_force)
    settings = {"spark.app.name": f"sparklog mirror {root.name}"} | dict(each.split("=", 1) for each in conf)
    with StopRequest(say_at_once, "micro-batch") as stop, running_session(settings, with_jars=True) as spark:
        stop.install()
        with closing(KafkaAdmin(spark._jvm, properties)) as source:
            mirror = Mirror(wanted, source, partial(SparkTarget, spark, properties), say_at_once, SystemClock())
            with closing(mirror):
                while not stop.requested and not mirror.is_done:
                    if not mirror.advance() and not mirror.is_done:
                        wait_until(lambda: stop.requested, every_ms / 1000, 0.1)
            ending = "done" if mirror.is_done else "stopped"
            say_at_once(f"{ending}: {mirror.records:,} records in {mirror.batches:,} micro-batches")
