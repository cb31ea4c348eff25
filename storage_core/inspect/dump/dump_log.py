"""Shows log, checkpoint, index and snapshot files as Kafka's own dump tool does, line for line, or as JSON.

Two departures. Kafka's tool ends with a stack trace at damage; this one reports it and continues. And 4.3 reports
the first record of each segment that does not start at offset 0 as `-1 is followed by N`; that is no finding here.

Source: Kafka DumpLogSegments; 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.inspect.dump.errors import DumpErrors
from sparklog.storage_core.inspect.dump.indexes import (
    dump_offset_index,
    dump_producer_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from sparklog.storage_core.inspect.dump.json_lines import JsonPrinter
from sparklog.storage_core.inspect.dump.options import DumpOptions
from sparklog.storage_core.inspect.dump.printer import DumpPrinter
from sparklog.storage_core.inspect.dump.records import dump_batches
from sparklog.storage_core.inspect.dump.text_lines import TextPrinter
from sparklog.storage_core.log.files.names import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX

__all__ = ["DumpOptions", "dump_log"]

_KNOWN: Final = (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)
_BOOTSTRAP: Final = "bootstrap.checkpoint"
_CHECKPOINT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
"""A snapshot of KRaft's metadata log: end offset and epoch."""


def dump_log(files: Sequence[Path], options: DumpOptions, out: TextIO, err: TextIO) -> bool:
    """Write what the files hold to `out` and, after all of them, what is wrong with them to `err`.

    Args:
        files: `.log`, `.index`, `.timeindex`, `.txnindex` or `.snapshot` files, under their own names; an index is
            compared with the `.log` beside it. Also KRaft's snapshots, which are `.checkpoint` files.

    Returns:
        Whether nothing was damaged, unreadable or of an unknown kind.
    """
    errors = DumpErrors()
    all_known = True
    printer: DumpPrinter = JsonPrinter(out, options) if options.json else TextPrinter(out, options)
    for path in files:
        printer.file(path)
        match = re.match(r"[0-9]+(?=\.)", path.name)
        try:
            if path.name == _BOOTSTRAP or _CHECKPOINT.fullmatch(path.name):
                _dump_checkpoint(path, options, printer, errors)
            elif path.suffix in _KNOWN and match:
                _dump_file(path, int(match[0]), options, printer, errors)
            else:
                print(options.shown(f"Ignoring unknown file {path}"), file=err)
                all_known = False
        except LogStorageError as error:
            errors.add_other(f"{error}: {path}")
    for line in errors.lines():
        print(options.shown(line), file=err)
    return all_known and not errors.is_damaged


def _dump_file(path: Path, base_offset: int, options: DumpOptions, out: DumpPrinter, errors: DumpErrors) -> None:
    if path.suffix == LOG:
        out.log_start(base_offset)
        dump_batches(path, options, out, errors)
    elif path.suffix == INDEX:
        dump_offset_index(path, base_offset, options, out, errors)
    elif path.suffix == TIMEINDEX:
        dump_time_index(path, base_offset, options, out, errors)
    elif path.suffix == TXNINDEX:
        dump_transaction_index(path, base_offset, out)
    else:
        dump_producer_snapshot(path, out)


def _dump_checkpoint(path: Path, options: DumpOptions, out: DumpPrinter, errors: DumpErrors) -> None:
    match = _CHECKPOINT.fullmatch(path.name)
    out.checkpoint((int(match[1]), int(match[2])) if match else None)
    dump_batches(path, options, out, errors)
