"""Where the figures come from: the machine and the versions."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

__all__ = ["describe_machine"]

_PACKAGES = ("pyspark", "pyarrow", "numba", "numpy", "deltalake", "crc32c", "zstandard", "kafka-python")


def describe_machine(folder: Path) -> str:
    """Return a Markdown list: processor, memory, disk, system and versions.

    Args:
        folder: where the benchmarks write.
    """
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    facts = {
        "Machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB",
        "Disk": f"{_filesystem(folder)}, {_disk_kind(folder)}",
        "System": f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {_java()}",
        "Packages": packages,
        "Load average at the start": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    """Return the type of the filesystem that holds a folder: the longest mount point above it names it."""
    path = folder.resolve()
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind = line.split()[:3]
        if path.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _disk_kind(folder: Path) -> str:
    device = folder.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for queue in (block / "queue", block / ".." / "queue"):
        if (queue / "rotational").exists():
            return "rotating" if (queue / "rotational").read_text().strip() == "1" else "solid state"
    return "no block device of its own"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    done = subprocess.run(
        [f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines()[0].replace('"', "") if done.stderr else "Java unknown"
