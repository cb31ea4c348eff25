import pytest

from sparklog.storage_core.checkpoint.partition_metadata import (
    parse_partition_metadata,
    render_partition_metadata,
)
from sparklog.storage_core.errors import CorruptFileError

_ID = "q1Sh-9_ISia_zwGINzRvyQ"


def test_render_partition_metadata_when_rendered_then_43_bytes_without_last_newline() -> None:
    """Two lines, no newline at the end."""
    data = render_partition_metadata(_ID)

    assert data == b"version: 0\ntopic_id: q1Sh-9_ISia_zwGINzRvyQ"
    assert len(data) == 43


@pytest.mark.parametrize("data", [render_partition_metadata(_ID), render_partition_metadata(_ID) + b"\n"])
def test_parse_partition_metadata_when_rendered_then_id(data: bytes) -> None:
    """The id is read back, also behind an editor's last newline."""
    assert parse_partition_metadata(data) == _ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"version: -1\ntopic_id: q1Sh-9_ISia_zwGINzRvyQ",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: q1Sh-9_ISia_zwGINzRvy",
        b"version: 0\ntopic_id: q1Sh+9/ISia/zwGINzRvyQ",
        b"version: 0\ntopic_id: q1Sh-9_ISia_zwGINzRvyR",
        b"\xff\xfe",
    ],
)
def test_parse_partition_metadata_when_malformed_or_zero_then_corrupt(data: bytes) -> None:
    """A missing line, a negative version, the zero id and an id that is not 16 bytes are damage."""
    with pytest.raises(CorruptFileError):
        parse_partition_metadata(data)
