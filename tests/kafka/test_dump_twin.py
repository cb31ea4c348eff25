"""Our dump, with `--raw`, beside Kafka's own over the same files with the same options: what they print must be one."""

import io
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.compression import compress
from tests.build.golden import golden_root
from tests.kafka.toolbox import KafkaToolbox
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record

pytestmark = pytest.mark.kafka

_GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
_LOG, _INDEX, _TIMES = (f"00000000000000000000{suffix}" for suffix in (".log", ".index", ".timeindex"))


def _theirs(toolbox: KafkaToolbox, files: list[Path], options: Mapping[str, bool | int]) -> tuple[str, str]:
    arguments = ["--files", ",".join(str(path) for path in files)]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    run = toolbox.run("org.apache.kafka.tools.DumpLogSegments", *arguments)
    return run.stdout.decode(), _without_false_alarm(run.stderr.decode())


def _without_false_alarm(text: str) -> str:
    """Drop `-1 is followed by N`, which the tool prints for any first record that is not offset 0."""
    title = "Non-consecutive offsets in "
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("  -1 is followed by ")]
    followed = pairwise([*lines, ""])
    kept = [line for line, following in followed if not line.startswith(title) or following.startswith("  ")]
    return "".join(kept)


def _ours(files: list[Path], options: Mapping[str, bool | int]) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    dump_log(files, DumpOptions(raw=True, **options), out, err)  # type: ignore[arg-type]
    return out.getvalue(), err.getvalue()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A copy of a broker's log."""
    return Path(shutil.copytree(_GOLDEN / "v2-segments" / "v2-segments-0", tmp_path / "v2-segments-0"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deep_iteration": True},
        {"print_data_log": True, "skip_record_metadata": True},
        {"max_bytes": 300},
        {"verify_index_only": True},
        {"index_sanity_check": True},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
@pytest.mark.parametrize("case", ["v0-segments", "v1-gzip", "v2-compact-after", "v2-transactional"])
def test_dump_log_when_option_given_then_prints_what_kafka_prints(
    toolbox: KafkaToolbox, case: str, options: dict[str, bool | int]
) -> None:
    """Every option changes our output as it changes that of Kafka's tool."""
    directory = _GOLDEN / case / f"{case.removesuffix('-after')}-0"
    files = sorted(path for path in directory.iterdir() if path.suffix)[:8]

    assert _ours(files, options) == _theirs(toolbox, files, options)


@pytest.mark.parametrize("options", [{}, {"deep_iteration": True}, {"print_data_log": True}], ids="-".join)
@pytest.mark.parametrize("name", ["bootstrap.checkpoint", "00000000000000000042-0000000007.checkpoint"])
def test_dump_log_when_file_is_a_checkpoint_then_prints_what_kafka_prints(
    toolbox: KafkaToolbox, tmp_path: Path, name: str, options: dict[str, bool | int]
) -> None:
    """KRaft's snapshots are shown as Kafka shows them: control records, and records of the metadata log as bytes."""
    path = Path(shutil.copy(golden_root() / "bootstrap.checkpoint", tmp_path / name))

    assert _ours([path], options) == _theirs(toolbox, [path], options)


def test_dump_log_when_entries_of_older_formats_are_odd_then_prints_what_kafka_prints(
    toolbox: KafkaToolbox, tmp_path: Path
) -> None:
    """Wrong CRCs inside and outside a wrapper, short and overlong entries, texts that are no UTF-8: the same lines."""
    texts = [
        b"\xff",
        b"\xed\xa0\x80x\xed\xb0",
        b"\xe2\x82",
        b"\xf0\x9f\x98z",
        None,
        b"",
        "zwölf € \x1b[2J\x07\r\n\u202e".encode(),
    ]
    records = [Record(offset=n, timestamp=n, key=text, value=text) for n, text in enumerate(texts)]
    inner = bytearray(b"".join(pack_entry(record, 1) for record in records))
    inner[-1] ^= 1
    set_of = [Record(offset=n, timestamp=5, key=None, value=bytes(compress("gzip", bytes(inner)))) for n in (6, 13)]
    damaged = bytearray(pack_entry(records[0], 0))
    damaged[-1] ^= 1
    path = tmp_path / _LOG
    path.write_bytes(
        pack_entry(set_of[0], 1, 1)
        + pack_entry(replace(set_of[1], value=bytes(compress("snappy", bytes(inner) + bytes(11)))), 1, 2 | 8)
        + b"".join(pack_wrapper([replace(each, offset=14) for each in records], 0, codec) for codec in CODECS[1:4])
        + bytes(damaged)
        + b"".join(pack_entry(replace(record, offset=20 + record.offset), 1, 8) for record in records)
    )
    options: dict[str, bool | int] = {"print_data_log": True}

    assert _ours([path], options)[0] == _theirs(toolbox, [path], options)[0]


@pytest.mark.parametrize("magic", [128, 255])
def test_dump_log_when_a_magic_is_negative_then_prints_what_kafka_prints(
    toolbox: KafkaToolbox, tmp_path: Path, magic: int
) -> None:
    """A magic is a signed byte: what is below 2 has the CRC and the least size of an entry, and its own offset."""
    entries = [bytearray(pack_entry(Record(offset=n, timestamp=5, key=None, value=bytes(n * 9)), 1)) for n in range(9)]
    entries[0] = bytearray(pack_entry(Record(offset=0, timestamp=5, key=None, value=b""), 0))
    for entry in entries:
        entry[16] = magic
        entry[12:16] = zlib.crc32(entry[16:]).to_bytes(4, "big")
    log, index = tmp_path / _LOG, tmp_path / _INDEX
    log.write_bytes(b"".join(entries))
    index.write_bytes(struct.pack(">iiii", 1, len(entries[0]), 5, sum(map(len, entries[:5]))))

    assert _ours([index], {}) == _theirs(toolbox, [index], {})


def test_dump_log_when_decoder_named_then_prints_what_kafka_prints(toolbox: KafkaToolbox, tmp_path: Path) -> None:
    """Kafka's number decoders read the first bytes of a key or value."""
    path = tmp_path / _LOG
    path.write_bytes(pack_entry(Record(offset=0, timestamp=5, key=b"\xff\xff\xff\xfe!", value=bytes(9)), 1))
    options = {
        "key_decoder_class": "org.apache.kafka.tools.api.IntegerDecoder",
        "value_decoder_class": "org.apache.kafka.tools.api.LongDecoder",
    }

    assert _ours([path], options) == _theirs(toolbox, [path], options)  # type: ignore[arg-type]


def _flip_payload(log: Path) -> None:
    data = bytearray((log / _LOG).read_bytes())
    data[234] ^= 1
    (log / _LOG).write_bytes(data)


def _tear_tail(log: Path) -> None:
    with (log / _LOG).open("ab") as file:
        file.write(bytes(12))


def _drop_batch(log: Path) -> None:
    data = (log / _LOG).read_bytes()
    (log / _LOG).write_bytes(data[:134] + data[268:])
    for name in (_INDEX, _TIMES):
        (log / name).write_bytes(b"")  # Kafka's tool ends with an exception at a position where no batch is


def _change_entries(log: Path) -> None:
    index, times = bytearray((log / _INDEX).read_bytes()), bytearray((log / _TIMES).read_bytes())
    index[3], index[11] = index[3] + 1, index[11] + 1
    times[12:20], times[35] = times[0:8], times[35] + 1
    (log / _INDEX).write_bytes(index)
    (log / _TIMES).write_bytes(times)


def _pad_index(log: Path) -> None:
    with (log / _INDEX).open("ab") as file:
        file.write(bytes(80))


@pytest.mark.parametrize("damage", [_flip_payload, _tear_tail, _drop_batch, _change_entries, _pad_index])
def test_dump_log_when_files_damaged_then_says_what_kafka_says(
    toolbox: KafkaToolbox, log: Path, damage: Callable[[Path], None]
) -> None:
    """Where Kafka's tool reports damage and goes on, ours uses the same words for the same places."""
    damage(log)
    files, options = [log / name for name in (_LOG, _INDEX, _TIMES)], {"deep_iteration": True}

    assert _ours(files, options) == _theirs(toolbox, files, options)
