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

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.kernel_memory import (
    BYTES,
    INT64S,
    address_of,
    copy_bytes,
    inlined,
    load_byte,
    store_byte,
)

__all__ = [
    "CHOICE",
    "CONTENT",
    "MAX_NUMBER_BYTES",
    "NUMBER",
    "TEXT",
    "escape_texts",
    "escaped_sizes",
    "may_be_obeyed",
    "place_lines",
    "render_lines",
]

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


@inlined
def _obeyed(address: int, left: int) -> int:
    """Return the number of the character at an address if a terminal obeys it, else -1; `left` bytes may be read."""
    first = load_byte(address)
    if first < 0x20 or first == 0x7F:
        return first
    if first < 0xC2 or left < 2:
        return -1
    second = load_byte(address + 1)
    if (first == 0xC2 and second < 0xA0) or (first == 0xD8 and second == 0x9C):
        return (first & 0x1F) << 6 | (second & 0x3F)
    if first != 0xE2 or left < 3:
        return -1
    third = load_byte(address + 2)
    is_mark = second == 0x80 and (0x8E <= third <= 0x8F or 0xA8 <= third <= 0xAE)
    if is_mark or (second == 0x81 and 0xA6 <= third <= 0xA9):
        return 0x2000 | (second & 0x3F) << 6 | (third & 0x3F)
    return -1


@inlined
def _bytes_of(code: int) -> int:
    """Return how many bytes a character has in UTF-8."""
    return 1 if code < 0x80 else 2 if code < 0x800 else 3


@inlined
def _is_short(code: int) -> bool:
    """Whether a character has an escape of one letter: tab, newline, carriage return."""
    return 0x09 <= code <= 0x0A or code == 0x0D


@inlined
def _escape(address: int, code: int) -> int:
    """Write the escape of a character and return the address after it."""
    store_byte(address, 0x5C)
    if _is_short(code):
        store_byte(address + 1, 0x74 if code == 0x09 else 0x6E if code == 0x0A else 0x72)
        return address + 2
    digits = 2 if code < 0x80 else 4
    store_byte(address + 1, 0x78 if digits == 2 else 0x75)
    for place in range(digits):
        digit = (code >> 4 * (digits - 1 - place)) & 15
        store_byte(address + 2 + place, digit + (0x30 if digit < 10 else 0x57))
    return address + 2 + digits


@kernel(f"boolean({BYTES})")
def may_be_obeyed(source: _Bytes) -> bool:
    """Whether any byte is one that a terminal obeys, or begins such a character; 10 times as fast as a closer look."""
    found = 0
    for place in range(source.size):
        byte = source[place]
        found |= (byte < 0x20) | (byte == 0x7F) | (byte == 0xC2) | (byte == 0xD8) | (byte == 0xE2)
    return found != 0


@kernel(f"void(int64[:, ::1], int64[:, ::1], {BYTES}, int64[:, ::1])")
def escaped_sizes(starts: _Int64s, sizes: _Int64s, source: _Bytes, out: _Int64s) -> None:
    """Tell how many bytes each content has once `escape_texts` has written it.

    Args:
        starts: (m, n) where each content starts in `source`.
        sizes: (m, n) its size, -1 for null.
        source: UTF-8.
        out: out, (m, n) sizes.
    """
    content = address_of(source)
    for column in range(sizes.shape[0]):
        for row in range(sizes.shape[1]):
            size, place = sizes[column, row], 0
            address = content + starts[column, row]
            grown = size
            while place < size:
                code = _obeyed(address + place, size - place)
                if code < 0:
                    place += 1
                else:
                    place += _bytes_of(code)
                    grown += (2 if _is_short(code) else 4 if code < 0x80 else 6) - _bytes_of(code)
            out[column, row] = grown


@kernel(f"void(int64[:, ::1], int64[:, ::1], {BYTES}, int64[:, ::1], uint8[::1])")
def escape_texts(starts: _Int64s, sizes: _Int64s, source: _Bytes, targets: _Int64s, out: _Bytes) -> None:
    """Copy contents with escapes in the place of what a terminal obeys, as `visible_text.visible` does.

    Args:
        starts, sizes, source: as of `escaped_sizes`.
        targets: (m, n) where each goes in `out`.
        out: room for them.
    """
    content, target = address_of(source), address_of(out)
    for column in range(sizes.shape[0]):
        for row in range(sizes.shape[1]):
            address, end = content + starts[column, row], content + starts[column, row] + sizes[column, row]
            into, run = target + targets[column, row], address
            while address < end:
                code = _obeyed(address, end - address)
                if code < 0:
                    address += 1
                    continue
                copy_bytes(into, run, address - run)
                into = _escape(into + (address - run), code)
                address += _bytes_of(code)
                run = address
            if run < end:
                copy_bytes(into, run, end - run)
