"""The files of a log of a store of objects, for `dump-log`: copied into a folder that goes as the process ends."""

from dataclasses import replace
from pathlib import Path

from sparklog.pipeline.places.stored_logs import fetch_logs
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import parse_directory_name

__all__ = ["log_files"]


def log_files(text: str) -> list[Path]:
    """Return the segments of the log that an address names, as `s3://bucket/archive/TOPIC-PARTITION`.

    Raises:
        UnknownTopicError: it names no log of a store.
        LogStorageError: the store can't be read.
    """
    address = parse_address(text)
    folder, _, name = address.path.rpartition("/")
    log = parse_directory_name(name)
    if log is None or not folder:
        raise UnknownTopicError(f"name a log of the store, such as s3://bucket/archive/orders-0: {text}")
    copied = fetch_logs(StoragePlace(replace(address, path=folder)), f"{log.topic}:{log.partition}", None)
    files = sorted((copied / log.directory_name).glob(f"*{LOG}"))
    if not files:
        raise UnknownTopicError(f"the store has no such log: {text}")
    return files
