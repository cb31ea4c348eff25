import hashlib
import re
from pathlib import Path

import pyspark
import pytest

from sparklog.pipeline.spark import jars
from sparklog.storage_core.errors import InvalidConfigError, StorageError

_CONTENT = b"a jar"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, one expected jar, and a folder that is the whole PATH."""
    pom = tmp_path / "jars.xml"
    pom.write_text("<project/>")
    pom.with_suffix(".sha256").write_text(f"{hashlib.sha256(_CONTENT).hexdigest()}  one.jar\n")
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(jars, "list_of_jars", lambda: pom)
    monkeypatch.setenv("SPARKLOG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _install_maven(tools: Path, script: str) -> None:
    maven = tools / "mvn"
    maven.write_text(f"#!/bin/sh\nfor last; do :; done\ntarget=${{last#-DoutputDirectory=}}\n{script}\n")
    maven.chmod(0o755)


def test_obtain_jars_when_maven_brings_them_then_cached_under_their_hash(tools: Path, tmp_path: Path) -> None:
    """Maven is asked once; later calls find the folder."""
    _install_maven(tools, '/bin/mkdir "$target"; printf "a jar" > "$target/one.jar"')

    (jar,) = jars.obtain_jars()
    (tools / "mvn").unlink()

    assert jars.obtain_jars() == [jar]
    assert jar.read_bytes() == _CONTENT
    assert [each.name for each in (tmp_path / "cache" / "jars").iterdir()] == [jar.parent.name]


def test_obtain_jars_when_there_is_no_maven_then_says_what_to_do(tools: Path) -> None:
    """Without Maven the message names the list of jars and both ways to bring them."""
    with pytest.raises(InvalidConfigError, match=r"no mvn: fetch the jars .*jars\.xml .*spark\.jars"):
        jars.obtain_jars()


def test_obtain_jars_when_maven_fails_then_its_reason_is_told(tools: Path, tmp_path: Path) -> None:
    """Maven's first error is in the message, and nothing stays in the cache."""
    _install_maven(tools, 'echo "[ERROR] no such host"; exit 1')

    with pytest.raises(InvalidConfigError, match="mvn can't fetch the jars: no such host"):
        jars.obtain_jars()
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_obtain_jars_when_a_jar_is_another_then_refused(tools: Path, tmp_path: Path) -> None:
    """A jar whose sum differs never gets into the cache."""
    _install_maven(tools, '/bin/mkdir "$target"; printf "evil" > "$target/one.jar"')

    with pytest.raises(StorageError, match=r"a jar has a wrong checksum: path=.*one\.jar"):
        jars.obtain_jars()
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_obtain_jars_when_a_cached_jar_changed_then_refused(tools: Path) -> None:
    """The sums are checked at every use."""
    _install_maven(tools, '/bin/mkdir "$target"; printf "a jar" > "$target/one.jar"')
    (jar,) = jars.obtain_jars()
    jar.write_bytes(b"changed")

    with pytest.raises(StorageError, match=r"delete .* and try again"):
        jars.obtain_jars()


@pytest.mark.parametrize(("spark", "delta"), [("4.1.4", "delta-spark_4.1_2.13"), ("4.2.0", "delta-spark_4.2_2.13")])
def test_list_of_jars_when_spark_has_a_version_then_delta_is_its_own(
    monkeypatch: pytest.MonkeyPatch, spark: str, delta: str
) -> None:
    """Delta for Spark 4.2 starts on 4.1, but fails in the first MERGE; each jar of a list has a checksum."""
    monkeypatch.setattr(pyspark, "__version__", spark)

    pom = jars.list_of_jars()

    named = re.findall(r"<artifactId>(.+)</artifactId>\s+<version>(.+)</version>\s+<exclusions>", pom.read_text())
    assert delta in dict(named)
    sums = pom.with_suffix(".sha256").read_text().splitlines()
    assert {line.split()[1] for line in sums} == {f"{name}-{version}.jar" for name, version in named}
