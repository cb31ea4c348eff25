"""The verb `mount`: a store's logs for a new cluster, or into the folders of a broker that has the topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.brokers.mounting.new_cluster import asked_cluster, mount_new_cluster
from sparklog.pipeline.places.stored_logs import Place
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.locks.broker_lock import lock_roots_to_read
from sparklog.sink.mount.new_cluster import check_out
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["run"]

_BROKER: Final = "1@localhost:9092"


def run(
    store: Place,
    new_cluster: bool,
    out: Path | None,
    into: Sequence[Path],
    topics: str | None,
    as_of: AsOf | None,
    brokers: Sequence[str],
    replication_factor: int | None,
    reassignment: Path | None,
    cluster_id: str | None,
    topics_made_anew: bool,
    servers: str | None,
    command_config: Path | None,
    allow_gaps: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Carry the verb out."""
    if new_cluster == bool(into):
        raise InvalidConfigError("give one of --new-cluster, with --out DIR, and --into DIR")
    if new_cluster and out is None:
        raise InvalidConfigError("--new-cluster needs --out DIR: a new or empty folder for the brokers' files")
    of_cluster = {
        "--out": out,
        "--broker": brokers,
        "--reassignment-json-file": reassignment,
        "--cluster-id": cluster_id,
    }
    of_broker = {"--topics-made-anew": topics_made_anew, "--create-topics": servers, "--command-config": command_config}
    if wrong := [name for name, value in (of_broker if new_cluster else of_cluster).items() if value]:
        ways = ("--into", "--new-cluster") if new_cluster else ("--new-cluster", "--into")
        raise InvalidConfigError(f"{', '.join(wrong)} goes with {ways[0]}, not with {ways[1]}")
    if into and servers is None and (replication_factor or command_config):
        raise InvalidConfigError("with --into, --replication-factor and --command-config are for --create-topics")
    cluster = None
    if new_cluster:
        cluster = asked_cluster(brokers or [_BROKER], replication_factor or 1, reassignment, cluster_id)
    properties = None if servers is None else ClientProperties.read(servers, command_config)
    if not isinstance(store, Path):  # the copy may take long
        _check_folders(out, into, is_stopped=servers is None)
    with _chosen(store, out or into[0], topics, as_of, allow_gaps=allow_gaps) as choice:
        if properties is not None:
            from sparklog.pipeline.brokers.mounting.create_topics import create_topics

            factor = replication_factor or 1
            create_topics(choice, into, properties, replication_factor=factor, execute=execute, as_json=as_json)
        elif out is None or cluster is None:
            from sparklog.pipeline.brokers.mounting.into_broker import mount_into_broker

            mount_into_broker(choice, into, made_anew=topics_made_anew, execute=execute, as_json=as_json)
        else:
            mount_new_cluster(choice, out, cluster, execute=execute, as_json=as_json)


def _check_folders(out: Path | None, into: Sequence[Path], *, is_stopped: bool) -> None:
    """Refuse folders in which nothing can be mounted, whatever the store.

    Args:
        is_stopped: whether the broker of the folders must be.
    """
    if out is not None:
        check_out(out)
    elif is_stopped:
        with lock_roots_to_read(into):
            return


@contextmanager
def _chosen(
    store: Place, beside: Path, topics: str | None, as_of: AsOf | None, *, allow_gaps: bool
) -> Iterator[MountChoice]:
    """Yield the logs to mount; those of a store of objects from a copy beside their target."""
    if isinstance(store, Path):
        yield MountChoice.find(store, topics, as_of, allow_gaps=allow_gaps)
        return
    from sparklog.pipeline.brokers.mounting.copied_store import copied_store

    with copied_store(store, beside, topics, as_of) as choice:
        yield choice
