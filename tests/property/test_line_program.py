import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.inspect.dump.line_order import interleaved, merge_lines
from sparklog.storage_core.inspect.dump.line_program import Contents, LineProgram

_INT64S = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 9, 10, -1, -(2**63), 2**63 - 1])
_TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_ROWS = st.lists(st.tuples(_INT64S, st.integers(0, 2), st.integers(0, 1), _TEXTS, _TEXTS), max_size=20)
_WORDS = ("", "zwölf", "three")

_PROGRAM = (
    LineProgram()
    .text("§ ")
    .number(0)
    .text("[")
    .number(0, shown_by=2)
    .text("]")
    .choice(1, *_WORDS)
    .content(1)
    .text("|")
    .content(0)
    .choice(2, "no", "yes")
    .text("\n")
)


def _line(row: tuple[int, int, int, str | None, str | None]) -> str:
    number, word, shown, first, second = row
    return f"§ {number}[{number if shown else ''}]{_WORDS[word]}{second or ''}|{first or ''}{('no', 'yes')[shown]}\n"


@given(_ROWS, st.integers(0, 3))
def test_rendered_lines_are_those_of_a_plain_format(
    rows: list[tuple[int, int, int, str | None, str | None]], skipped: int
) -> None:
    """A compiled line is what an f-string makes of the row, whatever its numbers and texts, also for a slice."""
    numbers = [np.array([row[column] for row in rows], np.int64) for column in range(3)]
    columns = [pa.array([row[column] for row in rows], pa.string()) for column in (3, 4)]
    expected = [_line(row) for row in rows]
    lines = _PROGRAM.render(numbers, Contents.of_columns(columns))

    assert lines.text() == "".join(expected)
    assert lines.ends.tolist() == np.cumsum([len(line.encode()) for line in expected], dtype=np.int64).tolist()
    part = Contents.of_columns([column.slice(skipped) for column in columns])
    assert _PROGRAM.render([column[skipped:] for column in numbers], part).text() == "".join(expected[skipped:])
    assert lines.some(slice(min(skipped, len(rows)), len(rows))).text() == "".join(expected[skipped:])


@given(st.lists(st.integers(0, 4), max_size=8), st.randoms(use_true_random=False))
def test_interleaved_lines_are_batches_with_their_records(counts: list[int], random: object) -> None:
    """Each batch's line comes before those of its records, however the records' lines were made."""
    total = sum(counts)
    is_odd = np.array([random.random() < 0.5 for _ in range(total)], np.bool_)  # type: ignore[attr-defined]
    batch, record = LineProgram().text("b").number(0).text("\n"), LineProgram().text("r").number(0).text("\n")

    def render(rows: slice) -> list[tuple[object, object]]:
        ids = np.arange(rows.start, rows.stop)
        odd = is_odd[rows]
        return [(record.render([ids[mine]]), np.flatnonzero(mine)) for mine in (odd, ~odd)]

    merged = interleaved(batch.render([np.arange(len(counts))]), np.array(counts, np.int64), render)  # type: ignore[arg-type]
    expected, row = [], 0
    for number, count in enumerate(counts):
        expected += [f"b{number}\n", *(f"r{place}\n" for place in range(row, row + count))]
        row += count

    assert "".join(lines.text() for lines in merged) == "".join(expected)


def test_interleaved_lines_when_records_are_many_then_in_slices() -> None:
    """Records come in slices; batches without records, also at the very end, are in their places."""
    counts = np.array([0, 70_000, 0, 0, 61_072, 0, 5, 0], np.int64)
    batch, record = LineProgram().text("b\n"), LineProgram().number(0).text("\n")
    pieces = list(
        interleaved(
            batch.render([np.arange(len(counts))]),
            counts,
            lambda rows: [(record.render([np.arange(rows.start, rows.stop)]), np.arange(rows.stop - rows.start))],
        )
    )
    lines = "".join(piece.text() for piece in pieces).splitlines()
    ids = [str(number) for number in range(int(counts.sum()))]

    assert len(pieces) == 3
    assert lines == ["b", "b", *ids[:70_000], "b", "b", "b", *ids[70_000:131_072], "b", "b", *ids[131_072:], "b"]


def test_merge_lines_when_there_are_none_then_nothing() -> None:
    """No lines are no text."""
    assert merge_lines([(LineProgram().text("x\n").render([np.arange(0)]), np.arange(0))]).text() == ""
