"""The command's output for people: control characters in lines and cells are shown as escapes."""

import logging
import os

import click

from sparklog.storage_core.visible_text import visible

__all__ = ["LogLines", "PeopleTable", "say", "say_at_once"]


def say(*lines: str, err: bool = False) -> None:
    """Print lines."""
    for line in lines:
        click.echo(visible(line), err=err)


def say_at_once(line: str) -> None:
    """Write one line to stderr without a buffer, so that signal handlers may call this at any time."""
    os.write(2, f"{visible(line)}\n".encode())


class LogLines(logging.Formatter):
    """Formats a line of the program's log; a stack trace after it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Return the line."""
        return visible(super().formatMessage(record))


class PeopleTable:
    """A table without borders; cells are plain text, never markup.

    Args:
        wide: columns of a line if stdout is no terminal.
    """

    def __init__(self, wide: int) -> None:
        from rich.console import Console
        from rich.table import Table

        self._console = Console()
        if not self._console.is_terminal:
            self._console = Console(width=wide)
        self._table: Table = Table(box=None, pad_edge=False, header_style="bold")

    @property
    def width(self) -> int:
        """Columns of a line."""
        return self._console.width

    def texts(self, *headings: str) -> None:
        """Add columns of names, each on one line."""
        for heading in headings:
            self._table.add_column(heading, no_wrap=True)

    def numbers(self, *headings: str) -> None:
        """Add columns of numbers."""
        for heading in headings:
            self._table.add_column(heading, justify="right", no_wrap=True)

    def folded(self, heading: str, most: int | None = None) -> None:
        """Add a column whose cells may take several lines; `most` is its largest width."""
        self._table.add_column(heading, overflow="fold", max_width=most)

    def row(self, *cells: str) -> None:
        """Add a row."""
        from rich.text import Text

        self._table.add_row(*(Text(visible(cell)) for cell in cells))

    def print(self) -> None:
        """Print the rows, if there are any."""
        if self._table.row_count:
            self._console.print(self._table, highlight=False)
