"""`python -m sparklog`, and the file to give to `spark-submit`."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # started by its path: the folder that holds the package must be found, not this one
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from sparklog.pipeline.command.cli import main

if __name__ == "__main__":
    main()
