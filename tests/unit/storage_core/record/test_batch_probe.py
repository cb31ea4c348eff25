import ast
import zlib
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest

from sparklog.storage_core.record.batch_probe import FirstFields, first_fields
from tests.build.batch_bytes import BatchSpec, batch_bytes
from tests.plain.legacy_scalar import pack_entry
from tests.plain.scalar import Record

_ROOT = Path(__file__).resolve().parents[4]
_FOLDERS = (
    "storage_core/record",
    "storage_core/log",
    "storage_core/inspect",
    "storage_core/cleaner",
    "pipeline/reader",
)
_OWNED = ("MAGIC_AT", "UP_TO_MAGIC_BYTES", "LOG_OVERHEAD_BYTES", "MAGIC_V2", "CRC_AT", "CRC_FROM", "CRC_COVERS_FROM")
_MAGIC_AT = 16


def _copies(tree: ast.Module) -> Iterator[int]:
    """Yield the lines where a module writes down by itself where magic, length or CRC are."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                if name.lstrip("_") in _OWNED:
                    yield node.lineno
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant()):
                if name.lstrip("_") in _OWNED:
                    yield node.lineno
            case ast.Subscript(slice=ast.Constant(value=16)):
                yield node.lineno
            case ast.BinOp(op=ast.Add(), right=ast.Constant(value=16)):
                yield node.lineno


def test_place_of_magic_length_and_crc_when_modules_are_read_then_one_names_it() -> None:
    """What every format begins with is said in `batch_probe`; all others import it from there."""
    paths = [path for folder in _FOLDERS for path in sorted((_ROOT / folder).rglob("*.py"))]

    found = {str(path.relative_to(_ROOT)): list(_copies(ast.parse(path.read_text()))) for path in paths}

    assert len(paths) > 100
    assert {name: lines for name, lines in found.items() if lines} == {
        "storage_core/record/batch_probe.py": found["storage_core/record/batch_probe.py"]
    }


@pytest.mark.parametrize("magic", [0, 1, 2, 3, 127, 128, 255])
def test_first_fields_when_the_byte_of_a_magic_is_negative_then_the_crc_is_that_of_an_entry(magic: int) -> None:
    """A magic is a signed byte, and one below 2 is read as an entry."""
    signed = int.from_bytes(bytes([magic]), signed=True)
    batch = bytearray(
        batch_bytes(BatchSpec(), 7)
        if signed >= 2
        else pack_entry(Record(offset=7, timestamp=5, key=None, value=b""), 0)
    )
    batch[_MAGIC_AT] = magic

    first = first_fields(bytes(batch))

    assert first == FirstFields(7, len(batch), signed)
    assert first is not None
    assert first.crc == ((17, 21, crc32c.crc32c) if signed >= 2 else (12, 16, zlib.crc32))


@pytest.mark.parametrize("size_bytes", [0, 1, 16])
def test_first_fields_when_the_magic_is_cut_off_then_none(size_bytes: int) -> None:
    """Fewer bytes say nothing of a batch."""
    assert first_fields(bytes(size_bytes)) is None
