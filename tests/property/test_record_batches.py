import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.compression import decompress
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, encode_batches
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, unpack_header
from tests.build.record_cases import columns_of, encode, records_of, split_batches
from tests.plain.scalar import Record, decode_records, encode_records
from tests.property.record_strategies import encode_options, record_lists


def _sections(batches: list[bytes]) -> list[bytes]:
    """Return each batch without its stream: header but for size and CRC, and the plain records."""
    plain = []
    for batch in batches:
        codec = unpack_header(batch).codec
        section = bytes(decompress(codec, batch[HEADER_BYTES:], 1 << 26, 0))
        plain.append(batch[:8] + batch[12:17] + batch[21:HEADER_BYTES] + section)
    return plain


@given(record_lists(), encode_options())
def test_round_trip(records: list[Record], options: EncodeOptions) -> None:
    """Encoding and decoding give the records back, whatever the options; every CRC is right."""
    encoded = encode(records, options, preserved=True)
    scan = scan_batches(encoded.data)
    decoded = decode_batches(encoded.data, scan)
    decoded.validate(full=True)

    assert check_crcs(encoded.data, scan).size == 0
    assert scan.valid_bytes == encoded.data.size
    if options.log_append_time_ms is not None:
        records = [
            Record(offset=r.offset, timestamp=options.log_append_time_ms, key=r.key, value=r.value, headers=r.headers)
            for r in records
        ]
    assert records_of(decoded) == records


@given(record_lists(), encode_options(codecs=("none",)))
def test_uncompressed_batches_equal_the_scalar_twins(records: list[Record], options: EncodeOptions) -> None:
    """The compiled and the plain encoder write the same bytes."""
    assert split_batches(encode(records, options, preserved=True)) == encode_records(records, options, assigned=False)


@given(record_lists(gaps=False), encode_options())
def test_compressed_batches_hold_the_scalar_twins_records(records: list[Record], options: EncodeOptions) -> None:
    """Under every codec, batches end at the same records and hold the same plain bytes."""
    compiled = split_batches(encode(records, options))

    assert _sections(compiled) == _sections(encode_records(records, options))


@given(record_lists(min_size=1), st.sampled_from(CODECS), st.integers(70, 3000), st.sampled_from([500, 1 << 20]))
def test_small_limits_split_or_refuse_as_the_scalar_twin(
    records: list[Record], codec: str, max_message_bytes: int, batch_size_bytes: int
) -> None:
    """Where batches must be split or a record refused, both encoders do the same."""
    options = EncodeOptions(codec=codec, batch_size_bytes=batch_size_bytes, max_message_bytes=max_message_bytes)
    try:
        expected = encode_records(records, options, assigned=False)
    except InvalidRecordError:
        with pytest.raises(InvalidRecordError, match="too large"):
            encode(records, options, preserved=True)
        return
    found = split_batches(encode(records, options, preserved=True))

    assert _sections(found) == _sections(expected)
    assert max(map(len, found)) <= max_message_bytes


@given(record_lists(), encode_options())
def test_decoders_agree(records: list[Record], options: EncodeOptions) -> None:
    """The compiled decoder reads what the plain encoder wrote, as the plain decoder does."""
    data = b"".join(encode_records(records, options, assigned=False))

    assert records_of(decode_batches(data)) == decode_records(data)


@given(st.data(), record_lists(gaps=False, min_size=1), st.integers(1, 5))
def test_groups_are_encoded_as_if_alone(data: st.DataObject, records: list[Record], groups: int) -> None:
    """A group's batches are those of its rows alone, whatever other groups hold."""
    options = data.draw(encode_options(codecs=("none", "lz4")))
    group = np.array(data.draw(st.lists(st.integers(0, groups - 1), min_size=len(records), max_size=len(records))))
    rows = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[rows], np.arange(groups + 1))
    together = encode_batches(columns_of(records), rows, starts, options)

    alone = []
    for number in range(groups):
        chosen = rows[starts[number] : starts[number + 1]]
        alone += split_batches(encode_batches(columns_of(records), chosen, np.array([0, chosen.size]), options))
    assert split_batches(together) == alone
    assert (np.diff(together.group) >= 0).all()


@given(record_lists(), encode_options(), st.integers(1, 20_000))
@settings(max_examples=50)
def test_iterated_results_add_up(records: list[Record], options: EncodeOptions, target_bytes: int) -> None:
    """However small the pieces, together they are the whole."""
    data = encode(records, options, preserved=True).data
    pieces = list(iter_decoded(data, None, target_bytes))
    whole = decode_batches(data)

    assert pa.Table.from_batches(pieces, whole.schema).to_pylist() == whole.to_pylist()
