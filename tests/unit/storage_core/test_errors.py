"""Errors cross process borders, and their text is one line."""

import pickle

import pytest

from sparklog.storage_core import errors

_ARGUMENTS = {
    "CorruptBatchError": ("batch has a wrong CRC", 77),
    "RecordTooLargeError": (5, 2000, 1000),
    "CommitStateUnknownError": ("the ledger did not answer", "query", 3),
}


@pytest.mark.parametrize("name", errors.__all__)
def test_error_when_pickled_then_says_the_same(name: str) -> None:
    """Spark pickles what an executor raises: class, text and attributes survive."""
    error = getattr(errors, name)(*_ARGUMENTS.get(name, ("what happened: key=value",)))

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("name", errors.__all__)
def test_error_is_listed_in_the_tree(name: str) -> None:
    """The module's docstring is the list of what a caller can do, one line per class."""
    assert f" {name} " in (errors.__doc__ or "").replace("\n", " \n ") + " "
    assert issubclass(getattr(errors, name), errors.LogStorageError)


def test_errors_with_facts_show_them() -> None:
    """As `key=value`, behind what happened."""
    shown = [str(getattr(errors, name)(*arguments)) for name, arguments in _ARGUMENTS.items()]

    assert shown == [
        "batch has a wrong CRC position=77",
        "record is too large: row=5 size=2000 max.message.bytes=1000",
        "the ledger did not answer query_id=query batch_id=3",
    ]
