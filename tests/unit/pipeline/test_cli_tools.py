import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.golden import GoldenLog, golden_logs
from tests.build.sink_store import in_process, open_store, rows
from tests.sparklog_command import Sparklog

_START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with topic `t`: 60 records in partition 0, 3 in partition 1, none in partition 2; and an empty `u`."""
    store = tmp_path_factory.mktemp("tools") / "store"
    settings = {"partitions": 3, "segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100}
    writer = open_store(store, {"t": settings, "u": {}}, topic="t")
    partitions = [0] * 60 + [1] * 3
    frame = rows(
        partition=partitions,
        key=[None if number % 5 == 0 else f"k{number}" for number in range(63)],
        value=[f"value\t{number}\\" for number in range(63)],
        timestamp=[_START_MS + 1000 * number for number in range(63)],
        headers=[[{"key": "h", "value": b"\xff"}] if number == 60 else [] for number in range(63)],
    )
    writer.append("q", 0, in_process(frame))
    writer.close()
    return store


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    """A copy of the store that a test may damage."""
    return Path(shutil.copytree(written, tmp_path / "store"))


def test_describe_when_asked_for_json_then_offsets_segments_and_sizes(sparklog: Sparklog, written: Path) -> None:
    """A store's description names its ledger's version and every log, empty ones too."""
    (described,) = sparklog("describe", written, "--json").objects
    logs = described["logs"]

    assert isinstance(logs, list)
    assert [each["log"] for each in logs] == ["t-0", "t-1", "t-2", "u-0"]
    assert [each["log_end_offset"] for each in logs] == [60, 3, 0, 0]
    assert isinstance(described["ledger_version"], int)
    assert len(logs[0]["segments"]) == 3
    files = (written / "logs" / "t-0").glob("*.log")
    assert logs[0]["size_bytes"] == sum(path.stat().st_size for path in files)
    assert logs[0]["max_timestamp_ms"] == _START_MS + 59_000


def test_describe_when_topic_is_named_then_a_row_per_segment(sparklog: Sparklog, written: Path) -> None:
    """People get a table, one row per log; with a topic its segments too."""
    short, long = sparklog("describe", written), sparklog("describe", written, "t")

    assert "t-0" in short.out
    assert "00000000000000000000" not in short.out
    assert "00000000000000000000" in long.out
    assert "u-0" not in long.out
    assert "2023-11-14T22:14:19.000Z" in long.out


def test_describe_when_folder_is_no_store_then_logs_speak_for_themselves(sparklog: Sparklog, written: Path) -> None:
    """A folder of log directories is described without a ledger, and so is one log directory."""
    (folder,) = sparklog("describe", written / "logs", "--json").objects
    (single,) = sparklog("describe", written / "logs" / "t-1", "--json").objects

    assert (folder["ledger_version"], len(folder["logs"])) == (None, 4)
    assert [each["log_end_offset"] for each in single["logs"]] == [3]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("latest", ["t:0:60", "t:1:3", "t:2:0"]),
        ("-1", ["t:0:60", "t:1:3", "t:2:0"]),
        ("earliest", ["t:0:0", "t:1:0", "t:2:0"]),
        ("max-timestamp", ["t:0:59", "t:1:2", "t:2:-1"]),
        (str(_START_MS + 58_001), ["t:0:59", "t:1:0", "t:2:-1"]),
        (str(_START_MS + 99_000), ["t:0:-1", "t:1:-1", "t:2:-1"]),
    ],
)
def test_offsets_when_asked_for_a_time_then_offset_per_log(
    sparklog: Sparklog, written: Path, time: str, expected: list[str]
) -> None:
    """A line per log in the shape of Kafka's own tool; -1 where no record is that late."""
    assert sparklog("offsets", written, "t", f"--time={time}").out.splitlines() == expected


def test_offsets_when_asked_for_json_then_timestamp_found_too(sparklog: Sparklog, written: Path) -> None:
    """JSON has the timestamp of the record found, and nulls where there is none."""
    time = _START_MS + 500

    assert sparklog("offsets", written, "t:0", f"--time={time}", "--json").objects == [
        {"topic": "t", "partition": 0, "offset": 1, "timestamp": _START_MS + 1000}
    ]
    assert sparklog("offsets", written, "t:2", f"--time={time}", "--json").objects[0]["offset"] is None


def test_read_when_as_text_then_place_time_key_value_headers(sparklog: Sparklog, written: Path) -> None:
    """Fields stand between tabs; bytes that are no text, and tabs inside, are escaped."""
    assert sparklog("read", written, "t:1").out.splitlines()[0] == (
        "t:1:0\t2023-11-14T22:14:20.000Z\tnull\tvalue\\t60\\\\\th=\\xff"
    )


def test_read_when_limited_then_so_many_over_all_partitions(sparklog: Sparklog, written: Path) -> None:
    """`--max` counts over the logs, which come one after the other."""
    lines = sparklog("read", written, "t", "--max", "62").out.splitlines()

    assert [line.split("\t")[0] for line in lines[-3:]] == ["t:0:59", "t:1:0", "t:1:1"]
    assert sparklog("read", written, "t", "--max", "0") == (0, "", "")


def test_read_when_from_an_offset_then_starts_there(sparklog: Sparklog, written: Path) -> None:
    """`--from` is an offset of one log."""
    lines = sparklog("read", written, "t:0", "--from", "58", "--json").objects

    assert [line["offset"] for line in lines] == [58, 59]


def test_read_when_from_a_time_then_each_log_starts_there(sparklog: Sparklog, written: Path) -> None:
    """`--from-time` starts each log at its first record of that time, and passes over logs without one."""
    lines = sparklog("read", written, "t", "--from-time", _START_MS + 59_000).out.splitlines()

    assert [line.split("\t")[0] for line in lines] == ["t:0:59", "t:1:0", "t:1:1", "t:1:2"]


def _place(name: str) -> dict[str, object]:
    """What a line says of where its record lies."""
    topic, _, partition = name.partition(":")
    return {"topic": topic, "partition": int(partition)}


@pytest.mark.parametrize("golden", golden_logs())
def test_read_when_as_json_then_objects_as_the_golden_logs_have_them(sparklog: Sparklog, golden: GoldenLog) -> None:
    """`--json` prints what a consumer read from a real broker's log, field for field."""
    name = f"{golden.directory.name.removesuffix('-0')}:0"

    ran = sparklog("read", golden.folder, name, "--from", golden.expected["log_start_offset"], "--json")

    assert ran.objects == [_place(name) | record for record in golden.expected["records"]]


@pytest.mark.parametrize("golden", golden_logs())
def test_read_when_committed_records_are_wanted_then_those_that_a_consumer_got(
    sparklog: Sparklog, golden: GoldenLog
) -> None:
    """`--isolation read_committed` leaves out what was aborted, and ends at the last stable offset."""
    name = f"{golden.directory.name.removesuffix('-0')}:0"
    start = golden.expected["log_start_offset"]

    ran = sparklog("read", golden.folder, name, "--from", start, "--json", "--isolation", "read_committed")

    wanted = set(golden.expected["read_committed_offsets"])
    kept = [record for record in golden.expected["records"] if record["offset"] in wanted]
    assert ran.objects == [_place(name) | record for record in kept]


@pytest.mark.parametrize("golden", golden_logs("v2-transactional-open*"))
def test_describe_when_a_transaction_is_open_then_says_how_much_of_the_log_waits_for_it(
    sparklog: Sparklog, golden: GoldenLog
) -> None:
    """Offsets and bytes from the last stable offset to the end; readers of committed records see none of these."""
    topic = golden.directory.name.removesuffix("-0")
    expected = golden.expected
    count = expected["high_watermark"] - expected["last_stable_offset"]

    ran = sparklog("describe", golden.folder, topic, "--json")
    above = ran.objects[0]["logs"][0]["above"]["last_stable_offset"]

    assert count > 0
    assert above["offsets"] == count
    assert f"{count:,} offsets" in sparklog("describe", golden.folder, topic).out
    assert above["bytes"] is None or above["bytes"] > 0


@pytest.mark.parametrize(("isolation", "key"), [("uncommitted", "high_watermark"), ("committed", "last_stable_offset")])
@pytest.mark.parametrize("golden", golden_logs("v2-transactional*"))
def test_offsets_when_isolation_is_given_then_latest_is_the_end_that_it_sees(
    sparklog: Sparklog, golden: GoldenLog, isolation: str, key: str
) -> None:
    """The latest offset is the log's end, or the last stable one."""
    name = golden.directory.name.removesuffix("-0")

    ran = sparklog("offsets", golden.folder, name, "--isolation", f"read_{isolation}")

    assert ran.out == f"{name}:0:{golden.expected[key]}\n"


def test_offsets_when_record_at_a_time_is_not_stable_then_not_found(sparklog: Sparklog) -> None:
    """A record behind the last stable offset is no answer under read_committed."""
    (golden,) = (each.values[0] for each in golden_logs("v2-transactional-open"))
    options = (golden.folder, "v2-transactional-open", "--time", "max-timestamp")

    assert sparklog("offsets", *options).out == "v2-transactional-open:0:5\n"
    assert sparklog("offsets", *options, "--isolation", "read_committed").out == "v2-transactional-open:0:-1\n"


def test_read_when_offset_is_outside_then_exit_code_1_and_range(sparklog: Sparklog, written: Path) -> None:
    """An offset outside the log is an error that names the range."""
    ran = sparklog("read", written, "t:1", "--from", "9")

    assert ran.code == 1
    assert ran.err.startswith("error: offset 9 is outside 0..3: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", "{store}", "t", "--from", "1"),
        ("read", "{store}", "t:0", "--from", "1", "--from-time", "2"),
        ("offsets", "{store}", "t", "--time", "soon"),
        ("describe", "{store}/nowhere"),
        ("verify",),
        ("dump-log",),
        ("dump-log", "--files", "x.log", "--max-bytes", "-1"),
    ],
)
def test_tools_when_used_wrongly_then_exit_code_2(
    sparklog: Sparklog, written: Path, arguments: tuple[str, ...]
) -> None:
    """Wrong use is told apart from damage."""
    assert sparklog(*(each.format(store=written) for each in arguments)).code == 2


@pytest.mark.parametrize("name", ["x", "t:7", "t:", "u:0:0"])
def test_tools_when_log_does_not_exist_then_named_with_the_topics(sparklog: Sparklog, written: Path, name: str) -> None:
    """An unknown topic or partition is an error that lists the topics."""
    ran = sparklog("read", written, name)

    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: no log of that name: name={name} topics=t, u\n"


def test_verify_when_store_is_sound_then_exit_code_0_and_counts(sparklog: Sparklog, written: Path) -> None:
    """A sound store, some of its logs empty, is told in one line."""
    ran = sparklog("verify", written)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("sound: 4 logs, ")
    assert sparklog("verify", written / "logs", "--deep").code == 0


def test_verify_when_a_byte_is_flipped_then_file_position_and_offsets(sparklog: Sparklog, store: Path) -> None:
    """Damage is named with its file, position and offsets, for people and as JSON."""
    file = sorted((store / "logs" / "t-0").glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)

    ran = sparklog("verify", store)
    finding, summary = sparklog("verify", store, "--json").objects

    assert ran.code == 1
    assert ran.out.startswith(f"damage: t-0/{file.name} position=")
    assert " offsets=" in ran.out
    assert ran.out.splitlines()[-1].startswith("NOT sound: ")
    assert (summary["sound"], summary["findings"]) == (False, 1)
    assert (finding["kind"], finding["rule"], finding["file"]) == ("damage", "crc", file.name)
    assert "repair --execute" in str(finding["remedy"])


def test_verify_when_bytes_lie_behind_the_committed_end_then_noted_but_sound(sparklog: Sparklog, store: Path) -> None:
    """What a killed or a running writer leaves behind the ledger's end is no damage."""
    file = sorted((store / "logs" / "t-1").glob("*.log"))[-1]
    file.write_bytes(file.read_bytes() + b"half a batch")
    (store / "writer.lock").write_text('{"pid": 1}')
    (store / "logs" / "new-0").mkdir()

    ran = sparklog("verify", store)

    assert ran.code == 0
    assert [line.split(":")[0] for line in ran.out.splitlines()] == ["uncommitted", "uncommitted", "sound"]


def test_verify_when_there_is_nothing_to_check_then_exit_code_1(sparklog: Sparklog, tmp_path: Path) -> None:
    """A folder without a batch is not sound: somebody named the wrong one."""
    (tmp_path / "t-0").mkdir()

    ran = sparklog("verify", tmp_path)

    assert ran.code == 1
    assert ran.out.startswith("nothing: ")


def test_verify_when_ledger_is_damaged_then_exit_code_1_and_one_line(sparklog: Sparklog, store: Path) -> None:
    """A store whose ledger can't be read is said to be so; nothing is guessed from its files."""
    for entry in (store / "ledger" / "_delta_log").glob("*.json"):
        entry.write_text("{")

    ran = sparklog("verify", store)

    assert ran.code == 1
    assert ran.err.startswith("error: the ledger can't be read")
    assert ran.err.count("\n") == 1


def test_dump_log_when_files_are_named_then_shown_in_order(sparklog: Sparklog, written: Path) -> None:
    """Files are separated by commas, and options are Kafka's."""
    base = written / "logs" / "t-1" / "00000000000000000000"

    ran = sparklog("dump-log", "--files", f"{base}.log,{base}.timeindex", "--deep-iteration")

    assert ran.code == 0
    assert ran.out.count("Dumping ") == 2
    assert "| offset: 2 CreateTime: 1700000062000 keySize: 3" in ran.out


def test_dump_log_when_as_json_then_an_object_a_line(sparklog: Sparklog, written: Path) -> None:
    """Batches and records are objects, which say what they are and where they are from."""
    path = written / "logs" / "t-1" / "00000000000000000000.log"

    ran = sparklog("dump-log", "--files", path, "--print-data-log", "--json")

    assert ran.code == 0
    assert {each["type"] for each in ran.objects} == {"log", "batch", "record"}
    assert {each["file"] for each in ran.objects} == {str(path)}


def test_dump_log_when_decoder_is_not_offered_then_named(sparklog: Sparklog) -> None:
    """An option of Kafka's tool that is not here is no unknown option."""
    ran = sparklog("dump-log", "--files", "x.log", "--transaction-log-decoder")

    assert ran.code == 2
    assert "--transaction-log-decoder is not offered" in ran.err


def test_dump_log_when_file_is_unknown_then_exit_code_1(sparklog: Sparklog, tmp_path: Path) -> None:
    """A file of no known kind is ignored with a line on stderr."""
    ran = sparklog("dump-log", "--files", tmp_path / "notes.txt")

    assert ran.code == 1
    assert "Ignoring unknown file" in ran.err


def test_command_when_asked_for_help_then_neither_spark_nor_kernels_are_loaded(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Help comes at once."""
    program = (
        "import sys, sparklog.pipeline.command.cli\n"
        "try: sparklog.pipeline.command.cli.main(['verify', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('pyspark', 'numba', 'pyarrow', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "verb",
    [
        ["offsets", "", "t"],
        ["offsets", "", "t", "--time", str(_START_MS + 2500)],
        ["offsets", "", "t", "--time", "max-timestamp", "--isolation", "read_committed"],
        ["offsets", "logs", "t"],
        ["describe", ""],
        ["describe", "", "t"],
        ["describe", "logs", "t", "--json"],
        ["read", "", "t:0", "--max", "3"],
        ["read", "", "t", "--json", "--isolation", "read_committed"],
        ["read", "logs", "t", "--from-time", str(_START_MS + 2500), "--max", "3", "--raw"],
    ],
    ids=" ".join,
)
def test_command_when_few_batches_are_read_then_no_heavy_library_is_loaded(written: Path, verb: list[str]) -> None:
    """A short answer does not wait for kernels, nor for libraries that it has no need of."""
    heavy = ("numba", "pandas", "pyarrow.compute", "pyspark", "yaml")
    program = (
        "import sys, sparklog.pipeline.command.cli\n"
        f"try: sparklog.pipeline.command.cli.main({[verb[0], str(written / verb[1]), *verb[2:]]})\n"
        "except SystemExit as end: assert not end.code, end\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert len(done.stdout.splitlines()) > 1
    assert done.stdout.splitlines()[-1] == "[]"


def test_dump_log_when_no_file_is_named_then_wrong_use(sparklog: Sparklog) -> None:
    """Commas alone name nothing, and nothing dumped is no success."""
    assert sparklog("dump-log", "--files", ",").code == 2


def test_read_when_max_passes_int64_then_all_records(sparklog: Sparklog, written: Path) -> None:
    """Any number of records may be asked for."""
    ran = sparklog("read", written, "t:1", "--max", 10**24)

    assert (ran.code, len(ran.out.splitlines())) == (0, 3)


def test_tools_when_a_log_dir_is_gone_then_verify_names_its_logs_and_others_are_read(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """A lost disk takes its own logs along, not the others."""
    disks = (tmp_path / "a", tmp_path / "b")
    writer = open_store(
        tmp_path / "s", {"t": {"partitions": 2}}, topic="t", log_dirs=tuple(str(disk) for disk in disks)
    )
    writer.append("q", 0, in_process(rows(partition=[0, 1], value=["x", "y"], timestamp=[1, 2])))
    writer.close()
    lost = next(path.name for path in disks[1].iterdir() if path.is_dir())
    shutil.rmtree(disks[1])

    verified, read = sparklog("verify", tmp_path / "s"), sparklog("read", tmp_path / "s", f"t:{1 - int(lost[-1])}")

    assert (verified.code, read.code, len(read.out.splitlines())) == (1, 0, 1)
    assert f"missing: {lost}/{lost} offsets=0..0" in verified.out
