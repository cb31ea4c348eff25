"""A Spark stream into a store of objects, which tests kill: the files of `<folder>/input`, two per micro-batch.

`<folder>/place.json` has the address, and the options of its storage.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kill.job import run_and_exit, stream_input
from tests.kill.records import TOPICS

if TYPE_CHECKING:
    from sparklog import LogSink

_TOPICS = {name: {**settings, "retention.ms": -1} for name, settings in TOPICS.items()}
_MASTER = "local[2,8]"
"""A task is tried again if its worker dies."""


def _stream(folder: Path) -> None:
    place = json.loads((folder / "place.json").read_text())

    def open_sink() -> "LogSink":
        from sparklog import LogSink

        return LogSink(place["address"], topics=_TOPICS, storage=place["storage"])

    stream_input(folder, open_sink, where="topic is not null", master=_MASTER)


if __name__ == "__main__":
    run_and_exit(Path(sys.argv[1]), lambda: _stream(Path(sys.argv[1])))
