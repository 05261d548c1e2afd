from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import ROOT

from pipelines.specs.jobs import ID_PREFIXES
from pipelines.specs.parsing import load_spec

PATHS = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))


def loaded(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    config, job = yaml.safe_load_all(path.read_text())
    return config, job


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_spec_of_an_example_is_valid_and_its_job_has_an_id_of_its_kind(path: Path) -> None:
    config, job = loaded(path)
    spec = load_spec(config["data"]["spec.yaml"].encode(), [])
    assert f"--job-id {ID_PREFIXES[spec.kind]}-" in job["spec"]["entrypoint"]


def test_there_is_an_example_of_every_kind_of_job() -> None:
    kinds = {load_spec(loaded(path)[0]["data"]["spec.yaml"].encode(), []).kind for path in PATHS}
    assert kinds == set(ID_PREFIXES)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_cluster_of_an_example_has_room_for_its_workers(path: Path) -> None:
    config, job = loaded(path)
    compute = load_spec(config["data"]["spec.yaml"].encode(), []).compute
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert getattr(compute, "num_cpus", 0) <= group["replicas"] * int(limits["cpu"])
    assert getattr(compute, "num_gpus", 0) <= group["replicas"] * int(limits.get("nvidia.com/gpu", 0))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_an_example_asks_for_a_token_and_mounts_its_spec(path: Path) -> None:
    config, job = loaded(path)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token", "secretName": "electra-ray"}
    head = cluster["headGroupSpec"]["template"]["spec"]
    assert {"name": "spec", "configMap": {"name": config["metadata"]["name"]}} in head["volumes"]
    assert "--spec /etc/electra/spec.yaml " in job["spec"]["entrypoint"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_pods_of_an_example_are_ones_that_kubernetes_knows(path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    _, job = loaded(path)
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    templates = [job["spec"]["submitterPodTemplate"], *(group["template"] for group in groups)]
    for template in templates:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **template}
        kubernetes_validate.validate(pod, "1.33", strict=True)
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
