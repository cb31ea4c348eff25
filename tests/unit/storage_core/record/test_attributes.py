import pytest

from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.attributes import codec_name, pack_attributes


@pytest.mark.parametrize(("number", "codec"), list(enumerate(CODECS)))
def test_codec_name_when_number_is_known_then_codec(number: int, codec: str) -> None:
    """Bits 0 to 2 number the codec; the other bits don't matter."""
    assert codec_name(number) == codec
    assert codec_name(number | 0x78) == codec
    assert pack_attributes(codec) == number


@pytest.mark.parametrize("number", [5, 6, 7])
def test_codec_name_when_number_means_nothing_then_none(number: int) -> None:
    """Three numbers name no codec."""
    assert codec_name(number) is None


def test_pack_attributes_when_flags_set_then_bits_3_and_4() -> None:
    """LogAppendTime is bit 3, transactional bit 4."""
    assert pack_attributes("none", log_append_time=True) == 0x08
    assert pack_attributes("zstd", transactional=True) == 0x14
