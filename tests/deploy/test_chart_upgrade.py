"""An upgrade: the migration comes before the new pods, and a new version changes nothing that it need not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from chart_rendering import CHART, NAMED, ROOT, pod_templates, rendered, why_no_helm

MIGRATIONS = {"rel-electra-migrate", "rel-electra-mlflow-migrate"}
HOOK = "helm.sh/hook"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def hooks(values: str, moment: str) -> list[dict[str, Any]]:
    """Objects that Helm makes, and waits for, at a moment of its own, by their weight."""
    found = [one for one in rendered(values) if moment in annotations(one).get(HOOK, "").split(",")]
    return sorted(found, key=lambda one: int(annotations(one).get("helm.sh/hook-weight", "0")))


def annotations(item: dict[str, Any]) -> dict[str, str]:
    return dict(item["metadata"].get("annotations", {}))


@pytest.mark.parametrize("values", NAMED)
def test_an_upgrade_migrates_before_it_touches_anything_else(values: str) -> None:
    # Helm waits for the jobs of this hook, and ends the upgrade where one fails, before it applies the other objects.
    assert {one["metadata"]["name"] for one in hooks(values, "pre-upgrade")} == MIGRATIONS
    assert {one["kind"] for one in hooks(values, "pre-upgrade")} == {"Job"}
    assert not {one["kind"] for one in rendered(values) if HOOK in annotations(one)} - {"Job", "Pod"}


@pytest.mark.parametrize("values", NAMED)
def test_an_installation_migrates_first_where_the_database_is_there_already(values: str) -> None:
    has_own = any(one["kind"] == "StatefulSet" for one in rendered(values))
    assert {one["metadata"]["name"] for one in hooks(values, "pre-install")} == (set() if has_own else MIGRATIONS)


@pytest.mark.parametrize("values", NAMED)
def test_a_migration_runs_the_new_version_and_stops_at_its_first_fault(values: str) -> None:
    pods = pod_templates(rendered(values))
    for name, part in (("migrate", "service"), ("mlflow-migrate", "mlflow")):
        (migration,) = pods[f"Job/rel-electra-{name}"]["spec"]["containers"]
        (served,) = pods[f"Deployment/rel-electra-{part}"]["spec"]["containers"]
        assert migration["image"] == served["image"]
        assert pods[f"Job/rel-electra-{name}"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("values", NAMED)
def test_a_migration_needs_nothing_that_comes_with_the_release(values: str) -> None:
    made = {one["metadata"]["name"] for one in rendered(values)} - MIGRATIONS
    for one in hooks(values, "pre-upgrade"):
        spec = one["spec"]["template"]["spec"]
        assert spec.get("serviceAccountName") is None
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= {"emptyDir", "secret"}
            assert volume.get("secret", {}).get("secretName") not in made
        assert annotations(one)["helm.sh/hook-delete-policy"].startswith("before-hook-creation")


@pytest.mark.parametrize("values", NAMED)
def test_a_new_version_changes_images_and_labels_of_the_version_alone(values: str, tmp_path: Path) -> None:
    changed = upgraded(values, tmp_path)
    ends = ("image", "app.kubernetes.io/version", "helm.sh/chart")
    assert changed
    assert not [str(one) for one in changed if not one.path.endswith(ends)]


@pytest.mark.parametrize("values", NAMED)
def test_a_new_version_with_the_ray_image_of_before_stops_no_job(values: str, tmp_path: Path) -> None:
    changed = upgraded(values, tmp_path, "--set", "ray.image.tag=0.1.0")
    assert not [str(one) for one in changed if one.stops_jobs or one.is_refused]


def upgraded(values: str, folder: Path, *settings: str) -> list[Any]:
    """What differs between this chart and the same one under another version."""
    from chart_changes import changes, render

    if why_no_helm():
        pytest.skip(why_no_helm() or "")
    later = folder / "electra"
    shutil.copytree(CHART, later)
    chart = later / "Chart.yaml"
    chart.write_text(chart.read_text().replace("ersion: 0.1.0", "ersion: 0.2.0"))
    file = CHART / f"values/{values}.yaml"
    return changes(render(CHART, file, *settings), render(later, file, *settings))


def test_fields_are_named_by_what_they_are_of() -> None:
    from chart_changes import changes

    def deployment(env: list[dict[str, str]], selector: str) -> dict[str, Any]:
        spec = {"selector": {"matchLabels": {"app": selector}}, "env": env}
        return {"kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}

    before = deployment([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "x")
    after = deployment([{"name": "N", "value": "0"}, {"name": "A", "value": "1"}, {"name": "B", "value": "3"}], "y")
    found = changes([before, {"kind": "Job", "metadata": {"name": "b"}}], [after])
    assert [str(one) for one in found] == [
        "Deployment/a spec.selector.matchLabels.app: x → y",
        "Deployment/a spec.env.B.value: '2' → '3'",
        "Deployment/a spec.env.N: (nothing) → {name: N, value: '0'}",
        "Job/b as a whole: there → (nothing)",
    ]
    assert [one.is_refused for one in found] == [True, False, False, False]
    assert found[-1].is_loss
