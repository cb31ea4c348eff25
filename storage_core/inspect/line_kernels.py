"""The compiled half of printing: columns in, lines of text out, by a small program that each row runs through.

| operation | a                      | b                             | writes                                       |
|-----------|------------------------|-------------------------------|----------------------------------------------|
| TEXT      | start in the literals  | end there                     | the literal                                  |
| NUMBER    | column of numbers      | column of numbers, or -1      | the number; nothing where column b holds 0   |
| CHOICE    | column of numbers      | first row of its words        | the word with the row's number               |
| CONTENT   | column of contents     |                               | the bytes; nothing where they are null       |
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from storage_core.kernels import kernel
from storage_core.record.kernel_memory import BYTES, INT64S, address_of, copy_bytes, inlined, store_byte

__all__ = ["CHOICE", "CONTENT", "MAX_NUMBER_BYTES", "NUMBER", "TEXT", "place_lines", "render_lines"]

TEXT: Final = 0
NUMBER: Final = 1
CHOICE: Final = 2
CONTENT: Final = 3

MAX_NUMBER_BYTES: Final = 20
"""Most bytes of an int64 in decimal."""

_MINUS: Final = 0x2D
_ZERO: Final = 0x30

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Int64s: TypeAlias = npt.NDArray[np.int64]


@inlined
def _write_number(address: int, value: int) -> int:
    """Write an int64 in decimal and return the address after it."""
    rest = np.uint64(value)
    if value < 0:
        store_byte(address, _MINUS)
        address += 1
        rest = np.uint64(0) - rest
    digits, above = 1, rest // np.uint64(10)
    while above > np.uint64(0):
        above = above // np.uint64(10)
        digits += 1
    for place in range(digits - 1, -1, -1):
        above = rest // np.uint64(10)
        store_byte(address + place, _ZERO + np.int64(rest - above * np.uint64(10)))  # type: ignore[arg-type]
        rest = above
    return address + digits


@kernel(
    f"void(int64[:, ::1], {BYTES}, int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], {BYTES}, uint8[::1],"
    " int64[::1])"
)
def render_lines(
    program: _Int64s,
    literals: _Bytes,
    words: _Int64s,
    numbers: _Int64s,
    starts: _Int64s,
    sizes: _Int64s,
    source: _Bytes,
    out: _Bytes,
    ends: _Int64s,
) -> None:
    """Write one line a row.

    Args:
        program: (k, 3) operation, a, b.
        literals: every literal and word.
        words: (w, 2) start and end of each word in `literals`.
        numbers: (c, n) columns of numbers.
        starts: (m, n) where each content starts in `source`.
        sizes: (m, n) its size, -1 for null.
        out: room for the lines, as long as they can get.
        ends: out, (n,) where each line ends.
    """
    start, literal, content = address_of(out), address_of(literals), address_of(source)
    address = start
    for row in range(ends.size):
        for step in range(program.shape[0]):
            kind, a, b = program[step, 0], program[step, 1], program[step, 2]
            if kind == TEXT:
                copy_bytes(address, literal + a, b - a)
                address += b - a
            elif kind == NUMBER:
                if b < 0 or numbers[b, row] != 0:
                    address = _write_number(address, numbers[a, row])
            elif kind == CHOICE:
                word = b + numbers[a, row]
                size = words[word, 1] - words[word, 0]
                copy_bytes(address, literal + words[word, 0], size)
                address += size
            elif sizes[a, row] > 0:
                copy_bytes(address, content + starts[a, row], sizes[a, row])
                address += sizes[a, row]
        ends[row] = address - start


@kernel(f"void({BYTES}, {INT64S}, {INT64S}, uint8[::1])")
def place_lines(data: _Bytes, ends: _Int64s, targets: _Int64s, out: _Bytes) -> None:
    """Copy each line to its place; lines that stay beside each other are copied together.

    Args:
        data: lines back to back.
        ends: (n,) where each ends.
        targets: (n,) where each goes in `out`.
    """
    source, target = address_of(data), address_of(out)
    run_start = line_start = 0
    for line in range(ends.size):
        size = ends[line] - line_start
        if line + 1 == ends.size or targets[line + 1] != targets[line] + size:
            run_size = ends[line] - run_start
            copy_bytes(target + targets[line] + size - run_size, source + run_start, run_size)
            run_start = ends[line]
        line_start = ends[line]
