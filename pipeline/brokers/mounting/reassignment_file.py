"""Reads where replicas are to be from a file as Kafka's tool for reassignments takes it.

```
{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
```

Other fields, as `log_dirs`, are skipped. Source: Kafka ReassignPartitionsCommand.parsePartitionReassignmentData.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["read_reassignment"]

_VERSION: Final = 1


def read_reassignment(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the node ids of each partition's replicas, the preferred leader first.

    Raises:
        InvalidConfigError: the file has another form, or names a partition twice.
        StorageError: it can't be read.
    """
    with storage_errors(path):
        data = read_file(path)
    try:
        content: dict[str, Any] = json.loads(data)
        if content.get("version", _VERSION) != _VERSION:
            raise ValueError(f"version is {content['version']}, not {_VERSION}")
        found = [(_log(each), tuple(map(_number, each["replicas"]))) for each in content["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        form = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise InvalidConfigError(
            f"a file of reassignments has another form than {form}: path={path} ({error!r})"
        ) from error
    logs = [log for log, _ in found]
    if twice := next((log for log in logs if logs.count(log) > 1), None):
        raise InvalidConfigError(f"a file of reassignments names a partition twice: path={path} partition={twice}")
    return dict(found)


def _log(entry: Mapping[str, Any]) -> TopicPartition:
    if not isinstance(entry["topic"], str):
        raise TypeError(f"topic is {entry['topic']!r}")
    return TopicPartition(entry["topic"], _number(entry["partition"]))


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no integer")
    return value
