"""Checks the logs of a store of objects, some after the other, in copies of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sparklog.pipeline.checks.verify_logs import VerifyResult, verify
from sparklog.pipeline.objects.fetched_parts import UnfetchedLog, fetched_parts, plan_parts
from sparklog.pipeline.places.forgotten_findings import forgotten_in_objects
from sparklog.sink.objects.ledger_part import LedgerPart
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.inspect.verify.findings import Finding, LogReport
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["CheckedPart", "check_parts", "verify_objects"]


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """What was found in some logs.

    Attributes:
        unread: logs that can't be copied; each has a finding.
    """

    logs: Sequence[LogReport] = ()
    findings: Sequence[Finding] = ()
    unread: Sequence[TopicPartition] = field(default_factory=tuple)


def verify_objects(
    place: StoragePlace,
    report: Callable[[Finding], None],
    *,
    deep: bool = False,
    jobs: int | None = None,
    parts_of: Callable[[ObjectLedger, list[list[TopicPartition]]], Iterable[CheckedPart]] | None = None,
    part_bytes: int = 1 << 30,
) -> VerifyResult:
    """Check every log; report findings as they come.

    Args:
        deep, jobs: as of `verify`.
        parts_of: checks each of some lists of logs; None for one after the other, here.
        part_bytes: about so many bytes are copied at a time.

    Raises:
        LogStorageError: the ledger can't be read, or the storage does not answer.
    """
    ledger, result, unread = ObjectLedger.open(place), VerifyResult(), set[TopicPartition]()
    parts = plan_parts(ledger, part_bytes)
    checked = check_parts(ledger, parts, deep=deep, jobs=jobs) if parts_of is None else parts_of(ledger, parts)
    for part in checked:
        result.logs += part.logs
        unread.update(part.unread)
        result.add(part.findings, report)
    if not any(each.batches for each in result.logs) and result.is_clean:
        what, name = "no batch was found, so there is nothing to check", str(place.address)
        result.add([Finding(log=name, file=name, kind="nothing", rule="nothing", what=what)], report)
    result.add(forgotten_in_objects(place, unread), report)
    return result


def check_parts(
    ledger: ObjectLedger | LedgerPart, parts: Iterable[Sequence[TopicPartition]], *, deep: bool, jobs: int | None
) -> Iterator[CheckedPart]:
    """Check lists of logs one after the other; yield what was found, a list's logs all at once or some at a time.

    Raises:
        LogStorageError: as `verify_objects`.
    """
    for part in fetched_parts(ledger, parts):
        if isinstance(part, UnfetchedLog):
            log = str(part.log)
            missing = Finding(log=log, file=log, kind="missing", rule="object", what=part.error)
            yield CheckedPart(findings=[missing], unread=[part.log])
            continue
        checked = verify(part, lambda _finding: None, deep=deep, jobs=jobs)
        yield CheckedPart(checked.logs, [each for each in checked.findings if each.kind != "nothing"])
