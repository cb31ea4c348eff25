import pytest

from sparklog.sink.spark.errors import explain, raised_in_task
from sparklog.storage_core.errors import CorruptBatchError

_WORKER_FAILED = (
    "An error occurred while calling o50.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage"
    " failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 6) (127.0.0.1"
    " executor 0): org.apache.spark.SparkException: \nError from python worker:\n  {said}\nPYTHONPATH was:\n  /spark/"
    "python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip:/spark/jars/spark-core_2.13-4.2.0.jar\n"
    "org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout"
    " and terminated with code: 1..\n\tat org.apache.spark.errors.SparkCoreErrors$.eof(SparkCoreErrors.scala:55)"
    "\n\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3318)"
)
_DAEMON_TRACE = (
    'Traceback (most recent call last):\n    File "<frozen runpy>", line 198, in _run_module_as_main\n'
    '    File "/spark/python/lib/pyspark.zip/pyspark/daemon.py", line 127, in manager\n'
)
_IMPORT_TRACE = (
    'Traceback (most recent call last):\n    File "<frozen runpy>", line 88, in _run_code\n'
    '    File "/opt/sparklog/pipeline/spark/worker_daemon.py", line 22, in <module>\n'
    "      import sparklog.pipeline.reader.read_task  # noqa: F401\n      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[A.B] no `x`. SQLSTATE: 42703; line 1 pos 0;\n'Project ['x]\n+- Range", "[A.B] no `x`."),
        ("\n[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 1, pos 5)\n\n== SQL ==", None),
        ("[STREAM_FAILED] Query [id = 1] terminated with exception: [X] gone SQLSTATE: 1\n=== Streaming", "[X] gone"),
        ("java.lang.IllegalArgumentException: bad interval\n\tat org.apache", "bad interval"),
        ("", "ValueError"),
        (
            "Job aborted: Task 0 in stage 2.0 failed 4 times, most recent failure: Lost task 0.3 in"
            " stage 2.0 (TID 2) (localhost executor driver): org.apache.spark.SparkException: [Y] broken\n\tat org",
            "[Y] broken",
        ),
        (
            "An error occurred while calling o691.localCheckpoint.\n: org.apache.spark.SparkException: Job aborted due"
            " to stage failure: Task 0 in stage 9.0 failed 1 times, most recent failure: Lost task 0.0 in stage 9.0"
            " (TID 9) (127.0.0.1 executor driver): org.apache.spark.SparkException: Python worker exited\n\tat org",
            "Python worker exited",
        ),
        (
            "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
            '  File "a.py", line 1, in run\n    go()\npackage.errors.OwnError: what it was\n\n\tat org.apache',
            "what it was",
        ),
        (
            _WORKER_FAILED.format(said=f"{_DAEMON_TRACE}  OSError: AF_UNIX path too long"),
            "OSError: AF_UNIX path too long",
        ),
        (
            _WORKER_FAILED.format(said=f"{_IMPORT_TRACE}  ModuleNotFoundError: No module named 'numpy'"),
            "ModuleNotFoundError: No module named 'numpy'",
        ),
        (
            _WORKER_FAILED.format(said="/usr/bin/python3: a warning\n  /usr/bin/python3: No module named pipeline"),
            "/usr/bin/python3: No module named pipeline",
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2530, in read_udfs\n'
            "    import pyarrow as pa\nModuleNotFoundError: No module named 'pyarrow'",
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
    ],
)
def test_explain_when_text_is_long_then_first_line_only(text: str, line: str | None) -> None:
    """The reason is left, the plan, the trace and the state code are not."""
    found = explain(ValueError(text))

    assert "\n" not in found
    assert "SQLSTATE" not in found
    assert line is None or found == line


_TASK_TRACE = (
    "Job aborted: Task 0 failed\n  An exception was thrown from the Python worker.\n"
    'Traceback (most recent call last):\n  File "a.py", line 1, in run\n    go()\n{raised}\n\n\tat org.apache'
)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ("sparklog.storage_core.errors.CorruptBatchError: crc file=a.log position=7", CorruptBatchError),
        ("sparklog.storage_core.errors.GoneError: of another release", None),
        ("ValueError: sparklog.storage_core.errors.CorruptBatchError: told by another", None),
        ("package.sparklog.storage_core.errors.CorruptBatchError: another package's", None),
    ],
)
def test_raised_in_task_when_a_task_failed_then_its_class_counts_and_not_its_words(
    raised: str, expected: type | None
) -> None:
    """What an error is called in the last line of the task's trace decides."""
    assert raised_in_task(RuntimeError(_TASK_TRACE.format(raised=raised))) is expected
