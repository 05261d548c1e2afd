"""What holds for every command: JSON for programs, and the tab key."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from live_service import serve_desk
from service_doubles import make_job
from typer.core import TyperGroup
from typer.testing import CliRunner

from service.cli import app, stack
from service.http.desk import Desk
from service.ledger.store import SqlJobStore
from service.local import LocalStack, StackState
from service.local.state import write_state
from service.settings import Settings

WITHOUT_JSON = {
    "demo",  # a tour, for people
    "serve",  # prints its log alone: ELECTRA_LOG_JSON
}


def commands(group: TyperGroup, *above: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *above, name)
        else:
            yield " ".join((*above, name)), command


def found() -> dict[str, Any]:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return dict(commands(root))


def test_every_command_can_answer_programs() -> None:
    silent = {
        name for name, command in found().items() if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert silent == WITHOUT_JSON


class BriefStack(LocalStack):
    """A stack of nothing, which is interrupted as soon as it is watched."""

    def start(self) -> None:
        self.home.mkdir()
        self._report("Ray is ready")
        addresses = dict.fromkeys(("service_url", "mlflow_url", "ray_url", "ray_token_path"), "http://127.0.0.1:9")
        state = StackState(
            stack_id="s", pid=os.getpid(), started_at=datetime.now(UTC), storage_uri=self.storage_uri, **addresses
        )
        write_state(self.home, state)

    def check_alive(self) -> None:
        raise KeyboardInterrupt


def test_up_tells_programs_where_it_is_and_people_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "LocalStack", BriefStack)
    result = CliRunner().invoke(app, ["up", "--home", str(tmp_path / "home"), "--json"])
    assert json.loads(result.stdout)["service_url"] == "http://127.0.0.1:9"
    assert "Ray is ready" in result.stderr


def complete(words: str, url: str) -> str:
    count = str(len(words.split(" ")) - 1)
    environment = {"_ELECTRA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count, "ELECTRA_URL": url}
    result = CliRunner().invoke(app, prog_name="electra", env=environment)
    assert result.exit_code == 0
    return result.output.strip()


def test_the_tab_key_offers_jobs(settings: Settings, desk: Desk, store: SqlJobStore) -> None:
    job = make_job()
    store.insert(job)
    with serve_desk(settings, desk) as url:
        assert complete("electra show pt-", url) == job.job_id
        assert complete("electra show other", url) == ""


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "no address"])
def test_the_tab_key_is_silent_where_no_service_answers(url: str) -> None:
    assert complete("electra show pt-", url) == ""


def test_the_tab_key_offers_commands() -> None:
    assert complete("electra webh", "") == "webhooks"
