"""What a lively store must be once it was maintained to its end, and what its control tables say of the way there."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.control.read_tables import read_rows, table_path
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, LEASES, RUNS
from sparklog.pipeline.maintenance.forget import search_forgotten
from sparklog.pipeline.places.store_view import open_logs
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.log.files.names import CLEANED, DELETED, SWAP
from sparklog.storage_core.topic_partition import TopicPartition
from tests.kill.lively_store import forgotten_records, log_ends, problems_of_records

__all__ = ["problems_of_checkpoints", "problems_of_store"]


def problems_of_store(store: Path, told: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is wrong.

    Args:
        store: where nobody is at work.
        told: what the job told of its runs.
    """
    found = verify(open_logs(store), lambda _finding: None, deep=True)
    wrong = [f"verify: {each}" for each in found.findings if each.kind not in HARMLESS_KINDS]
    if not found.is_sound:
        wrong.append("verify: not sound")
    wrong += [f"left over: {path.name}" for path in store.rglob("*") if path.name.endswith((CLEANED, SWAP, DELETED))]
    wrong += problems_of_records(store)
    wrong += [f"of the forgotten key: {each}" for each in forgotten_records(store)]
    wrong += [
        f"not done: {each.request.request_id} {each.found}"
        for each in search_forgotten(store, None)
        if each.request.completed_ms is None or each.found
    ]
    return [*wrong, *_problems_of_leases(store), *_problems_of_runs(store, told), *problems_of_checkpoints(store)]


def problems_of_checkpoints(store: Path) -> list[str]:
    """Return which checkpoints lie outside of their logs, also while others are at work."""
    rows, ends = read_rows(store, CLEANER_CHECKPOINTS), log_ends(store)
    return [
        f"checkpoints: {row['topic']}-{row['partition']}: {row}"
        for row in rows
        if not row["log_start_offset"]
        <= row["first_dirty_offset"]
        <= ends[TopicPartition(row["topic"], row["partition"])]
    ]


def _problems_of_leases(store: Path) -> Iterator[str]:
    """Look at every version of the table: an epoch of a log has one owner, and epochs never fall."""
    path = table_path(store, LEASES).as_uri()
    owners: dict[tuple[TopicPartition, int], set[str]] = defaultdict(set)
    last: dict[TopicPartition, int] = defaultdict(int)
    for version in range(DeltaTable(path).version() + 1):
        rows = DeltaTable(path, version=version).to_pyarrow_table().to_pylist()
        for row in rows:
            log, epoch = TopicPartition(row["topic"], row["partition"]), row["epoch"]
            owners[log, epoch].add(row["owner"])
            if epoch < last[log]:
                yield f"leases: {log} {version=} {epoch=} falls from {last[log]}"
            last[log] = epoch
    yield from (f"leases: {place} has {names}" for place, names in owners.items() if len(names) != 1)
    if not owners:
        yield "leases: nobody had any"


def _problems_of_runs(store: Path, told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each run that ended well has its row, and what works say of epochs is what leases said."""
    rows = read_rows(store, RUNS)
    ended = [each["run_id"] for each in told if each["run_id"] is not None]
    known = {row["run_id"]: row["outcome"] for row in rows if row["topic"] is None}
    yield from (f"runs: {run_id} has no row" for run_id in ended if run_id not in known)
    yield from (f"runs: {each}" for each in told for text in each["failures"] if "uncleanable" in text)
    if ended and known.get(ended[-1]) != "done":
        yield f"runs: the last one is {known.get(ended[-1])}: {told[-1]}"
    worked: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for row in rows:
        if row["lease_epoch"] is not None:
            worked[row["topic"], row["partition"], row["lease_epoch"]].add(row["run_id"])
    yield from (f"runs: {place} is of {names}" for place, names in worked.items() if len(names) != 1)
