"""The command `sparklog`; each verb also runs under `spark-submit`.

Exit code 0: done. 1: failed, or found damage. 2: wrong use, settings included. A failure is one line on stderr.
Here are all verbs with their options and help. What a verb does is in its module in `pipeline/verbs`, imported once the
verb is carried out: help, and a word that is no option, wait for no library.
"""

import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sparklog.pipeline.command.options import EXECUTE, JSON, PLACE, TIME, TIME_OR_END
from sparklog.pipeline.report import DONE, FAILED
from sparklog.pipeline.terminal import LogLines, say, say_at_once
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError

__all__ = ["cli", "main"]

_WRONG_USE = 2

_FILE = click.Path(dir_okay=False, path_type=Path)
_KEYS = click.Path(exists=True, dir_okay=False, path_type=Path)
_CONFIG = click.option("--config", required=True, metavar="FILE", help="Settings file (YAML).")
_SET = click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one setting; may be repeated.")
_KEEP_IN = click.option(
    "--keep-cut-in",
    "keep_in",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR2",
    help="Folder of what a repair cuts off a plain folder's logs, DIR-cut if not given; a store has its own.",
)
_ISOLATION = click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="What is seen of transactions; read_committed ends at the last stable offset.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sparklog", message="%(package)s %(version)s")
def cli() -> None:
    """Writes and reads Apache Kafka's on-disk log format."""


@cli.command()
@_CONFIG
@_SET
@click.option("--available-now", is_flag=True, help="Take what is there, then stop, whatever the file's trigger.")
@click.option("--take-lock-by-force", is_flag=True, help="Take the store from a writer that can't be stopped.")
@click.option("--metrics-file", type=_FILE, metavar="FILE", help="Figures of the stream, for Prometheus.")
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
    """Say what `stream` would do with a settings file, or what is wrong with it; writes nothing.

    Spark looks at the source's columns and at every expression, and starts no query.
    """
    from sparklog.pipeline.settings.stream_settings import load_settings

    settings = load_settings(config, overrides)
    from sparklog.pipeline.verbs.check import run  # Spark, for settings that make sense

    run(settings)


@cli.command()
@click.argument("store", type=PLACE)
@click.argument("topic", required=False)
@_KEEP_IN
@JSON
def describe(**given: Any) -> None:
    """Show the logs of a STORE, or of a folder of topic-partition directories.

    With TOPIC also each log's offsets, with the segment and position where each is, and its segments. Offsets that a
    repair wrote down as lost are shown, too.
    """
    from sparklog.pipeline.verbs.describe import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE)
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
@JSON
def offsets(**given: Any) -> None:
    """Print TOPIC:PARTITION:OFFSET of each log at a time; the offset is -1 where no record is that late."""
    from sparklog.pipeline.verbs.offsets import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC[:PARTITION]")
@click.option("--from", "start_offset", type=click.IntRange(0), metavar="OFFSET", help="First offset, of one log.")
@click.option(
    "--from-time",
    "start_time",
    type=TIME,
    metavar="TIME",
    help="Start at the first record of this time, such as 2026-11-20T10:00Z, 2026-11-20, -1h or MS since 1970.",
)
@click.option("--max", "limit", type=click.IntRange(0), metavar="N", help="Stop after so many records.")
@_ISOLATION
@click.option("--raw", "as_raw", is_flag=True, help="Keys, values and headers as they are; a terminal may obey them.")
@JSON
def read(**given: Any) -> None:
    """Print records, one a line: place, time, key, value and headers between tabs, or a JSON object in base64."""
    from sparklog.pipeline.verbs.read import run

    run(**given)


@cli.command()
@click.argument("store", metavar="STORE|DIR", type=PLACE)
@click.option("--deep", is_flag=True, help="Decode every record, too, not only check its batch's CRC.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; as many as there are cores if not given.")
@_KEEP_IN
@JSON
def verify(**given: Any) -> int:
    """Check every CRC, offset, index entry, file size, leader epoch and checkpoint; reads only.

    In a store also whether records of forgotten keys are there.

    Exit code 1: something is wrong, or there was nothing to check.
    """
    from sparklog.pipeline.verbs.verify import run

    return run(**given)


@cli.command()
@click.argument("store", metavar="STORE|DIR", type=PLACE)
@click.option("--execute", is_flag=True, help="Do it; without, only say what would be done.")
@click.option("--index-interval-bytes", type=click.IntRange(0), default=4096, show_default=True, help="As Kafka's.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; as many as there are cores if not given.")
@_KEEP_IN
@JSON
def repair(**given: Any) -> int:
    """Mend what `verify` finds: rebuild indexes, leave damaged bytes out, drop leftovers, write down what is lost.

    What is cut off is kept beside. Exit code 1: something is left to do, or can't be repaired.
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
    help="Codec of the batches that are built again; each one's own if not given.",
)
@JSON
def convert(**given: Any) -> None:
    """Write logs again in message format v0, v1 or v2, as Kafka converts them; say what that loses."""
    from sparklog.pipeline.verbs.convert import run

    run(**given)


@cli.command("dump-log")
@click.option("--files", required=True, multiple=True, metavar="F[,F]", help="Log, index or snapshot files.")
@click.option("--deep-iteration", is_flag=True, help="A line per record.")
@click.option("--print-data-log", is_flag=True, help="Keys and values, too.")
@click.option("--verify-index-only", is_flag=True, help="Only what index and log disagree about.")
@click.option("--index-sanity-check", is_flag=True, help="Only whether an index is sane in itself.")
@click.option("--max-message-size", type=int, help="Bytes read at each index entry.")
@click.option("--max-bytes", type=int, help="Bytes of each log file to read.")
@click.option("--skip-record-metadata", is_flag=True, help="Only keys and values.")
@click.option("--key-decoder-class", metavar="CLASS", help="One of Kafka's decoders: String, Integer, Long, Default.")
@click.option("--value-decoder-class", metavar="CLASS", help="The same for values.")
@click.option("--offsets-decoder", is_flag=True, help="Not offered, as are the other four decoders of Kafka's topics.")
@click.option("--transaction-log-decoder", is_flag=True, hidden=True)
@click.option("--cluster-metadata-decoder", is_flag=True, hidden=True)
@click.option("--remote-log-metadata-decoder", is_flag=True, hidden=True)
@click.option("--share-group-state-decoder", is_flag=True, hidden=True)
@click.option("--json", is_flag=True, help="One object a line.")
@click.option("--raw", is_flag=True, help="Control characters as they are, as Kafka's tool prints them.")
def dump_log(files: tuple[str, ...], **options: Any) -> int:
    """Show what files hold, in the shape and under the options of Kafka's own dump tool."""
    from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log

    paths = [Path(name) for each in files for name in each.split(",") if name]
    if not paths:
        raise click.UsageError("--files names no file")
    given = {name: value for name, value in options.items() if value is not None}
    if given["raw"] and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files that are no UTF-8
    return DONE if dump_log(paths, DumpOptions(**given), sys.stdout, sys.stderr) else FAILED


@cli.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PLACE)
@EXECUTE
@click.option(
    "--clean-shutdown", is_flag=True, help="With --execute: then shut down cleanly; the next start trusts it."
)
@click.option("--index-interval-bytes", type=click.IntRange(0), default=4096, show_default=True, help="As Kafka's.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; four a core if not given.")
@JSON
def recover(**given: Any) -> int:
    """Load a broker's log directories as its start would: finish what was interrupted, cut what is torn or damaged.

    DIR is a root, several are all roots of one broker, or it is one log. Unlike `repair` this drops every record
    behind damage, as Kafka does. Exit code 1: records would go.
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

    Works beside a running sink, which keeps its active segments. Exit code 1: a log failed.
    """
    from sparklog.pipeline.verbs.retain import run

    return run(**given)


@cli.command("delete-records")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--before", type=int, metavar="OFFSET", help="The log will start here; -1 is its end.")
@click.option("--before-time", type=TIME, metavar="TIME", help="It will start at the first record of this time.")
@EXECUTE
@JSON
def delete_records(**given: Any) -> int:
    """Let a log start later: earlier records are not shown any more, and whole segments of them go."""
    from sparklog.pipeline.verbs.delete_records import run

    return run(**given)


@cli.command("delete-topic")
@click.argument("store", type=PLACE)
@click.argument("topic")
@EXECUTE
@JSON
def delete_topic(**given: Any) -> None:
    """Delete a TOPIC of a store with all its logs; no sink may run.

    A stream whose settings still name the topic makes it again, empty, when it starts.
    """
    from sparklog.pipeline.verbs.delete_topic import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@click.argument("log_dirs", metavar="[LOG_DIR]...", nargs=-1)
@EXECUTE
@JSON
def adopt(**given: Any) -> None:
    """Take log directories and quarantined rows over from another copy of STORE, which is refused from then on.

    LOG_DIR names further ones, in which the store has no logs yet.
    """
    from sparklog.pipeline.verbs.adopt import run

    run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@EXECUTE
@JSON
def upgrade(**given: Any) -> None:
    """Upgrade a store of the layout before, which this release refuses; it must have been closed well."""
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
@click.argument("store", type=PLACE, required=False)
@click.option("--config", metavar="FILE", help="Settings file (YAML), in place of STORE.")
@EXECUTE
@click.option("--plan", "plan_file", metavar="FILE", help="With --execute: what maintain --json printed, and no more.")
@click.option("--max-bytes", metavar="SIZE", help="What the cleanings of a run may read, such as 10GiB.")
@click.option("--max-time", metavar="TIME", help="How long a run may be expected to take, such as 30m.")
@click.option("--memory", metavar="SIZE", help="What the offset map of a task may take; 128MiB if not given.")
@click.option("--every", metavar="TIME", help="With --execute: again and again, such as 15m, until SIGTERM.")
@click.option("--metrics-file", metavar="FILE", help="With --execute: figures of the run, for Prometheus.")
@click.option("--all", "with_kept", is_flag=True, help="Show what is not due, too.")
@click.option("--rebuild-control", is_flag=True, help="Make the control tables anew from the logs.")
@JSON
def maintain(**given: Any) -> int:
    """Plan retention and compaction of all logs of a STORE, and with --execute do it, on Spark.

    Works beside a running sink, which keeps its active segments. Exit code 1: a log failed, or is another run's.
    """
    from sparklog.pipeline.verbs.maintain import run

    return run(**given)


@cli.command()
@click.argument("store", type=PLACE)
@click.argument("topic", required=False)
@click.option("--keys", "key_file", type=_KEYS, metavar="FILE", help="The keys to forget, one a line.")
@click.option("--base64", "is_base64", is_flag=True, help="The file's lines are base64.")
@click.option("--verify", is_flag=True, help="Look whether any record is left of what was to be forgotten.")
@JSON
def forget(**given: Any) -> int:
    """Erase all records of some keys of a compacted TOPIC, tombstones included, at the next maintenance.

    Says in which segments they are. With --verify exit code 1: records are left, or nobody can tell.
    """
    from sparklog.pipeline.maintenance.forget import run

    return run(**given)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(LogLines("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    logging.getLogger("sparklog.storage_core.kernels").setLevel(logging.INFO)  # what else would look like a hang
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
    except LogStorageError as error:
        code = _WRONG_USE if isinstance(error, InvalidConfigError) else FAILED
        for problem in error.problems if isinstance(error, InvalidConfigError) else (str(error),):
            say_at_once(f"error: {problem}")
    sys.exit(code if isinstance(code, int) else DONE)


if __name__ == "__main__":
    main()
