"""The offset map and its digests."""

import numpy as np
import pyarrow as pa
import pytest

from sparklog.storage_core.cleaner.keys.offset_map import HASH_KEY_BYTES, KeySet, OffsetMap, digest_keys
from sparklog.storage_core.errors import InvalidConfigError

_HASH_KEY = bytes(range(HASH_KEY_BYTES))

# From the reference code of SipHash, 128 bits: the digests of 0, 1, 2, ... bytes 00 01 02 ...
_VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}


def _digests(count: int, seed: int = 3) -> "np.ndarray[tuple[int, int], np.dtype[np.uint64]]":
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), np.uint64)


@pytest.mark.parametrize("size", _VECTORS)
def test_digest_keys_of_the_reference_vectors_gives_their_digests(size: int) -> None:
    """A digest is the one that SipHash's authors published."""
    digests = digest_keys(pa.array([bytes(range(size))], pa.binary()), _HASH_KEY)

    assert digests.astype("<u8").tobytes().hex() == _VECTORS[size]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_digest_keys_of_every_kind_of_column_gives_the_same(kind: pa.DataType) -> None:
    """What counts is a key's bytes, not how Arrow keeps them; a null has digest 0."""
    column = pa.array(["left out", "key", None, ""], kind)[1:]

    assert digest_keys(column, _HASH_KEY).tolist() == [
        *digest_keys(pa.array([b"key"]), _HASH_KEY).tolist(),
        [0, 0],
        *digest_keys(pa.array([b""]), _HASH_KEY).tolist(),
    ]


def test_digest_keys_under_another_hash_key_gives_other_digests() -> None:
    """Who does not know the round's key can't tell a digest."""
    keys = pa.array([b"key"])

    assert digest_keys(keys, _HASH_KEY).tolist() != digest_keys(keys, bytes(HASH_KEY_BYTES)).tolist()


@pytest.mark.parametrize(
    ("memory_bytes", "keys"), [(48, 1), (24 * 200, 180), (24 * 200 + 23, 180), (134_217_728, 5_033_164)]
)
def test_offset_map_of_some_memory_takes_as_many_keys_as_kafkas(memory_bytes: int, keys: int) -> None:
    """A slot is 24 bytes, and nine of ten are used."""
    assert OffsetMap(memory_bytes, _HASH_KEY).capacity == keys


@pytest.mark.parametrize(("memory_bytes", "hash_key"), [(47, _HASH_KEY), (0, _HASH_KEY), (1 << 20, b"short")])
def test_offset_map_when_it_can_hold_nothing_refuses(memory_bytes: int, hash_key: bytes) -> None:
    """Memory for no key, or a hash key of another size, is a wrong setting."""
    with pytest.raises(InvalidConfigError):
        OffsetMap(memory_bytes, hash_key)


def test_put_when_the_map_is_full_stops_even_at_a_known_key() -> None:
    """Kafka asks for room before it asks whether a key is known."""
    offset_map, digests = OffsetMap(24 * 10, _HASH_KEY), _digests(9)
    assert offset_map.put(digests, np.arange(9)) == 9

    assert offset_map.put(digests[:1], np.array([9])) == 0
    assert offset_map.get(digests[:1]).tolist() == [0]


def test_put_of_many_keys_takes_memory_as_they_come() -> None:
    """A map takes what its keys need, not what it may have; every key is found in it after it has grown."""
    offset_map, digests = OffsetMap(1 << 30, _HASH_KEY), _digests(50_000)
    offset_map.put(digests, np.arange(50_000))

    assert offset_map.memory_bytes <= 24 * 50_000 * 4
    assert (offset_map.get(digests) == np.arange(50_000)).all()
    assert (offset_map.get(_digests(1000, seed=4)) == -1).all()


def test_put_of_digests_that_share_their_first_bits_finds_all_again() -> None:
    """Keys that belong to one slot lie behind each other, around the table's end too, also after it has grown."""
    digests = _digests(9000)
    digests[:, 0] |= np.uint64(0xFFFFFFF000000000)
    offset_map = OffsetMap(24 * 20_000, _HASH_KEY)
    offset_map.put(digests, np.arange(9000))

    assert (offset_map.get(digests) == np.arange(9000)).all()


def test_from_columns_of_two_maps_knows_the_later_offsets() -> None:
    """Maps of parts of a log become one; of a key in both the later offset counts, whatever the order."""
    digests = _digests(100)
    twice = np.concatenate([digests, digests[:50]])
    offsets = np.concatenate([np.arange(100) + 1000, np.arange(50)])

    joined = OffsetMap.from_columns(twice, offsets, latest_offset=1099, hash_key=_HASH_KEY)

    assert len(joined) == 100
    assert joined.latest_offset == 1099
    assert (joined.get(digests) == np.arange(100) + 1000).all()


def test_key_set_contains_its_keys_and_no_others() -> None:
    """Keys are known by the digests of the round."""
    keys = KeySet(pa.array([b"a", b"b", b"a"]), _HASH_KEY)

    assert len(keys) == 2
    assert keys.contains(digest_keys(pa.array([b"b", b"c", None]), _HASH_KEY)).tolist() == [True, False, False]
