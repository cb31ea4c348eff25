"""The wheel does not require what clusters bring: where it is missing, one line says how to get it."""

import subprocess
import sys
from pathlib import Path


def test_command_when_pyarrow_is_missing_then_one_line_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"  # the import system takes this for a module that is not there
        "from sparklog.pipeline.command.cli import main\n"
        f"main(['read', {str(tmp_path)!r}, 't'])\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr == (
        "error: the library pyarrow is missing, which clusters have: pip install 'sparklog[spark]'\n"
    )
