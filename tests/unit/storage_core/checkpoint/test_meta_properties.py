import pytest

from sparklog.storage_core.checkpoint.meta_properties import (
    STORE_PROPERTY,
    parse_meta_properties,
    render_meta_properties,
    store_of,
    with_store,
)
from sparklog.storage_core.errors import CorruptFileError


def test_render_meta_properties_when_rendered_then_version_1_keys() -> None:
    """A root is marked with the cluster, the node and its own id."""
    assert render_meta_properties("q1Sh-9_ISia_zwGINzRvyQ", 1, "3db5QLSqSZieL3rJBUUegA") == (
        b"node.id=1\ndirectory.id=3db5QLSqSZieL3rJBUUegA\nversion=1\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\n"
    )


def test_parse_meta_properties_when_written_by_a_broker_then_values() -> None:
    """Comment lines are skipped and key order does not matter."""
    data = b"#\n#Sat Nov 21 00:51:55 UTC 2026\nnode.id=1\ndirectory.id=6P2L\nversion=1\ncluster.id=6jJx\n"

    assert parse_meta_properties(data) == {"node.id": "1", "directory.id": "6P2L", "version": "1", "cluster.id": "6jJx"}


@pytest.mark.parametrize("cluster_id", ["a=b:c#d!e f\\g", "名😀"])
def test_parse_meta_properties_when_special_characters_then_read_back(cluster_id: str) -> None:
    """Characters that Java's properties text escapes survive."""
    assert parse_meta_properties(render_meta_properties(cluster_id, 2, "d"))["cluster.id"] == cluster_id


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "version None"),
        (b"version=7\n", "version '7'"),
        (b"version=1\n", "lacks cluster.id, node.id"),
        (b"version=1\ncluster.id=x\nnode.id=one\n", "node.id='one'"),
    ],
)
def test_parse_meta_properties_when_incomplete_then_corrupt(data: bytes, message: str) -> None:
    """Version 1 needs a cluster and a node; another version is not read."""
    with pytest.raises(CorruptFileError, match=message):
        parse_meta_properties(data)


@pytest.mark.parametrize("path", ["/data/store", "/a b/=c:#d!\\e", "/名😀"])
def test_with_store_when_written_then_read_back_and_every_other_line_stays(path: str) -> None:
    """A root names its store; what a broker or a person wrote there is theirs."""
    data = b"#\n#Sat Nov 21\r\nnode.id=1\ndirectory.id=6P2L\nversion=1\ncluster.id=6jJx\nother=x"
    signed = with_store(with_store(data, "/before"), path)

    assert signed.splitlines()[:-1] == data.splitlines()
    assert (store_of(data), store_of(signed)) == (None, path)
    assert parse_meta_properties(signed) == {**parse_meta_properties(data), STORE_PROPERTY: path}
    assert with_store(signed, path) == signed


@pytest.mark.parametrize("data", [b"", b"version=7\nsparklog.store=/s\n", b"\xff\x00\nsparklog.store = /s"])
def test_store_of_when_the_rest_is_damaged_then_the_store_is_named_still(data: bytes) -> None:
    """Whose logs these are matters most where something is wrong."""
    assert store_of(data) == ("/s" if data else None)
