"""The command `sparklog`; each verb also runs under `spark-submit`.

Exit code 0: done. 1: failed, or found damage. 2: wrong use, settings included. A failure is one line on stderr.
Imports stand inside the verbs: the tools must not wait for Spark, nor `--help` for anything.
"""

import logging
import os
import sys
from collections.abc import Sequence

import click

from storage_core.errors import InvalidConfigError, LogStorageError

__all__ = ["cli", "main"]

_DONE, _FAILED, _WRONG_USE = 0, 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sparklog", message="%(package)s %(version)s")
def cli() -> None:
    """Writes and reads Apache Kafka's on-disk log format."""


@cli.command()
@click.option("--config", required=True, metavar="FILE", help="Settings file (YAML).")
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one setting; may be repeated.")
@click.option("--available-now", is_flag=True, help="Take what is there, then stop, whatever the file's trigger.")
@click.option("--take-lock-by-force", is_flag=True, help="Take the store from a writer that can't be stopped.")
def stream(config: str, overrides: tuple[str, ...], available_now: bool, take_lock_by_force: bool) -> None:
    """Stream a source into the Kafka logs of a store, exactly once.

    SIGINT or SIGTERM stops after the running micro-batch; a second one stops at once.
    """
    from pipeline.settings import load_settings

    trigger = ("trigger={available_now: true}",) if available_now else ()
    settings = load_settings(config, (*overrides, *trigger))
    from pipeline.spark_errors import silence_spark_loggers
    from pipeline.streaming_job import run_stream

    silence_spark_loggers()
    run_stream(settings, _report, take_lock_by_force=take_lock_by_force)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        code = cli.main(args=arguments, prog_name="sparklog", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _report("interrupted")
        code = _FAILED
    except InvalidConfigError as error:
        _report(f"error: {error}")
        code = _WRONG_USE
    except LogStorageError as error:
        _report(f"error: {error}")
        code = _FAILED
    sys.exit(code if isinstance(code, int) else _DONE)


def _report(line: str) -> None:
    """Write one line to stderr, past every buffer: a signal handler may call this in the middle of another one."""
    os.write(2, f"{line}\n".encode())


if __name__ == "__main__":
    main()
