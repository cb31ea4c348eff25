"""Files of requests to forget keys in a store of this machine: one each, below `control/forgotten/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparklog.sink.erasure.forget_request import ForgetRequest, parse_request, render_request
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.storage.owned_names import Owner, replace_file

__all__ = ["FOLDER", "expect_again", "lower_ends", "put_request", "read_requests"]

FOLDER: Final = Path("control/forgotten")
"""Folder of the requests, inside a store."""


def put_request(store: Store, request: ForgetRequest, owner: Owner) -> None:
    """Write or replace a request's file, durably; a new one needs no lock."""
    path = store.root / FOLDER / f"{request.request_id}.json"
    with storage_errors(path):
        make_directory(path.parent)
        replace_file(owner, path, render_request(request))


def lower_ends(store: Store, topic_id: str, offsets: Mapping[int, int], owner: Owner) -> None:
    """Lower the end offsets of requests to truncation offsets; the caller holds both locks of the store.

    Records that were not there at the request will get the offsets above them.

    Args:
        offsets: by partition; 0 of a log that never came into the store.

    Raises:
        CorruptFileError: a request is damaged.
    """
    for each in read_requests(store):
        lower = {number: end for number, end in offsets.items() if each.end_offsets.get(number, 0) > end}
        if each.topic_id == topic_id and lower:
            put_request(store, replace(each, end_offsets={**each.end_offsets, **lower}), owner)


def expect_again(store: Store, topic_id: str, end_offsets: Mapping[int, int], owner: Owner) -> None:
    """Let requests cover logs that come into the store: their records count as earlier than every request.

    Args:
        end_offsets: of these logs, by partition; they replace those of logs that were deleted.

    Raises:
        CorruptFileError: a request is damaged.
    """
    for each in read_requests(store):
        if each.topic_id == topic_id:
            cleared = each.cleared.difference(end_offsets)
            put_request(store, replace(each, end_offsets={**each.end_offsets, **end_offsets}, cleared=cleared), owner)


def read_requests(store: Store) -> list[ForgetRequest]:
    """Return all requests, oldest first.

    Raises:
        CorruptFileError: one is damaged; the message names its file.
        UnsupportedFormatError: a newer release made one.
    """
    folder = store.root / FOLDER
    with storage_errors(folder):
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        found = [parse_request(path, read_file(path)) for path in paths]
    return sorted(found, key=lambda each: (each.requested_ms, each.request_id))
