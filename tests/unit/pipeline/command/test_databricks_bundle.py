"""The bundle in `deploy/databricks`, as far as it can be judged without a workspace.

The models of `databricks-bundles` refuse unknown fields and wrong types. What they let through is judged here.
"""

import copy
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job

from sparklog.pipeline.command.cli import cli
from sparklog.pipeline.settings.stream_settings import load_settings

_ROOT = Path(__file__).resolve().parents[4]
_FOLDER = _ROOT / "deploy" / "databricks"
_TRIGGERS = {"continuous", "schedule", "trigger"}
_SECTIONS = {"bundle", "variables", "targets", "resources"}
_RUNTIMES = ("18.2.x-scala2.13", "19.x-scala2.13")
"""Keys of Spark 4.1 and of Spark 4.2."""


def _bundle() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_FOLDER / "databricks.yml").read_text())
    return found


def _problems(bundle: dict[str, Any]) -> Iterator[str]:
    """Yield what a workspace would refuse, or do other than is meant."""
    yield from (f"unknown section {name}" for name in bundle.keys() - _SECTIONS)
    paths = [each.get("workspace", {}).get("root_path", "") for each in bundle["targets"].values()]
    yield from (f"everybody can write to {path}" for path in paths if path.startswith("/Workspace/Shared"))
    used = set(re.findall(r"\$\{var\.(\w+)\}", yaml.safe_dump(bundle["resources"])))
    yield from (f"variable {name}" for name in used ^ bundle["variables"].keys())
    for name, given in bundle["resources"]["jobs"].items():
        try:
            job: Any = Job.from_dict(given).as_dict()
        except (TypeError, ValueError) as error:
            yield f"{name}: {error}"
            continue
        if len(_TRIGGERS & job.keys()) != 1:
            yield f"{name}: triggers {sorted(_TRIGGERS & job.keys())}"
        if job.get("max_concurrent_runs") != 1:
            yield f"{name}: runs overlap"
        clusters = {each["job_cluster_key"]: each["new_cluster"] for each in job["job_clusters"]}
        for cluster in clusters.values():
            if cluster.get("data_security_mode") != "SINGLE_USER":
                yield f"{name}: no SparkContext"
            if (cluster.get("num_workers") == 0) != ("ResourceClass" in cluster.get("custom_tags", {})):
                yield f"{name}: a cluster of one node needs its tag"
        for task in job["tasks"]:
            yield from (f"{name}: {each}" for each in _task_problems(task, clusters))


def _task_problems(task: dict[str, Any], clusters: dict[str, Any]) -> Iterator[str]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    if task["job_cluster_key"] not in clusters:
        yield f"no cluster {task['job_cluster_key']}"
    wheel = task["python_wheel_task"]
    if wheel["package_name"] != project["name"] or wheel["entry_point"] not in project["scripts"]:
        yield "no such entry point"
    verb, *rest = (each.replace("${var.store}", "s3://bucket/archive") for each in wheel["parameters"])
    given = cli.commands[verb].make_context(verb, list(rest)).params  # raises for what it does not understand
    if given.get("execute") is False:
        yield "nothing is done"
    wheels = [each["whl"] for each in task["libraries"] if "whl" in each]
    if not any(Path(f"./{project['name']}-{project['version']}-py3-none-any.whl").match(each) for each in wheels):
        yield "no wheel"
    extras = project["optional-dependencies"]
    if [each["pypi"]["package"] for each in task["libraries"] if "pypi" in each] != extras["s3"]:
        yield "other libraries than the extra's"


def test_bundle_when_judged_then_nothing_is_wrong() -> None:
    bundle = _bundle()

    assert [*_problems(bundle)] == []
    assert bundle["variables"]["spark_version"]["default"] in _RUNTIMES
    assert len(bundle["resources"]["jobs"]) == 2


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that puts a value at a path of a bundle; the path's last name may be new."""

    def mutate(bundle: dict[str, Any]) -> None:
        *way, last = (int(each) if each.isdigit() else each for each in path.split("/"))
        found: Any = bundle
        for each in way:
            found = found[each]
        found[last] = value

    return mutate


@pytest.mark.parametrize(
    "mistake",
    [
        _set("job", {}),
        _set("targets/prod/workspace/root_path", "/Workspace/Shared/sparklog"),
        _set("variables/region", {"default": "x"}),
        _set("resources/jobs/stream/max_concurrent_runs", 2),
        _set("resources/jobs/stream/schedule", {"quartz_cron_expression": "0 0 * * * ?", "timezone_id": "UTC"}),
        _set("resources/jobs/stream/max_retry", 1),
        _set("resources/jobs/stream/tasks/0/job_cluster_key", "other"),
        _set("resources/jobs/stream/tasks/0/python_wheel_task/entry_point", "main"),
        _set("resources/jobs/stream/tasks/0/libraries", [{"whl": "./dist/*.whl"}]),
        _set("resources/jobs/maintain/tasks/0/python_wheel_task/parameters", ["maintain", "${var.store}"]),
        _set("resources/jobs/maintain/job_clusters/0/new_cluster/data_security_mode", "USER_ISOLATION"),
        _set("resources/jobs/maintain/job_clusters/0/new_cluster/num_workers", 1),
    ],
)
def test_bundle_when_it_has_a_mistake_then_that_is_found(mistake: Callable[[dict[str, Any]], None]) -> None:
    bundle = copy.deepcopy(_bundle())
    mistake(bundle)

    assert [*_problems(bundle)] != []


def test_settings_of_the_bundle_when_read_then_nothing_is_wrong() -> None:
    settings = load_settings(str(_FOLDER / "settings.yaml"), ())

    assert settings.objects is not None
    assert settings.store == _bundle()["variables"]["store"]["default"]


def test_wheel_when_a_cluster_installs_it_then_nothing_comes_over_the_clusters_spark() -> None:
    """What the runtime has is an extra's, for machines without one."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split("[><=]", each)[0] for each in project["dependencies"]}

    assert not {"pyspark", "pyarrow", "pandas"} & names
    assert {re.split("[><=]", each)[0] for each in project["optional-dependencies"]["spark"]} == {
        "pandas",
        "pyarrow",
        "pyspark",
    }
