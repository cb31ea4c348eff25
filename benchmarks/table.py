"""Figures as Markdown."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rounds import Result

__all__ = ["Table", "Verdict", "cpu_ratio_text", "ratio_text", "verdict_table", "write_between_marks"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title and notes below it."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Return the table as a Markdown section."""
        lines = [f"### {self.title}", "", _row(self.headers), _row(["---"] * len(self.headers))]
        lines += [_row(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A figure beside what was asked for.

    Attributes:
        is_met, is_aim_met: whether the figure reaches what is wanted at least, and the aim; None = not measured.
    """

    what: str
    wanted: str
    aim: str
    measured: str
    is_met: bool | None
    is_aim_met: bool | None = None


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return all verdicts as one table."""
    rows = [(each.what, each.wanted, each.aim, each.measured, _met(each)) for each in verdicts]
    return Table("Against what was asked for", ("what", "at least", "aim", "measured", "met"), rows)


def ratio_text(ours: Result, baseline: Result) -> str:
    """Return the median of the rounds' ratios, with their range."""
    return _spread(ours.ratios(baseline))


def cpu_ratio_text(ours: Result, baseline: Result) -> str:
    """Return the same for CPU time, which other processes on the machine hardly change."""
    return _spread(ours.cpu_ratios(baseline))


def write_between_marks(path: Path, text: str) -> None:
    """Replace what lies between the two marks of a Markdown file.

    Raises:
        ValueError: the file has no such marks.
    """
    page = path.read_text()
    begin, end = "<!-- figures: begin -->", "<!-- figures: end -->"
    if not re.search(f"{begin}.*{end}", page, re.DOTALL):
        raise ValueError(f"{path} has no line {begin!r} followed by {end!r}")
    head, rest = page.split(begin, 1)
    path.write_text(f"{head}{begin}\n\n{text.strip()}\n\n{end}{rest.split(end, 1)[1]}")


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _met(verdict: Verdict) -> str:
    if verdict.is_met is None:
        return "**did not run**"
    if verdict.is_aim_met:
        return "yes, and the aim"
    return "yes" if verdict.is_met else "**no**"
