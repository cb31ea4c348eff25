"""Good bytes of every kind, to be damaged."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.compression import compress
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.record_cases import SPECIMENS, encode

__all__ = ["SeedLog", "files", "logs", "streams"]

_GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
_MAX_LOG_BYTES = 1600


@dataclass(frozen=True)
class SeedLog:
    """A sound log.

    Attributes:
        records: all of them, `RECORD_SCHEMA`.
        batch_ends: (b,) where each batch ends.
        records_before: (b,) records in it and the batches before it, those of control batches left out.
    """

    name: str
    data: bytes
    records: pa.RecordBatch
    batch_ends: npt.NDArray[np.int64]
    records_before: npt.NDArray[np.int64]

    def records_up_to(self, position: int) -> int:
        """Return how many records lie in batches that end at or before a position."""
        whole = int(np.searchsorted(self.batch_ends, position, side="right"))
        return int(self.records_before[whole - 1]) if whole else 0


@cache
def logs() -> tuple[SeedLog, ...]:
    """Return the first batches of every golden segment, and of some that no broker here wrote."""
    found = [_seed_log("specimens", encode(SPECIMENS, EncodeOptions(codec=codec)).data.tobytes()) for codec in CODECS]
    for path in sorted(_GOLDEN.glob("v*/*/*.log")):
        data = path.read_bytes()
        scan = scan_batches(data)
        ends = scan.position + scan.size
        small = ends[ends <= _MAX_LOG_BYTES]
        if len(small):
            found.append(_seed_log(f"{path.parent.name}/{path.name}", data[: int(small[-1])]))
    return tuple(found)


def _seed_log(name: str, data: bytes) -> SeedLog:
    scan = scan_batches(data)
    counts = [decode_batches(data, scan.take(slice(at, at + 1))).num_rows for at in range(len(scan))]
    return SeedLog(name, data, decode_batches(data), scan.position + scan.size, np.cumsum(counts))


@cache
def files(suffix: str) -> tuple[bytes, ...]:
    """Return the golden files of a kind, by the end of their names; always one that is empty."""
    found = {path.read_bytes() for path in sorted(_GOLDEN.rglob(f"*{suffix}")) if path.is_file()}
    return (b"", *sorted(found))


@cache
def streams(codec: str) -> tuple[bytes, ...]:
    """Return compressed streams of one codec."""
    plain = (b"", b"a", b"value-value-value-" * 300, bytes(range(256)) * 20, bytes(150_000))
    return tuple(bytes(compress(codec, each)) for each in plain)
