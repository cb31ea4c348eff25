"""Records of two topics for stores that are mounted, 200 in each turn, and what a store has of them."""

from pathlib import Path
from typing import Any

from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.store_writer import StoreWriter
from tests.build.sink_store import in_process, log_directories, rows
from tests.kafka.consumed import Consumed
from tests.kafka.ours import read_log

__all__ = ["append_turn", "stored"]


def append_turn(writer: StoreWriter | ObjectWriter, events: str, table: str, turn: int, start_ms: int) -> None:
    """Append a micro-batch: one record of three is the table's, and 17 keys take turns."""
    numbers = range(turn * 200, (turn + 1) * 200)
    columns: dict[str, list[Any]] = {
        "topic": [events if number % 3 else table for number in numbers],
        "timestamp": [start_ms + number for number in numbers],
        "key": [f"key-{number % 17}" for number in numbers],
        "value": [f"value-{number}" * 5 for number in numbers],
    }
    writer.append("query", turn, in_process(rows(**columns)))


def stored(store: Path) -> dict[tuple[str, int], list[Consumed]]:
    """Return the records in the files of each log, by topic and partition."""
    found = {}
    for name, directory in log_directories(store).items():
        topic, _, partition = name.rpartition("-")
        found[topic, int(partition)] = read_log(directory)
    return found
