"""`sparklog maintain --execute` as a job that is killed: its folder and the store are its arguments."""

import os
import sys

from sparklog.pipeline.command.cli import main

if __name__ == "__main__":
    os.environ["SPARKLOG_FAULT_PID"] = str(os.getpid())
    main(["maintain", sys.argv[2], "--execute"])
