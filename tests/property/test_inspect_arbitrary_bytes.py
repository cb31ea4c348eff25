import contextlib
import io
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.inspect.describe_log import describe_log
from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.written_log import Batch, encode_batch, write_log

_SOUND = encode_batch(Batch([5, 6]), 0)
_PIECES = st.one_of(
    st.binary(max_size=80),
    st.just(_SOUND),
    st.builds(lambda at, new: _SOUND[:at] + new + _SOUND[at + len(new) :], st.integers(0, 90), st.binary(max_size=9)),
    st.builds(bytes, st.integers(0, 100)),
)
_CONTENTS = st.lists(_PIECES, max_size=5).map(b"".join)


@settings(deadline=None, max_examples=150)
@given(_CONTENTS, st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=50))
def test_inspecting_arbitrary_files_reports_and_never_breaks(
    log: bytes, index: bytes, times: bytes, rest: bytes
) -> None:
    """Whatever the files hold: verifying and dumping end with findings, reading with an error of ours."""
    with tempfile.TemporaryDirectory() as folder:
        directory = write_log(Path(folder) / "t-0", [[Batch([1, 2])], [Batch([3])]]).directory
        names = [
            f"00000000000000000002{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        ]
        names += ["leader-epoch-checkpoint", "partition.metadata"]
        for name, content in zip(names, (log, index, times, rest, rest, rest, rest), strict=True):
            (directory / name).write_bytes(content)

        verify_directory(directory, deep=True)
        files = [directory / name for name in names]
        dump_log(files, DumpOptions(print_data_log=True), io.StringIO(), io.StringIO())
        for act in (_read, describe_log):
            with contextlib.suppress(LogStorageError):
                act(directory)


def _read(directory: Path) -> None:
    reader = LogReader(directory)
    reader.offset_for_time(2)
    reader.offset_of_max_timestamp()
    for _ in reader.read(reader.log_start_offset):
        pass
