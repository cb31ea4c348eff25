import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.storage.mapped_bytes import map_bytes

_SIZE = 20_000


@pytest.fixture
def content() -> bytes:
    """Some bytes, not of whole pages."""
    return random.Random(1).randbytes(_SIZE)


@pytest.fixture
def descriptor(tmp_path: Path, content: bytes) -> Iterator[int]:
    """An open file with them."""
    path = tmp_path / "file"
    path.write_bytes(content)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.mark.parametrize(
    ("position", "size"), [(0, 1), (0, _SIZE), (1, 4096), (4095, 2), (4096, 4096), (_SIZE - 1, 1), (5000, 15_000)]
)
def test_map_bytes_gives_what_a_read_gives(descriptor: int, content: bytes, position: int, size: int) -> None:
    """At any position, page by page or not."""
    mapped = map_bytes(descriptor, position, size)

    assert mapped is not None
    assert bytes(mapped) == content[position : position + size]


def test_map_bytes_when_they_are_changed_then_the_file_is_not(descriptor: int, content: bytes, tmp_path: Path) -> None:
    """The mapping is private."""
    mapped = map_bytes(descriptor, 0, _SIZE)

    assert mapped is not None
    mapped[0] ^= 0xFF
    assert (tmp_path / "file").read_bytes() == content


def test_map_bytes_when_the_file_was_cut_then_says_to_read(descriptor: int, tmp_path: Path) -> None:
    """Pages that are not there would end the process."""
    os.truncate(tmp_path / "file", 4096)

    assert map_bytes(descriptor, 0, _SIZE) is None
    assert map_bytes(descriptor, 8192, 100) is None


def test_map_bytes_when_a_read_would_fail_then_says_to_read() -> None:
    """A file that can't be mapped is read, and that says why."""
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        assert map_bytes(descriptor, 0, 4096) is None
    finally:
        os.close(descriptor)
