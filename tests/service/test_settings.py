from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_without_keys_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(ValidationError, match="without keys the service listens to this machine only"):
        Settings(host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_is_fine(host: str) -> None:
    assert Settings(host=host).host == host


def test_everything_lies_below_home_unless_said_otherwise(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert settings.storage_uri == str(tmp_path / "storage")
    assert settings.database_url == f"sqlite:///{tmp_path}/service.sqlite"
    assert settings.job_uri("x") == f"{tmp_path}/storage/jobs/x"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_MAX_RUNNING_JOBS", "4")
    monkeypatch.setenv("ELECTRA_RAY_TOKEN", "secret")
    settings = Settings()
    assert settings.max_running_jobs == 4
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"storage_uri": "s3://key:secret@bucket"},
        {"mlflow_url": "http://user:pass@host"},
        {"ray_address": "ray://host:10001"},
        {"job_python": "python; reboot"},
        {"max_attempts": 0},
        {"port": 99999},
    ],
)
def test_malformed_settings_stop_the_start(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Settings.model_validate(wrong)
