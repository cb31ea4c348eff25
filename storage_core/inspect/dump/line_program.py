"""Lines of text from columns, without an object per line: a program is put together once and run over many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.inspect.dump.line_kernels import (
    CHOICE,
    CONTENT,
    MAX_NUMBER_BYTES,
    NUMBER,
    TEXT,
    escape_texts,
    escaped_sizes,
    may_be_obeyed,
    render_lines,
)

__all__ = ["Contents", "LineProgram", "Lines"]

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

_ALWAYS: Final = -1


@dataclass(frozen=True, slots=True)
class Contents:
    """Columns of bytes that lie in one place.

    Attributes:
        source: the bytes.
        starts: (m, n) where each starts.
        sizes: (m, n) of each; -1 is null.
    """

    source: _Bytes
    starts: _Int64s
    sizes: _Int64s

    @classmethod
    def of_columns(cls, columns: Sequence[pa.Array]) -> Contents:
        """Return binary or text columns of n rows each."""
        rows = len(columns[0])
        starts, sizes = np.zeros((2, len(columns), rows), np.int64)
        parts, base = [], 0
        for place, column in enumerate(columns if rows else ()):
            _, borders, data = column.buffers()
            offsets = np.frombuffer(borders, np.int32, rows + 1, 4 * column.offset).astype(np.int64)
            starts[place], sizes[place] = base + offsets[:-1], np.diff(offsets)
            if column.null_count:
                sizes[place][column.is_null().to_numpy(zero_copy_only=False)] = -1
            parts.append(np.frombuffer(data if data is not None else b"", np.uint8))
            base += len(parts[-1])
        return cls(parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts]), starts, sizes)

    def visible(self) -> Contents:
        """Return them, which must be UTF-8, with escapes in the place of what a terminal obeys."""
        if not may_be_obeyed(self.source):
            return self
        starts, sizes = np.ascontiguousarray(self.starts), np.ascontiguousarray(self.sizes)
        grown = np.empty_like(sizes)
        escaped_sizes(starts, sizes, self.source, grown)
        if (grown == sizes).all():
            return self
        ends = np.cumsum(np.maximum(grown, 0)).reshape(grown.shape)
        targets, out = ends - np.maximum(grown, 0), np.empty(int(ends.max()), np.uint8)
        escape_texts(starts, sizes, self.source, targets, out)
        return Contents(out, targets, grown)

    def rows(self, chosen: slice | npt.NDArray[np.bool_]) -> Contents:
        """Return some of the rows; the bytes stay where they are."""
        return Contents(self.source, self.starts[:, chosen], self.sizes[:, chosen])


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of text, each with its newline.

    Attributes:
        data: their bytes, UTF-8.
        ends: (n,) where each ends; it starts where the one before ends.
    """

    data: _Bytes
    ends: _Int64s

    def __len__(self) -> int:
        return len(self.ends)

    def some(self, chosen: slice) -> Lines:
        """Return lines that follow each other."""
        base = int(self.ends[chosen.start - 1]) if chosen.start else 0
        ends = self.ends[chosen] - base
        return Lines(self.data[base : base + (int(ends[-1]) if len(ends) else 0)], ends)

    def text(self) -> str:
        """Return all lines."""
        return self.data.tobytes().decode()

    def write_to(self, out: TextIO) -> None:
        """Write all lines, past the text layer where there is one that would only encode them again."""
        buffer = getattr(out, "buffer", None)
        if buffer is None or (out.encoding or "").lower() != "utf-8":
            out.write(self.text())
        else:
            out.flush()
            buffer.write(self.data)


class LineProgram:
    """What a line is made of; each method adds a piece and returns the program."""

    def __init__(self) -> None:
        self._literals = bytearray()
        self._steps: list[tuple[int, int, int]] = []
        self._words: list[tuple[int, int]] = []
        self._fixed_bytes = 0

    def text(self, literal: str) -> Self:
        """Add a text."""
        self._steps.append((TEXT, *self._literal(literal)))
        self._fixed_bytes += len(literal.encode())
        return self

    def number(self, column: int, shown_by: int = _ALWAYS) -> Self:
        """Add a number, which rows leave out whose column `shown_by` holds 0."""
        self._steps.append((NUMBER, column, shown_by))
        self._fixed_bytes += MAX_NUMBER_BYTES
        return self

    def choice(self, column: int, *words: str) -> Self:
        """Add the word whose place among these the column holds."""
        self._steps.append((CHOICE, column, len(self._words)))
        self._words += [self._literal(word) for word in words]
        self._fixed_bytes += max(len(word.encode()) for word in words)
        return self

    def content(self, column: int) -> Self:
        """Add bytes; nothing where they are null."""
        self._steps.append((CONTENT, column, 0))
        return self

    def render(self, numbers: Sequence[npt.NDArray[np.generic]], contents: Contents | None = None) -> Lines:
        """Return a line for each row.

        Args:
            numbers: columns of integers.
            contents: columns of bytes, each used once at most; they must be UTF-8.
        """
        table = np.ascontiguousarray(np.stack([np.asarray(column, np.int64) for column in numbers]))
        rows = table.shape[1]
        if contents is None:
            contents = Contents(np.empty(0, np.uint8), *np.zeros((2, 0, rows), np.int64))
        sizes = np.ascontiguousarray(contents.sizes)
        out = np.empty(self._fixed_bytes * rows + int(np.maximum(sizes, 0).sum()), np.uint8)
        ends = np.empty(rows, np.int64)
        literals = np.frombuffer(bytes(self._literals), np.uint8)
        words = np.array(self._words or [(0, 0)], np.int64)
        starts = np.ascontiguousarray(contents.starts)
        program = np.array(self._steps, np.int64)
        render_lines(program, literals, words, table, starts, sizes, contents.source, out, ends)
        return Lines(out[: int(ends[-1]) if rows else 0], ends)

    def _literal(self, text: str) -> tuple[int, int]:
        start = len(self._literals)
        self._literals += text.encode()
        return start, len(self._literals)
