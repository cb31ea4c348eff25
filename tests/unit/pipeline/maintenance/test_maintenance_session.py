"""The settings of a maintenance run's session."""

import pytest

from sparklog.pipeline.maintenance.session import maintenance_conf
from sparklog.storage_core.errors import InvalidConfigError


def test_maintenance_conf_when_speculation_is_set_then_it_is_not_taken() -> None:
    """No task of a cleaning is started twice: a second one would wait for the log, and say that it failed."""
    assert maintenance_conf({"spark.speculation": "true", "a": "b"}, None)["spark.speculation"] == "false"
    assert maintenance_conf({"a": "b"}, {"spark.speculation": "false"}) == {"a": "b", "spark.speculation": "false"}


def test_maintenance_conf_when_submitted_with_speculation_then_refused() -> None:
    """What `spark-submit` was given can't be changed any more, so it is said."""
    with pytest.raises(InvalidConfigError, match=r"spark\.speculation=true"):
        maintenance_conf({}, {"spark.speculation": "TRUE"})
