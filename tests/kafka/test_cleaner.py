"""Kafka's LogCleaner beside ours: the same segments cleaned by both, twice, with more written in between.

Each case is a log of some shape: codecs, tombstones, headers, idempotent and transactional producers, transactions that
are aborted or never end, gaps. The broker starts as after a crash, so that it learns of the producers what lies in the
log, and cleans whatever is dirty at all.
"""

import shutil
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import confluent_kafka
import pytest

from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.cleaner.clean_log import LogToClean, clean_log
from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_logs import CompactedLog, LogShape, draw_shape, write_segments
from tests.build.written_log import TOPIC_ID
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.cleaned import CleanedBatch, cleaned_batches, segment_bases
from tests.kafka.consumed import read_with_confluent
from tests.kafka.toolbox import KafkaToolbox

pytestmark = pytest.mark.kafka

_HOUR_MS = 3_600_000
_TIMEOUT_S = 120.0
_MAP_BYTES = (1 << 20) + 24
"""The smallest map that a broker takes: 39,322 keys."""
_BROKER = {"log.cleaner.dedupe.buffer.size": _MAP_BYTES, "log.cleaner.backoff.ms": 100}
_HASH_KEY = bytes(range(16))
_CASES = [f"c{number}" for number in range(44)]
_MAGICS = {36: (0,), 37: (1,), 38: (0,), 39: (1,), 40: (0, 1), 41: (1, 2), 42: (0, 1, 2), 43: (0, 1, 2)}
_OLD_CODECS = ("none", "gzip", "snappy", "lz4")


def _shape(case: str, start_ms: int) -> LogShape:
    number = int(case[1:])
    shape = draw_shape(number, start_ms)
    if number in _MAGICS:
        codecs = (_OLD_CODECS[number % 4],) if number < 40 else _OLD_CODECS
        shape = replace(shape, magics=_MAGICS[number], codecs=codecs, open_at=None, tombstones=0.5, mtime_ms=start_ms)
    if case == "c35":  # more keys than fit into the map
        shape = LogShape(seed=35, segments=3, batches=60, records=700, keys=10**9, value_bytes=1, start_ms=start_ms)
    return replace(shape, index_interval_bytes=int(str(_properties(case)["index.interval.bytes"])))


def _properties(case: str) -> dict[str, object]:
    number = int(case[1:])
    return {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0,
        "segment.bytes": (600, 3000, 1 << 20)[number % 3],
        "segment.index.bytes": 240 if number % 5 == 1 else 10_485_760,
        "index.interval.bytes": (50, 200, 4096)[number % 4 % 3],
        "delete.retention.ms": (0, 1, _HOUR_MS)[number % 7 % 3],
        "retention.ms": -1,
        "segment.ms": 10 * 365 * 24 * _HOUR_MS,
    }


@dataclass
class _Case:
    """A log that we clean.

    Attributes:
        checkpoint: where our last cleaning ended.
    """

    name: str
    log: CompactedLog
    checkpoint: int | None = None

    def clean(self, now_ms: int) -> None:
        """Clean it in as many rounds as the map needs."""
        config = LogConfig.from_properties(_properties(self.name))
        while True:
            log = LogFacts(
                directory=self.log.directory,
                end=self.log.end,
                log_start_offset=self.log.bases[0],
                checkpoint=self.checkpoint,
            )
            plan = plan_log(log, config, now_ms)
            before = self.checkpoint
            if not plan.is_due:
                self.checkpoint = plan.first_dirty_offset
                return
            what = LogToClean(
                directory=self.log.directory,
                end=self.log.end,
                log_start_offset=self.log.bases[0],
                first_dirty_offset=plan.first_dirty_offset,
                first_uncleanable_offset=plan.first_uncleanable_offset,
                config=config,
                now_ms=now_ms,
                map_bytes=_MAP_BYTES,
                hash_key=_HASH_KEY,
            )
            self.checkpoint = clean_log(what, UNSHARED).first_dirty_offset
            if self.checkpoint == before:
                return


@dataclass(frozen=True)
class _Result:
    """Directories of one cleaning by both sides, by case, and the time within which each began."""

    ours: dict[str, Path]
    theirs: dict[str, Path]
    first_ms: int
    last_ms: int


@pytest.fixture(scope="module")
def results(toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory) -> list[_Result]:
    """Every case after its first and its second cleaning."""
    folder, clock = tmp_path_factory.mktemp("cleaner"), SystemClock()
    start_ms = clock.now_ms() - _HOUR_MS
    cases = {
        name: _Case(name, write_segments(folder / "ours" / f"{name}-0", _shape(name, start_ms))) for name in _CASES
    }
    results = []
    with KafkaBroker(toolbox, folder / "broker") as broker:
        broker.format()
        broker.start()
        broker.create_topics(*(_spec(name) for name in cases))
        for number in range(2):
            if broker.bootstrap:
                broker.stop()
            for name, case in cases.items():
                if number:
                    shape = replace(_shape(name, start_ms), seed=1000 + int(name[1:]), open_at=None)
                    write_segments(case.log.directory, shape, case.log)
                _hand_over(case, broker.log_dir / f"{name}-0", is_first=not number)
            results.append(_cleaned_by_both(broker, cases, folder / f"after-{number}", clock))
    return results


def _spec(name: str) -> TopicSpec:
    config = {**_properties(name), "file.delete.delay.ms": 0}
    config["internal.segment.bytes"] = config.pop("segment.bytes")
    return TopicSpec(name=name, config=config)


def _hand_over(case: _Case, directory: Path, *, is_first: bool) -> None:
    """Give the broker a log, or only the segments that were written since."""
    if is_first:
        _replace(directory, case.log.directory)
        return
    for base in case.log.bases[-case.log.shape.segments :]:
        for suffix in (LOG, INDEX, TIMEINDEX, TXNINDEX):
            path = case.log.directory / segment_file_name(base, suffix)
            if path.exists():
                shutil.copy2(path, directory / path.name)


def _replace(directory: Path, source: Path) -> None:
    """Let a broker's directory hold other segments, without producer snapshots: it has to look for producers itself."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name.endswith((LOG, INDEX, TIMEINDEX, TXNINDEX)):
            shutil.copy2(path, directory / path.name)


def _cleaned_by_both(broker: KafkaBroker, cases: dict[str, _Case], folder: Path, clock: SystemClock) -> _Result:
    first_ms = clock.now_ms()
    for case in cases.values():
        case.clean(first_ms)
    broker.forget_clean_shutdown()
    # With the high watermark of its last run it would clean up to there first, and what is new in a round of its own.
    (broker.log_dir / "replication-offset-checkpoint").unlink()
    broker.start(_BROKER)
    _await_cleaned(broker, cases)
    broker.stop()
    ours = {name: _copied(case.log.directory, folder / "ours" / name) for name, case in cases.items()}
    theirs = {name: _copied(broker.log_dir / f"{name}-0", folder / "theirs" / name) for name in cases}
    return _Result(ours, theirs, first_ms, clock.now_ms())


def _copied(directory: Path, target: Path) -> Path:
    return Path(shutil.copytree(directory, target, ignore=shutil.ignore_patterns("*.deleted")))


def _await_cleaned(broker: KafkaBroker, cases: dict[str, _Case]) -> None:
    """Wait until the broker has cleaned as far as we have."""
    due = {TopicPartition(name, 0): case.checkpoint or 0 for name, case in cases.items()}
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            found = parse_offset_checkpoint((broker.log_dir / "cleaner-offset-checkpoint").read_bytes())
        except (CorruptFileError, FileNotFoundError):
            found = {}
        left = {log for log, offset in due.items() if found.get(log, cases[log.topic].log.bases[0]) < offset}
        if not left:
            return
        time.sleep(0.2)
    raise AssertionError(f"not cleaned by the broker: {sorted(left)} {broker.complaints()[-5:]}")


@pytest.mark.parametrize("case", [each for each in _CASES if int(each[1:]) not in _MAGICS])
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_cleaning_when_compared_with_a_brokers_then_the_same_batches(
    results: list[_Result], number: int, case: str
) -> None:
    """The same segments with the same batches and records; delete horizons differ as the clocks did."""
    result = results[number]
    ours, theirs = result.ours[case], result.theirs[case]
    retention_ms = int(str(_properties(case)["delete.retention.ms"]))

    assert segment_bases(ours) == segment_bases(theirs)
    for base in segment_bases(ours):
        name = segment_file_name(base, LOG)
        mine, other = cleaned_batches(ours / name), cleaned_batches(theirs / name)
        assert [each[:2] for each in mine] == [each[:2] for each in other], name
        for one, two in zip(mine, other, strict=True):
            assert _is_within(one, two, results[0].first_ms + retention_ms, result.last_ms + retention_ms), name


def _is_within(one: CleanedBatch, two: CleanedBatch, low: int, high: int) -> bool:
    if one.horizon_ms is None or two.horizon_ms is None:
        return one.horizon_ms == two.horizon_ms
    return low <= min(one.horizon_ms, two.horizon_ms) <= max(one.horizon_ms, two.horizon_ms) <= high


@pytest.mark.parametrize("case", [f"c{number}" for number in _MAGICS])
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_cleaning_of_old_formats_when_compared_with_a_brokers_then_the_same_records(
    results: list[_Result], number: int, case: str
) -> None:
    """A broker of today makes v2 batches of what it cleans, and we keep the format; the records are the same."""
    assert _records(results[number].ours[case]) == _records(results[number].theirs[case])


def _records(directory: Path) -> list[tuple[object, ...]]:
    paths = [directory / segment_file_name(base, LOG) for base in segment_bases(directory)]
    return [record for path in paths for batch in cleaned_batches(path) for record in batch.records]


@pytest.mark.parametrize("case", [each for each in _CASES if int(each[1:]) not in _MAGICS])
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_cleaning_when_compared_with_a_brokers_then_the_same_indexes(
    results: list[_Result], number: int, case: str
) -> None:
    """Transaction indexes always; offset and time indexes where no library compresses a batch differently."""
    ours, theirs = results[number].ours[case], results[number].theirs[case]
    for base in segment_bases(ours)[:-1]:
        assert _content(ours, base, TXNINDEX) == _content(theirs, base, TXNINDEX), base
        sizes = [
            scan_batches((each / segment_file_name(base, LOG)).read_bytes()).size.tolist() for each in (ours, theirs)
        ]
        if sizes[0] == sizes[1]:
            for suffix in (INDEX, TIMEINDEX):
                assert _content(ours, base, suffix) == _content(theirs, base, suffix), (base, suffix)


def _content(directory: Path, base: int, suffix: str) -> bytes:
    path = directory / segment_file_name(base, suffix)
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("case", _CASES)
def test_verify_when_it_looks_at_what_we_cleaned_then_sound(results: list[_Result], case: str) -> None:
    """Our own check finds nothing, in the records neither."""
    for result in results:
        report = verify_directory(result.ours[case], _expected(result.ours[case]), deep=True)
        assert [(each.file, each.what) for each in report.findings] == []


def _expected(directory: Path) -> ExpectedLog:
    bases = segment_bases(directory)
    active = directory / segment_file_name(bases[-1], LOG)
    return ExpectedLog(
        log_start_offset=bases[0],
        log_end_offset=cleaned_batches(active)[-1].fields[2] + 1,
        active_base_offset=bases[-1],
        active_size_bytes=active.stat().st_size,
        topic_id=TOPIC_ID,
        leader_epoch=0,
        has_gaps=True,
    )


def test_clients_when_they_read_what_both_cleaned_then_the_same(
    results: list[_Result], toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A consumer sees no difference: bounds, and records of either isolation."""
    last = results[-1]
    with KafkaBroker(toolbox, tmp_path_factory.mktemp("clients")) as broker:
        broker.format()
        broker.start()
        config = {"retention.ms": -1, "min.cleanable.dirty.ratio": 1, "cleanup.policy": "compact"}
        copies = {f"ours.{case}": last.ours[case] for case in _CASES}
        copies |= {f"theirs.{case}": last.theirs[case] for case in _CASES}
        broker.create_topics(*(TopicSpec(name=name, config=config) for name in copies))
        broker.stop()
        for name, directory in copies.items():
            _replace(broker.log_dir / f"{name}-0", directory)
        broker.forget_clean_shutdown()
        broker.start()
        for isolation in ("read_committed", "read_uncommitted"):
            records = read_with_confluent(broker.bootstrap, dict.fromkeys(copies, 1), isolation)
            for case in _CASES:
                assert records[f"ours.{case}", 0] == records[f"theirs.{case}", 0], (case, isolation)
        with closing(confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "b"})) as consumer:
            for case in _CASES:
                bounds = [
                    consumer.get_watermark_offsets(confluent_kafka.TopicPartition(f"{side}.{case}", 0), timeout=30)
                    for side in ("ours", "theirs")
                ]
                assert bounds[0] == bounds[1], case
