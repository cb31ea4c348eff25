"""Checks that settings and Spark's checkpoint fit a store of objects: its opening fences the writer that is at work."""

from sparklog.pipeline.settings.stream_settings import Settings
from sparklog.pipeline.streaming.checkpoint_check import check_checkpoint
from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.store.topics import topic_problems
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = ["check_objects"]


def check_objects(settings: Settings, place: StoragePlace) -> None:
    """Refuse topics or a checkpoint that do not fit the store; changes nothing.

    Raises:
        InvalidConfigError: they don't.
        LogStorageError: the store can't be read.
    """
    ledger = ObjectLedger.find(place)
    if ledger is None:
        check_checkpoint(settings.checkpoint, settings.store, lambda _query_id: None)
        return
    config = SinkConfig.from_options(settings.store, settings.topics, storage=settings.storage)
    if problems := topic_problems(config, ledger.rows):
        raise InvalidConfigError(*problems)
    check_checkpoint(settings.checkpoint, settings.store, ledger.transaction_version)
