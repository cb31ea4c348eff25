"""Every error Sparklog raises; the tree is the list of a caller's actions.

LogStorageError                  something about a store or a log
    InvalidConfigError           fix the setting that the message names
    InvalidRecordError           fix or divert the row that the message names
        RecordTooLargeError      drop the row it names; the others can be written
    UnknownTopicError            declare the topic, or ask for one that exists
    TopicsChangedError           a topic went while its cluster was asked about it: ask for the topics again
    OutOfOrderSequenceError      batches of this producer are missing before this one: send them first
    InvalidProducerEpochError    a later producer took this one's id over: it must stop
    InvalidTxnStateError         the producer has an open transaction: end it before batches without one
    TransactionCoordinatorFencedError  a later coordinator has ended a transaction: this one must stop
    OffsetOutOfRangeError        ask for an offset inside the range that the message names
    CorruptBatchError            a complete batch is damaged: restore or repair
    CorruptFileError             an index or checkpoint file is damaged: rebuild or restore
    UnsupportedFormatError       the bytes are of a version this release does not read or write
    StoreLockedError             another writer holds the store: stop it, or take the lock by force
    WriterFencedError            another writer took over: this one must stop
    UnflushedRecordsLostError    a power cut took records that a flush policy left in the page cache: run a repair
    LedgerDamagedError           the ledger can't be trusted: restore it, nothing was changed
    StorageError                 the filesystem refused: disk full, permissions, I/O
        LogDirOfflineError       bring back the log directory it names; logs elsewhere can be used
        ObjectMissingError       restore the object it names: a store of objects needs it
        ObjectExistsError        give the object another name: storages never change one
    CommitStateUnknownError      look the micro-batch up before anything else
    SparkLostError               the platform's Spark has gone: start the job again
"""

__all__ = [
    "CommitStateUnknownError",
    "CorruptBatchError",
    "CorruptFileError",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTxnStateError",
    "LedgerDamagedError",
    "LogDirOfflineError",
    "LogStorageError",
    "ObjectExistsError",
    "ObjectMissingError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "RecordTooLargeError",
    "SparkLostError",
    "StorageError",
    "StoreLockedError",
    "TopicsChangedError",
    "TransactionCoordinatorFencedError",
    "UnflushedRecordsLostError",
    "UnknownTopicError",
    "UnsupportedFormatError",
    "WriterFencedError",
]


class LogStorageError(Exception):
    """Base of every error of this package; `str()` is one line for a person."""


class InvalidConfigError(LogStorageError):
    """A setting is wrong; the message lists every problem found, `; ` between them."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class InvalidRecordError(LogStorageError):
    """A row can't become a record; the message names topic, partition, column and row position, never content."""


class RecordTooLargeError(InvalidRecordError):
    """One record alone would make a batch above `max.message.bytes`.

    Attributes:
        row: its row in the columns given.
        size_bytes: of a batch with this record alone.
    """

    def __init__(self, row: int, size_bytes: int, max_message_bytes: int) -> None:
        super().__init__(row, size_bytes, max_message_bytes)
        self.row = row
        self.size_bytes = size_bytes
        self.max_message_bytes = max_message_bytes

    def __str__(self) -> str:
        return f"record is too large: row={self.row} size={self.size_bytes} max.message.bytes={self.max_message_bytes}"


class UnknownTopicError(LogStorageError):
    """No such topic or partition in this store or folder."""


class TopicsChangedError(LogStorageError):
    """A topic was deleted, or its log went back, between two questions to its cluster."""


class OutOfOrderSequenceError(LogStorageError):
    """A batch's sequence numbers do not follow those of its producer's last batch."""


class InvalidProducerEpochError(LogStorageError):
    """A batch has a lower epoch than an earlier batch of its producer id."""


class InvalidTxnStateError(LogStorageError):
    """A batch outside of transactions, from a producer whose transaction is open."""


class TransactionCoordinatorFencedError(LogStorageError):
    """A marker has a lower coordinator epoch than an earlier marker of its producer id."""


class OffsetOutOfRangeError(LogStorageError):
    """The offset lies outside log start and log end."""


class CorruptBatchError(LogStorageError):
    """A complete batch fails its checks.

    Attributes:
        position: byte position of the batch in the bytes given.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message, position)
        self.position = position

    def __str__(self) -> str:
        return f"{self.args[0]} position={self.position}"


class CorruptFileError(LogStorageError):
    """An index or checkpoint file does not parse, or contradicts itself."""


class UnsupportedFormatError(LogStorageError):
    """Bytes or a store of a version that this release does not read or write."""


class StoreLockedError(LogStorageError):
    """Another writer holds the store's lock."""


class WriterFencedError(LogStorageError):
    """This writer lost the store to another one; its uncommitted records are void."""


class UnflushedRecordsLostError(LogStorageError):
    """Committed records above a recovery point are gone; a repair records them as lost, then writing continues."""


class LedgerDamagedError(LogStorageError):
    """The ledger is damaged beyond its newest entry."""


class StorageError(LogStorageError):
    """The filesystem refused an operation; the message names the path and the reason."""


class LogDirOfflineError(StorageError):
    """A log directory is gone, read-only or not this store's; the message names it, the reason and the requested logs.

    No log directory was changed.
    """


class ObjectMissingError(StorageError):
    """A storage of objects has no object of that name."""


class ObjectExistsError(StorageError):
    """The name is another object's."""


class CommitStateUnknownError(LogStorageError):
    """The ledger never answered: the micro-batch may be visible. Look it up before anything else."""

    def __init__(self, message: str, query_id: str, batch_id: int) -> None:
        super().__init__(message, query_id, batch_id)
        self.query_id = query_id
        self.batch_id = batch_id

    def __str__(self) -> str:
        return f"{self.args[0]} query_id={self.query_id} batch_id={self.batch_id}"


class SparkLostError(LogStorageError):
    """The JVM that the platform started with this process has gone; the process can't start another one."""
