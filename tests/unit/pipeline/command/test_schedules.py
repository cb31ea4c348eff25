"""The examples in `deploy/schedules`: the command understands them, and no run is put where another one begins."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.pipeline.command.cli import cli
from sparklog.pipeline.settings.maintenance_settings import maintenance_options

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
    for task in json.loads((_SCHEDULES / "databricks_job.json").read_text())["tasks"]:
        yield [task["python_wheel_task"]["entry_point"], *task["python_wheel_task"]["parameters"]]


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_schedule_when_read_then_the_command_understands_it(words: list[str], tmp_path: Path) -> None:
    """Every word is one of the verb's, every value makes sense, and something is done."""
    program, verb, *rest = (str(tmp_path) if each == "/shared/store" else each for each in words)
    command = cli.commands[verb]
    given = command.make_context(verb, rest).params

    assert Path(program).name == "sparklog"
    assert given["execute"]
    assert (given["store"] is None) != (given["config"] is None)
    settings = ("max_bytes", "max_time", "memory", "every", "metrics_file")
    assert maintenance_options({name: given[name] for name in settings if given[name] is not None})


def test_cron_when_two_lines_are_read_then_they_never_begin_at_the_same_time() -> None:
    """The one without bounds would find the other one at work, and there is only one such a night."""
    begins = [
        (hour, minute) for minutes, hours, _ in _cron() for hour in _times(hours, 24) for minute in _times(minutes, 60)
    ]

    assert len(begins) == len(set(begins)) > 24


def test_databricks_job_when_read_then_nothing_is_installed_over_the_runtimes_spark() -> None:
    """The wheel requires pyspark, so it is no library of the job: a script installs it alone."""
    (task,) = json.loads((_SCHEDULES / "databricks_job.json").read_text())["tasks"]
    cluster, script = task["new_cluster"], (_SCHEDULES / "databricks_init.sh").read_text()
    required = tomllib.loads((_SCHEDULES.parents[1] / "pyproject.toml").read_text())["project"]["dependencies"]

    assert "libraries" not in task
    assert cluster["data_security_mode"] == "SINGLE_USER"
    assert cluster["spark_version"] in ("18.2.x-scala2.13", "19.x-scala2.13"), "keys of Spark 4.1 and of Spark 4.2"
    assert cluster["init_scripts"][0]["workspace"]["destination"].endswith("/databricks_init.sh")
    assert re.findall(r'"([^"$]+>=[^"]+)"', script) == [each for each in required if not each.startswith("pyspark")]
    assert re.search(r"install --no-deps \S+/sparklog-[\d.]+-py3-none-any\.whl$", script, re.MULTILINE)
    assert subprocess.run(["bash", "-n", _SCHEDULES / "databricks_init.sh"], check=False).returncode == 0
