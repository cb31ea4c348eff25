import ast
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest

from sparklog.storage_core.record.batch_probe import MAGIC_AT, FirstFields, first_fields
from tests.build.batch_bytes import BatchSpec, batch_bytes
from tests.plain.legacy_scalar import pack_entry
from tests.plain.scalar import Record

_ROOT = Path(__file__).resolve().parents[4]
_FOLDERS = (
    "storage_core/record",
    "storage_core/log",
    "storage_core/inspect",
    "storage_core/cleaner",
    "storage_core/index",
    "sink/place",
    "sink/stage",
    "pipeline/reader",
)
_OWNERS = {
    "storage_core/record/batch_probe.py",  # what every format begins with
    "storage_core/record/v2/batch_header.py",
    "storage_core/record/legacy/header.py",
    "storage_core/index/offset_index.py",
    "storage_core/index/time_index.py",
}
_PLACES = {8, 12, 16, 17, 18, 21, 22, 23, 26, 27, 35, 43, 51, 53, 57, 61}
"""Where fields of a header start or end, but for 0."""

_NAMES = re.compile(
    r"_?(.*(MAGIC|LENGTH|CRC|EPOCH|ATTRIBUTES|DELTA|COUNT|TIMESTAMP)_(AT|FROM)|.*UP_TO_MAGIC.*|LOG_OVERHEAD.*|MAGIC_V2"
    r"|HEADER_BYTES|.*MIN_(BATCH|ENTRY)_BYTES|MIN(_V\d)?_(LENGTH|SIZE))"
)
_BASES = {"position", "address", "entry", "at", "start"}
_LAYOUTS = re.compile(r">qi|>i[48]")


def _copies(tree: ast.Module) -> Iterator[int]:
    """Yield the lines where a module writes down by itself where a field of a batch or an index entry is."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int()))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int()))
            ) if _NAMES.fullmatch(name):
                yield node.lineno
            case ast.Subscript(slice=ast.Constant(value=int(place))) if place in _PLACES - {8}:
                yield node.lineno
            case ast.Subscript(slice=ast.Slice(ast.Constant(place), ast.Constant())) if place in _PLACES:
                yield node.lineno
            case ast.BinOp(ast.Name(name), ast.Add(), ast.Constant(place)) if name in _BASES and place in _PLACES:
                yield node.lineno
            case ast.Call(ast.Attribute(attr="Struct" | "dtype"), [layout]) if _LAYOUTS.search(ast.unparse(layout)):
                yield node.lineno


def test_places_of_fields_when_modules_are_read_then_one_module_has_each() -> None:
    """Magic, length and CRC stand in `batch_probe`, a format's fields beside its header, an index's in its module."""
    paths = [path for folder in _FOLDERS for path in sorted((_ROOT / folder).rglob("*.py"))]

    found = {str(path.relative_to(_ROOT)): list(_copies(ast.parse(path.read_text()))) for path in paths}

    assert len(paths) > 100
    assert {name: lines for name, lines in found.items() if lines and name not in _OWNERS} == {}
    assert all(found[name] for name in _OWNERS)


@pytest.mark.parametrize("magic", [0, 1, 2, 3, 127, 128, 255])
def test_first_fields_when_the_byte_of_a_magic_is_negative_then_the_crc_is_that_of_an_entry(magic: int) -> None:
    """A magic is a signed byte, and one below 2 is read as an entry."""
    signed = int.from_bytes(bytes([magic]), signed=True)
    batch = bytearray(
        batch_bytes(BatchSpec(), 7)
        if signed >= 2
        else pack_entry(Record(offset=7, timestamp=5, key=None, value=b""), 0)
    )
    batch[MAGIC_AT] = magic

    first = first_fields(bytes(batch))

    assert first == FirstFields(7, len(batch), signed)
    assert first is not None
    assert first.crc == ((17, 21, crc32c.crc32c) if signed >= 2 else (12, 16, zlib.crc32))


@pytest.mark.parametrize("size_bytes", [0, 1, 16])
def test_first_fields_when_the_magic_is_cut_off_then_none(size_bytes: int) -> None:
    """Fewer bytes say nothing of a batch."""
    assert first_fields(bytes(size_bytes)) is None
