"""Log directories as crashes, disks and interrupted replacements leave them, for a broker and for ourselves to load."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.build.damaged_store import change
from tests.build.golden import golden_root
from tests.build.written_log import Batch, encode_batch, write_log

__all__ = ["CLEAN_CASES", "UNCLEAN_CASES", "LoadCase"]

_GOLDEN = golden_root().parent
_BASES = (0, 15, 30, 45)
_SEGMENT_SUFFIXES = (".log", ".index", ".timeindex")
_FAR = 2**31


@dataclass(frozen=True, kw_only=True)
class LoadCase:
    """A directory to load.

    Attributes:
        damage: done to the log, given its directory.
        golden: a broker's own log to start from; else four segments of ours, offsets 0, 15, 30 and 45, log end 60.
        recovery_point, log_start_offset: as checkpointed; None is no line.
        is_readable: whether a loading leaves nothing that a client stumbles over.
    """

    damage: Callable[[Path], object] = lambda _log: None
    golden: str | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    is_readable: bool = True

    def write(self, directory: Path) -> Path:
        """Write the directory, without a topic id."""
        if self.golden is not None:
            source = next(path for path in (_GOLDEN / self.golden).iterdir() if path.is_dir())
            shutil.copytree(source, directory)
        else:
            segments = [[Batch([s * 100 + b * 3 + n for n in range(3)]) for b in range(5)] for s in range(4)]
            write_log(directory, segments)
        (directory / "partition.metadata").unlink(missing_ok=True)
        self.damage(directory)
        return directory


def _path(log: Path, base: int, suffix: str) -> Path:
    return log / f"{base:020d}{suffix}"


def _extend(base: int, tail: bytes) -> Callable[[Path], object]:
    return lambda log: change(_path(log, base, ".log"), lambda data: data.extend(tail))


def _flip(base: int, position: int) -> Callable[[Path], object]:
    return lambda log: change(_path(log, base, ".log"), lambda data: data.__setitem__(position, data[position] ^ 1))


def _write(base: int, suffix: str, content: bytes) -> Callable[[Path], object]:
    return lambda log: _path(log, base, suffix).write_bytes(content)


def _remove(base: int, *suffixes: str) -> Callable[[Path], object]:
    def remove(log: Path) -> None:
        for suffix in suffixes:
            _path(log, base, suffix).unlink()

    return remove


def _all(*damages: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda log: [damage(log) for damage in damages]


def _rename(base: int, suffix: str, *kinds: str) -> Callable[[Path], object]:
    return lambda log: [_path(log, base, kind).rename(_path(log, base, kind + suffix)) for kind in kinds]


def _merge(suffix: str) -> Callable[[Path], object]:
    """Write what a cleaner makes of segments 15 and 30, one that has the place of both."""

    def damage(log: Path) -> None:
        merged = log.parent / f"{log.name}-merged"
        segments = [[Batch([s * 100 + b * 3 + n for n in range(3)]) for s in (1, 2) for b in range(5)]]
        write_log(merged, segments, start_offset=15)
        for kind in _SEGMENT_SUFFIXES:
            shutil.move(_path(merged, 15, kind), _path(log, 15, kind + suffix))
        shutil.rmtree(merged)

    return damage


def _overflow(log: Path) -> None:
    for base in _BASES[1:]:
        _remove(base, *_SEGMENT_SUFFIXES)(log)
    offsets = (0, 3, _FAR - 1, _FAR + 5, _FAR + 9)
    _path(log, 0, ".log").write_bytes(b"".join(encode_batch(Batch([1, 2, 3]), offset) for offset in offsets))


def _empty_middle(log: Path) -> None:
    for kind in _SEGMENT_SUFFIXES:
        _path(log, 15, kind).write_bytes(b"")


def _no_segments(log: Path) -> None:
    for path in log.glob("0*"):
        path.unlink()


UNCLEAN_CASES = {
    "sound": LoadCase(),
    "torn tail": LoadCase(damage=_extend(45, b"\0\0\0\0\0\0\0\x3c\0\0\0\x60torn")),
    "few bytes at the end": LoadCase(damage=_extend(45, b"torn")),
    "zero tail": LoadCase(damage=_extend(45, bytes(500))),
    "flipped byte in the middle": LoadCase(damage=_flip(15, 350)),
    "flipped length in the middle": LoadCase(damage=_flip(15, 159)),
    "flipped first byte of records": LoadCase(damage=_flip(0, 70)),
    "no index": LoadCase(damage=_remove(15, ".index")),
    "no index below the recovery point": LoadCase(damage=_remove(15, ".index"), recovery_point=60),
    "no index and a flipped byte": LoadCase(damage=_all(_remove(15, ".index"), _flip(15, 350))),
    "no time index": LoadCase(damage=_remove(15, ".timeindex")),
    "no time index below the recovery point": LoadCase(damage=_remove(15, ".timeindex"), recovery_point=60),
    "no indexes": LoadCase(damage=_all(*(_remove(base, ".index", ".timeindex") for base in _BASES))),
    "wrong indexes": LoadCase(damage=_all(_write(15, ".index", bytes(80)), _write(45, ".timeindex", b"x" * 25))),
    "damage below the recovery point": LoadCase(damage=_flip(15, 350), recovery_point=47, is_readable=False),
    "recovery point behind the end": LoadCase(damage=_extend(45, b"torn"), recovery_point=1000),
    "swap beside the originals": LoadCase(damage=_merge(".swap")),
    "swap of the log alone": LoadCase(damage=_all(_merge(".swap"), _remove(15, ".index.swap", ".timeindex.swap"))),
    "swap, originals deleted": LoadCase(
        damage=_all(_merge(".swap"), *(_rename(base, ".deleted", *_SEGMENT_SUFFIXES) for base in (15, 30)))
    ),
    "swap with cleaned below": LoadCase(damage=_all(_merge(".swap"), _write(0, ".log.cleaned", b"half"))),
    "swap with cleaned above": LoadCase(damage=_all(_merge(".swap"), _write(30, ".index.cleaned", b""))),
    "swap in part": LoadCase(
        damage=_all(
            _merge(".swap"),
            _remove(30, *_SEGMENT_SUFFIXES),
            lambda log: _path(log, 15, ".log.swap").rename(_path(log, 15, ".log")),
        )
    ),
    "cleaned": LoadCase(damage=_merge(".cleaned")),
    "deleted at the end": LoadCase(damage=_rename(45, ".deleted", *_SEGMENT_SUFFIXES)),
    "deleted at the start": LoadCase(damage=_rename(0, ".deleted", *_SEGMENT_SUFFIXES)),
    "deleted, log alone": LoadCase(damage=_rename(45, ".deleted", ".log")),
    "start inside a segment": LoadCase(log_start_offset=20),
    "start behind the end": LoadCase(log_start_offset=100),
    "stray snapshots": LoadCase(
        damage=_all(*(_write(offset, ".snapshot", b"damaged") for offset in (3, 15, 47, 60, 99)))
    ),
    "orphan indexes": LoadCase(damage=_all(*(_write(7, suffix, b"") for suffix in (".index", ".txnindex")))),
    "damaged transaction index": LoadCase(damage=_write(15, ".txnindex", bytes(34)), recovery_point=60),
    "empty segment in the middle": LoadCase(damage=_empty_middle),
    "no segments": LoadCase(damage=_no_segments),
    "no segments, a start": LoadCase(damage=_no_segments, log_start_offset=33),
    "offsets too far apart": LoadCase(damage=_overflow),
    "epochs behind the end": LoadCase(
        damage=lambda log: (log / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n3 60\n")
    ),
    "no epochs": LoadCase(damage=lambda log: (log / "leader-epoch-checkpoint").unlink()),
    "transactions": LoadCase(golden="v2-transactional"),
    "transactions, no index and no snapshot": LoadCase(
        golden="v2-transactional", damage=_all(_remove(0, ".txnindex"), _remove(30, ".snapshot"))
    ),
    "transactions, torn": LoadCase(golden="v2-transactional", damage=_extend(0, b"torn")),
    "open transaction, no snapshot": LoadCase(golden="v2-transactional-open", damage=_remove(7, ".snapshot")),
    "idempotent, damaged snapshot": LoadCase(golden="v2-idempotent", damage=_write(21, ".snapshot", b"damaged")),
    "segments of a broker": LoadCase(golden="v2-segments", damage=_extend(208, b"torn")),
    "format v1, torn": LoadCase(golden="v1-segments", damage=_extend(124, b"torn")),
    "format v0, flipped": LoadCase(golden="v0-segments", damage=_flip(68, 60)),
}
"""Loaded by a start without the marker of a clean shutdown."""

CLEAN_CASES = {
    "sound": LoadCase(),
    "no index": LoadCase(damage=_remove(15, ".index")),
    "no index at the end": LoadCase(damage=_remove(45, ".index")),
    "no time index": LoadCase(damage=_remove(15, ".timeindex")),
    "flipped byte in the middle": LoadCase(damage=_flip(15, 350), is_readable=False),
    "swap beside the originals": LoadCase(damage=_merge(".swap")),
    "deleted at the start": LoadCase(damage=_rename(0, ".deleted", *_SEGMENT_SUFFIXES)),
    "start inside a segment": LoadCase(log_start_offset=20),
    "start behind the end": LoadCase(log_start_offset=100),
    "stray snapshots": LoadCase(damage=_all(*(_write(offset, ".snapshot", b"damaged") for offset in (3, 15, 99)))),
    "transactions": LoadCase(golden="v2-transactional"),
}
"""Loaded by a start that finds the marker."""
