from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import ROOT

from service.settings import Settings

PATH = ROOT / "deploy/compose.yaml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(PATH.read_text())
    return loaded


def test_only_the_service_and_mlflow_are_published_and_only_on_loopback(compose: dict[str, Any]) -> None:
    published = {name: one["ports"] for name, one in compose["services"].items() if "ports" in one}
    assert published == {"mlflow": ["127.0.0.1:5000:5000"], "service": ["127.0.0.1:8080:8080"]}
    assert not [name for name, one in compose["services"].items() if one.get("network_mode") or one.get("privileged")]


def test_every_container_is_without_capabilities_and_new_privileges(compose: dict[str, Any]) -> None:
    for name, one in compose["services"].items():
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name


def test_ray_does_not_reach_the_database(compose: dict[str, Any]) -> None:
    inside = {name for name, one in compose["services"].items() if "database" in one["networks"]}
    assert inside == {"postgres", "migrate", "mlflow", "service"}
    assert compose["networks"]["database"] == {"internal": True}


def test_secrets_come_from_files_and_stand_in_no_variable(compose: dict[str, Any]) -> None:
    assert compose["secrets"] == {
        "postgres_password": {"file": "./secrets/postgres_password"},
        "ray_token": {"file": "./secrets/ray_token"},
    }
    for name, one in compose["services"].items():
        assert set(one.get("secrets", ())) <= compose["secrets"].keys(), name
        secret = [key for key in one.get("environment", {}) if re.search(r"PASSWORD|TOKEN|SECRET|KEY", key)]
        assert all(key.endswith(("_FILE", "_PATH")) for key in secret), name
        assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_service_starts_on_a_database_of_its_version(compose: dict[str, Any]) -> None:
    assert compose["services"]["service"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert compose["services"]["migrate"]["command"] == ["migrate", "--wait", "120"]


def test_everything_that_is_waited_for_can_say_that_it_is_well(compose: dict[str, Any]) -> None:
    waited = {
        other
        for one in compose["services"].values()
        for other, how in one.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    for name in waited:
        one = compose["services"][name]
        recipe = one.get("build", {}).get("dockerfile")
        assert "healthcheck" in one or "HEALTHCHECK" in (ROOT / recipe).read_text(), name


def test_the_services_variables_are_settings(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told = compose["services"]["service"]["environment"]
    names = {f"ELECTRA_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in told if name.startswith("ELECTRA_")} <= names
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.access, settings.tls_upstream, settings.host) == ("keys", True, "0.0.0.0")
    assert settings.ray_address == "http://ray-head:8265"
    assert settings.allowed_hosts == ("service",)
    assert json.loads(compose["services"]["service"]["environment"]["ELECTRA_ALLOWED_HOSTS"]) == ["service"]


def test_files_that_are_mounted_are_there(compose: dict[str, Any]) -> None:
    mounts = [mount for one in compose["services"].values() for mount in one.get("volumes", ()) if mount[0] == "."]
    assert mounts
    assert all((PATH.parent / mount.split(":")[0]).is_file() for mount in mounts)


def test_secrets_are_made_once_and_for_their_owner(tmp_path: Path) -> None:
    first, second = made_secrets(tmp_path), made_secrets(tmp_path)
    assert first.keys() == {"postgres_password", "ray_token"}
    assert all(re.fullmatch(r"[0-9a-f]{64}", text) for text in first.values())
    assert second == first
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def made_secrets(folder: Path) -> dict[str, str]:
    script = folder / "make-secrets"
    script.write_bytes((ROOT / "deploy/make-secrets").read_bytes())
    subprocess.run(["bash", str(script)], check=True, capture_output=True, timeout=60)
    return {path.name: path.read_text() for path in (folder / "secrets").iterdir()}
