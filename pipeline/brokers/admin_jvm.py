"""A plain JVM with Kafka's admin client, without a Spark session: for verbs that ask a cluster and read no records.

It has Spark's jars, among them Jackson's, and those of Spark's Kafka source. It ends with this process.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.find_spark_home import _find_spark_home

from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.session import LOG_CONFIG
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError

__all__ = ["admin_jvm"]


@contextmanager
def admin_jvm() -> Iterator[Any]:
    """Yield py4j's view of the JVM; end it after that.

    Raises:
        InvalidConfigError: there is no Java, or Kafka's jar can't be had.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise InvalidConfigError("Java 17 is needed: install a JRE, or set JAVA_HOME and PATH")
    classes = [str(Path(_find_spark_home()) / "jars" / "*"), *map(str, obtain_jars())]
    options = [f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    try:
        port, token, process = launch_gateway(
            classpath=os.pathsep.join(classes),
            javaopts=options,
            java_path=java,
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    except (Py4JError, OSError) as error:
        raise LogStorageError(f"a JVM for Kafka's client can't start: {error}") from error
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.terminate()
        process.wait()
