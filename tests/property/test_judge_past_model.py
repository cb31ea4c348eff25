"""A judgement against a plain list of records to which anything was done since."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.past.judge_past import judge_past
from sparklog.storage_core.checkpoint.leader_epochs import assign_leader_epoch, truncate_epochs_from_start

_Record = tuple[int, int]
"""Key and number; no two records have one number."""

_STATE = LogState(
    topic="t",
    partition=0,
    log_dir="logs",
    topic_id="A" * 22,
    log_start_offset=0,
    log_end_offset=0,
    recovery_point=0,
    active_base_offset=0,
    active_size_bytes=0,
    max_timestamp_ms=-1,
    leader_epoch=0,
    updated_ms=0,
)
_OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "truncate", "retain", "compact", "take"]), st.integers(0, 99)),
    max_size=12,
)


@dataclass
class _Log:
    """A log as what lies at its offsets."""

    records: dict[int, _Record] = field(default_factory=dict)
    state: LogState = _STATE
    epochs: list[tuple[int, int]] = field(default_factory=list)
    written: int = 0

    def apply(self, operation: str, number: int) -> None:
        start, end, epoch = self.state.log_start_offset, self.state.log_end_offset, self.state.leader_epoch
        if operation == "append":
            if not self.epochs or self.epochs[-1][0] < epoch:
                self.epochs = assign_leader_epoch(self.epochs, epoch, end)
            for offset in range(end, end + number % 7 + 1):
                self.records[offset] = (number % 3 + offset % 2, self.written)
                self.written += 1
            self.state = replace(self.state, log_end_offset=end + number % 7 + 1)
        elif operation == "truncate":
            offset = start + number * (end - start) // 100
            self.records = {each: record for each, record in self.records.items() if each < offset}
            self.epochs = assign_leader_epoch(self.epochs, epoch + 1, offset)
            compacted = min(self.state.compacted_offset, offset)
            self.state = replace(self.state, log_end_offset=offset, leader_epoch=epoch + 1, compacted_offset=compacted)
        elif operation == "retain":
            offset = start + number * (end - start) // 99
            self.records = {each: record for each, record in self.records.items() if each >= offset}
            self.epochs = truncate_epochs_from_start(self.epochs, offset)
            self.state = replace(self.state, log_start_offset=offset)
        elif operation == "compact":
            self._compact(max(start + number * (end - start) // 99, self.state.compacted_offset))
        else:
            self.state = replace(self.state, leader_epoch=epoch + 1)

    def _compact(self, offset: int) -> None:
        self.state = replace(self.state, compacted_offset=offset)
        last = {record[0]: each for each, record in sorted(self.records.items()) if each < offset}
        self.records = {
            each: record for each, record in self.records.items() if each >= offset or last[record[0]] == each
        }


def _last_of_each_key(records: dict[int, _Record]) -> dict[int, _Record]:
    return {record[0]: record for _, record in sorted(records.items())}


@given(_OPERATIONS, _OPERATIONS)
def test_judge_past_when_anything_was_done_since_then_never_says_more_than_is_there(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    """What is not passed has, above the start of today, the last record of each key that it had; uncompacted, each."""
    log = _Log()
    for operation in before:
        log.apply(*operation)
    past, had = log.state, dict(log.records)
    for operation in after:
        log.apply(*operation)

    found = judge_past(past, log.state, log.epochs)

    start, end = log.state.log_start_offset, past.log_end_offset
    has = {each: record for each, record in log.records.items() if each < end}
    wanted = {each: record for each, record in had.items() if each >= start}
    if found.state == "whole":
        wanted = had
    if found.state != "passed":
        if any(operation == "compact" for operation, _ in after):
            assert _last_of_each_key(has) == _last_of_each_key(wanted)
            assert has.items() <= wanted.items()
        else:
            assert has == wanted
    if {operation for operation, _ in after} <= {"append", "take"}:
        assert found.state == "whole"
