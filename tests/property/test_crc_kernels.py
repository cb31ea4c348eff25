import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.record.crc_kernels import HAS_CRC_INSTRUCTION, compare_crc32cs
from sparklog.storage_core.record.few_batches import compare_by_library
from tests.build.batch_bytes import BatchSpec, batch_bytes

_BODIES = st.lists(st.binary(max_size=90), min_size=1, max_size=12)
_INT64S = st.integers(-(2**63), 2**63 - 1)


def _wrong(data: bytes, positions: list[int], sizes: list[int]) -> npt.NDArray[np.bool_]:
    """Return what both say, which must be the same."""
    columns = (np.frombuffer(data, np.uint8), np.array(positions, np.int64), np.array(sizes, np.int64))
    by_kernel, by_library = np.zeros(len(positions), np.uint8), np.zeros(len(positions), np.uint8)
    compare_crc32cs(*columns, by_kernel)
    compare_by_library(*columns, by_library)
    assert by_kernel.tolist() == by_library.tolist()
    return by_kernel.view(np.bool_)


@given(_BODIES, st.integers(0, 2000), st.integers(0, 255))
def test_compare_crc32cs_finds_exactly_the_batch_with_a_changed_byte(bodies: list[bytes], at: int, change: int) -> None:
    """Every byte from the CRC on counts, at any alignment and size; the bytes before it do not."""
    batches = [batch_bytes(BatchSpec(body=body), number) for number, body in enumerate(bodies)]
    sizes = [len(batch) for batch in batches]
    positions = [sum(sizes[:number]) for number in range(len(sizes))]
    data = bytearray(b"".join(batches))
    at %= len(data)
    data[at] ^= change
    hit = max(number for number, position in enumerate(positions) if position <= at)

    wrong = _wrong(bytes(data), positions, sizes)

    assert np.flatnonzero(wrong).tolist() == ([hit] if change and at - positions[hit] >= 17 else [])


@given(st.binary(max_size=200), st.lists(st.tuples(st.one_of(st.integers(-5, 210), _INT64S), _INT64S), max_size=8))
def test_compare_crc32cs_with_any_places_says_those_outside_are_wrong(
    data: bytes, places: list[tuple[int, int]]
) -> None:
    """Positions and sizes are not trusted."""
    wrong = _wrong(data, [position for position, _ in places], [size for _, size in places])

    outside = [position < 0 or size < 21 or size > len(data) - position for position, size in places]
    assert (wrong >= np.array(outside, np.bool_)).all()


@pytest.mark.skipif(not HAS_CRC_INSTRUCTION, reason="the processor has no CRC-32C instruction")
def test_compare_crc32cs_uses_the_instruction() -> None:
    """Otherwise the two above compare the library with itself."""
    assert compare_crc32cs is not compare_by_library
