"""`sparklog stream` as a job whose power is cut: `<settings file>` is its only argument."""

import os
import sys

from sparklog.pipeline.command.cli import main

if __name__ == "__main__":
    os.environ["SPARKLOG_FAULT_PID"] = str(os.getpid())
    main(["stream", "--config", sys.argv[2]])
