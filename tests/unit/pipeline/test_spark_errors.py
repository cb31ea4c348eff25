import pytest

from pipeline.spark_errors import explain


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
    ],
)
def test_explain_when_text_is_long_then_first_line_only(text: str, line: str | None) -> None:
    """The reason is left, the plan, the trace and the state code are not."""
    found = explain(ValueError(text))

    assert "\n" not in found
    assert "SQLSTATE" not in found
    assert line is None or found == line
