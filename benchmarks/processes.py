"""What this process and all its descendants use: CPU time and memory, from `/proc`."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CpuUse", "cpu_use", "kill_python_workers", "peak_memory_mb", "reset_peak_memory"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_DAEMON_MODULES = (b"pyspark.daemon", b"sparklog.pipeline.spark.worker_daemon")
_PARENT = 1  # places in /proc/<pid>/stat, counted from the field behind the command
_CPU_FIELDS = slice(11, 15)  # user and system, of itself and of children that ended


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU seconds so far.

    Attributes:
        ours: of this process tree, ended children included.
        machine: of everything on the machine.
    """

    ours: float
    machine: float

    def since(self, earlier: "CpuUse") -> "CpuUse":
        """Return what was used since an earlier reading."""
        return CpuUse(self.ours - earlier.ours, self.machine - earlier.machine)


def cpu_use() -> CpuUse:
    """Return CPU seconds used so far; what a hypervisor stole is nobody's."""
    stats = _stats()
    ours = sum(int(ticks) for pid in _tree(stats) for ticks in stats[pid][_CPU_FIELDS])
    total = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    user, nice, system, _idle, _wait, irq, soft_irq = map(int, total)
    return CpuUse(ours / _TICKS_PER_S, (user + nice + system + irq + soft_irq) / _TICKS_PER_S)


def peak_memory_mb() -> dict[str, float]:
    """Return the peak resident memory since the last reset, in MB: `driver`, `jvm`, `workers` (all of them)."""
    peaks = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for pid in _tree(_stats()):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        kind = "driver" if pid == os.getpid() else "jvm" if fields["Name"].strip() == "java" else "workers"
        peaks[kind] += int(fields.get("VmHWM", "0 kB").split()[0]) / 1024
    return peaks


def reset_peak_memory() -> None:
    """Let the peak of every process in the tree start from what it uses now."""
    for pid in _tree(_stats()):
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            continue  # it has ended


def kill_python_workers() -> int:
    """Kill this process tree's idle PySpark workers, not the daemon that forks them; return how many there were."""
    stats = _stats()
    tree = _tree(stats)
    daemons = {pid for pid in tree if _is_pyspark_daemon(pid)}
    workers = [pid for pid in daemons if int(stats[pid][_PARENT]) in daemons]  # forked, so they look like it
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    return len(workers)


def _is_pyspark_daemon(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(module in command for module in _DAEMON_MODULES)


def _stats() -> dict[int, list[str]]:
    """Return the fields of `/proc/<pid>/stat` behind the command, by process."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
    return stats


def _tree(stats: dict[int, list[str]]) -> list[int]:
    """Return this process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found = [os.getpid()]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found
