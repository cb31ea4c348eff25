"""The text form of Kafka's checkpoint files, version 0.

A version line, a line with the number of entries, one line per entry with its fields between spaces. An empty file, or
one with only the version, has no entries: a broker creates its checkpoint files empty.

Source: Kafka CheckpointFile.
"""

import re
from collections.abc import Iterable

from sparklog.storage_core.errors import CorruptFileError

__all__ = ["parse_checkpoint_lines", "parse_integer", "render_checkpoint_lines"]

_VERSION = 0
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def render_checkpoint_lines(entries: Iterable[str]) -> bytes:
    """Return a whole checkpoint file; every line ends with a newline."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def parse_checkpoint_lines(data: bytes, field_count: int) -> list[list[str]]:
    """Return the fields of each entry.

    Raises:
        CorruptFileError: another version, a partial last line, an entry without `field_count` fields, or a wrong number
            of entries.
    """
    if not data:
        return []
    try:
        lines = re.split(r"\r\n|\r|\n", data.decode())
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"checkpoint is not UTF-8: position={error.start}") from error
    if lines.pop() != "":
        raise CorruptFileError("checkpoint's last line is cut off")
    if parse_integer(lines[0].strip(), "version") != _VERSION:
        raise CorruptFileError(f"checkpoint has version {lines[0].strip()}, not {_VERSION}")
    if len(lines) == 1:
        return []
    expected = parse_integer(lines[1].strip(), "number of entries")
    entries = [re.split(r"\s+", line.rstrip()) for line in lines[2:]]
    for number, fields in enumerate(entries, start=3):
        if len(fields) != field_count or not fields[0]:
            raise CorruptFileError(f"checkpoint entry has {len(fields)} fields, not {field_count}: line={number}")
    if len(entries) != expected:
        raise CorruptFileError(f"checkpoint announces {expected} entries and has {len(entries)}")
    return entries


def parse_integer(text: str, what: str, low: int = -(2**31), high: int = 2**31 - 1) -> int:
    """Return a decimal number of a checkpoint.

    Raises:
        CorruptFileError: not a number, or out of range; the message names `what`.
    """
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise CorruptFileError(f"checkpoint's {what} is {text[:40]!r}, not an integer within {low}..{high}")
    return int(text)
