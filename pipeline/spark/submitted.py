"""Whether `spark-submit` started this process; asked also where there is no pyspark."""

import os

__all__ = ["is_submitted"]


def is_submitted() -> bool:
    """Whether `spark-submit` started this process and its JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
