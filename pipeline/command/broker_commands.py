"""The verbs between stores and brokers, with their options and help; their code is in `pipeline/brokers`."""

from typing import Any, Final

import click

from sparklog.pipeline.command.options import (
    ADDRESS,
    AS_OF,
    EXECUTE,
    FILE,
    FOLDER,
    JSON,
    PLACE,
    PLACE_OR_ADDRESS,
    TIME_OR_NOW,
)

__all__ = ["BROKER_COMMANDS"]

_COMMAND_CONFIG: Final = click.option(
    "--command-config", type=FILE, metavar="FILE", help="Client properties, as of Kafka's tools; never shown."
)


@click.command()
@click.argument("store", type=PLACE_OR_ADDRESS)
@click.option("--new-cluster", is_flag=True, help="Make the data directories of a new cluster, in --out.")
@click.option("--out", type=FOLDER, metavar="DIR", help="New or empty folder for the brokers' files.")
@click.option(
    "--into", type=PLACE, multiple=True, metavar="DIR", help="A log.dirs of a stopped broker that has the topics; all."
)
@click.option("--topics", metavar="PATTERN", help="Regular expressions of topic names, with commas; default: all.")
@AS_OF
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="ID@HOST:PORT",
    help="A broker of the cluster; may be repeated. Its controller takes the next port. Default: 1@localhost:9092.",
)
@click.option("--replication-factor", type=click.IntRange(1), metavar="N", help="Of the cluster's topics; default: 1.")
@click.option(
    "--reassignment-json-file",
    "reassignment",
    type=FILE,
    metavar="FILE",
    help="Where replicas go, as kafka-reassign-partitions takes it; other partitions are placed in turn.",
)
@click.option("--cluster-id", metavar="ID", help="Of the cluster; default: a new one.")
@click.option(
    "--create-topics",
    "servers",
    metavar="HOST:PORT",
    help="With --into: create the missing topics on this running cluster; the logs come with the next command.",
)
@_COMMAND_CONFIG
@click.option("--topics-made-anew", is_flag=True, help="With --into: the broker's topics have ids of their own.")
@click.option("--allow-gaps", is_flag=True, help="Mount logs although a repair lost offsets of them.")
@EXECUTE
@JSON
def mount(**given: Any) -> None:
    """Make a Kafka cluster's data directories of a STORE's logs; kafka-server-start then serves them.

    Give one of --new-cluster and --into. May run beside a sink. Closed segments are linked, not copied, if STORE and
    DIR are on one filesystem and there is one replica. Logs of an address are copied beside DIR first.
    """
    from sparklog.pipeline.brokers.mount import run

    run(**given)


@click.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="Brokers of the source, with commas.")
@click.option("--topics", required=True, metavar="PATTERN", help="Regular expressions of topic names, with commas.")
@click.argument("store", type=FOLDER)
@click.option(
    "--until", type=TIME_OR_NOW, metavar="TIME|now", help="Stop once the store has what the source has at that time."
)
@click.option(
    "--command-config", type=FILE, metavar="FILE", help="Client properties, as of Kafka's tools; kept secret."
)
@click.option("--every", default="5s", show_default=True, metavar="TIME", help="How often to look for new records.")
@click.option(
    "--max-offsets", type=click.IntRange(1), default=5_000_000, show_default=True, metavar="N", help="Of a micro-batch."
)
@click.option(
    "--compression",
    "codec",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Codec in the store; default: the topic's compression.type, or zstd.",
)
@click.option("--allow-gaps", is_flag=True, help="Go on above records that the source has deleted.")
@click.option("--log-dir", "log_dirs", multiple=True, metavar="DIR", help="Log directory of new logs; may be repeated.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@click.option("--take-lock-by-force", is_flag=True, help="Take the store from a writer that does not stop.")
def mirror(**given: Any) -> None:
    """Mirror topics of a Kafka cluster into a STORE, exactly once: records, offsets, topic ids and settings.

    Goes on where it was killed. SIGINT or SIGTERM stops after the running micro-batch; a second one stops at once.
    """
    from sparklog.pipeline.brokers.mirror import run

    run(**given)


@click.command("import")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PLACE_OR_ADDRESS)
@click.argument("store", type=FOLDER)
@click.option("--topics", metavar="PATTERN", help="Regular expressions of topic names, with commas; default: all.")
@click.option("--log-dir", metavar="NAME", help="Log directory of the store; default: the one with the fewest logs.")
@click.option(
    "--config", type=FILE, metavar="FILE", help="Settings file whose topics have the settings; default: the broker's."
)
@click.option("--copy", "copies", is_flag=True, help="Copy every byte: a broker will change its files in place.")
@click.option("--allow-gaps", is_flag=True, help="Import what is left of logs that have lost records.")
@EXECUTE
@JSON
def import_(**given: Any) -> None:
    """Take a broker's logs into a STORE, a new one or one without these logs.

    DIR: all roots of a stopped broker, a copy of them, or one log; or the address of a store of objects. Offsets,
    epochs, producers and topic settings stay.
    """
    from sparklog.pipeline.brokers.import_logs import run

    run(**given)


@click.command()
@click.argument("store", type=PLACE)
@click.argument("target", metavar="ADDRESS", type=ADDRESS)
@click.option("--topics", metavar="PATTERN", help="Regular expressions of topic names, with commas; default: all.")
@EXECUTE
@JSON
def copy(**given: Any) -> int:
    """Copy a STORE's logs to an ADDRESS of S3, GCS, Azure or HDFS, or bring a copy there up to date.

    What is there already stays, by checksums. May run beside a sink. `import ADDRESS` takes a copy back. Exit code 1: a
    log failed.
    """
    from sparklog.pipeline.objects.copy_store import run

    return run(**given)


@click.command()
@click.argument("store", type=PLACE)
@AS_OF
@click.option(
    "--to",
    multiple=True,
    metavar="TOPIC:PARTITION:OFFSET",
    help="New end of a log; may be repeated, or a list with commas.",
)
@click.option(
    "--topics", metavar="PATTERN", help="With --as-of: regular expressions of topic names, with commas; default: all."
)
@EXECUTE
@JSON
def truncate(**given: Any) -> None:
    """Take the newest records of a STORE's logs back: all of them, or none.

    Give one of --as-of and --to. No sink and no maintenance may run. The next record of a log gets the offset of its
    new end.
    """
    from sparklog.pipeline.brokers.truncate import run

    run(**given)


@click.command("restore-groups")
@click.argument("store", type=PLACE)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="Brokers of the cluster, with commas.")
@click.option(
    "--command-config", type=FILE, metavar="FILE", help="Client properties, as of Kafka's tools; kept secret."
)
@click.option("--groups", metavar="PATTERN", help="Regular expressions of group names, with commas; default: all.")
@AS_OF
@click.option("--csv", "as_csv", is_flag=True, help="Print it for kafka-consumer-groups --reset-offsets --from-file.")
@EXECUTE
@JSON
def restore_groups(**given: Any) -> int:
    """Give consumer groups of a running cluster the offsets that the mirror of a STORE has of them.

    After a mount as of an earlier state give the same --as-of. A group with members, or one that is further already, is
    left alone. Exit code 1: --execute did not give some offsets.
    """
    from sparklog.pipeline.brokers.restore_groups import run

    return run(**given)


BROKER_COMMANDS: Final = (mirror, mount, truncate, import_, copy, restore_groups)
