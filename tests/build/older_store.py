"""A store as an earlier release left it.

The ledger of layout 2 has neither intents nor partitions; that of layout 3 does not say how far logs are compacted.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import Transaction

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.ledger.crc import ROWS_CRC, TRANSACTIONS_CRC, rows_crc, transactions_crc
from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import LEDGER_PARTITION, ROWS_SCHEMA

__all__ = ["make_older"]

_SINCE = {"cleaner_limit_offset": 3, "intent": 3, "owes": 3, "compacted_offset": 4, "first_unstable_offset": 4}
"""Layout of the columns that layout 2 lacks."""


def make_older(store: Path, transactions: Mapping[str, int], layout: int = 3) -> None:
    """Write the ledger of a closed store anew as an older layout.

    Args:
        store: its folder.
        layout: 2 or 3.
        transactions: newest micro-batch of each query; a checkpoint of the ledger names them, and no entry does.
    """
    path = store / "ledger"
    ledger = Ledger.open(path)
    states = [ledger.state(row) for row in range(len(ledger.all_states()))]
    schema = pa.schema([field for field in ROWS_SCHEMA if _SINCE.get(field.name, 2) <= layout])
    rows = pa.Table.from_pylist([{name: getattr(state, name) for name in schema.names} for state in states], schema)
    shutil.rmtree(path)
    log = ledger_log(path)
    partition = LEDGER_PARTITION if layout > 2 else None
    columns = [field.with_nullable(True) for field in schema]
    kind = [pa.field(LEDGER_PARTITION[0], pa.string(), nullable=False)]
    log.create(
        pa.schema([*columns, *kind]) if partition else schema,
        {"delta.logRetentionDuration": "interval 0 seconds"},
        partition[0] if partition else None,
    )
    for query_id, batch_id in transactions.items():
        _commit(log, rows, [(query_id, batch_id)], partition)
    table = log.open()
    table.create_checkpoint()
    table.cleanup_metadata()
    while log.open().version() < ledger.version:
        _commit(log, rows, [], partition)
    properties = store / "store.properties"
    properties.write_text(properties.read_text().replace("layout.version=4", f"layout.version={layout}"))


def _commit(
    log: DeltaLog, rows: pa.Table, transactions: list[tuple[str, int]], partition: tuple[str, str] | None
) -> None:
    text = {field.name: rows[field.name].to_pylist() for field in rows.schema if pa.types.is_string(field.type)}
    integers = {name: rows[name].to_numpy().astype("int64") for name in rows.schema.names if name not in text}
    metadata = {ROWS_CRC: rows_crc(text, integers), TRANSACTIONS_CRC: transactions_crc(transactions)}
    log.commit(log.open(), rows, "overwrite", metadata, [Transaction(*each) for each in transactions], partition)
