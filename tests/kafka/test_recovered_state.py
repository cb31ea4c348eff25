"""Only `.log` files are left. A broker recovers them, and so do we: the same indexes, the same producers."""

import random
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, parse_producer_snapshot
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.files.names import LOG, SNAPSHOT, segment_file_name
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.load.recover_segment import recover_segment, scan_segment
from sparklog.storage_core.log.producers.follow import follow_producers
from sparklog.storage_core.log.producers.snapshots import find_snapshot
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.batch_bytes import BatchSpec, segment_bytes
from tests.build.golden import GoldenLog, golden_logs
from tests.build.written_snapshot import write_snapshot
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.plain.legacy_scalar import pack_entry
from tests.plain.scalar import Record

pytestmark = pytest.mark.kafka

_INTERVAL_BYTES = 300
_CONFIG = {"retention.ms": -1, "message.timestamp.before.max.ms": 2**63 - 1, "index.interval.bytes": _INTERVAL_BYTES}
_PREFIX = "recovered."


def _random_log(seed: int) -> bytes:
    """Return transactions and plain batches of some producers.

    Epochs are raised and lowered, sequences wrap, markers come without data, the cleaner emptied control batches.
    """
    rng, specs = random.Random(seed), list[BatchSpec]()
    for time in range(500):
        common = BatchSpec(producer_id=rng.randrange(6), producer_epoch=rng.randrange(3), leader_epoch=0, time=time)
        if rng.random() < 0.25:
            count = 1 if rng.random() < 0.9 else 0
            epoch = rng.randrange(4)
            specs.append(replace(common, marker=rng.randrange(2), coordinator_epoch=epoch, records_count=count))
            continue
        specs.append(
            replace(
                common,
                base_sequence=rng.choice([0, 5, 2**31 - 2]),
                last_offset_delta=rng.randrange(4),
                gap=rng.choice([0, 0, 0, 2]),
                is_transactional=True,
                body=bytes(rng.randrange(200)),
            )
        )
    return segment_bytes(specs, 0)


def _idempotent_log(count: int) -> bytes:
    """Return batches of idempotent producers and of none, in turns."""
    plain = BatchSpec(leader_epoch=0, body=bytes(70))
    return segment_bytes(
        [
            replace(plain, producer_id=number % 9 - 1, producer_epoch=0, base_sequence=number // 9, time=number // 3)
            for number in range(count)
        ],
        0,
    )


def _negative_magics() -> bytes:
    """Return entries whose magic, a signed byte, is below 0, among some of v0 and v1; some as small as none of v2."""
    data = bytearray()
    for number in range(300):
        record = Record(offset=number, timestamp=1_700_000_000_000 + number, key=None, value=bytes(number % 7 * 20))
        entry = bytearray(pack_entry(record, number // 3 % 2))
        if number % 3:
            entry[16] = (128, 255)[number % 2]
            entry[12:16] = zlib.crc32(entry[16:]).to_bytes(4, "big")
        data += entry
    return bytes(data)


def _cases() -> dict[str, dict[str, bytes]]:
    """Return the `.log` files of each topic, by name."""
    goldens: list[GoldenLog] = [each.values[0] for each in golden_logs("v2-[tic]*")]
    cases = {each.name: {path.name: path.read_bytes() for path in each.directory.glob("*.log")} for each in goldens}
    first = segment_file_name(0, LOG)
    for seed in range(3):
        cases[f"random-{seed}"] = {first: _random_log(seed)}
    cases["idempotent"] = {first: _idempotent_log(2000)}
    cases["torn"] = {first: _random_log(7)[:-33]}
    cases["negative-magics"] = {first: _negative_magics()}
    cases["zeros"] = {first: _random_log(8) + bytes(5000)}
    return cases


@dataclass(frozen=True)
class _Recovered:
    """What both made of one topic's files: names and contents, snapshots as entries."""

    ours: dict[str, object]
    theirs: dict[str, object]


@pytest.fixture(scope="module")
def recovered(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, _Recovered]:
    """Every case, recovered by a broker whose marker of a clean shutdown is gone, and by us."""
    cases, folder = _cases(), tmp_path_factory.mktemp("recovered")
    broker.create_topics(*(TopicSpec(name=_PREFIX + name, config=_CONFIG) for name in cases))
    broker.stop()
    for name, logs in cases.items():
        directory = broker.log_dir / f"{_PREFIX}{name}-0"
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for log, data in logs.items():
            (directory / log).write_bytes(data)
    broker.forget_clean_shutdown()
    broker.start()
    broker.stop()  # its indexes are trimmed then
    found = {}
    for name, logs in cases.items():
        copied = folder / name
        copied.mkdir()
        for log, data in logs.items():
            (copied / log).write_bytes(data)
        _recover(copied)
        found[name] = _Recovered(_contents(copied), _contents(broker.log_dir / f"{_PREFIX}{name}-0"))
        shutil.rmtree(copied)
    broker.start()
    return found


def _recover(directory: Path) -> None:
    """Recover segment by segment, each from the snapshot that was taken behind the one before, as a broker does."""
    segments = list_segments(directory)
    for files in segments:
        found = find_snapshot(directory, 0, files.base_offset)
        producers = ProducerStates(found.offset or 0, found.producers)
        producers.remove_expired(SystemClock().now_ms())
        for offset, states in follow_producers(producers, segments, files.base_offset).items():
            write_snapshot(directory, offset, states)
        recover_segment(scan_segment(files, _INTERVAL_BYTES, producers), UNSHARED)
        write_snapshot(directory, producers.map_end_offset, producers.states())


def _contents(directory: Path) -> dict[str, object]:
    """Return what recovery decides about; an index of transactions that is empty is as good as none."""
    found: dict[str, object] = {}
    for path in directory.iterdir():
        data = path.read_bytes()
        if path.suffix == SNAPSHOT:
            found[path.name] = sorted(parse_producer_snapshot(data), key=_producer_id)
        elif path.suffix in (LOG, ".index", ".timeindex") or (path.suffix == ".txnindex" and data):
            found[path.name] = data
    return found


def _producer_id(state: ProducerState) -> int:
    return state.producer_id


@pytest.mark.parametrize("name", sorted(_cases()))
def test_recovery_when_only_logs_are_left_then_a_broker_builds_the_same_files(
    recovered: Mapping[str, _Recovered], name: str
) -> None:
    """Cut at the same byte; offset, time and transaction index byte by byte; snapshots entry by entry."""
    assert recovered[name].ours == recovered[name].theirs
