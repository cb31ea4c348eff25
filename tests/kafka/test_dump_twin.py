"""Our dump beside Kafka's own, over the same files with the same options: what they print must be one."""

import io
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from storage_core.inspect.dump_log import DumpOptions, dump_log
from tests.kafka.toolbox import KafkaToolbox

pytestmark = pytest.mark.kafka

_GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
_LOG, _INDEX, _TIMES = (f"00000000000000000000{suffix}" for suffix in (".log", ".index", ".timeindex"))


def _theirs(toolbox: KafkaToolbox, files: list[Path], options: dict[str, bool | int]) -> tuple[str, str]:
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


def _ours(files: list[Path], options: dict[str, bool | int]) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    dump_log(files, DumpOptions(**options), out, err)  # type: ignore[arg-type]
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
@pytest.mark.parametrize("case", ["v2-compact-after", "v2-transactional"])
def test_dump_log_when_option_given_then_prints_what_kafka_prints(
    toolbox: KafkaToolbox, case: str, options: dict[str, bool | int]
) -> None:
    """Every option changes our output as it changes that of Kafka's tool."""
    directory = _GOLDEN / case / f"{case.removesuffix('-after')}-0"
    files = sorted(path for path in directory.iterdir() if path.suffix)[:8]

    assert _ours(files, options) == _theirs(toolbox, files, options)


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
