"""Fetches the jars of Spark's delta and kafka sources, once, into a cache folder.

`jars.xml` names them with exact versions, `jars.sha256` has their checksums; `jars-4.1.*` are those for Spark 4.1, as
Delta has a different jar for each version of Spark. Maven copies them, so that its settings choose the registry; the
folder gets its name only after every checksum is right.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sparklog.storage_core.errors import InvalidConfigError, StorageError
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["cache_folder", "list_of_jars", "obtain_jars"]

_HERE = Path(__file__).parent
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_TIMEOUT_S = 600
_ADVICE = (
    "fetch the jars that {pom} names on a machine with Maven and a registry, then either copy them to {folder},"
    " or name them in the setting spark.spark.jars"
)


def cache_folder() -> Path:
    """Return the user's cache folder: `$SPARKLOG_CACHE`, or one below `~/.cache`."""
    if given := os.environ.get("SPARKLOG_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparklog"


def list_of_jars() -> Path:
    """Return the pom that names the jars for the installed Spark."""
    from pyspark import __version__ as version

    return _HERE / ("jars-4.1.xml" if version.startswith("4.1.") else "jars.xml")


def obtain_jars() -> list[Path]:
    """Return the jars; Maven fetches them on the first call.

    Raises:
        InvalidConfigError: they are not in the cache and can't be fetched; the message names the remedy.
        StorageError: the cache can't be written, or a cached jar has a wrong checksum.
    """
    pom = list_of_jars()
    sums = _expected_sums(pom)
    name = hashlib.sha256(pom.read_bytes() + pom.with_suffix(".sha256").read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "jars" / name
    with storage_errors(folder):
        if not folder.is_dir():
            _fetch(pom, folder, sums)
        _check(folder, sums)
    return [folder / jar for jar in sums]


def _expected_sums(pom: Path) -> dict[str, str]:
    lines = (line.split() for line in pom.with_suffix(".sha256").read_text().splitlines())
    return {jar: digest for digest, jar in lines}


def _check(folder: Path, sums: dict[str, str]) -> None:
    for jar, digest in sums.items():
        path = folder / jar
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"
        if found != digest:
            raise StorageError(f"a jar has a wrong checksum: path={path} sha256={found}; delete {folder} and try again")


def _fetch(pom: Path, folder: Path, sums: dict[str, str]) -> None:
    """Let Maven copy the jars beside the folder, check them, then rename: a partial copy never gets the name."""
    advice = _ADVICE.format(pom=pom, folder=folder)
    maven = shutil.which("mvn")
    if maven is None:
        raise InvalidConfigError(f"the source needs jars that are not in the cache, and there is no mvn: {advice}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.partial-") as building:
        target = Path(building) / "jars"
        _run_maven([maven, "-q", "-B", "-ntp", "-f", str(pom), _GOAL, f"-DoutputDirectory={target}"], advice)
        _check(target, sums)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same jars
                raise


def _run_maven(command: list[str], advice: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidConfigError(f"mvn did not finish within {_MAVEN_TIMEOUT_S} s: {advice}") from None
    if done.returncode != 0:
        errors = [line.split("ERROR]")[-1].strip() for line in done.stdout.splitlines() if "ERROR]" in line]
        raise InvalidConfigError(f"mvn can't fetch the jars: {errors[0] if errors else 'no reason given'}: {advice}")
