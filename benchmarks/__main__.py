"""`python -m benchmarks [group...] [--quick] [--write FILE]`."""

import argparse
import importlib
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.machine import describe_machine
from benchmarks.session import SESSION_SETTINGS
from benchmarks.table import verdict_table, write_between_marks

GROUPS = {
    "record": "record_kernels",
    "verify": "verify_speed",
    "dump": "dump_speed",
    "recovery": "recovery",
    "cleaner": "cleaner",
    "maintenance": "maintenance",
    "serve": "serve",
    "seek": "seek",
    "ledger": "ledger_commit",
    "micro-batch": "micro_batch",
    "fsync": "fsync_share",
    "kafka": "kafka_sink",
    "mirror": "mirror",
    "reader": "reader",
    "scale": "record_scale",
    "fixed-cost": "fixed_cost",
    "fresh-worker": "fresh_worker",
    "segment-files": "segment_files",
    "many-logs": "many_logs",
    "open": "open_store",
    "restore": "restore",
    "import": "import_logs",
    "objects": "objects",
}
"""Groups in the order they run, and the module of each."""


def main() -> int:
    """Run the groups asked for; print Markdown."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=options.folder) as folder:
        bench = Bench(Path(folder), options.quick)
        header = _header(bench)
        print(header, flush=True)
        started = time.monotonic()
        try:
            for name in options.groups or GROUPS:
                importlib.import_module(f"benchmarks.{GROUPS[name]}").run(bench)
                print(f"<!-- {name}: done after {time.monotonic() - started:.0f} s -->", flush=True)
        finally:
            bench.stop()
    verdicts = verdict_table(bench.verdicts).markdown()
    print(f"\n{verdicts}", flush=True)
    if options.write:
        tables = [verdicts, *(table.markdown() for table in bench.tables)]
        write_between_marks(options.write, "\n".join([header, *tables]))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"all if none is named: {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds over little data: only to see that it works")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the figures between the marks of this page, too"
    )
    parser.add_argument("--folder", type=Path, help="write below this folder, not the system's temporary one")
    options = parser.parse_args()
    unknown = [name for name in options.groups if name not in GROUPS]
    if unknown:
        parser.error(f"no such group: {', '.join(unknown)}")
    return options


def _header(bench: Bench) -> str:
    settings = ", ".join(f"`{name}={value}`" for name, value in SESSION_SETTINGS.items())
    length = "quick form: little data, few rounds; the ratios mean little" if bench.quick else "full form"
    return "\n".join(
        [
            f"Measured on {datetime.now(UTC):%Y-%m-%d}, {length}.",
            "",
            describe_machine(bench.folder),
            f"- Spark: the session of `sparklog stream`, and {settings}",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
