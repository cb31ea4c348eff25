"""The settings file of a small stream: text files of a folder become the records of one topic."""

from collections.abc import Mapping
from pathlib import Path

import yaml

__all__ = ["write_text_stream"]


def write_text_stream(folder: Path, spark: Mapping[str, object], **changes: object) -> Path:
    """Write `settings.yaml` of a stream from `data` to topic `t` of `store`, each beside it; return its path.

    Args:
        folder: of all of it, which is there.
        spark: settings of Spark.
        changes: other sections, or in the place of these.
    """
    settings: dict[str, object] = {
        "store": "store",
        "checkpoint": "checkpoint",
        "source": {"format": "text", "path": "data"},
        "records": {"topic": "'t'", "value": "value"},
        "trigger": {"available_now": True},
        "topics": {"t": {"partitions": 1}},
        "spark": dict(spark),
    }
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    return path
