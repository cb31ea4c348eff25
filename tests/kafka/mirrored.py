"""Topics of a broker, mirrored by `sparklog stream` with their offsets preserved."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

__all__ = ["stream_mirror"]

_ROOT = Path(__file__).resolve().parents[2]
_SPARK_TIMEOUT_S = 300


def stream_mirror(folder: Path, bootstrap: str, topics: Mapping[str, Mapping[str, object]], **options: object) -> Path:
    """Bring a mirror up to date with the topics' committed records, in a process of its own.

    Args:
        folder: of store and checkpoint.
        bootstrap: the source's address.
        topics: their settings in the mirror, `partitions` included.
        options: further ones of Spark's Kafka source.

    Returns:
        The log directory of the mirror's store.
    """
    settings = {
        "store": str(folder / "store"),
        "checkpoint": str(folder / "checkpoint"),
        "offsets": "preserved",
        "source": {
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": bootstrap,
                "kafka.isolation.level": "read_committed",
                "subscribe": ",".join(topics),
                "startingOffsets": "earliest",
                "includeHeaders": True,
                **options,
            },
        },
        "trigger": {"available_now": True},
        "spark": {
            "spark.master": "local[2]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        "topics": {name: dict(each) for name, each in topics.items()},
    }
    path = folder / "mirror.yaml"
    path.write_text(yaml.safe_dump(settings))
    done = subprocess.run(
        [sys.executable, "-m", "sparklog", "stream", "--config", str(path)],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SPARK_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "store" / "logs"
