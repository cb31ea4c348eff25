"""The verb `forget` of the command `sparklog`."""

from pathlib import Path

import click

from sparklog.pipeline.command.options import JSON, PLACE
from sparklog.pipeline.report import DONE, FAILED, to_json
from sparklog.pipeline.terminal import say

__all__ = ["forget"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("store", type=PLACE)
@click.argument("topic", required=False)
@click.option("--keys", "key_file", type=_FILE, metavar="FILE", help="The keys to forget, one a line.")
@click.option("--base64", "is_base64", is_flag=True, help="The file's lines are base64.")
@click.option("--verify", is_flag=True, help="Look whether any record is left of what was to be forgotten.")
@JSON
def forget(store: Path, topic: str | None, key_file: Path | None, is_base64: bool, verify: bool, as_json: bool) -> int:
    """Erase all records of some keys of a compacted TOPIC, tombstones included, at the next maintenance.

    Says in which segments they are. With --verify exit code 1: records are left, or nobody can tell.
    """
    from sparklog.pipeline.maintenance import forget as forget_command
    from sparklog.storage_core.clock import SystemClock

    if verify == (key_file is not None):
        raise click.UsageError("one of --keys and --verify is needed")
    if key_file is None:
        states = forget_command.search_forgotten(store, topic)
    elif topic is None:
        raise click.UsageError("--keys needs a TOPIC")
    else:
        keys = forget_command.read_key_file(key_file, is_base64=is_base64)
        states = [forget_command.forget_keys(store, topic, keys, SystemClock())]
    if as_json:
        say(to_json(forget_command.as_dict(states)))
    else:
        say(*(line for each in states for line in forget_command.lines(each)), forget_command.verdict(states))
    return FAILED if verify and any(each.found for each in states) else DONE
