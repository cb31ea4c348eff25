"""The command `sparklog`; each verb also runs under `spark-submit`.

Exit code 0: done. 1: failed, or found damage. 2: wrong use or wrong settings. 3: another process holds the store or
a log directory, or took the store. A failure is one line on stderr.
Here are the verbs with their options and help; those for brokers are in `broker_commands`. The code of a verb is in its
module in `pipeline/verbs`, imported only when the verb runs: help, and a wrong option, wait for no library.
"""

import atexit
import gc
import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sparklog.pipeline.command.broker_commands import BROKER_COMMANDS
from sparklog.pipeline.command.options import (
    AS_OF,
    EXECUTE,
    FILE,
    FOLDER,
    JSON,
    PLACE,
    PLACE_OR_ADDRESS,
    TIME,
    TIME_OR_END,
)
from sparklog.pipeline.report import AT_WORK, DONE, FAILED
from sparklog.pipeline.terminal import LogLines, say, say_at_once
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError, StoreLockedError, WriterFencedError

__all__ = ["cli", "main"]

_WRONG_USE = 2
_OF_A_CLUSTER = ("pandas", "pyarrow", "pyspark")
"""Libraries that the package does not require: platforms bring their own."""

_KEYS = click.Path(exists=True, dir_okay=False, path_type=Path)
_CONFIG = click.option("--config", required=True, metavar="FILE", help="Settings file (YAML).")
_SET = click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one setting; may be repeated.")
_KEEP_IN = click.option(
    "--keep-cut-in",
    "keep_in",
    type=FOLDER,
    metavar="DIR2",
    help="Plain folders: where a repair keeps the bytes it drops; default DIR-cut.",
)
_ISOLATION = click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Which records of transactions to read; read_committed ends at the last stable offset.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sparklog", message="%(package)s %(version)s")
def cli() -> None:
    """Writes and reads Apache Kafka's on-disk log format."""


@cli.command()
@_CONFIG
@_SET
@click.option("--available-now", is_flag=True, help="Read all rows available now, then stop; overrides the trigger.")
@click.option("--take-lock-by-force", is_flag=True, help="Take the store from a writer that does not stop.")
@click.option("--metrics-file", type=FILE, metavar="FILE", help="File for Prometheus metrics.")
def stream(**given: Any) -> None:
    """Stream a source into the Kafka logs of a store, exactly once.

    SIGINT or SIGTERM stops after the running micro-batch; a second one stops at once.
    """
    from sparklog.pipeline.verbs.stream import run

    run(**given)


@cli.command()
@_CONFIG
@_SET
def check(config: str, overrides: tuple[str, ...]) -> None:
    """Check a settings file: show what `stream` would do, or every problem. Writes nothing.

    Spark checks the source's columns and every expression, and starts no query.
    """
    from sparklog.pipeline.settings.stream_settings import load_settings

    settings = load_settings(config, overrides)
    from sparklog.pipeline.verbs.check import run  # imports Spark, so only for valid settings

    run(settings)


@cli.command()
@click.argument("store", type=PLACE_OR_ADDRESS)
@click.argument("topic", required=False)
@AS_OF
@click.option("--cuts", "with_cuts", is_flag=True, help="List the states of the past that a STORE can be read as of.")
@_KEEP_IN
@JSON
def describe(**given: Any) -> None:
    """Show the logs of a STORE, or of a folder of topic-partition directories.

    With TOPIC also each log's segments, and its offsets with segment and position. Lists the offsets that a repair
    recorded as lost.
    """
    from sparklog.pipeline.verbs.describe import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE_OR_ADDRESS)
@click.argument("name", metavar="TOPIC[:PARTITION]")
@click.option(
    "--time",
    type=TIME_OR_END,
    default="latest",
    show_default=True,
    metavar="TIME",
    help="Such as 2026-11-20T10:00Z, 2026-11-20, -1h or MS since 1970; or earliest, latest, max-timestamp.",
)
@_ISOLATION
@AS_OF
@JSON
def offsets(**given: Any) -> None:
    """Print TOPIC:PARTITION:OFFSET of each log at a time; OFFSET is -1 if every record is earlier."""
    from sparklog.pipeline.verbs.offsets import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE_OR_ADDRESS)
@click.argument("name", metavar="TOPIC[:PARTITION]")
@click.option("--from", "start_offset", type=click.IntRange(0), metavar="OFFSET", help="First offset, of one log.")
@click.option(
    "--from-time",
    "start_time",
    type=TIME,
    metavar="TIME",
    help="Start at the first record of this time, such as 2026-11-20T10:00Z, 2026-11-20, -1h or MS since 1970.",
)
@click.option("--max", "limit", type=click.IntRange(0), metavar="N", help="Stop after N records.")
@_ISOLATION
@AS_OF
@click.option("--raw", "as_raw", is_flag=True, help="Do not escape control characters; a terminal may execute them.")
@JSON
def read(**given: Any) -> None:
    """Print one record a line: TOPIC:PARTITION:OFFSET, time, key, value and headers with tabs between, or JSON."""
    from sparklog.pipeline.verbs.read import run

    run(**given)


@cli.command()
@click.argument("store", metavar="STORE|DIR", type=PLACE_OR_ADDRESS)
@click.option("--deep", is_flag=True, help="Also decode every record; otherwise only check the CRC of its batch.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; default: one a core.")
@click.option("--spark", is_flag=True, help="Check in tasks of Spark, also of a cluster: with spark-submit.")
@_KEEP_IN
@JSON
def verify(**given: Any) -> int:
    """Check every CRC, offset, index entry, file size, leader epoch and checkpoint. Changes nothing.

    In a store, also search for records of forgotten keys.

    Exit code 1: a check failed, or there was nothing to check.
    """
    from sparklog.pipeline.verbs.verify import run

    return run(**given)


@cli.command()
@click.argument("store", metavar="STORE|DIR", type=PLACE_OR_ADDRESS)
@EXECUTE
@click.option("--index-interval-bytes", type=click.IntRange(0), default=4096, show_default=True, help="As Kafka's.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; default: one a core.")
@_KEEP_IN
@JSON
def repair(**given: Any) -> int:
    """Repair damage that `verify` finds: rebuild indexes, drop damaged bytes and leftovers, record lost offsets.

    Keeps a copy of the dropped bytes. Exit code 1: damage is left.
    """
    from sparklog.pipeline.verbs.repair import run

    return run(**given)


@cli.command()
@click.argument("store", metavar="STORE|DIR", type=PLACE)
@click.option("--to", "wanted", required=True, type=click.Choice(["v0", "v1", "v2"]), help="The format to write.")
@click.option("--out", required=True, metavar="DIR2", type=click.Path(path_type=Path), help="New folder of logs.")
@click.option(
    "--compression-type",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Codec of rebuilt batches; default: each batch keeps its own.",
)
@JSON
def convert(**given: Any) -> None:
    """Copy logs into message format v0, v1 or v2, as Kafka converts them; print every loss."""
    from sparklog.pipeline.verbs.convert import run

    run(**given)


def _dumped(name: str) -> list[Path]:
    if "://" not in name:
        return [Path(name)]
    from sparklog.pipeline.objects.dumped_log import log_files

    return log_files(name)


@cli.command("dump-log")
@click.option("--files", required=True, multiple=True, metavar="F[,F]", help="Log, index or snapshot files.")
@click.option("--deep-iteration", is_flag=True, help="A line per record.")
@click.option("--print-data-log", is_flag=True, help="Also keys and values.")
@click.option("--verify-index-only", is_flag=True, help="Only differences between index and log.")
@click.option("--index-sanity-check", is_flag=True, help="Only check that the index itself is valid.")
@click.option("--max-message-size", type=int, help="Bytes read at each index entry.")
@click.option("--max-bytes", type=int, help="Bytes of each log file to read.")
@click.option("--skip-record-metadata", is_flag=True, help="Only keys and values.")
@click.option("--key-decoder-class", metavar="CLASS", help="One of Kafka's decoders: String, Integer, Long, Default.")
@click.option("--value-decoder-class", metavar="CLASS", help="The same for values.")
@click.option("--offsets-decoder", is_flag=True, help="Not supported, like Kafka's four other topic decoders.")
@click.option("--transaction-log-decoder", is_flag=True, hidden=True)
@click.option("--cluster-metadata-decoder", is_flag=True, hidden=True)
@click.option("--remote-log-metadata-decoder", is_flag=True, hidden=True)
@click.option("--share-group-state-decoder", is_flag=True, hidden=True)
@click.option("--json", is_flag=True, help="One object a line.")
@click.option("--raw", is_flag=True, help="Print control characters unescaped, as Kafka's tool does.")
def dump_log(files: tuple[str, ...], **options: Any) -> int:
    """Print the content of files, with the format and the options of Kafka's dump tool.

    F may also be a log of a store of objects: ADDRESS/TOPIC-PARTITION, such as s3://bucket/archive/orders-0.
    """
    from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log

    paths = [path for each in files for name in each.split(",") if name for path in _dumped(name)]
    if not paths:
        raise click.UsageError("--files names no file")
    given = {name: value for name, value in options.items() if value is not None}
    if given["raw"] and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files that are no UTF-8
    return DONE if dump_log(paths, DumpOptions(**given), sys.stdout, sys.stderr) else FAILED


@cli.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PLACE)
@EXECUTE
@click.option("--clean-shutdown", is_flag=True, help="With --execute: the next start skips recovery.")
@click.option("--index-interval-bytes", type=click.IntRange(0), default=4096, show_default=True, help="As Kafka's.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; default: four a core.")
@JSON
def recover(**given: Any) -> int:
    """Load a broker's log directories as its start would: finish interrupted swaps, truncate torn or damaged logs.

    DIR: all roots of one broker, or one log. Unlike `repair`, this drops every record above damage, as Kafka does.
    Exit code 1 without --execute: it would drop records.
    """
    from sparklog.pipeline.verbs.recover import run

    return run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@click.argument("topic", metavar="TOPIC[:PARTITION]", required=False)
@EXECUTE
@JSON
def retain(**given: Any) -> int:
    """Delete old segments by each topic's retention.bytes, retention.ms and log start, as a broker does.

    May run beside a sink, and keeps the sink's active segments. Exit code 1: a log failed.
    """
    from sparklog.pipeline.verbs.retain import run

    return run(**given)


@cli.command("delete-records")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--before", type=int, metavar="OFFSET", help="New start offset of the log; -1: its end.")
@click.option("--before-time", type=TIME, metavar="TIME", help="Start the log at the first record of this time.")
@EXECUTE
@JSON
def delete_records(**given: Any) -> int:
    """Raise a log's start offset: readers skip the records below it, and whole segments below it are deleted."""
    from sparklog.pipeline.verbs.delete_records import run

    return run(**given)


@cli.command("delete-topic")
@click.argument("store", type=PLACE)
@click.argument("topic")
@EXECUTE
@JSON
def delete_topic(**given: Any) -> None:
    """Delete a TOPIC of a store with all its logs; no sink may run.

    If a stream's settings still name the topic, its next start creates it again, empty.
    """
    from sparklog.pipeline.verbs.delete_topic import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@click.argument("log_dirs", metavar="[LOG_DIR]...", nargs=-1)
@EXECUTE
@JSON
def adopt(**given: Any) -> None:
    """Take over log directories and quarantined rows from another copy of STORE; that copy is refused afterwards.

    LOG_DIR: more log directories, without logs of this store yet.
    """
    from sparklog.pipeline.verbs.adopt import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@EXECUTE
@JSON
def upgrade(**given: Any) -> None:
    """Upgrade a store of the previous layout, which this release refuses. Its last writer must have closed it."""
    from sparklog.pipeline.verbs.upgrade import run

    run(**given)


@cli.command("move-log")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--to", "target", required=True, metavar="LOG_DIR", help="Relative to the store, or absolute.")
@EXECUTE
@JSON
def move_log(**given: Any) -> None:
    """Move a log to another log directory of the store, or to a new one; no sink may run."""
    from sparklog.pipeline.verbs.move_log import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE_OR_ADDRESS, required=False)
@click.option("--config", metavar="FILE", help="Settings file (YAML), in place of STORE.")
@EXECUTE
@click.option("--plan", "plan_file", metavar="FILE", help="With --execute: do only the tasks of this --json plan.")
@click.option("--max-bytes", metavar="SIZE", help="Most bytes that cleanings read, such as 10GiB.")
@click.option("--max-time", metavar="TIME", help="Longest expected duration, such as 30m.")
@click.option("--memory", metavar="SIZE", help="Of a Spark task's offset map; default 128MiB.")
@click.option("--every", metavar="TIME", help="With --execute: repeat, such as every 15m, until SIGTERM.")
@click.option("--metrics-file", metavar="FILE", help="With --execute: file for Prometheus metrics.")
@click.option("--all", "with_kept", is_flag=True, help="Also show logs that are not due.")
@click.option("--rebuild-control", is_flag=True, help="Rebuild the control tables from the logs.")
@JSON
def maintain(**given: Any) -> int:
    """Plan retention and compaction of all logs of a STORE, and with --execute carry the plan out, on Spark.

    May run beside a sink, and keeps the sink's active segments. Exit code 1: a log failed, or another run leased it. 3:
    another run has the store, or took it.
    """
    from sparklog.pipeline.verbs.maintain import run

    return run(**given)


@cli.command()
@click.argument("store", type=PLACE_OR_ADDRESS)
@click.argument("topic", required=False)
@click.option("--keys", "key_file", type=_KEYS, metavar="FILE", help="Keys to erase, one a line.")
@click.option("--base64", "is_base64", is_flag=True, help="The file's lines are base64.")
@click.option("--verify", is_flag=True, help="Search for records that are not erased yet.")
@JSON
def forget(**given: Any) -> int:
    """Let the next maintenance run erase all records of some keys of a compacted TOPIC, tombstones included.

    Prints their segments. With --verify exit code 1: records are left, or a log can't be searched.
    """
    from sparklog.pipeline.maintenance.forget import run

    return run(**given)


for _command in BROKER_COMMANDS:
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    atexit.register(gc.freeze)  # else the interpreter's end searches all that was imported for cycles: 0.2 s
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(LogLines("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    logging.getLogger("sparklog.storage_core.kernels").setLevel(logging.INFO)  # compiling kernels may look like a hang
    try:
        code = cli.main(args=arguments, prog_name="sparklog", standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(*shown.getvalue().removesuffix("\n").split("\n"), err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say_at_once("interrupted")
        code = FAILED
    except ModuleNotFoundError as error:
        if error.name not in _OF_A_CLUSTER:
            raise
        say_at_once(f"error: the library {error.name} is missing, which clusters have: pip install 'sparklog[spark]'")
        code = _WRONG_USE
    except LogStorageError as error:
        codes = {InvalidConfigError: _WRONG_USE, StoreLockedError: AT_WORK, WriterFencedError: AT_WORK}
        code = next((code for kind, code in codes.items() if isinstance(error, kind)), FAILED)
        for problem in error.problems if isinstance(error, InvalidConfigError) else (str(error),):
            say_at_once(f"error: {problem}")
    sys.exit(code if isinstance(code, int) else DONE)


if __name__ == "__main__":
    main()
