"""Names of the files of a log.

A segment's files are named after its base offset, 20 digits: `00000000000000000042.log`. A further suffix after the
whole name marks an unfinished step: `.cleaned` is not complete and goes, `.swap` is complete and takes its
name's place, `.deleted` waits to be removed.

Source: Kafka LogFileUtils, UnifiedLog.
"""

import re
from typing import Final

__all__ = [
    "CLEANED",
    "DELETED",
    "INDEX",
    "LOG",
    "SNAPSHOT",
    "SWAP",
    "TIMEINDEX",
    "TXNINDEX",
    "parse_base_offset",
    "segment_file_name",
]

LOG: Final = ".log"
INDEX: Final = ".index"
TIMEINDEX: Final = ".timeindex"
TXNINDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"

CLEANED: Final = ".cleaned"
DELETED: Final = ".deleted"
SWAP: Final = ".swap"

_NAME = re.compile(r"([0-9]{20})\.[a-z.]+")


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return a file's name, e.g. `00000000000000000042.log`."""
    return f"{base_offset:020d}{suffix}"


def parse_base_offset(name: str) -> int | None:
    """Return the offset in a segment file's name, or None if the name has another form."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None
