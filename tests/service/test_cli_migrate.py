from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import inspect, text
from typer.testing import CliRunner

from service.cli import app
from service.ledger.database import make_engine, upgrade_database
from service.ledger.tables import Base
from service.ledger.versions import database_revision, newest_revision


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path))
    monkeypatch.setenv("ELECTRA_DATABASE_URL", url)
    return url


def test_an_empty_database_gets_all_tables(url: str) -> None:
    assert CliRunner().invoke(app, ["migrate"]).exit_code == 0
    engine = make_engine(url)
    assert set(Base.metadata.tables) <= set(inspect(engine).get_table_names())
    engine.dispose()


def test_programs_are_told_in_json(url: str) -> None:
    told = json.loads(CliRunner().invoke(app, ["migrate", "--json"]).stdout)
    assert told == {"before": None, "after": newest_revision(), "newest": newest_revision()}


def test_migrating_again_changes_nothing(url: str) -> None:
    CliRunner().invoke(app, ["migrate"])
    again = CliRunner().invoke(app, ["migrate"])
    assert again.exit_code == 0
    assert f"{newest_revision()} -> {newest_revision()}" in again.output


def test_a_check_says_that_the_database_is_behind_and_changes_nothing(url: str) -> None:
    assert CliRunner().invoke(app, ["migrate", "--check"]).exit_code == 1
    engine = make_engine(url)
    assert database_revision(engine) is None
    upgrade_database(engine)
    engine.dispose()
    assert CliRunner().invoke(app, ["migrate", "--check"]).exit_code == 0


def test_a_database_that_cannot_be_opened_is_said_in_a_sentence(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("ELECTRA_DATABASE_URL", f"sqlite:///{tmp_path / 'folder'}")
    refused = CliRunner().invoke(app, ["migrate"])
    assert refused.exit_code == 1
    assert "The database cannot be used: unable to open database file" in refused.output


def test_a_wrong_setting_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_PORT", "http")
    refused = CliRunner().invoke(app, ["migrate"])
    assert refused.exit_code == 2
    assert "ELECTRA_PORT" in refused.output


def test_a_database_of_a_later_version_is_left_as_it_is_and_served(url: str) -> None:
    engine = make_engine(url)
    upgrade_database(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    upgrade_database(engine)
    assert database_revision(engine) == "later"
    refused = CliRunner().invoke(app, ["migrate"])
    assert refused.exit_code == 1
    assert "of a later version (later)" in refused.output
    with engine.begin() as connection:
        connection.execute(text("SELECT job_id FROM jobs"))
    engine.dispose()
