import tempfile
from pathlib import Path

import pytest

from sparklog.pipeline.spark.session import names_jars, session_conf


def test_session_conf_when_nothing_is_given_then_local_loopback_and_utc() -> None:
    """On its own a job runs on all local cores, bound to loopback, in UTC."""
    conf = session_conf({})

    assert conf["spark.master"] == "local[*]"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.driver.extraJavaOptions"].startswith("-Dlog4j2.configurationFile=file:")
    assert conf["spark.python.daemon.module"] == "sparklog.pipeline.spark.worker_daemon"


def test_session_conf_when_submitted_then_its_settings_win_over_the_file_and_ours() -> None:
    """What spark-submit was given stays, then comes the settings file, then our defaults; its logging is its own."""
    conf = session_conf(
        {"spark.speculation": "true", "spark.sql.shuffle.partitions": "3"},
        {"spark.master": "yarn", "spark.sql.shuffle.partitions": "9"},
    )

    assert (conf["spark.master"], conf["spark.sql.shuffle.partitions"]) == ("yarn", "9")
    assert conf["spark.speculation"] == "true"
    assert "spark.driver.bindAddress" not in conf
    assert "spark.python.daemon.module" not in conf
    assert "spark.driver.extraJavaOptions" not in conf


@pytest.mark.parametrize("master", ["yarn", "local-cluster[2,1,1024]", "spark://node:7077", "k8s://host"])
def test_session_conf_when_workers_are_elsewhere_then_no_unix_socket_is_asked_for(master: str) -> None:
    """The path of a container's folder may be longer than a socket's may be: on a cluster Spark's default stays."""
    conf = session_conf({}, {"spark.master": master})

    assert [name for name in conf if "unix.domain" in name] == []


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2, 3]"])
def test_session_conf_when_master_is_local_then_sockets_lie_where_their_path_is_short(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for temporary files is taken, or `/tmp` where that one is too deep."""
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    assert session_conf({"spark.master": master})["spark.python.unix.domain.socket.dir"] == "/var/tmp"

    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    conf = session_conf({"spark.master": master})

    assert conf["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"


def test_session_conf_when_file_has_jvm_options_then_ours_come_first() -> None:
    """Of two equal JVM options the last one counts, so the user's own log settings win."""
    options = session_conf({"spark.driver.extraJavaOptions": "-Xss4m"})["spark.driver.extraJavaOptions"]

    assert options.endswith("log4j2.xml -Xss4m")


def test_session_conf_when_jars_are_needed_then_named_with_deltas_extension() -> None:
    """Jars are named by their paths, and Delta's extension is on with them."""
    conf = session_conf({}, jars=[Path("/a/delta-spark.jar"), Path("/a/b.jar")])

    assert conf["spark.jars"] == "/a/delta-spark.jar,/a/b.jar"
    assert "Delta" in conf["spark.sql.extensions"]


def test_names_jars_when_asked_for_a_word_then_looks_into_both_settings() -> None:
    """Jars may be named by path or by package."""
    conf = {"spark.jars.packages": "io.delta:delta-spark:1"}

    assert names_jars(conf)
    assert names_jars(conf, "delta")
    assert not names_jars(conf, "kafka")
    assert not names_jars({"spark.jars": ""})
