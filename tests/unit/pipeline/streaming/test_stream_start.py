"""What `stream` says before anything slow begins: what it starts, where, and how far that has come."""

import json
from pathlib import Path

import pytest

from sparklog.pipeline.settings.stream_settings import Settings, load_settings
from sparklog.pipeline.streaming.start import starting_line

_FILE = """
store: {folder}/store
checkpoint: {folder}/checkpoint
source: {source}
records: {{topic: "'orders'", value: value}}
topics: {{orders: {{partitions: 3}}, other: {{}}}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a store that is not there."""
    path = tmp_path / "settings.yaml"
    path.write_text(_FILE.format(folder=tmp_path, source="{format: text, path: ./data}"))
    return load_settings(path)


def test_starting_line_when_nothing_is_there_then_source_store_topics_and_a_new_query(
    settings: Settings, tmp_path: Path
) -> None:
    """The first line names what is streamed and where to; nothing is made."""
    assert starting_line(settings) == (
        f"starting: text ./data -> {tmp_path}/store, new, topics orders, other; checkpoint {tmp_path}/checkpoint, new"
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("planned", "committed", "said"),
    [
        (7, 7, "query {id}, 8 micro-batches done"),
        (7, 6, "query {id}, 7 micro-batches done, micro-batch 7 is planned"),
        (0, -1, "query {id}, 0 micro-batches done, micro-batch 0 is planned"),
    ],
)
def test_starting_line_when_a_query_goes_on_then_its_id_and_how_far_it_is(
    settings: Settings, tmp_path: Path, planned: int, committed: int, said: str
) -> None:
    """The checkpoint says how far the query has come."""
    for folder, newest in (("offsets", planned), ("commits", committed)):
        (tmp_path / "checkpoint" / folder).mkdir(parents=True)
        if newest >= 0:
            (tmp_path / "checkpoint" / folder / str(newest)).write_text("v1\n")
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "5d9f-1"}))

    assert starting_line(settings).endswith(f"; checkpoint {tmp_path}/checkpoint, {said.format(id='5d9f-1')}")


def test_starting_line_when_source_is_kafka_then_topics_and_servers(tmp_path: Path) -> None:
    """A broker's topics and where it is; passwords among the options are not told."""
    options = "{kafka.bootstrap.servers: 'h:9092', subscribePattern: 'a.*', kafka.sasl.jaas.config: secret}"
    path = tmp_path / "settings.yaml"
    path.write_text(_FILE.format(folder=tmp_path, source=f"{{format: kafka, options: {options}}}"))

    line = starting_line(load_settings(path))

    assert line.startswith("starting: kafka subscribePattern a.* at h:9092 -> ")
    assert "secret" not in line
