"""Upgrades a store of layout 2 or 3 to layout 4.

| layout | what it lacks |
|---|---|
| 2 | what is left to do about logs: files below `control/` named it; and what layout 3 lacks |
| 3 | how far logs are compacted, and where a transaction stays open |

The rows get their new columns in one entry of the same Delta table: micro-batches of every query, the ledger's version
and what is recorded of it stay. So a crash leaves the old ledger, or the new one:

| step | done | killed after it |
|---|---|---|
| 1 | the new data file is durable (`upgrade.written`) | the old layout, as it was |
| 2 | the entry has its name, durably (`upgrade.committed`) | a second upgrade goes on; no release opens it before |
| 3 | `store.properties` names layout 4 (`upgrade.finished`) | layout 4 |

Sparklog can't know how far logs of an older layout are compacted. So those of compacted topics, and of topics whose
settings are unknown, count as compacted up to their end.

Source: Delta protocol, "Change Metadata": the newest `metaData` of a table is its schema and partitioning.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.entries import ACTION_COUNT
from sparklog.sink.ledger.crc import ROWS_CRC, TRANSACTIONS_CRC, read_committed, rows_crc, transactions_crc
from sparklog.sink.ledger.ledger import ledger_log
from sparklog.sink.ledger.rows import LEDGER_PARTITION, LEDGER_SCHEMA, ROWS_SCHEMA, LedgerRows
from sparklog.sink.locks.signed_off_version import require_signed_off, signed_off_version
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import MAINTENANCE_LOCK, WRITER_LOCK, both_locks
from sparklog.sink.store.store_folder import UPGRADED_LAYOUTS, Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, remove_file, replace_file

__all__ = ["plan_upgrade", "upgrade_store"]

_NEW_COLUMNS: Final[dict[str, int | str]] = {
    "cleaner_limit_offset": -1,
    "intent": "",
    "owes": "",
    "compacted_offset": -1,
    "first_unstable_offset": -1,
}
"""Since layout 2."""
_NOTES: Final = (
    "pending-directories.json",
    "pending-truncations.json",
    "truncated-offsets.json",
    "offline-log-dirs.json",
)
"""Files in `control/` of the layout before; one that names nothing is as good as none."""
_REMEDY: Final = "open and close the store once with the release that wrote it, all its log directories in place"


@dataclass(frozen=True, slots=True)
class _OldLedger:
    """A ledger that is to be upgraded, whole.

    Attributes:
        log: its files.
        table: at its newest version.
        rows: of it, with the new columns.
        is_upgraded: whether it has them already.
    """

    log: DeltaLog
    table: DeltaTable
    rows: LedgerRows
    is_upgraded: bool


def plan_upgrade(root: Path) -> int:
    """Return the number of logs in a store that can be upgraded; changes nothing.

    Raises:
        InvalidConfigError: no store, or it was not closed well or has unfinished work; the message names the remedy.
        UnsupportedFormatError: it is of another layout.
        LedgerDamagedError: the ledger is damaged.
    """
    store = Store.find(root, UPGRADED_LAYOUTS)
    for name in (WRITER_LOCK, MAINTENANCE_LOCK):
        _require_ended_well(root / name, was_left=WriterLock.owner_crashed(root / name))
    _require_nothing_left(store)
    return len(_read_old(store).rows)


def upgrade_store(root: Path) -> int:
    """Upgrade a store; return how many logs it has. Raises as `plan_upgrade`.

    Raises:
        StoreLockedError: a sink or a maintenance runs.
        StorageError: the disk refused; the next call goes on.
    """
    Store.find(root, UPGRADED_LAYOUTS)
    with both_locks(root) as locks:
        store = Store.find(root, UPGRADED_LAYOUTS)
        for each in locks:
            _require_ended_well(root / each.name, was_left=each.follows_crash)
        _require_nothing_left(store)
        old = _read_old(store)
        if not old.is_upgraded:
            _commit(old, locks[0])
        reach("upgrade.committed")
        store.write_properties(locks[0])
        reach("upgrade.finished")
        for name in _NOTES:
            with storage_errors(root):
                remove_file(locks[0], root / "control" / name)
    return len(old.rows)


def _require_ended_well(lock: Path, *, was_left: bool) -> None:
    if was_left:
        raise InvalidConfigError(f"the store was not closed well, so it can't be upgraded: lock={lock}; {_REMEDY}")


def _require_nothing_left(store: Store) -> None:
    for path in (store.root / "control" / name for name in _NOTES):
        with storage_errors(path):
            data = read_if_there(path)
        if data is not None and _names_anything(data):
            raise InvalidConfigError(f"something is left to do, so the store can't be upgraded: file={path}; {_REMEDY}")


def _names_anything(data: bytes) -> bool:
    try:
        return any(value for key, value in json.loads(data).items() if key != "version")
    except (ValueError, AttributeError):
        return True


def _read_old(store: Store) -> _OldLedger:
    path, configs = store.ledger_path, read_topic_configs(store)
    log, least = ledger_log(path), signed_off_version(path)
    with log.refusing_damage():
        table = log.open()
        had = {field.name for field in table.schema().fields}.union(set(ROWS_SCHEMA.names) - set(_NEW_COLUMNS))
        old_schema = pa.schema([field for field in ROWS_SCHEMA if field.name in had])
        content = log.read(table, old_schema)
        for name in ROWS_SCHEMA.names[len(old_schema) :]:
            field = ROWS_SCHEMA.field(name)
            content = content.append_column(field, pa.array([_NEW_COLUMNS[name]] * len(content), field.type))
        rows = LedgerRows.from_table(content)
        found, committed = _crc(rows, had), read_committed(log, table.version())
        if found != committed.rows_crc:
            raise ValueError(f"its rows are not what was committed: crc={found} committed={committed.rows_crc}")
    require_signed_off(path, table.version(), least)
    is_upgraded = len(old_schema) == len(ROWS_SCHEMA)
    return _OldLedger(log, table, rows if is_upgraded else _with_compacted(rows, configs), is_upgraded)


def _with_compacted(rows: LedgerRows, configs: Mapping[str, LogConfig]) -> LedgerRows:
    """Let logs that may have been compacted count as compacted up to their end."""
    topics = enumerate(rows.text["topic"])
    numbers = np.array([row for row, topic in topics if topic not in configs or configs[topic].is_compacted], np.int64)
    return rows.with_values(numbers, {"compacted_offset": rows.integers["log_end_offset"][numbers]})


def _crc(rows: LedgerRows, names: set[str]) -> str:
    text = {name: column for name, column in rows.text.items() if name in names}
    return rows_crc(text, {name: column for name, column in rows.integers.items() if name in names})


def _commit(old: _OldLedger, owner: Owner) -> None:
    """Write the entry that changes schema and partitioning and replaces the rows, durably and at once."""
    now_ms, metadata = time.time_ns() // 1_000_000, old.table.metadata()
    actions: list[dict[str, Any]] = [
        {
            "metaData": {
                "id": metadata.id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": Schema.from_arrow(LEDGER_SCHEMA).to_json(),
                "partitionColumns": [LEDGER_PARTITION[0]],
                "createdTime": metadata.created_time,
                "configuration": metadata.configuration,
            }
        }
    ]
    for replaced in old.log.data_files(old.table):
        actions.append({"remove": {"path": replaced.name, "deletionTimestamp": now_ms, "dataChange": True}})
    with storage_errors(old.log.path):
        if len(old.rows):
            added = old.log.write_data_file(old.rows.to_table(), LEDGER_PARTITION)
            file = {"path": added.path, "partitionValues": added.partition_values, "size": added.size}
            times = {"modificationTime": added.modification_time, "dataChange": True, "stats": added.stats}
            actions.append({"add": {**file, **times}})
        reach("upgrade.written")
        info = {
            "timestamp": now_ms,
            "operation": "UPGRADE",
            ROWS_CRC: rows_crc(old.rows.text, old.rows.integers),
            TRANSACTIONS_CRC: transactions_crc([]),
            ACTION_COUNT: str(len(actions)),
        }
        lines = [json.dumps(each) for each in ({"commitInfo": info}, *actions)]
        replace_file(owner, old.log.entry(old.table.version() + 1), "\n".join(lines).encode())
