"""The rows that every benchmark writes: a key of 10 bytes, a value of 100, a timestamp."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["KEY_BYTES", "ROWS_TEXT", "VALUE_BYTES", "link_copies", "make_rows", "write_rows"]

KEY_BYTES = 10
VALUE_BYTES = 100
ROWS_TEXT = "key 10 B (one of a million), value 100 B (50 random hex digits, then five of 256 words), timestamp"

_KEYS = 1_000_000
_FIRST_MS = 1_700_000_000_000
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_HEX_DIGITS, _WORDS, _WORD_BYTES = 50, 256, 10


def make_rows(count: int, seed: int) -> pa.RecordBatch:
    """Return `key` and `value` (binary) and `timestamp` (us, UTC); the same for the same seed.

    Half of a value is noise that compression can only halve, half is words that repeat, as in much text and JSON.
    """
    words = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, (_WORDS, _WORD_BYTES), np.uint8)
    random = np.random.default_rng(seed)
    noise = _HEX[random.integers(0, len(_HEX), (count, _HEX_DIGITS), np.uint8)]
    text = words[random.integers(0, _WORDS, (count, (VALUE_BYTES - _HEX_DIGITS) // _WORD_BYTES))].reshape(count, -1)
    numbers = random.integers(0, _KEYS, count)
    digits = (numbers[:, None] // 10 ** np.arange(KEY_BYTES - 2, -1, -1) % 10).astype(np.uint8) + ord("0")
    keys = np.concatenate([np.full((count, 1), ord("k"), np.uint8), digits], axis=1)
    timestamps = (_FIRST_MS + np.arange(count)) * 1000
    return pa.RecordBatch.from_arrays(
        [
            _fixed_width(keys),
            _fixed_width(np.concatenate([noise, text], axis=1)),
            pa.array(timestamps, pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "timestamp"],
    )


def write_rows(folder: Path, files: int, rows_per_file: int) -> Path:
    """Write rows as Parquet files, each small enough to be one split, and return their folder."""
    folder.mkdir(parents=True)
    for number in range(files):
        table = pa.Table.from_batches([make_rows(rows_per_file, number)])
        pq.write_table(table, folder / f"{number:04}.parquet", compression="snappy", use_dictionary=False)
    return folder


def link_copies(source: Path, target: Path, copies: int) -> Path:
    """Make a folder that holds every file of another one several times over, as hard links."""
    target.mkdir(parents=True)
    for copy in range(copies):
        for file in sorted(source.glob("*.parquet")):
            (target / f"{copy:02}-{file.name}").hardlink_to(file)
    return target


def _fixed_width(data: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = data.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
