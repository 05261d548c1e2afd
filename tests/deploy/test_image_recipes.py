from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from chart_rendering import ROOT

RECIPES = sorted((ROOT / "deploy/docker").glob("*.Dockerfile"))
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


def test_there_is_an_image_for_each_part() -> None:
    assert [path.name for path in RECIPES] == ["mlflow.Dockerfile", "ray.Dockerfile", "service.Dockerfile"]


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(path: Path) -> None:
    assert HADOLINT is not None
    done = subprocess.run([HADOLINT, str(path)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_an_image_has_a_pinned_base_a_health_check_and_no_root(path: Path) -> None:
    text = path.read_text()
    last_stage = text.rpartition("\nFROM ")[2]
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    assert re.findall(r"^USER (.*)$", last_stage, re.MULTILINE) == ["10001:10001"]
    assert "\nHEALTHCHECK " in last_stage
    assert "-c constraints.txt" in text


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_what_an_image_copies_is_not_kept_from_it(path: Path) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [parts[:-1] for parts in (line.split()[1:] for line in path.read_text().splitlines() if "COPY" in line)]
    sources = {name for names in copied if not names[0].startswith("--from") for name in names}
    assert sources
    assert sources <= allowed
    assert all((ROOT / name).exists() for name in sources)


def test_the_service_image_installs_no_torch_ray_or_mlflow() -> None:
    names = {re.split(r"[\[<>=]", line)[0] for line in requirements("service", "postgres", "tracing")}
    assert names >= {"fastapi", "sqlalchemy", "psycopg", "typer", "opentelemetry-sdk"}
    assert not names & {"torch", "ray", "mlflow", "transformers"}


def test_the_ray_image_installs_what_jobs_need_in_pinned_versions() -> None:
    names = {re.split(r"[\[<>=]", line)[0].lower() for line in requirements("training")}
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {"torch", "ray", "mlflow"} <= names <= pinned


def test_an_extra_that_is_not_there_stops_the_build() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        requirements("postgresql")


def test_the_chart_and_the_images_are_of_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"appVersion: {version}\n" in (ROOT / "deploy/helm/electra/Chart.yaml").read_text()
    assert all(f"ARG VERSION={version}\n" in path.read_text() for path in RECIPES)
    (ray,) = re.findall(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"  version: {ray}\n" in (ROOT / "deploy/helm/electra/values.yaml").read_text()


def requirements(*extras: str) -> list[str]:
    command = [sys.executable, str(ROOT / "deploy/docker/requirements.py"), str(ROOT / "pyproject.toml"), *extras]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
