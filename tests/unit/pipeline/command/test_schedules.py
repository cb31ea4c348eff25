"""The examples in `deploy`: the command understands them, and no run is put where another one begins."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.pipeline.command.cli import cli
from sparklog.pipeline.settings.maintenance_settings import maintenance_options
from sparklog.pipeline.settings.stream_settings import load_settings

_SCHEDULES = Path(__file__).resolve().parents[4] / "deploy" / "schedules"


def _cron() -> list[tuple[str, str, list[str]]]:
    """Return minutes, hours and words of each line, its variables filled in."""
    variables, found = dict[str, str](), []
    for line in (_SCHEDULES / "maintain.cron").read_text().splitlines():
        if variable := re.fullmatch(r"(\w+)=(.*)", line):
            variables[variable[1]] = variable[2]
        elif line and not line.startswith("#"):
            minutes, hours, _, _, _, command = line.split(maxsplit=5)
            filled = re.sub(r"\$(\w+)", lambda name: variables[name[1]], command)
            found.append((minutes, hours, shlex.split(filled)))
    return found


def _times(field: str, count: int) -> set[int]:
    """Return the minutes or hours that a field of a crontab means."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.replace("*", f"0-{count - 1}").partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def _commands() -> Iterator[list[str]]:
    """Yield the words of every command, the first one the program."""
    yield from (words for _, _, words in _cron())
    service = (_SCHEDULES / "maintain.service").read_text()
    yield from (shlex.split(each) for each in re.findall("^ExecStart=(.*)$", service, re.MULTILINE))


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_schedule_when_read_then_the_command_understands_it(words: list[str]) -> None:
    """Every word is one of the verb's, every value makes sense, and something is done."""
    program, verb, *rest = words
    command = cli.commands[verb]
    given = command.make_context(verb, rest).params

    assert Path(program).name == "sparklog"
    assert given["execute"]
    assert (given["store"] is None) != (given["config"] is None)
    settings = ("max_bytes", "max_time", "memory", "every", "metrics_file")
    assert maintenance_options({name: given[name] for name in settings if given[name] is not None})


def test_settings_for_yarn_when_read_then_nothing_is_wrong() -> None:
    """Both jobs take them."""
    settings = load_settings(str(_SCHEDULES.parent / "yarn" / "settings.yaml"), ())

    assert settings.objects is not None


def test_cron_when_two_lines_are_read_then_they_never_begin_at_the_same_time() -> None:
    """The one without bounds would find the other one at work, and there is only one such a night."""
    begins = [
        (hour, minute) for minutes, hours, _ in _cron() for hour in _times(hours, 24) for minute in _times(minutes, 60)
    ]

    assert len(begins) == len(set(begins)) > 24
