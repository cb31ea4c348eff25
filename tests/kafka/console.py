"""Java's console consumer, and the text it must print for given records.

Both sides are compared as text, so nothing of the consumer's output has to be parsed back.
Source: Kafka ConsoleConsumer, DefaultMessageFormatter.
"""

from collections.abc import Iterable, Mapping

from tests.kafka.consumed import LOG_APPEND_TIME, Consumed, Log
from tests.kafka.toolbox import KafkaToolbox

__all__ = ["console_lines", "print_like_console"]

_RECORD_END, _FIELD_END, _HEADER_END, _NULL = "<record>\n", "<field>", "<header>", "<null>"


def console_lines(toolbox: KafkaToolbox, bootstrap: str, topics: Iterable[str], count: int) -> list[bytes]:
    """Return what Java's console consumer prints for each record of the topics, sorted.

    Args:
        toolbox: Kafka's jars.
        bootstrap: the broker's address.
        topics: topics to read.
        count: records to wait for; fewer come back if no more are there after a while.
    """
    shown = {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "headers", "key", "value")}
    separators = {
        "line.separator": _RECORD_END,
        "key.separator": _FIELD_END,
        "headers.separator": _HEADER_END,
        "null.literal": _NULL,
    }
    options = [f"{name}={value}" for name, value in {**shown, **separators}.items()]
    names = "|".join(topic.replace(".", r"\.") for topic in topics)
    done = toolbox.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--include", names, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
        *(part for option in options for part in ("--formatter-property", option)),
    )
    return sorted(line for line in done.stdout.split(_RECORD_END.encode()) if line)


def print_like_console(logs: Mapping[Log, Iterable[Consumed]]) -> list[bytes]:
    """Return what Java's console consumer prints for these records, sorted: the order across logs is nobody's."""
    return sorted(_line(number, record) for (_topic, number), records in logs.items() for record in records)


def _line(partition: int, record: Consumed) -> bytes:
    kind = "LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else "CreateTime"
    null = _NULL.encode()
    headers = _HEADER_END.encode().join(
        name.encode() + b":" + (null if value is None else value) for name, value in record.headers
    )
    fields = [
        f"{kind}:{record.timestamp}".encode(),
        f"Partition:{partition}".encode(),
        f"Offset:{record.offset}".encode(),
        headers or b"NO_HEADERS",
        null if record.key is None else record.key,
        null if record.value is None else record.value,
    ]
    return _FIELD_END.encode().join(fields)
