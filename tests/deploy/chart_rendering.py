from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/electra"
NAMED = ("minimal", "team", "production-gpu")


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "scripts/helm"), *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@cache
def why_no_helm() -> str | None:
    done = run_helm("version", "--short")
    return None if done.returncode == 0 else f"helm does not run here: {done.stderr.strip()[-300:]}"


def template(values: str, *settings: str, kube_version: str = "1.33.0") -> subprocess.CompletedProcess[str]:
    """`helm template` with one of the named sets of values and `--set` arguments."""
    if why_no_helm():
        pytest.skip(why_no_helm() or "")
    sets = [
        part
        for setting in settings
        for part in ("--set-json" if "=[" in setting or "={" in setting else "--set", setting)
    ]
    arguments = ["template", "rel", str(CHART), "--namespace", "ns", "--kube-version", kube_version]
    return run_helm(*arguments, "--values", str(CHART / f"values/{values}.yaml"), *sets)


@cache
def rendered(values: str, *settings: str, kube_version: str = "1.33.0") -> tuple[dict[str, Any], ...]:
    """The objects of a chart that must render."""
    done = template(values, *settings, kube_version=kube_version)
    assert done.returncode == 0, done.stderr
    return tuple(item for item in yaml.safe_load_all(done.stdout) if item)


def refusal(values: str, *settings: str) -> str:
    """What a chart that must not render says."""
    done = template(values, *settings)
    assert done.returncode != 0, "the chart was rendered"
    return done.stderr


def pod_templates(objects: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    """Every pod the objects lead to, by kind and name."""
    pods = {}
    for item in objects:
        name = f"{item['kind']}/{item['metadata']['name']}"
        if item["kind"] == "Pod":
            pods[name] = item
        elif item["kind"] == "RayCluster":
            pods[f"{name}/head"] = item["spec"]["headGroupSpec"]["template"]
            for group in item["spec"]["workerGroupSpecs"]:
                pods[f"{name}/{group['groupName']}"] = group["template"]
        elif "template" in item.get("spec", {}):
            pods[name] = item["spec"]["template"]
    return pods


def find(objects: tuple[dict[str, Any], ...], kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    """Variables of a pod's first container: the value, or where it comes from."""
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in pod["spec"]["containers"][0]["env"]}
