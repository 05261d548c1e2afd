"""`electra keys`, `electra projects`, `electra audit`: against a service that asks for keys, on a real port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_world import AccessWorld, keys_settings
from live_service import serve_desk
from typer.testing import CliRunner, Result

from service.access.access import Access
from service.access.principals import Role
from service.cli import app
from service.cli.inputs import open_client
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path))
    with serve_desk(world.settings, world.desk) as url:
        monkeypatch.setenv("ELECTRA_URL", url)
        monkeypatch.delenv("ELECTRA_API_KEY_FILE", raising=False)
        yield world
    world.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_key_is_made_used_listed_and_revoked(world: AccessWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_API_KEY", world.keys["root"])
    assert run("projects", "create", "reviews").exit_code == 0
    made = run("keys", "create", "Rob's laptop", "--owner", "rob", "--project", "reviews")
    key = made.stdout.strip()
    assert key.startswith("elk_")
    monkeypatch.setenv("ELECTRA_API_KEY", key)
    job = json.loads(run("submit", "tiny", "--json").stdout)
    assert (job["owner"], job["project"]) == ("rob", "reviews")
    assert "jobs:write" in run("projects", "list").stdout
    monkeypatch.setenv("ELECTRA_API_KEY", world.keys["root"])
    assert "Rob's laptop" in run("keys", "list").stdout
    assert run("keys", "revoke", key.split("_")[1]).exit_code == 0
    assert "key.revoke" in run("audit", "--project", "reviews").stdout
    monkeypatch.setenv("ELECTRA_API_KEY", key)
    refused = run("jobs")
    assert refused.exit_code == 4
    assert "revoked" in refused.output
    assert key not in refused.output


def test_the_first_key_is_made_in_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path))
    monkeypatch.setenv("ELECTRA_ACCESS", "keys")
    made = run("keys", "create", "first", "--owner", "root", "--bootstrap")
    assert made.exit_code == 0, made.output
    engine = make_engine(f"sqlite:///{tmp_path}/service.sqlite")
    access = Access(keys_settings(tmp_path), SqlAccessStore(engine))
    assert access.authenticate([f"Bearer {made.stdout.splitlines()[0]}"]).owner == "root"
    engine.dispose()


def test_the_first_key_is_shown_as_json_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path))
    made = run("keys", "create", "first", "--owner", "root", "--bootstrap", "--json")
    told = json.loads(made.stdout)
    assert (told["owner"], told["role"], told["key"].split("_")[1]) == ("root", "admin", told["key_id"])
    assert str(tmp_path) in made.stderr


def test_a_database_that_cannot_be_used_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.sqlite").write_text("no database " * 100)
    monkeypatch.setenv("ELECTRA_DATABASE_URL", f"sqlite:///{tmp_path}/broken.sqlite")
    refused = run("keys", "create", "first", "--owner", "root", "--bootstrap")
    assert (refused.exit_code, "cannot be used" in refused.output) == (2, True)


def test_a_key_that_has_expired_is_listed_so(world: AccessWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.key("late", None, Role.VIEWER, lifetime_days=-1)
    monkeypatch.setenv("ELECTRA_API_KEY", world.keys["root"])
    row = next(line for line in run("keys", "list").stdout.splitlines() if "late" in line)
    assert "expired" in row


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [("http://electra.example", True), ("https://electra.example", False), ("http://127.0.0.1:8080", False)],
)
def test_a_key_in_the_clear_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, is_warned: bool
) -> None:
    monkeypatch.setenv("ELECTRA_API_KEY", "elk_1")
    open_client(url).close()
    assert ("in the clear" in capsys.readouterr().err) == is_warned


def test_a_key_that_cannot_be_made_is_said_so() -> None:
    refused = run("keys", "create", "x", "--owner", "a b")
    assert (refused.exit_code, "owner" in refused.output) == (2, True)


def test_a_first_key_names_the_setting_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path))
    monkeypatch.setenv("ELECTRA_PORT", "x")
    refused = run("keys", "create", "first", "--owner", "root", "--bootstrap")
    assert (refused.exit_code, "ELECTRA_PORT" in refused.output) == (2, True)
    assert "ELECTRA_DATABASE_URL" not in refused.output
