"""A store as the release before left it: layout 2, whose ledger has neither intents nor partitions."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import Transaction

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.ledger.crc import ROWS_CRC, TRANSACTIONS_CRC, rows_crc, transactions_crc
from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import ROWS_SCHEMA

__all__ = ["make_older"]

_SCHEMA = pa.schema([field for field in ROWS_SCHEMA if field.name not in ("cleaner_limit_offset", "intent", "owes")])


def make_older(store: Path, transactions: Mapping[str, int]) -> None:
    """Write the ledger of a closed store anew as layout 2.

    Args:
        store: its folder.
        transactions: newest micro-batch of each query; a checkpoint of the ledger names them, and no entry does.
    """
    path = store / "ledger"
    ledger = Ledger.open(path)
    states = [ledger.state(row) for row in range(len(ledger.all_states()))]
    rows = pa.Table.from_pylist(
        [{name: getattr(state, name) for name in _SCHEMA.names} for state in states], schema=_SCHEMA
    )
    shutil.rmtree(path)
    log = ledger_log(path)
    log.create(_SCHEMA, {"delta.logRetentionDuration": "interval 0 seconds"})
    for query_id, batch_id in transactions.items():
        _commit(log, rows, [(query_id, batch_id)])
    table = log.open()
    table.create_checkpoint()
    table.cleanup_metadata()
    while log.open().version() < ledger.version:
        _commit(log, rows, [])
    properties = store / "store.properties"
    properties.write_text(properties.read_text().replace("layout.version=3", "layout.version=2"))


def _commit(log: DeltaLog, rows: pa.Table, transactions: list[tuple[str, int]]) -> None:
    text = {field.name: rows[field.name].to_pylist() for field in _SCHEMA if pa.types.is_string(field.type)}
    integers = {name: rows[name].to_numpy().astype("int64") for name in _SCHEMA.names if name not in text}
    metadata = {ROWS_CRC: rows_crc(text, integers), TRANSACTIONS_CRC: transactions_crc(transactions)}
    log.commit(log.open(), rows, "overwrite", metadata, [Transaction(*each) for each in transactions])
