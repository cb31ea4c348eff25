"""Jars from Maven Central in a cache folder.

Maven is asked once: the folder is named after the hash of its `pom.xml`, so other versions are another folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparklog.pipeline.spark.jars import cache_folder

__all__ = ["JarsUnavailableError", "find_java", "obtain_jars"]

_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_TIMEOUT_S = 600


class JarsUnavailableError(RuntimeError):
    """There is no Java, or no Maven, or no registry answers."""


def find_java() -> str:
    """Return the path of `java`.

    Raises:
        JarsUnavailableError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None) or shutil.which("java")
    if java is None:
        raise JarsUnavailableError("there is no java on this machine (neither $JAVA_HOME nor $PATH has one)")
    return java


def obtain_jars(pom: Path, name: str) -> Path:
    """Return the folder with the jars that a `pom.xml` names, with the help of Maven on the first call ever.

    Args:
        name: begins the folder's name.

    Raises:
        JarsUnavailableError: they can't be had.
    """
    find_java()
    jars = cache_folder() / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not jars.is_dir():
        _copy_jars(pom, jars)
    return jars


def _copy_jars(pom: Path, target: Path) -> None:
    """Let Maven copy the jars beside `target`, then name the folder: half a copy never passes for a whole."""
    if shutil.which("mvn") is None:
        raise JarsUnavailableError(f"jars of {pom.parent.name} are not in the cache, and there is no mvn on $PATH")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.partial-") as staging:
        options = ("--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(pom))
        _run_maven(["mvn", *options, _GOAL, "-DincludeScope=runtime", f"-DoutputDirectory={staging}/jars"])
        try:
            (Path(staging) / "jars").rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another run of the suite was faster, with the same jars
                raise


def _run_maven(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarsUnavailableError(f"mvn brought no jars within {_MAVEN_TIMEOUT_S} s") from None
    if done.returncode != 0:
        error = re.search(r"\[ERROR\] (\S.{0,400})", done.stdout)
        raise JarsUnavailableError(f"mvn could not fetch jars: {error[1] if error else 'it gave no reason'}")
