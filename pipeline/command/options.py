"""The options that several verbs of the command have."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from sparklog.pipeline.places.stored_logs import Place
    from sparklog.sink.ledger.versions import AsOf
    from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = [
    "ADDRESS",
    "AS_OF",
    "EXECUTE",
    "FILE",
    "FOLDER",
    "JSON",
    "PLACE",
    "PLACE_OR_ADDRESS",
    "TIME",
    "TIME_OR_END",
    "TIME_OR_NOW",
]

PLACE: Final = click.Path(exists=True, file_okay=False, path_type=Path)


class _PlaceOrAddress(click.ParamType["Place"]):
    """A folder of this machine, or the address of a store of objects; the environment has what its storage needs."""

    name = "folder or address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Place":
        """Return the place, or end the command."""
        if "://" in str(value):
            from sparklog.pipeline.places.stored_logs import stored_place

            place = stored_place(value)
            if place is not None:
                return place
            value = str(value).removeprefix("file://")
        return Path(PLACE.convert(value, param, ctx))


PLACE_OR_ADDRESS: Final = _PlaceOrAddress()


class _Address(click.ParamType["StoragePlace"]):
    """The address of a store of objects, which there may not be yet; the environment has what its storage needs."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "StoragePlace":
        """Return the place, or end the command."""
        from sparklog.storage_core.objects.address import is_address, parse_address
        from sparklog.storage_core.objects.open_storage import StoragePlace

        if not is_address(str(value)):
            self.fail(f"{value!r} is no address, such as s3://bucket/archive", param, ctx)
        return StoragePlace(parse_address(value))


ADDRESS: Final = _Address()
FILE: Final = click.Path(dir_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)
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

TIME_OR_NOW: Final = _Time({"now": "now"})

_MOST_VERSION_DIGITS: Final = 10


class _AsOf(click.ParamType["AsOf"]):
    """A version of the ledger, or a time in any form of `sparklog.pipeline.times`; ms since 1970 have more digits."""

    name = "time or version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "AsOf":
        """Return what names the state, or end the command."""
        from sparklog.sink.ledger.versions import AsOf

        if value.isascii() and value.isdigit() and len(value) <= _MOST_VERSION_DIGITS:
            return AsOf(version=int(value))
        return AsOf(timestamp_ms=int(TIME.convert(value, param, ctx)))


AS_OF: Final = click.option(
    "--as-of",
    type=_AsOf(),
    metavar="TIME|VERSION",
    help="The store as it was: at a time, such as -1h or 2026-11-20T10:00Z, or at a version of its ledger.",
)
