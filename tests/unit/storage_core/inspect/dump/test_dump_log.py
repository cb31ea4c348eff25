import io
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from sparklog.storage_core.record.compression import compress
from tests.build.golden import GoldenLog, golden_logs
from tests.build.record_cases import encode
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record

_SEGMENTS = Path(__file__).resolve().parents[4] / "data" / "golden" / "v2-segments" / "v2-segments-0"
_BATCH_BYTES = 134  # size of the first batches in there
_CONTENTS = DumpOptions(print_data_log=True)


def _dump(files: list[Path], options: DumpOptions) -> tuple[bool, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return dump_log(files, options, out, err), out.getvalue(), err.getvalue()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A copy of a broker's log, to be damaged."""
    return Path(shutil.copytree(_SEGMENTS, tmp_path / "v2-segments-0"))


def _change(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


@pytest.mark.parametrize("golden", golden_logs())
def test_dump_log_when_broker_wrote_the_files_then_kafkas_own_output(
    golden: GoldenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output equals that of Kafka's tool, byte for byte, and nothing is wrong."""
    monkeypatch.chdir(golden.directory)
    names = [line.removeprefix("Dumping ") for line in golden.dump.splitlines() if line.startswith("Dumping ")]
    logs = [Path(name) for name in names if name.endswith(".log")]
    others = [Path(name) for name in names if not name.endswith(".log")]

    first, second = _dump(logs, DumpOptions(deep_iteration=True, print_data_log=True)), _dump(others, DumpOptions())

    assert first[1] + second[1] == golden.dump
    assert (first[0], second[0]) == (True, True)
    # An append of several messages has one index entry, which names the last one and the first one's position.
    titles = [line for line in second[2].splitlines() if not line.startswith("  Index offset: ")]
    assert all(title.startswith("Mismatches in :") and golden.name[1] in "01" for title in titles)


def test_dump_log_when_shallow_then_one_line_per_batch(log: Path) -> None:
    """Without an option that shows records there are only batches."""
    fine, out, err = _dump([log / "00000000000000000208.log"], DumpOptions())

    lines = out.splitlines()[2:]
    assert (fine, err, len(lines)) == (True, "", 8)
    assert all(line.startswith("baseOffset: ") for line in lines)


def test_dump_log_when_deep_without_contents_then_records_without_payload(log: Path) -> None:
    """A deep dump shows a line per record, contents only when asked for."""
    out = _dump([log / "00000000000000000208.log"], DumpOptions(deep_iteration=True))[1]

    assert out.splitlines()[3] == (
        "| offset: 208 CreateTime: 1700000260000 keySize: 2 valueSize: 10 sequence: -1 headerKeys: []"
    )


def test_dump_log_when_metadata_skipped_then_only_contents(log: Path) -> None:
    """Records shrink to key and payload."""
    options = DumpOptions(print_data_log=True, skip_record_metadata=True)

    assert _dump([log / "00000000000000000000.log"], options)[1].splitlines()[3] == "| key: k0 payload: value 0.0"


def test_dump_log_when_bytes_limited_then_rest_neither_shown_nor_judged(log: Path) -> None:
    """A limit shows whole batches below it and says nothing about the rest."""
    fine, out, _ = _dump([log / "00000000000000000000.log"], DumpOptions(max_bytes=_BATCH_BYTES + 1))

    assert (fine, len(out.splitlines())) == (True, 3)


def test_dump_log_when_tail_is_torn_then_counted_in_kafkas_words(log: Path) -> None:
    """Bytes behind the last whole batch are damage, and their number is printed."""
    path = log / "00000000000000000208.log"
    _change(path, lambda data: data.extend(b"\0" * 12))

    fine, out, _ = _dump([path], DumpOptions())

    assert (fine, out.splitlines()[-1]) == (
        False,
        "Found 12 invalid bytes at the end of 00000000000000000208.log",
    )


def test_dump_log_when_payload_changed_then_batch_invalid_and_the_rest_shown(log: Path) -> None:
    """A wrong CRC is shown as `isvalid: false`; the dump goes on."""
    path = log / "00000000000000000000.log"
    _change(path, lambda data: data.__setitem__(_BATCH_BYTES + 100, data[_BATCH_BYTES + 100] ^ 1))

    fine, out, _ = _dump([path], DumpOptions())

    assert not fine
    assert [line.endswith("isvalid: true") for line in out.splitlines()[2:]] == [True, False] + [True] * 11


def test_dump_log_when_length_impossible_then_named_and_next_file_dumped(log: Path) -> None:
    """Damage that ends one file does not end the dump."""
    path = log / "00000000000000000000.log"
    _change(path, lambda data: data.__setitem__(slice(8, 12), bytes(4)))

    fine, out, err = _dump([path, log / "00000000000000000208.log"], DumpOptions())

    assert not fine
    assert "Found 1754 invalid bytes at the end of 00000000000000000000.log" in out
    assert "baseOffset: 208 " in out
    assert f"batch length is below what any batch has file={path} position=0" in err


def test_dump_log_when_records_lie_then_named_and_the_rest_shown(log: Path) -> None:
    """A record that contradicts its batch ends that batch's records only."""
    path = log / "00000000000000000000.log"
    _change(path, lambda data: data.__setitem__(61, 0x7F))

    fine, out, err = _dump([path], _CONTENTS)

    assert not fine
    assert f"{path} position=0" in err
    assert "key: k0 payload: value 1.0" in out


def test_dump_log_when_offsets_have_gaps_then_reported_without_failing(log: Path) -> None:
    """Gaps are named, and are no damage: compaction leaves them."""
    path = log / "00000000000000000000.log"
    _change(
        path,
        lambda data: data.__setitem__(
            slice(0, _BATCH_BYTES * 3), data[:_BATCH_BYTES] + data[_BATCH_BYTES * 2 : _BATCH_BYTES * 3]
        ),
    )

    fine, _, err = _dump([path], DumpOptions(deep_iteration=True))

    assert fine
    assert err == f"Non-consecutive offsets in {path}\n  3 is followed by 8\n"


def test_dump_log_when_index_names_wrong_offsets_then_mismatches_newest_first(log: Path) -> None:
    """Each entry's offset is compared with the batch at its position."""
    path = log / "00000000000000000000.index"
    _change(path, lambda data: [data.__setitem__(at + 3, data[at + 3] + 1) for at in (0, 8)])

    fine, _, err = _dump([path], DumpOptions())

    assert not fine
    assert err == f"Mismatches in :{path}\n  Index offset: 28, log offset: 27\n  Index offset: 16, log offset: 15\n"


def test_dump_log_when_index_position_is_none_then_named(log: Path) -> None:
    """An entry that leads behind the log is damage."""
    path = log / "00000000000000000000.index"
    _change(path, lambda data: data.__setitem__(slice(4, 8), b"\0\xff\0\0"))

    fine, _, err = _dump([path], DumpOptions())

    assert not fine
    assert f"no batch at an indexed position: {path} offset=15 position=16711680" in err


@pytest.mark.parametrize("magic", [0, 128, 255])
@pytest.mark.parametrize("size_bytes", [26, 200])
def test_dump_log_when_an_index_leads_to_an_entry_of_a_negative_magic_then_its_offset_counts(
    tmp_path: Path, magic: int, size_bytes: int
) -> None:
    """Kafka's magic is a signed byte: what is below 2 is an entry, of its own offset."""
    entry = bytearray(pack_entry(Record(offset=7, timestamp=5, key=None, value=bytes(size_bytes - 26)), 0))
    entry[16] = magic
    (tmp_path / "00000000000000000005.log").write_bytes(entry)
    index = tmp_path / "00000000000000000005.index"
    index.write_bytes(struct.pack(">ii", 2, 0))

    assert _dump([index], DumpOptions())[::2] == (True, "")


def test_dump_log_when_verify_index_only_then_no_entries_shown(log: Path) -> None:
    """Only findings are printed."""
    files = [log / "00000000000000000000.index", log / "00000000000000000000.timeindex"]

    assert _dump(files, DumpOptions(verify_index_only=True)) == (True, "".join(f"Dumping {f}\n" for f in files), "")


def test_dump_log_when_sanity_check_then_one_line(log: Path) -> None:
    """Kafka's own sanity check, which looks at sizes and ends only."""
    index, times = log / "00000000000000000000.index", log / "00000000000000000000.timeindex"
    _change(times, lambda data: data.append(0))

    fine, out, err = _dump([index, times], DumpOptions(index_sanity_check=True))

    assert not fine
    assert out == f"Dumping {index}\n{index} passed sanity check.\nDumping {times}\n"
    assert err == f"time index has 49 bytes, not a multiple of 12: {times}\n"


def test_dump_log_when_time_index_wrong_then_each_kind_in_kafkas_words(log: Path) -> None:
    """A timestamp the batch does not have, one that goes back, and an offset no batch ends with."""
    path = log / "00000000000000000000.timeindex"
    times = [int.from_bytes(path.read_bytes()[at : at + 8]) for at in range(0, 48, 12)]
    _change(path, lambda data: data.__setitem__(slice(12, 20), data[0:8]))
    _change(path, lambda data: data.__setitem__(35, data[35] + 1))

    fine, _, err = _dump([path], DumpOptions())

    assert not fine
    assert err == (
        f"Found timestamp mismatch in :{path}\n  Index timestamp: {times[0]}, log timestamp: {times[1]}\n"
        f"Found out of order timestamp in :{path}\n"
        f"  Index timestamp: {times[0]}, Previously indexed timestamp: {times[0]}\n"
        f"The following indexed offsets are not found in :{path}\nIndexed offset: 40, found log offset: 43\n"
    )


def test_dump_log_when_index_padded_then_zero_tail_not_shown(log: Path) -> None:
    """The zeros of an index that was not trimmed are no entries and no damage."""
    path = log / "00000000000000000208.index"
    before = _dump([path], DumpOptions())
    _change(path, lambda data: data.extend(bytes(80)))

    assert _dump([path], DumpOptions()) == before


def test_dump_log_when_snapshot_corrupt_then_named(log: Path) -> None:
    """A wrong CRC in a producer snapshot is damage."""
    path = log / "00000000000000000052.snapshot"
    _change(path, lambda data: data.__setitem__(3, data[3] ^ 1))

    fine, _, err = _dump([path], DumpOptions())

    assert not fine
    assert "producer snapshot is corrupt" in err


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "00000000000000000000.swap", "x.log"])
def test_dump_log_when_file_is_of_another_kind_then_ignored_aloud(log: Path, name: str) -> None:
    """Only files named like a segment's are dumped, and the caller learns that one was not."""
    fine, _, err = _dump([log / name], DumpOptions())

    assert (fine, err) == (False, f"Ignoring unknown file {log / name}\n")


def test_dump_log_when_file_missing_then_named(log: Path) -> None:
    """A file that is not there fails the dump."""
    fine, _, err = _dump([log / "00000000000000009999.log"], DumpOptions())

    assert not fine
    assert "No such file" in err


def test_dump_options_when_decoder_unknown_then_refused() -> None:
    """Only Kafka's string decoder is there; another one is a clear error, not another output."""
    with pytest.raises(InvalidConfigError, match="value-decoder-class=my"):
        DumpOptions(value_decoder_class="my.Decoder")


def test_dump_options_when_string_decoder_named_then_contents_shown() -> None:
    """Naming a decoder implies showing contents."""
    assert DumpOptions(key_decoder_class="org.apache.kafka.tools.api.StringDecoder").prints_contents


@pytest.mark.parametrize(
    "name",
    [
        "offsets_decoder",
        "transaction_log_decoder",
        "cluster_metadata_decoder",
        "remote_log_metadata_decoder",
        "share_group_state_decoder",
    ],
)
def test_dump_options_when_decoder_of_kafkas_topics_then_refused_by_name(name: str) -> None:
    """Five decoders of Kafka's tool are not here, and each says so."""
    with pytest.raises(InvalidConfigError, match=f"--{name.replace('_', '-')} is not offered"):
        DumpOptions(**{name: True})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decoder", "value", "text"),
    [
        ("IntegerDecoder", b"\xff\xff\xff\xfe", "-2"),
        ("LongDecoder", b"\0\0\0\1\0\0\0\0", "4294967296"),
        ("DefaultDecoder", b"\0a", "0061"),
        ("StringDecoder", b"\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_dump_log_when_value_decoder_named_then_it_reads_the_values(
    tmp_path: Path, decoder: str, value: bytes, text: str
) -> None:
    """Values are shown as the named decoder of Kafka's reads them; keys stay text."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode([Record(offset=0, timestamp=0, key=b"k", value=value)]).data.tobytes())
    options = DumpOptions(value_decoder_class=f"org.apache.kafka.tools.api.{decoder}")

    assert _dump([path], options)[1].splitlines()[-1].endswith(f" key: k payload: {text}")


def test_dump_log_when_decoder_can_not_read_a_value_then_named(log: Path) -> None:
    """Three bytes are no integer: that is said, and the batches are shown."""
    options = DumpOptions(key_decoder_class="org.apache.kafka.tools.api.IntegerDecoder")
    fine, out, err = _dump([log / "00000000000000000208.log"], options)

    assert not fine
    assert out.count("baseOffset: ") == 8
    assert "the decoder can't read a key or value: 2 bytes where a number has 4" in err


_WRAPPER = pack_wrapper([Record(offset=n, timestamp=n, key=b"k", value=b"v%d" % n) for n in range(3)], 1, "gzip")


def test_dump_log_when_inner_crc_wrong_then_that_record_is_invalid(tmp_path: Path) -> None:
    """Each record of a wrapper has its own CRC, and its own verdict."""
    inner = bytearray(b"".join(pack_entry(Record(offset=n, timestamp=n, key=None, value=b"v"), 1) for n in range(3)))
    inner[len(inner) // 3 * 2 - 1] ^= 1
    wrapper = Record(offset=2, timestamp=2, key=None, value=bytes(compress("gzip", bytes(inner))))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(pack_entry(wrapper, 1, 1))

    fine, out, _ = _dump([path], DumpOptions(deep_iteration=True))

    assert not fine
    assert [" isValid: true " in line for line in out.splitlines()[3:]] == [True, False, True]


def test_dump_log_when_formats_are_mixed_and_one_batch_damaged_then_the_rest_in_order(tmp_path: Path) -> None:
    """Batches of every format stand in the order of the file, each with its records, around one that is damaged."""
    damaged = pack_entry(Record(offset=3, timestamp=0, key=None, value=b"no stream"), 0, 1)
    plain = pack_entry(Record(offset=4, timestamp=0, key=None, value=None), 0)
    path = tmp_path / "00000000000000000000.log"
    v2 = encode([Record(offset=5, timestamp=9, key=b"k", value=b"v")], preserved=True).data.tobytes()
    path.write_bytes(_WRAPPER + damaged + plain + v2)

    fine, out, err = _dump([path], DumpOptions(print_data_log=True))

    assert not fine
    assert err.startswith("gzip stream is damaged: ")
    assert [line.split(" position")[0].split(" Time")[0][:14] for line in out.splitlines()[2:]] == [
        "offset: 2",
        "| offset: 0 Cr",
        "| offset: 1 Cr",
        "| offset: 2 Cr",
        "offset: 3",
        "offset: 4",
        "| offset: 4 No",
        "baseOffset: 5 ",
        "| offset: 5 Cr",
    ]


def test_dump_log_when_every_batch_is_damaged_then_in_time(tmp_path: Path) -> None:
    """Damage everywhere costs a line each, not the log over again for each."""
    batch = bytearray(encode([Record(offset=5, timestamp=9, key=b"k", value=b"v")]).data.tobytes())
    batch[61] = 0x7F
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(batch) * 2000)
    started = time.perf_counter()
    fine, out, err = _dump([path], _CONTENTS)

    assert not fine
    assert (out.count("baseOffset: "), len(err.splitlines())) == (2000, 2000)
    assert time.perf_counter() - started < 20
