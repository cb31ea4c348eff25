"""What a dump found wrong, and how Kafka's tool words it.

Source: Kafka DumpLogSegments, TimeIndexDumpErrors; 4.3.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["DumpErrors"]

_Pairs = dict[str, list[tuple[int, int]]]


@dataclass(slots=True)
class DumpErrors:
    """Findings by file, kept until every file is dumped.

    Attributes:
        index_mismatches: (indexed offset, last offset of the batch at the entry's position), newest first when printed.
        timestamp_mismatches: (indexed timestamp, largest timestamp of the batch).
        timestamps_out_of_order: (indexed timestamp, the one before).
        offsets_not_found: (indexed offset, last offset of the batch found or -1).
        non_consecutive: (offset, the next one).
        last_offsets: the last record's offset met in each file so far.
        other: lines that Kafka's tool would end with an exception.
        is_damaged: whether anything found is damage. Gaps between offsets are not: compaction leaves them. Nor is an
            index entry that names the last batch of one append and the position of its first.
    """

    index_mismatches: _Pairs = field(default_factory=dict)
    timestamp_mismatches: _Pairs = field(default_factory=dict)
    timestamps_out_of_order: _Pairs = field(default_factory=dict)
    offsets_not_found: _Pairs = field(default_factory=dict)
    non_consecutive: _Pairs = field(default_factory=dict)
    last_offsets: dict[Path, int] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)
    is_damaged: bool = False

    def add_other(self, line: str) -> None:
        """Note damage in a line of its own."""
        self.other.append(line)
        self.is_damaged = True

    def lines(self) -> Iterator[str]:
        """Yield every finding, in the order of Kafka's tool."""
        yield from self.other
        yield from _pair_lines(self.index_mismatches, "Mismatches in :{}", "  Index offset: {}, log offset: {}", -1)
        yield from _pair_lines(
            self.timestamp_mismatches,
            "Found timestamp mismatch in :{}",
            "  Index timestamp: {}, log timestamp: {}",
        )
        yield from _pair_lines(
            self.timestamps_out_of_order,
            "Found out of order timestamp in :{}",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
        )
        yield from _pair_lines(
            self.offsets_not_found,
            "The following indexed offsets are not found in :{}",
            "Indexed offset: {}, found log offset: {}",
        )
        yield from _pair_lines(self.non_consecutive, "Non-consecutive offsets in {}", "  {} is followed by {}")


def _pair_lines(pairs: _Pairs, title: str, line: str, step: int = 1) -> Iterator[str]:
    for name, found in pairs.items():
        yield title.format(name)
        for first, second in found[::step]:
            yield line.format(first, second)
