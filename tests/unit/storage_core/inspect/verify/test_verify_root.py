from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.inspect.verify.verify_root import ExpectedRoot, verify_root
from sparklog.storage_core.topic_partition import TopicPartition

_ID = "q1Sh-9_ISia_zwGINzRvyQ"
_LOG = TopicPartition("t", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one log of ten offsets."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").write_bytes(render_meta_properties(_ID, 1, _ID))
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(render_offset_checkpoint({_LOG: 10}))
    return tmp_path


def _found(root: Path, cluster_id: str | None = _ID) -> list[Finding]:
    return verify_root(root, ExpectedRoot(ends={_LOG: 10}, cluster_id=cluster_id)).findings


@pytest.mark.parametrize("cluster_id", [_ID, None])
def test_verify_root_when_sound_then_no_finding(root: Path, cluster_id: str | None) -> None:
    """A root of ours and one of a broker are sound, with what a broker leaves of moved and deleted logs."""
    for name in ("t-1.0123456789abcdef0123456789abcdef-delete", "remote-log-index-cache", "__cluster_metadata-0"):
        (root / name).mkdir()
    (root / ".kafka_cleanshutdown").write_bytes(b"")

    assert _found(root, cluster_id) == []


def test_verify_root_when_a_folder_is_no_log_then_foreign(root: Path) -> None:
    """A broker refuses to start on any other folder."""
    (root / "t-0-cut").mkdir()

    assert [(f.kind, f.rule, f.file) for f in _found(root, None)] == [("foreign", "root-entry", "t-0-cut")]


def test_verify_root_when_a_file_is_foreign_then_found_in_a_store_only(root: Path) -> None:
    """A store's root holds nothing else; beside a broker's logs people may put files."""
    (root / "notes.txt").write_bytes(b"")

    assert [f.rule for f in _found(root)] == ["root-entry"]
    assert _found(root, None) == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (render_offset_checkpoint({_LOG: 11}), "says 11 of t-0, which ends at 10"),
        (render_offset_checkpoint({TopicPartition("u", 0): 1}), "names u-0, which the ledger does not know"),
        (b"0\n2\nt 0 1\n", "announces 2 entries"),
    ],
)
def test_verify_root_when_checkpoint_contradicts_the_logs_then_found(root: Path, content: bytes, what: str) -> None:
    """A checkpoint names logs that exist, and offsets they have."""
    (root / "replication-offset-checkpoint").write_bytes(content)

    (found,) = _found(root)

    assert (found.kind, found.rule, found.file) == ("checkpoint", "offset-checkpoint", "replication-offset-checkpoint")
    assert what in found.what


def test_verify_root_when_it_belongs_to_another_store_then_found(root: Path) -> None:
    """The cluster id of a store's root is the store's."""
    (root / "meta.properties").write_bytes(render_meta_properties("other", 1, _ID))

    assert [f.rule for f in _found(root)] == ["meta-properties"]


def test_verify_root_when_folder_is_no_root_then_nothing_is_expected(tmp_path: Path) -> None:
    """Without a meta.properties a folder is just one that holds logs."""
    (tmp_path / "anything").mkdir()

    assert _found(tmp_path, None) == []
