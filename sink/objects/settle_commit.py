"""Finds out what became of a commit whose answer was lost, or that another commit was before.

Each commit has an id of its own, so its entry shows whether it counts. If the entry is not there, the request may still
be on its way, and would count when it arrives. So an empty commit takes its place, and then it can't; or it has arrived
meanwhile.
"""

import logging
from typing import Final

from deltalake import CommitProperties, DeltaTable

from sparklog.sink.delta.damage import one_line
from sparklog.sink.delta.delta_log import NO_HOOKS
from sparklog.sink.objects.ledger_files import FAILURES, PARTITION, LedgerFiles
from sparklog.storage_core.errors import (
    CommitStateUnknownError,
    ObjectMissingError,
    StorageError,
    WriterFencedError,
)

__all__ = ["COMMIT_ID", "settle_commit"]

logger = logging.getLogger(__name__)

COMMIT_ID: Final = "sparklog.commit"
"""Key in an entry's first line."""


def settle_commit(
    files: LedgerFiles,
    known: int,
    commit_id: str,
    added: set[str],
    transaction: tuple[str, int] | None,
    error: Exception,
) -> DeltaTable:
    """Return the table at the version of a commit that raised, if it counts.

    Args:
        known: version before it.
        added: its data files.
        transaction: its query id and number of a micro-batch.
        error: that it raised.

    Raises:
        WriterFencedError: another commit was first.
        StorageError: it is not there, and never will be.
        CommitStateUnknownError: nothing of that could be found out.
    """
    try:
        if not _has_entry(files, known, commit_id, error) and _take_place(files, known):
            raise _NotCommittedError(f"the ledger can't be written: address={files.place.address} ({one_line(error)})")
        if not _has_entry(files, known, commit_id, error):
            raise error
        table = files.open()
        table.load_as_version(known + 1)
        # A writer that was suspended long may have made an entry anew that others have tidied away since: no version
        # has what it says.
        if not added <= {name for names in files.by_kind(table).values() for name in names}:
            raise ValueError("other writers have committed since")
        return table
    except _NotCommittedError as settled:
        raise StorageError(str(settled)) from error
    except (*FAILURES, StorageError) as second:
        unknown = transaction or ("", -1)
        raise CommitStateUnknownError(f"the ledger did not answer: {one_line(second)}", *unknown) from error


class _NotCommittedError(Exception):
    """The commit does not count."""


def _has_entry(files: LedgerFiles, known: int, commit_id: str, error: Exception) -> bool:
    """Whether the entry after a version is that of a commit.

    Raises:
        WriterFencedError: it is another one's.
    """
    try:
        actions = files.read_entry(known + 1)
    except ObjectMissingError:
        return False
    if any(each.get("commitInfo", {}).get(COMMIT_ID) == commit_id for each in actions):
        return True
    raise WriterFencedError(
        f"another writer committed to the ledger: address={files.place.address} version={known}"
    ) from error


def _take_place(files: LedgerFiles, known: int) -> bool:
    """Commit nothing after a version, unless a later one is there; return whether that worked."""
    table = files.open()
    if table.version() != known:
        return False
    try:
        table.create_write_transaction(
            [],
            mode="append",
            schema=table.schema(),
            partition_by=[PARTITION],
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )
    except FAILURES as error:
        logger.warning("An empty commit failed as well: %s", one_line(error))
        return False
    return True
