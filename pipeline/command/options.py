"""The options that several verbs of the command have."""

from pathlib import Path
from typing import Any, Final

import click

__all__ = ["EXECUTE", "JSON", "PLACE", "TIME", "TIME_OR_END"]

PLACE: Final = click.Path(exists=True, file_okay=False, path_type=Path)
EXECUTE: Final = click.option("--execute", is_flag=True, help="Do it; without, only show the plan.")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


class _Time(click.ParamType[int | str]):
    """A time in any form of `sparklog.pipeline.times`, as ms since 1970; or a name for a time."""

    name = "time"

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the time, or end the command."""
        from sparklog.pipeline.times import parse_time
        from sparklog.storage_core.clock import SystemClock

        if value in self._names:
            return self._names[value]
        try:
            return parse_time(value, SystemClock().now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME: Final = _Time({})
TIME_OR_END: Final = _Time(
    {name: name for name in ("latest", "earliest", "max-timestamp")}
    | {"-1": "latest", "-2": "earliest", "-3": "max-timestamp"}
)
"""Also an end of a log, by Kafka's name or number."""
