"""Compresses and decompresses the record section of a batch, in Kafka's frames.

| codec  | bytes                                                                                                  |
|--------|--------------------------------------------------------------------------------------------------------|
| gzip   | one RFC 1952 member: no name, mtime 0, xfl 0, OS byte ff, deflate, crc32, isize                        |
| snappy | xerial stream: magic, i32 version 1, i32 compatible 1, then blocks: i32 size, raw snappy of <= 32 KiB  |
| lz4    | one frame: independent 64 KiB blocks, no checksum, no content size; in v0 a wrong header checksum      |
| zstd   | one frame: no content size, no checksum                                                                |

Decompression accepts any stream of a Kafka client (also a bare snappy block, as from librdkafka), has a limit for its
output, and refuses bytes after the stream's end. Like Kafka's reader it refuses some lz4 frames (as with linked blocks)
and does not check an lz4 content checksum. Contexts are kept per thread.

Source: Kafka CompressionType, SnappyFactory, Lz4BlockOutputStream; xerial SnappyOutputStream.
"""

from __future__ import annotations

import struct
import threading
import zlib
from typing import TYPE_CHECKING, Final

import cramjam
import lz4.frame
import zstandard

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULT_LEVELS", "MAX_DECOMPRESSED_BYTES", "check_level", "compress", "decompress", "decompress_v0"]

MAX_DECOMPRESSED_BYTES: Final = 64 << 20
"""Limit of a batch's decompressed bytes: the writer makes no larger one, the reader refuses it as a bomb."""

DEFAULT_LEVELS: Final = {"gzip": -1, "lz4": 9, "zstd": 3}
"""Kafka's default level of each codec that has levels."""

_LEVEL_RANGES: Final = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}

_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_GZIP_TRAILER: Final = struct.Struct("<II")
_RAW_DEFLATE: Final = -15
_GZIP_WINDOW: Final = 31

_XERIAL_MAGIC: Final = bytes.fromhex("82534e4150505900")
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SIZE: Final = struct.Struct(">i")

_LZ4_FAST_LEVEL: Final = 9
_LZ4_HC_LEVELS: Final = (3, 12)
_LZ4_FIRST_READ_BYTES: Final = 128 * 1024
_LZ4_DESCRIPTOR_AT: Final = 4
_LZ4_MIN_HEADER_BYTES: Final = 7
_LZ4_FIXED_BITS: Final = 0xE3
_LZ4_VERSION_1_INDEPENDENT: Final = 0x60
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_CONTENT_CHECKSUM_BIT: Final = 0x04
_LZ4_CONTENT_CHECKSUM_BYTES: Final = 4
_LZ4_DICTIONARY_BIT: Final = 0x01
_XXHASH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)

_ZSTD_SLICE_BYTES: Final = 2048
"""A slice of input makes at most 64 MiB of output: 4 bytes of run-length block stand for 128 KiB."""


class _Contexts(threading.local):
    """Contexts that one thread reuses from batch to batch."""

    def __init__(self) -> None:
        self.zstd_compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.zstd_decompressor = zstandard.ZstdDecompressor()


_contexts: Final = _Contexts()


def check_level(codec: str, level: int) -> str | None:
    """Return the problem of a codec and level, or None; level 0 stands for Kafka's default."""
    if codec not in CODECS:
        return f"codec={codec!r} is none of {', '.join(CODECS)}"
    low, high = _LEVEL_RANGES.get(codec, (0, 0))
    if level != 0 and not low <= level <= high:
        return f"level={level} is outside {low}..{high} of {codec}"
    return None


def compress(codec: str, section: bytes | memoryview, level: int = 0) -> bytes | memoryview:
    """Return a record section as the codec's stream.

    Args:
        codec: one of `CODECS`.
        section: the records back to back.
        level: in Kafka's range of that codec; 0 is Kafka's default level.
    """
    return _COMPRESSORS[codec](section, level or DEFAULT_LEVELS.get(codec, 0))


def decompress(codec: str, stream: bytes | memoryview, max_bytes: int, position: int) -> bytes | memoryview:
    """Return the record section of a codec's stream.

    Args:
        codec: one of `CODECS`.
        stream: all bytes after the batch's header.
        max_bytes: limit of the section; the memory needed is at most about twice that.

    Raises:
        CorruptBatchError: the stream is damaged, cut short, followed by other bytes, or expands past `max_bytes`.
    """
    try:
        return _DECOMPRESSORS[codec](memoryview(stream), max_bytes)
    except OverflowError as error:
        raise CorruptBatchError(f"{codec} stream is larger than the limit: {error}", position) from error
    except _STREAM_ERRORS as error:
        raise CorruptBatchError(f"{codec} stream is damaged: {error}", position) from error


def decompress_v0(codec: str, stream: bytes | memoryview, max_bytes: int, position: int) -> bytes | memoryview:
    """As `decompress`, for the value of a wrapper of format v0, whose lz4 frames have a wrong header checksum."""
    return decompress(codec, _with_right_checksum(stream) if codec == "lz4" else stream, max_bytes, position)


def _compress_gzip(section: bytes | memoryview, level: int) -> bytes:
    trailer = _GZIP_TRAILER.pack(zlib.crc32(section), memoryview(section).nbytes & 0xFFFFFFFF)
    return b"".join((_GZIP_HEADER, zlib.compress(section, level, _RAW_DEFLATE), trailer))


def _compress_snappy(section: bytes | memoryview, _level: int) -> bytes:
    view, parts = memoryview(section), [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(section: bytes | memoryview, level: int) -> bytes:
    low, high = _LZ4_HC_LEVELS
    frame: bytes = lz4.frame.compress(
        section,
        # Kafka's default level 9 is the fast compressor, the library's level 0; HC starts at 3.
        compression_level=0 if level == _LZ4_FAST_LEVEL else min(max(level, low), high),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return frame


def _compress_zstd(section: bytes | memoryview, level: int) -> bytes:
    compressor = _contexts.zstd_compressors.get(level)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False)
        _contexts.zstd_compressors[level] = compressor
    return compressor.compress(section)


def _refuse_above(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise OverflowError(f"it holds more than {max_bytes} bytes")


def _refuse_rest(rest_bytes: int) -> None:
    if rest_bytes:
        raise ValueError(f"{rest_bytes} bytes follow its end")


def _decompress_gzip(stream: memoryview, max_bytes: int) -> bytes:
    member = zlib.decompressobj(_GZIP_WINDOW)
    section = member.decompress(stream, max_bytes + 1)
    _refuse_above(len(section), max_bytes)
    if not member.eof:
        raise ValueError("it is cut short")
    _refuse_rest(len(member.unused_data))
    return section


def _decompress_snappy(stream: memoryview, max_bytes: int) -> bytes:
    if bytes(stream[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(stream, max_bytes)
    parts, total, start = [], 0, len(_XERIAL_HEADER)
    if len(stream) < start:
        raise ValueError("it is cut short")
    while start < len(stream):
        if len(stream) - start < _SIZE.size:
            raise ValueError("it is cut short")
        end = start + _SIZE.size + _SIZE.unpack_from(stream, start)[0]
        if not start + _SIZE.size < end <= len(stream):
            raise ValueError("a block's size lies")
        parts.append(_decompress_snappy_block(stream[start + _SIZE.size : end], max_bytes, total))
        total += len(parts[-1])
        start = end
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, max_bytes: int, before_bytes: int = 0) -> bytes:
    _refuse_above(before_bytes + cramjam.snappy.decompress_raw_len(block), max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _with_right_checksum(stream: bytes | memoryview) -> bytes | memoryview:
    """Return an lz4 frame with the right checksum of its descriptor; other bytes unchanged."""
    if len(stream) < _LZ4_MIN_HEADER_BYTES:
        return stream
    end, checksum = _descriptor_end(stream)
    return b"".join((stream[:end], bytes((checksum,)), stream[end + 1 :]))


def _descriptor_end(stream: bytes | memoryview) -> tuple[int, int]:
    """Return the position and the right value of the checksum of an lz4 frame's descriptor."""
    flags = stream[_LZ4_DESCRIPTOR_AT]
    end = (
        _LZ4_DESCRIPTOR_AT + 2 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0) + (4 if flags & _LZ4_DICTIONARY_BIT else 0)
    )
    return end, (_xxhash32(bytes(stream[_LZ4_DESCRIPTOR_AT:end])) >> 8) & 0xFF


def _without_content_checksum(stream: memoryview) -> bytes | memoryview:
    """Return an lz4 frame without its content checksum, which Kafka does not check."""
    if len(stream) < _LZ4_MIN_HEADER_BYTES or not stream[_LZ4_DESCRIPTOR_AT] & _LZ4_CONTENT_CHECKSUM_BIT:
        return stream
    end, checksum = _descriptor_end(stream)
    if end >= len(stream) - _LZ4_CONTENT_CHECKSUM_BYTES or stream[end] != checksum:
        raise ValueError("its header's checksum is wrong")
    frame = bytearray(stream[:-_LZ4_CONTENT_CHECKSUM_BYTES])
    frame[_LZ4_DESCRIPTOR_AT] &= ~_LZ4_CONTENT_CHECKSUM_BIT
    return _with_right_checksum(bytes(frame))


def _xxhash32(data: bytes) -> int:
    """Return xxHash32, seed 0, of fewer than 16 bytes. Source: xxHash's specification."""
    value, whole = _XXHASH_PRIMES[4] + len(data), len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + word * _XXHASH_PRIMES[2], 17) * _XXHASH_PRIMES[3]
    for byte in data[whole:]:
        value = _rotated(value + byte * _XXHASH_PRIMES[4], 11) * _XXHASH_PRIMES[0]
    value &= 0xFFFFFFFF
    for shift, prime in ((15, _XXHASH_PRIMES[1]), (13, _XXHASH_PRIMES[2])):
        value = (value ^ (value >> shift)) * prime & 0xFFFFFFFF
    return value ^ (value >> 16)


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def _refuse_flags(stream: memoryview) -> None:
    """Refuse the same flags as Kafka's reader: a version other than 1, linked blocks, a reserved bit."""
    if len(stream) > _LZ4_DESCRIPTOR_AT:
        flags = stream[_LZ4_DESCRIPTOR_AT]
        if flags & _LZ4_FIXED_BITS != _LZ4_VERSION_1_INDEPENDENT:
            raise ValueError(f"Kafka reads no frame with these flags: flags=0x{flags:02x}")


def _decompress_lz4(stream: memoryview, max_bytes: int) -> bytes:
    _refuse_flags(stream)
    source = _without_content_checksum(stream)
    frame = lz4.frame.LZ4FrameDecompressor()
    # The buffer grows with the output: a frame's declared content size is not trusted.
    room = min(max(_LZ4_FIRST_READ_BYTES, 4 * len(stream)), max_bytes + 1)
    parts = [frame.decompress(source, max_length=room)]
    total = len(parts[0])
    while not frame.eof and not frame.needs_input and total <= max_bytes:
        parts.append(frame.decompress(b"", max_length=min(total, max_bytes + 1 - total)))
        total += len(parts[-1])
    _refuse_above(total, max_bytes)
    if not frame.eof:
        raise ValueError("it is cut short")
    _refuse_rest(len(frame.unused_data or b""))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(stream: memoryview, max_bytes: int) -> bytes:
    frame = _contexts.zstd_decompressor.decompressobj()
    parts, total = [], 0
    for start in range(0, len(stream), _ZSTD_SLICE_BYTES):
        parts.append(frame.decompress(stream[start : start + _ZSTD_SLICE_BYTES]))
        total += len(parts[-1])
        _refuse_above(total, max_bytes)
        if frame.eof:
            _refuse_rest(len(stream) - min(start + _ZSTD_SLICE_BYTES, len(stream)) + len(frame.unused_data))
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise ValueError("it is cut short")


_STREAM_ERRORS: Final = (
    ValueError,
    RuntimeError,  # lz4
    MemoryError,
    zlib.error,
    zstandard.ZstdError,
    cramjam.DecompressionError,
)

_COMPRESSORS: Final[dict[str, Callable[[bytes | memoryview, int], bytes | memoryview]]] = {
    "none": lambda section, _level: section,
    "gzip": _compress_gzip,
    "snappy": _compress_snappy,
    "lz4": _compress_lz4,
    "zstd": _compress_zstd,
}

_DECOMPRESSORS: Final[dict[str, Callable[[memoryview, int], bytes | memoryview]]] = {
    "none": lambda stream, _max_bytes: stream,
    "gzip": _decompress_gzip,
    "snappy": _decompress_snappy,
    "lz4": _decompress_lz4,
    "zstd": _decompress_zstd,
}
