"""Kafka's murmur2 of one key, in plain Python: what the kernel must agree with.

Source: Kafka Utils.murmur2.
"""

__all__ = ["murmur2"]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of one key as Kafka's signed 32-bit integer."""
    length = len(data)
    h = _SEED ^ length
    for i in range(0, length & ~3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    tail = data[length & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h
