"""The classes of Spark and Kafka, parsed once for all JVMs of the tests (JEP 350, dynamic class data sharing).

A Spark session takes about half of its CPU time then, a broker two thirds. `make test` runs this module as a program
before the first test. An archive serves only the Java and the jars that it was made of: a JVM that can't use it, or
does not find it, parses the classes itself.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["KAFKA_OPTIONS", "SPARK_OPTIONS"]

_SPARK = Path(sys.prefix) / "spark-classes.jsa"
_KAFKA = Path(sys.prefix) / "kafka-classes.jsa"
_QUIET = "-Xlog:cds*=off"
"""No word about an archive that does not fit: tests read what a program prints."""

SPARK_OPTIONS = f"-XX:SharedArchiveFile={_SPARK} {_QUIET}"
"""For `SPARK_SUBMIT_OPTS`, which each driver's JVM takes its options from."""

KAFKA_OPTIONS = (f"-XX:SharedArchiveFile={_KAFKA}", _QUIET)


def _write_spark_archive() -> None:
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={_SPARK} {_QUIET}"
    subprocess.run([sys.executable, "-m", "tests.programs.use_spark", options], check=True, timeout=600)


def _write_kafka_archive() -> None:
    from tests.kafka.broker import KafkaBroker, TopicSpec
    from tests.kafka.toolbox import KafkaToolbox, KafkaUnavailableError

    try:
        toolbox = KafkaToolbox.obtain()
    except KafkaUnavailableError as error:
        print(f"no archive of Kafka's classes: {error}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(toolbox, Path(folder) / "broker") as broker:
        broker.format()
        toolbox.class_options = (f"-XX:ArchiveClassesAtExit={_KAFKA}", _QUIET)
        broker.start()
        broker.create_topics(TopicSpec(name="events"))
        broker.stop()


if __name__ == "__main__":
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    if not _SPARK.exists():
        _write_spark_archive()
    if not _KAFKA.exists():
        _write_kafka_archive()
