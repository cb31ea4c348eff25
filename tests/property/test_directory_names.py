"""Names of log directories: what is made is read back, and nothing else is taken for one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.topic_partition import (
    DirectoryKind,
    TopicPartition,
    parse_directory_name,
    parse_set_aside_name,
    set_aside_name,
)

_TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
_LOGS = st.builds(TopicPartition, _TOPICS, st.integers(0, 2**31 - 1))
_IDS = st.uuids().map(lambda value: value.hex)
_KINDS: st.SearchStrategy[DirectoryKind] = st.sampled_from(["delete", "future", "stray"])
_KAFKA = {kind: re.compile(rf"^(\S+)-(\S+)\.(\S+)-{kind}$") for kind in ("delete", "future", "stray")}


@given(_LOGS)
def test_directory_name_of_any_log_is_read_back(log: TopicPartition) -> None:
    """A log's name tells the log, and is no set-aside one."""
    assert parse_directory_name(log.directory_name) == log


@given(_LOGS, _IDS, _KINDS)
def test_set_aside_name_of_any_log_is_read_back_as_far_as_it_was_not_cut(
    log: TopicPartition, unique_id: str, kind: DirectoryKind
) -> None:
    """Kind, id and partition are always there; the topic, or its start where 255 characters are not enough."""
    name = set_aside_name(log, unique_id, kind)
    found = parse_set_aside_name(name)

    assert _KAFKA[kind].match(name)
    assert parse_directory_name(name) is None
    assert found is not None
    assert (found.unique_id, found.kind, found.log.partition) == (unique_id, kind, log.partition)
    if kind == "future":
        assert found.log == log
    else:
        assert len(name) <= 255
        assert log.topic.startswith(found.log.topic)
        assert found.log.topic == log.topic or len(name) == 255


def _as_kafka(name: str) -> tuple[str, int] | None:
    """The scalar twin: Kafka's rule, step by step, for topics that a broker would create."""
    ending = next((kind for kind in _KAFKA if name.endswith(f"-{kind}")), None)
    if ending is None or not _KAFKA[ending].match(name):
        return None
    log = name[: name.rindex(".")]
    if "-" not in log:
        return None
    topic, partition = log[: log.rindex("-")], log[log.rindex("-") + 1 :]
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or not re.fullmatch(r"[0-9]{1,30}", partition):
        return None
    return (topic, int(partition)) if int(partition) < 2**31 else None


@given(st.one_of(st.text(max_size=40), st.from_regex(r"[a-c0-9.-]{0,20}\.?[a-c0-9.-]{0,20}-(delete|future|stray)")))
def test_parse_set_aside_name_agrees_with_kafkas_steps(name: str) -> None:
    """On any text: the same log, or none."""
    found = parse_set_aside_name(name)

    assert (None if found is None else (found.log.topic, found.log.partition)) == _as_kafka(name)
