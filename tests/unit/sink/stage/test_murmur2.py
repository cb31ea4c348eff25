"""Kafka's murmur2, against figures from Kafka itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.stage.murmur2 import murmur2_partitions
from tests.plain.plain_murmur2 import murmur2

_VECTORS = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"abcd": -1323649548,
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"\xff\x80\x7f\x00\xfe": -1958495739,
}


@pytest.mark.parametrize(("key", "expected"), _VECTORS.items())
def test_murmur2_when_given_kafkas_vectors_then_agrees(key: bytes, expected: int) -> None:
    """The hash is Kafka's signed 32-bit value."""
    assert murmur2(key) == expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1), st.integers(1, 2**31 - 1))
def test_murmur2_partitions_matches_scalar_twin(keys: list[bytes | None], count: int) -> None:
    """The column form masks the sign bit and takes the remainder; null keys are left alone."""
    sizes = np.array([-1 if key is None else len(key) for key in keys], np.int64)
    starts = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))])[:-1].astype(np.int64)
    data = np.frombuffer(b"".join(key or b"" for key in keys) + b"\0", np.uint8)
    partitions = np.full(len(keys), -1, np.int64)

    murmur2_partitions(data, starts, sizes, np.full(len(keys), count, np.int64), partitions)

    assert partitions.tolist() == [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]
