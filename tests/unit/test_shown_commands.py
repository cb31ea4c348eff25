"""Commands that the documentation shows are commands that there are."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sparklog.pipeline.command.cli import cli

_ROOT = Path(__file__).parents[2]
_PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_COMMAND = re.compile(r"^(?:\$ )?(?:\S*=)?(?:\.venv/bin/|\S*/)?sparklog +(\S.*)|sparklog/__main__\.py +(\S.*)")
_SYNOPSIS = re.compile(r"[\[|]|\.\.\.")


def _shown() -> Iterator[tuple[str, tuple[str, ...]]]:
    for page in _PAGES:
        for block in re.findall(r"^```[a-z]*\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                found = _COMMAND.search(line)
                if found and not _SYNOPSIS.search(line):
                    yield page.name, tuple(shlex.split(found[1] or found[2], comments=True))


@pytest.mark.parametrize(("page", "arguments"), sorted(set(_shown())), ids=lambda each: " ".join(each)[:60])
def test_cli_when_a_command_is_shown_then_verb_and_options_are_known(page: str, arguments: tuple[str, ...]) -> None:
    """A page that shows an option which is gone helps nobody."""
    if arguments[0] in ("--version", "--help"):
        return
    command = cli.commands[arguments[0]]
    context = click.Context(command, info_name=page)

    command.make_parser(context).parse_args(list(arguments[1:]))


def test_shown_commands_when_pages_are_read_then_some_are_found() -> None:
    """The search finds commands at all."""
    pages = {page for page, _ in _shown()}

    assert pages >= {"README.md", "clusters.md", "maintenance.md", "tools.md"}
