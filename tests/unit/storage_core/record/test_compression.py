import os
import struct
import threading
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.compression import check_level, compress, decompress, decompress_v0

_SECTIONS = {
    "empty": b"",
    "one": b"a",
    "text": b"value-value-value-" * 5000,
    "random": bytes(os.urandom(200_000)),
    "zeros": bytes(3 << 20),
}
_COMPRESSED = CODECS[1:]
_LEVELS = [
    ("gzip", -1),
    ("gzip", 1),
    ("gzip", 9),
    ("lz4", 1),
    ("lz4", 9),
    ("lz4", 17),
    ("zstd", -131_072),
    ("zstd", 22),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", _SECTIONS)
def test_decompress_when_given_what_compress_made_then_section(codec: str, name: str) -> None:
    """Each codec gives a section back, at exactly the bound of its size."""
    section = _SECTIONS[name]

    assert bytes(decompress(codec, compress(codec, section), len(section), 0)) == section


@pytest.mark.parametrize(("codec", "level"), _LEVELS)
def test_compress_when_level_is_at_the_end_of_its_range_then_section_comes_back(codec: str, level: int) -> None:
    """Every level of Kafka's ranges is taken."""
    section = _SECTIONS["text"][:20_000]

    assert check_level(codec, level) is None
    assert bytes(decompress(codec, compress(codec, section, level), len(section), 0)) == section


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 10), ("lz4", 18), ("lz4", -1), ("zstd", 23), ("snappy", 1), ("brotli", 0)]
)
def test_check_level_when_outside_kafkas_range_then_says_so(codec: str, level: int) -> None:
    """A level the codec does not have, or a codec Kafka does not have, is a problem."""
    assert check_level(codec, level)


def test_compress_gzip_when_run_twice_then_one_member_without_time() -> None:
    """The member's header holds no name and no time: 10 fixed bytes, raw deflate, CRC-32, size."""
    section = _SECTIONS["text"]
    stream = bytes(compress("gzip", section))

    assert stream[:10].hex() == "1f8b08000000000000ff"
    assert struct.unpack("<II", stream[-8:]) == (zlib.crc32(section), len(section))


def test_compress_snappy_when_section_is_long_then_xerial_blocks_of_32_kib() -> None:
    """The stream is xerial's: magic, versions 1 and 1, then sized raw blocks of at most 32768 bytes."""
    section = _SECTIONS["random"]
    stream = bytes(compress("snappy", section))

    assert stream[:16].hex() == "82534e41505059000000000100000001"
    sizes, at = [], 16
    while at < len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(stream[at + 4 : at + 4 + size]))))
        at += 4 + size
    assert sizes == [32768] * 6 + [200_000 - 6 * 32768]


@pytest.mark.parametrize("level", [0, 1, 9, 12])
def test_compress_lz4_when_framed_then_kafkas_flags(level: int) -> None:
    """The frame has FLG 60, BD 40, header checksum 82, an end mark and nothing after it."""
    stream = bytes(compress("lz4", _SECTIONS["text"], level))

    assert stream[:7].hex() == "04224d18604082"
    assert stream[-4:] == bytes(4)
    assert lz4.frame.get_frame_info(stream)["block_linked"] is False


def test_compress_lz4_when_level_is_nine_then_the_fast_compressor() -> None:
    """Kafka's level 9 is its default and means LZ4's fast compressor; other levels compress harder."""
    section = b"".join(struct.pack(">iq", number % 97, number * number) for number in range(4000))
    fast = lz4.frame.compress(section, compression_level=0, block_size=4, block_linked=False, store_size=False)

    assert compress("lz4", section, 9) == compress("lz4", section) == fast
    assert len(compress("lz4", section, 8)) < len(fast)


def test_compress_zstd_when_framed_then_no_content_size_and_no_checksum() -> None:
    """The frame is as from a stream: size unknown, no checksum, no dictionary."""
    parameters = zstandard.get_frame_parameters(bytes(compress("zstd", _SECTIONS["text"])))

    assert parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert (parameters.has_checksum, parameters.dict_id) == (False, 0)


@pytest.mark.parametrize("codec", _COMPRESSED)
@pytest.mark.parametrize("name", ["one", "text", "random", "zeros"])
def test_decompress_when_section_is_above_the_bound_then_corrupt(codec: str, name: str) -> None:
    """One byte above the bound is a bomb."""
    section = _SECTIONS[name]

    with pytest.raises(CorruptBatchError, match="larger than the limit: it holds more than") as caught:
        decompress(codec, compress(codec, section), len(section) - 1, 77)
    assert caught.value.position == 77


@pytest.mark.parametrize("codec", _COMPRESSED)
@pytest.mark.parametrize("name", ["one", "text", "random"])
def test_decompress_when_stream_is_cut_or_followed_then_corrupt(codec: str, name: str) -> None:
    """A stream must end where its bytes end."""
    stream = bytes(compress(codec, _SECTIONS[name]))

    for damaged in (b"", stream[: len(stream) // 2], stream[:-1], stream + b"x", stream + stream[:20]):
        with pytest.raises(CorruptBatchError):
            decompress(codec, damaged, 1 << 22, 0)


def test_decompress_lz4_when_frame_lies_about_its_size_then_no_room_is_made_for_it() -> None:
    """A content size in the frame is not believed: a frame that claims an exabyte fails like any other."""
    frame = lz4.frame.compress(b"abc", block_linked=False, store_size=True)
    assert bytes(decompress("lz4", frame, 3, 0)) == b"abc"

    with pytest.raises(CorruptBatchError):
        decompress("lz4", frame[:6] + (1 << 60).to_bytes(8, "little") + frame[14:], 1 << 20, 0)


def test_decompress_lz4_when_blocks_are_linked_then_corrupt() -> None:
    """A frame that Kafka's reader refuses must not pass for a sound one."""
    section = _SECTIONS["random"] * 2
    frame = lz4.frame.compress(section, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True, store_size=False)

    for name in (decompress, decompress_v0):
        with pytest.raises(CorruptBatchError, match="no frame with these flags: flags=0x40"):
            name("lz4", frame, len(section), 0)


@pytest.mark.parametrize("flags", [0x20, 0xA0, 0xE0, 0x61, 0x62])
def test_decompress_lz4_when_version_or_reserved_bits_are_unknown_then_corrupt(flags: int) -> None:
    """Version 1 alone is known, and no bit that it reserves."""
    frame = bytearray(compress("lz4", b"abc"))
    frame[4] = flags

    with pytest.raises(CorruptBatchError, match="these flags"):
        decompress_v0("lz4", bytes(frame), 100, 0)


@pytest.mark.parametrize("content_size", [False, True])
def test_decompress_lz4_when_content_checksum_is_wrong_then_section(content_size: bool) -> None:
    """Kafka passes over the content's checksum; the header's counts."""
    section = _SECTIONS["text"]
    options = {"block_linked": False, "store_size": content_size}
    frame = bytearray(lz4.frame.compress(section, content_checksum=True, block_checksum=True, **options))
    frame[-1] ^= 1

    assert bytes(decompress("lz4", bytes(frame), len(section), 0)) == section
    for damaged in (frame[:-1], frame[:-4], frame[:9], frame + b"x"):
        with pytest.raises(CorruptBatchError):
            decompress("lz4", bytes(damaged), len(section), 0)
    frame[14 if content_size else 6] ^= 1
    with pytest.raises(CorruptBatchError, match="header's checksum"):
        decompress("lz4", bytes(frame), len(section), 0)


def test_decompress_snappy_when_stream_is_one_bare_block_then_section() -> None:
    """Clients built on librdkafka write a raw block without xerial's framing; Kafka reads it."""
    block = bytes(cramjam.snappy.compress_raw(_SECTIONS["random"]))

    assert bytes(decompress("snappy", block, 200_000, 0)) == _SECTIONS["random"]
    with pytest.raises(CorruptBatchError, match="holds more than"):
        decompress("snappy", b"\xff\xff\xff\xff\x0f" + block, 1 << 20, 0)


@pytest.mark.parametrize("size", [-1, 0, 5, 2**31 - 1])
def test_decompress_snappy_when_a_block_size_lies_then_corrupt(size: int) -> None:
    """A block's size is positive and inside the stream."""
    stream = bytes(compress("snappy", b""))[:16] + struct.pack(">i", size) + b"\x01\x00a"

    with pytest.raises(CorruptBatchError):
        decompress("snappy", stream, 1 << 20, 0)


def test_compress_when_threads_share_the_module_then_each_gets_its_own_section() -> None:
    """Contexts belong to one thread each."""
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        section = bytes([number]) * 50_000 + bytes(os.urandom(1000))
        results[number] = all(
            bytes(decompress("zstd", compress("zstd", section), 1 << 20, 0)) == section for _ in range(30)
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


@pytest.mark.parametrize("content_size", [False, True])
def test_decompress_v0_when_lz4_header_checksum_is_wrong_then_section(content_size: bool) -> None:
    """The checksum of a v0 frame's header is ignored, with every descriptor; later formats refuse it."""
    section = _SECTIONS["text"]
    stream = bytearray(lz4.frame.compress(section, block_linked=False, store_size=content_size))
    stream[14 if content_size else 6] ^= 0x55

    assert bytes(decompress_v0("lz4", bytes(stream), len(section), 0)) == section
    with pytest.raises(CorruptBatchError):
        decompress("lz4", bytes(stream), len(section), 0)


@pytest.mark.parametrize("size", range(8))
def test_decompress_v0_when_lz4_frame_is_cut_in_its_header_then_corrupt(size: int) -> None:
    """Fewer bytes than a frame's header are damage, not an error of another kind."""
    with pytest.raises(CorruptBatchError):
        decompress_v0("lz4", compress("lz4", b"abc")[:size], 100, 0)


@pytest.mark.parametrize("codec", CODECS[:3])
def test_decompress_v0_when_codec_is_another_then_as_decompress(codec: str) -> None:
    """Only lz4 frames differ."""
    assert bytes(decompress_v0(codec, compress(codec, b"abc"), 100, 0)) == b"abc"
