"""What every storage of objects has to do, on each of them."""

import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.storage_core.errors import ObjectExistsError, ObjectMissingError, StorageError
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.objects.gateway import Gateway

_BYTES = os.urandom(3 << 20)


def test_object_when_created_then_read_whole_and_by_ranges(place: StoragePlace) -> None:
    storage = place.open()

    storage.create("a/b/one", _BYTES)

    assert storage.read("a/b/one") == _BYTES
    assert storage.read_ranges("a/b/one", [], []) == []
    assert storage.read_ranges("a/b/one", [0, 5, len(_BYTES) - 3], [1, 70_000, 3]) == [
        _BYTES[:1],
        _BYTES[5:70_005],
        _BYTES[-3:],
    ]


def test_object_when_empty_then_there(place: StoragePlace) -> None:
    place.open().create("empty", b"")

    assert place.open().read("empty") == b""


def test_object_when_its_name_is_taken_then_refused_and_unchanged(place: StoragePlace) -> None:
    storage = place.open()
    storage.create("one", b"first")

    with pytest.raises(ObjectExistsError, match="one"):
        storage.create("one", b"second")

    assert storage.read("one") == b"first"


def test_object_when_several_create_it_then_exactly_one_wins(place: StoragePlace) -> None:
    storage, start = place.open(), threading.Barrier(4)

    def create(name: str, data: bytes) -> bool:
        start.wait()
        try:
            storage.create(name, data)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for each in range(20):
            name = f"race/{each}"
            won = list(pool.map(create, [name] * 4, [b"%d" % number for number in range(4)]))
            assert won.count(True) == 1
            assert storage.read(name) == b"%d" % won.index(True)


def test_object_when_created_while_others_beside_it_go_then_it_is_made(place: StoragePlace) -> None:
    """VersityGW answers 409 if the folder goes with its last object, and S3 if a removal of the name is under way."""
    storage = place.open()

    def create_and_remove(thread: int) -> None:
        for each in range(5 if place.address.scheme == "hdfs" else 100):
            name = f"a/{thread}-{each}"
            storage.create(name, b"one")
            storage.remove([name])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create_and_remove, range(4)))

    assert list(storage.list("a")) == []


def test_object_when_it_does_not_exist_then_said(place: StoragePlace) -> None:
    storage = place.open()

    with pytest.raises(ObjectMissingError, match="none"):
        storage.read("none")
    with pytest.raises(ObjectMissingError, match="none"):
        storage.read_ranges("none", [0], [1])


def test_range_when_it_lies_past_the_end_then_refused(place: StoragePlace) -> None:
    storage = place.open()
    storage.create("short", b"12345")

    for start, size in ((0, 6), (5, 1), (9, 2)):
        with pytest.raises(StorageError, match="short"):
            storage.read_ranges("short", [start], [size])


@pytest.mark.parametrize("count", [0, 1, 9])
def test_large_object_when_written_in_parts_then_appears_whole_at_the_end(place: StoragePlace, count: int) -> None:
    storage = place.open()

    with storage.writing("large") as writing:
        for _ in range(count):
            writing.write(memoryview(_BYTES))
        assert list(storage.list("")) == []

    assert storage.read("large") == _BYTES * count


def test_large_object_when_its_writer_fails_then_never_appears(place: StoragePlace) -> None:
    storage = place.open()

    def fail() -> None:
        with storage.writing("large") as writing:
            for _ in range(6):
                writing.write(_BYTES)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert list(storage.list("")) == []


def test_list_when_asked_for_a_folder_then_has_names_sizes_and_times_below_it(place: StoragePlace) -> None:
    storage = place.open()
    for name in ("data/x/1", "data/x/2", "data/y", "database"):
        storage.create(name, name.encode())

    found = {each.name: each for each in storage.list("data")}

    assert sorted(found) == ["data/x/1", "data/x/2", "data/y"]
    assert found["data/y"].size_bytes == len("data/y")
    assert found["data/y"].modified_ms > 1_700_000_000_000
    assert list(storage.list("nothing")) == []


def test_objects_when_removed_then_gone_also_if_some_were_not_there(place: StoragePlace) -> None:
    storage = place.open()
    for name in ("1", "2", "3"):
        storage.create(name, b"x")

    storage.remove(["1", "absent", "3"])
    storage.remove([])

    assert [each.name for each in storage.list("")] == ["2"]


def test_storage_when_opened_by_the_same_place_then_the_same_and_no_option_is_printed(place: StoragePlace) -> None:
    assert place.open() is StoragePlace(place.address, dict(place.options)).open()
    assert all(value not in repr(place) for value in place.options.values())


def test_storage_when_the_environment_changes_then_opened_anew(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook sets the right endpoint after a wrong one, in the same process."""
    place = StoragePlace(parse_address(f"{gateway.address}/{uuid.uuid4().hex}"))
    for name, value in gateway.options.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    wrong = place.open()
    assert place.open() is wrong
    monkeypatch.setenv("AWS_ENDPOINT_URL", gateway.options["aws_endpoint_url"])

    place.open().create("one", b"1")

    assert place.open().read("one") == b"1"
