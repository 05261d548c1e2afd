from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from chart_rendering import CHART, NAMED, ROOT, rendered, run_helm, why_no_helm

KUBERAY = ROOT / "../shared/kuberay"

# What is turned on and off, each upon one of the named sets.
TOGGLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("minimal", ()),
    ("minimal", ("networkPolicy.enabled=false",)),
    ("minimal", ("mlflow.enabled=false", "mlflow.external.trackingUri=https://mlflow.example.com")),
    ("minimal", ("service.type=LoadBalancer",)),
    ("minimal", ("ray.kueueQueue=research",)),
    ("minimal", ('service.tolerations=[{"key":"a","operator":"Exists"}]', "fullnameOverride=" + "x" * 36)),
    ("team", ()),
    ("team", ("ray.enabled=false", "ray.external.address=https://ray.example.com")),
    ("team", ("storage.claim.create=false", "storage.claim.existingClaim=shared")),
    ("team", ("service.podDisruptionBudget.enabled=false", "ray.autoscaling.enabled=false")),
    ("team", ('commonLabels={"team":"nlp"}', 'networkPolicy.mlflowFrom=[{"namespaceSelector":{}}]')),
    ("team", ('ray.extraEnv=[{"name":"T","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]',)),
    ("production-gpu", ()),
    ("production-gpu", ("storage.s3.existingSecret=s3", "storage.s3.endpoint=https://s3.example.com:9000")),
    ("production-gpu", ("ray.upgradeStrategy=None", "networkPolicy.externalEgress=[]")),
    ("production-gpu", ("service.readinessPath=/healthz", 'access.allowedHosts=["a.example.com"]')),
)


@pytest.mark.parametrize("values", NAMED)
def test_the_chart_passes_strict_lint(values: str) -> None:
    if why_no_helm():
        pytest.skip(why_no_helm() or "")
    done = run_helm("lint", "--strict", str(CHART), "--values", str(CHART / f"values/{values}.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("values", "settings"), TOGGLES)
def test_every_object_is_one_that_kubernetes_knows(values: str, settings: tuple[str, ...]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    objects = [item for item in rendered(values, *settings) if not item["apiVersion"].startswith("ray.io/")]
    for item in objects:
        kubernetes_validate.validate(item, "1.33", strict=True)
    assert {item["kind"] for item in objects} >= {"Deployment", "Service", "ServiceAccount", "Job", "Pod"}


@pytest.mark.parametrize("kube_version", ["1.29", "1.30", "1.31", "1.32", "1.33"])
def test_every_supported_version_of_kubernetes_knows_the_objects(kube_version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for item in rendered("production-gpu", kube_version=f"{kube_version}.0"):
        if not item["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(item, kube_version, strict=True)


@pytest.mark.shared
@pytest.mark.parametrize(("values", "settings"), TOGGLES)
def test_ray_clusters_follow_kuberays_schema(values: str, settings: tuple[str, ...]) -> None:
    validator = ray_validator("raycluster")
    clusters = [item for item in rendered(values, *settings) if item["kind"] == "RayCluster"]
    assert len(clusters) == (0 if "ray.enabled=false" in settings else 1)
    for cluster in clusters:
        validator.validate(cluster)


@pytest.mark.shared
@pytest.mark.parametrize("path", sorted((ROOT / "examples/kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_example_ray_jobs_follow_kuberays_schema(path: Path) -> None:
    import yaml

    jobs = [item for item in yaml.safe_load_all(path.read_text()) if item["kind"] == "RayJob"]
    assert jobs
    for job in jobs:
        ray_validator("rayjob").validate(job)


def test_every_value_is_described_and_unknown_ones_are_refused() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    undescribed: list[str] = []
    open_objects: list[str] = []

    def walk(node: dict[str, Any], path: str) -> None:
        for name, child in node.get("properties", {}).items():
            if "description" not in child:
                undescribed.append(f"{path}.{name}")
            if "properties" in child and child.get("additionalProperties") is not False:
                open_objects.append(f"{path}.{name}")
            walk(child, f"{path}.{name}")

    walk(schema, "")
    assert not undescribed
    assert not open_objects
    assert schema["additionalProperties"] is False


def ray_validator(kind: str) -> jsonschema.Draft202012Validator:
    path = KUBERAY / f"{kind}-v1.schema.json"
    if not path.exists():
        pytest.skip("KubeRay's schemas do not lie beside this checkout")
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))
