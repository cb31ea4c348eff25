import io
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from tests.plain.legacy_scalar import decode_log
from tests.property.legacy_strategies import mixed_batches


def _dump(data: bytes, **options: bool) -> tuple[bool, list[str], str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "00000000000000000000.log"
        path.write_bytes(data)
        out, err = io.StringIO(), io.StringIO()
        fine = dump_log([path], DumpOptions(**options), out, err)  # type: ignore[arg-type]
    return fine, out.getvalue().split("\n"), err.getvalue()


@given(mixed_batches)
def test_dumped_records_are_those_of_the_scalar_twin(batches: list[bytes]) -> None:
    """Formats in any order: a line per record, with its offset, time and sizes, and nothing is damaged."""
    fine, lines, _ = _dump(b"".join(batches), deep_iteration=True)
    names = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
    expected = [
        f"| offset: {each.offset} {names[kind]}: {each.timestamp}"
        f" keySize: {-1 if each.key is None else len(each.key)}"
        f" valueSize: {-1 if each.value is None else len(each.value)}"
        for each, kind in decode_log(b"".join(batches))
    ]
    shown = [line.split(" sequence: ")[0].split(" isValid: ")[0] for line in lines if line.startswith("| ")]

    assert fine
    assert shown == expected


@given(mixed_batches, st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4))
@settings(max_examples=200)
def test_dumps_of_damaged_logs_agree_with_each_other(batches: list[bytes], changes: list[tuple[int, int]]) -> None:
    """Whatever is damaged: text and JSON show as many batches and records, and find the same wrong."""
    data = bytearray(b"".join(batches))
    for place, value in changes:
        if data:
            data[place % len(data)] = value
    text, objects = _dump(bytes(data), deep_iteration=True), _dump(bytes(data), print_data_log=True, json=True)
    found = [json.loads(line)["type"] for line in objects[1] if line]

    assert (text[0], len(text[2].splitlines())) == (objects[0], len(objects[2].splitlines()))
    assert found.count("batch") == sum(" isvalid: " in line for line in text[1])
    assert found.count("record") == sum(line.startswith("| ") for line in text[1])
