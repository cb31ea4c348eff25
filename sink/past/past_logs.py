"""Rows of an earlier state that something reads, and the check that nothing has overtaken them."""

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.past.cuts import Cut, CutTable, cuts_path
from sparklog.sink.past.judge_past import Judgement, LogsNow, find_loss
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["PastLogs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLogs:
    """Rows of logs as they were; crosses to executors.

    Attributes:
        ledger_path: of the store's ledger; the cuts are beside it.
        what: names the state.
        states: the rows.
        directories: of these logs today.
    """

    ledger_path: str
    what: str
    states: tuple[LogState, ...]
    directories: tuple[str, ...]

    def require_readable(self) -> dict[TopicPartition, Judgement]:
        """Return what of each log can be read today, whole or shortened.

        Called after a reading, it finds what has overtaken it: a compaction commits how far it will come before it
        begins.

        Raises:
            InvalidConfigError: a log can't be read any more; the message names the cause, and the oldest cut that can.
        """
        directories = map(Path, self.directories)
        places = {state.log: directory for state, directory in zip(self.states, directories, strict=True)}
        now = LogsNow(Ledger.open(Path(self.ledger_path)).states(), places)
        judged = now.judge({each.log: each for each in self.states})
        if passed := {log: each.reason for log, each in judged.items() if each.state == "passed"}:
            log = min(passed)
            raise InvalidConfigError(
                f"{self.what} can't be read any more: log={log}: {passed[log]}; {self._what_is_left(now)}"
            )
        return judged

    def _what_is_left(self, now: LogsNow) -> str:
        """Name the oldest cut of which all of these logs can be read.

        Reads few of the cuts: the oldest ones have lost records or lack logs. A truncation may have passed those after.
        """
        table = CutTable(cuts_path(Path(self.ledger_path).parent))
        times = table.times()

        def is_kept(cut_ms: int) -> bool:
            past = self._states_in(table.read(cut_ms))
            is_whole = all(find_loss(state, now.rows.get(log)) is None for log, state in past.items())
            return is_whole and len(past) == len(self.states)

        for cut_ms in times[bisect_left(times, True, key=is_kept) :]:
            judged = now.judge(self._states_in(table.read(cut_ms)))
            if len(judged) == len(self.states) and all(each.state != "passed" for each in judged.values()):
                return f"the oldest cut that can be read is of {iso_time(cut_ms)}"
        return "no cut of it can be read; name fewer topics"

    def _states_in(self, cut: Cut) -> dict[TopicPartition, LogState]:
        rows, logs = cut.rows, [each.log for each in self.states]
        return {log: rows.state(rows.number_of[log]) for log in logs if log in rows.number_of}
