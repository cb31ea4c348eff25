"""The verdict of Kafka's own dump tool on every segment and index file below a folder.

    python -m tests.kafka.judge FOLDER [--gaps-allowed]

Exit status 0: nothing wrong. 1: something is, or there was nothing to judge. 2: Kafka cannot be had.

Source: Kafka DumpLogSegments. One of its messages is a false alarm since 4.3 and filtered out, see `FINDINGS.md`.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka.toolbox import KafkaToolbox, KafkaUnavailableError, StreamedRun

__all__ = ["Verdict", "file_groups", "judge_directory", "main"]

DUMP_CLASS = "org.apache.kafka.tools.DumpLogSegments"
_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB in one argument; the file names are one

_BATCH = re.compile(
    rb"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) .* isvalid: (?P<valid>true|false)$"
)
_RECORD = re.compile(rb"\| offset: \d+ ")
_QUIET_INDEX_LINE = re.compile(rb"(Dumping .+|.+ passed sanity check\.|.+ is empty\.)$")
_GAP_TITLE = "Non-consecutive offsets in "
_GAP = re.compile(r"  (?P<before>-?\d+) is followed by (?P<after>\d+)$")


@dataclass(slots=True)
class Verdict:
    """What the dump tool made of a folder.

    Attributes:
        logs, indexes: files looked at, offset and time indexes together.
        batches, records: what the tool found in the logs.
        findings: everything that is wrong, in the tool's words.
        gaps: places where offsets are not consecutive inside a segment, in the tool's words.
        false_alarms: gaps "after offset -1", which the tool reports for every segment that does not start at 0.
    """

    logs: int = 0
    indexes: int = 0
    batches: int = 0
    records: int = 0
    findings: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    false_alarms: int = 0

    def __str__(self) -> str:
        return (
            f"logs={self.logs} indexes={self.indexes} batches={self.batches} records={self.records} "
            f"gaps={len(self.gaps)} false_alarms={self.false_alarms} findings={len(self.findings)}"
        )


def judge_directory(folder: Path, toolbox: KafkaToolbox | None = None, *, gaps_allowed: bool = False) -> Verdict:
    """Return what Kafka's dump tool says of every `.log`, `.index` and `.timeindex` below a folder.

    Args:
        folder: a log directory, or anything above log directories.
        toolbox: Kafka's jars; fetched when not given.
        gaps_allowed: whether offsets may jump, as they do in a mirror of a topic with gaps.

    Raises:
        KafkaUnavailableError: the jars cannot be had.
    """
    toolbox = toolbox or KafkaToolbox.obtain()
    verdict = Verdict()
    logs = sorted(folder.rglob("*.log"))
    indexes = sorted([*folder.rglob("*.index"), *folder.rglob("*.timeindex")])
    for group in file_groups(logs):
        _dump_logs(toolbox, group, verdict)
    for option in ("--index-sanity-check", "--verify-index-only"):
        for group in file_groups(indexes):
            _check_indexes(toolbox, option, group, verdict)
    verdict.logs, verdict.indexes = len(logs), len(indexes)
    if not logs:
        verdict.findings.append(f"there is no segment below {folder}")
    if verdict.gaps and not gaps_allowed:
        verdict.findings += verdict.gaps
    return verdict


def _dump_logs(toolbox: KafkaToolbox, files: Sequence[Path], verdict: Verdict) -> None:
    arguments = ("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)))
    announced = 0
    printed = 0
    with toolbox.streamed(DUMP_CLASS, *arguments) as run:
        for line in run.stdout:
            if _RECORD.match(line):
                printed += 1
            elif batch := _BATCH.match(line.rstrip()):
                verdict.batches += 1
                announced += int(batch["count"])
                if batch["valid"] != b"true":
                    verdict.findings.append(f"invalid batch: {line.decode(errors='replace').strip()}")
            elif line.startswith(b"Found ") and b" invalid bytes at the end of " in line:
                verdict.findings.append(line.decode(errors="replace").strip())
    verdict.records += printed
    if announced != printed:
        verdict.findings.append(f"batches announce {announced} records, the tool printed {printed}")
    _judge_end(run, verdict)


def _check_indexes(toolbox: KafkaToolbox, option: str, files: Sequence[Path], verdict: Verdict) -> None:
    sane = 0
    with toolbox.streamed(DUMP_CLASS, option, "--files", ",".join(map(str, files))) as run:
        for line in run.stdout:
            sane += line.endswith((b" passed sanity check.\n", b" is empty.\n"))
            if not _QUIET_INDEX_LINE.match(line.rstrip()):
                verdict.findings.append(f"{option}: {line.decode(errors='replace').strip()}")
    if option == "--index-sanity-check" and sane != len(files):
        verdict.findings.append(f"{option}: {sane} of {len(files)} indexes passed")
    _judge_end(run, verdict)


def _judge_end(run: StreamedRun, verdict: Verdict) -> None:
    """Sort the tool's errors, which follow its whole output, into false alarms, gaps and findings."""
    path = ""
    for line in run.stderr:
        if line.startswith(_GAP_TITLE):
            path = line.removeprefix(_GAP_TITLE)
        elif path and (gap := _GAP.match(line)):
            if gap["before"] == "-1":
                verdict.false_alarms += 1
            elif int(gap["after"]) > int(gap["before"]):
                verdict.gaps.append(f"{path}: offset {gap['before']} is followed by {gap['after']}")
            else:
                verdict.findings.append(f"{path}: offset {gap['before']} is followed by {gap['after']}")
        else:
            path = ""
            verdict.findings.append(line)
    if run.exit_status != 0:
        verdict.findings.append(f"the tool ended with exit status {run.exit_status}")


def file_groups(files: Iterable[Path]) -> Iterator[list[Path]]:
    """Cut the files into lists that fit one argument each."""
    group: list[Path] = []
    size = 0
    for each in files:
        if "," in str(each):
            raise ValueError(f"the dump tool cannot take a path with a comma: {each}")
        if group and size + len(str(each)) + 1 > _ARGUMENT_BYTES:
            yield group
            group, size = [], 0
        group.append(each)
        size += len(str(each)) + 1
    if group:
        yield group


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge one folder and print the verdict; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.judge", description="Kafka's dump tool on every file")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gaps-allowed", action="store_true", help="offsets may jump inside a segment")
    options = parser.parse_args(arguments)
    try:
        verdict = judge_directory(options.folder, gaps_allowed=options.gaps_allowed)
    except KafkaUnavailableError as error:
        print(f"KAFKA DID NOT JUDGE: {error}", file=sys.stderr)
        return 2
    print(f"{options.folder}: {verdict}")
    for finding in verdict.findings:
        print(f"  {finding}")
    return 1 if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main())
