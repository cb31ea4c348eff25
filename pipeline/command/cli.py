"""The command `sparklog`; each verb also runs under `spark-submit`.

Exit code 0: done. 1: failed, or found damage. 2: wrong use, settings included. A failure is one line on stderr.
Imports stand inside the verbs: the tools must not wait for Spark, nor `--help` for anything.
"""

import io
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.pipeline.command.forget_verb import forget
from sparklog.pipeline.command.maintenance_verbs import MAINTENANCE_VERBS
from sparklog.pipeline.command.operation_verbs import OPERATION_VERBS
from sparklog.pipeline.command.options import JSON, PLACE, TIME, TIME_OR_END
from sparklog.pipeline.report import DONE, FAILED
from sparklog.pipeline.terminal import LogLines, say
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError
from sparklog.storage_core.visible_text import visible

if TYPE_CHECKING:
    pass

__all__ = ["cli", "main"]

_WRONG_USE = 2

_FILE = click.Path(dir_okay=False, path_type=Path)
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
def stream(
    config: str,
    overrides: tuple[str, ...],
    available_now: bool,
    take_lock_by_force: bool,
    metrics_file: Path | None,
) -> None:
    """Stream a source into the Kafka logs of a store, exactly once.

    SIGINT or SIGTERM stops after the running micro-batch; a second one stops at once.
    """
    from sparklog.pipeline.settings.stream_settings import load_settings

    trigger = ("trigger={available_now: true}",) if available_now else ()
    settings = load_settings(config, (*overrides, *trigger))
    from sparklog.pipeline.streaming.start import starting_line

    _report(starting_line(settings))
    from sparklog.pipeline.streaming.job import run_stream
    from sparklog.pipeline.streaming.metrics import figures_of
    from sparklog.sink.spark.errors import silence_spark_loggers

    silence_spark_loggers()
    with settings.places.locating(), figures_of(metrics_file) as figures:
        run_stream(settings, _report, take_lock_by_force=take_lock_by_force, figures=figures)


@cli.command()
@_CONFIG
@_SET
def check(config: str, overrides: tuple[str, ...]) -> None:
    """Say what `stream` would do with a settings file, or what is wrong with it; writes nothing.

    Spark looks at the source's columns and at every expression, and starts no query.
    """
    from sparklog.pipeline.settings.stream_settings import load_settings

    settings = load_settings(config, overrides)
    from sparklog.pipeline.verbs.check import check_stream
    from sparklog.sink.spark.errors import silence_spark_loggers

    silence_spark_loggers()
    with settings.places.locating():
        say(*check_stream(settings))


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


for _verb in (*OPERATION_VERBS, *MAINTENANCE_VERBS, forget):
    cli.add_command(_verb)


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
        _report("interrupted")
        code = FAILED
    except LogStorageError as error:
        code = _WRONG_USE if isinstance(error, InvalidConfigError) else FAILED
        for problem in error.problems if isinstance(error, InvalidConfigError) else (str(error),):
            _report(f"error: {problem}")
    sys.exit(code if isinstance(code, int) else DONE)


def _report(line: str) -> None:
    """Write one line to stderr, past every buffer: a signal handler may call this in the middle of another one."""
    os.write(2, f"{visible(line)}\n".encode())


if __name__ == "__main__":
    main()
