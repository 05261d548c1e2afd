"""One suite for the registry in memory and for a real MLflow server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from service_shelf import MemoryRegistry

from service.errors import InvalidCursorError, ModelNotFoundError, RegistryUnavailableError
from service.local.ports import claim_port
from service.settings import Settings
from service.shelf.mlflow_registry import MlflowRegistry
from service.shelf.models import Models
from service.shelf.registry import JOB_TAG, Registry

START_SECONDS = 240
NAMES = ("clinical--a", "clinical--b", "clinical-x", "law--a", "plain")


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, as the embedded stack starts one; its address."""
    home = tmp_path_factory.mktemp("mlflow")
    port = claim_port(0, "a test", "", set())
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{home / 'mlflow.sqlite'}", "--artifacts-destination", str(home)]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait(f"http://127.0.0.1:{port}", server, home / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, 15)
            server.wait(60)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise TimeoutError(log.read_text()[-3000:])


def fill(url: str) -> None:
    """Some models, `plain` of three versions; what is there already stays."""
    with httpx.Client(base_url=f"{url}/api/2.0/mlflow", trust_env=False, timeout=60) as http:
        if http.get("/registered-models/get", params={"name": "plain"}).is_success:
            return
        for name in NAMES:
            http.post("/registered-models/create", json={"name": name}).raise_for_status()
        for _ in range(3):
            tags = [{"key": JOB_TAG, "value": "pt-1"}]
            body = {"name": "plain", "source": "s3://models/plain", "tags": tags, "description": "card"}
            http.post("/model-versions/create", json=body).raise_for_status()


def aliases(registry: Registry) -> dict[str, int]:
    found = registry.model("plain")
    assert found is not None
    return dict(found.aliases)


@pytest.fixture(params=["memory", "mlflow"])
def any_registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    if request.param == "memory":
        memory = MemoryRegistry()
        for name in NAMES:
            memory.add(name)
        for version in (1, 2, 3):
            memory.add("plain", version, tags={JOB_TAG: "pt-1"}, description="card")
        yield memory
        return
    url = request.getfixturevalue("mlflow_server")
    fill(url)
    with closing(MlflowRegistry(Settings(home=tmp_path, mlflow_url=url))) as registry:
        yield registry
        for alias in aliases(registry):
            registry.delete_alias("plain", alias)


def test_models_are_found_by_how_their_names_begin(any_registry: Registry) -> None:
    found, token = any_registry.search_models("clinical--", None, 100)
    assert ([model.name for model in found], token) == (["clinical--a", "clinical--b"], None)


def test_pages_of_models_join(any_registry: Registry) -> None:
    first, token = any_registry.search_models("", None, 3)
    rest, last = any_registry.search_models("", token, 3)
    assert ([model.name for model in (*first, *rest)], last) == (list(NAMES), None)


def test_versions_come_newest_first(any_registry: Registry) -> None:
    first, token = any_registry.search_versions("plain", None, 2)
    rest, _ = any_registry.search_versions("plain", token, 2)
    assert [one.version for one in (*first, *rest)] == [3, 2, 1]
    assert {(one.job_id, one.description) for one in first} == {("pt-1", "card")}


def test_what_is_not_there_is_none(any_registry: Registry) -> None:
    assert any_registry.model("nowhere") is None
    assert any_registry.version("nowhere", 1) is None
    assert any_registry.version("plain", 99) is None
    assert any_registry.search_versions("nowhere", None, 5) == ([], None)


def test_a_version_is_found_by_its_job(any_registry: Registry) -> None:
    found = any_registry.version_of_job("pt-1")
    assert found is not None
    assert (found.name, any_registry.version_of_job("pt-2")) == ("plain", None)


def test_aliases_move_and_go(any_registry: Registry) -> None:
    any_registry.set_alias("plain", "champion", 1)
    any_registry.set_alias("plain", "champion", 2)
    assert aliases(any_registry) == {"champion": 2}
    any_registry.delete_alias("plain", "champion")
    assert aliases(any_registry) == {}


def test_an_alias_of_no_version_is_refused(any_registry: Registry) -> None:
    with pytest.raises(ModelNotFoundError):
        any_registry.set_alias("plain", "champion", 99)
    assert aliases(any_registry) == {}


def test_a_token_of_ones_own_is_refused(any_registry: Registry) -> None:
    with pytest.raises(InvalidCursorError):
        any_registry.search_models("", "bm90IGpzb24=", 3)


def test_a_project_sees_its_models_page_by_page(any_registry: Registry) -> None:
    models = Models(any_registry, locks=None, record=lambda entry: None)  # type: ignore[arg-type]
    first, cursor = models.page(frozenset({"clinical", "law"}), 2, None)
    rest, _ = models.page(frozenset({"clinical", "law"}), 2, cursor)
    assert [model.name for model in (*first, *rest)] == ["clinical--a", "clinical--b", "law--a"]
    default, _ = models.page(frozenset({"default"}), 50, None)
    assert [model.name for model in default] == ["clinical-x", "plain"]


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9"])
def test_an_mlflow_that_is_away_is_said_to_be(tmp_path: Path, url: str | None) -> None:
    with (
        closing(MlflowRegistry(Settings(home=tmp_path, mlflow_url=url))) as registry,
        pytest.raises(RegistryUnavailableError, match="MLflow"),
    ):
        registry.model("plain")
