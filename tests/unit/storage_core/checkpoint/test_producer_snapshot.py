import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import (
    ProducerState,
    parse_producer_snapshot,
    render_producer_snapshot,
)
from sparklog.storage_core.errors import CorruptFileError

_THREE = bytes.fromhex(
    "00014671f34000000003"
    "00000000000000070003000000010000000000000001" + "0000000100000163639e71d00000000bffffffffffffffff"
    "00000000000000080000000000000000000000000002" + "0000000000000163639e71cdffffffffffffffffffffffff"
    "00000000000000090000000000000000000000000003" + "0000000000000163639e71ceffffffff0000000000000003"
)


def test_render_producer_snapshot_when_no_producer_then_ten_bytes() -> None:
    """The empty snapshot is a header with its CRC."""
    assert render_producer_snapshot().hex() == "000148674bc700000000"


def test_parse_producer_snapshot_when_empty_then_no_producer() -> None:
    """The empty snapshot reads as no producer."""
    assert parse_producer_snapshot(render_producer_snapshot()) == []


def test_parse_producer_snapshot_when_three_producers_then_each_field() -> None:
    """46 bytes per producer; -1 stands for none."""
    producers = parse_producer_snapshot(_THREE)

    assert [producer.producer_id for producer in producers] == [7, 8, 9]
    assert producers[0] == ProducerState(
        producer_id=7,
        producer_epoch=3,
        last_sequence=1,
        last_offset=1,
        offset_delta=1,
        timestamp=1526384718288,
        coordinator_epoch=11,
        current_txn_first_offset=-1,
    )


def test_render_producer_snapshot_when_parsed_before_then_same_bytes() -> None:
    """What was read is rendered back byte for byte."""
    assert render_producer_snapshot(parse_producer_snapshot(_THREE)) == _THREE


@pytest.mark.parametrize("position", range(len(_THREE)))
def test_parse_producer_snapshot_when_any_byte_changed_then_corrupt(position: int) -> None:
    """Version, CRC and everything under the CRC are checked."""
    damaged = bytearray(_THREE)
    damaged[position] ^= 0x40

    with pytest.raises(CorruptFileError):
        parse_producer_snapshot(bytes(damaged))


@pytest.mark.parametrize("size", [0, 9, 100])
def test_parse_producer_snapshot_when_cut_then_corrupt(size: int) -> None:
    """A short file is damage."""
    with pytest.raises(CorruptFileError):
        parse_producer_snapshot(_THREE[:size])
