from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from live_service import serve_desk
from service_doubles import make_job
from typer.testing import CliRunner, Result

from pipelines.joblogs.keeper import LogKeeper
from service.cli import app
from service.client import ElectraClient
from service.http.desk import Desk
from service.joblogs import kept
from service.ledger.store import SqlJobStore
from service.records import Job
from service.settings import Settings
from service.states import JobState


@pytest.fixture
def job(store: SqlJobStore, settings: Settings) -> Job:
    """A finished job of which two processes kept a log."""
    job = make_job(state=JobState.SUCCEEDED, attempt=1, finished_at=datetime.now(UTC), is_log_saved=True)
    store.insert(job)
    for source in ("driver", "rank-0"):
        keeper = LogKeeper(str(Path(settings.job_uri(job.job_id), "logs", "attempt-1", source)), source, 1 << 20)
        keeper.start()
        keeper.add("info", "l", f"{source} began", {"step": 1})
        keeper.add("error", "l", f"{source} Failed\x1b[2J")
        keeper.close()
    return job


@pytest.fixture
def url(settings: Settings, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(kept, "POLL_INTERVAL_SECONDS", 0.05)
    with serve_desk(settings, desk) as url:
        monkeypatch.setenv("ELECTRA_URL", url)
        yield url


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["logs", *arguments])


@pytest.mark.usefixtures("url")
def test_lines_are_chosen_by_source_level_and_text(job: Job) -> None:
    lines = run(job.job_id, "--source", "rank-*").stdout.splitlines()
    assert [line.endswith("l: rank-0 began  step=1") for line in lines] == [True, False]
    assert run(job.job_id, "--level", "error", "--grep", "DRIVER failed").stdout.endswith("driver Failed\\x1b[2J\n")
    assert run(job.job_id, "--grep", "nothing of this").stdout == ""


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("following", [[], ["-f"]])
def test_json_is_one_line_each(job: Job, following: list[str]) -> None:
    told = [json.loads(line) for line in run(job.job_id, "--json", *following).stdout.splitlines()]
    assert sorted((line["source"], line["level"]) for line in told) == [
        ("driver", "error"),
        ("driver", "info"),
        ("rank-0", "error"),
        ("rank-0", "info"),
    ]


@pytest.mark.usefixtures("url")
def test_sources_are_listed(job: Job) -> None:
    shown = run(job.job_id, "--sources").stdout
    assert "driver" in shown
    assert "rank-0" in shown
    assert [one["source"] for one in json.loads(run(job.job_id, "--sources", "--json").stdout)["items"]] == [
        "driver",
        "rank-0",
    ]


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    "arguments",
    [["--level", "loud"], ["--source", "driver-output", "--grep", "x"], ["--sources", "-f"]],
)
def test_what_does_not_go_together_is_refused(job: Job, arguments: list[str]) -> None:
    assert run(job.job_id, *arguments).exit_code == 2


def test_the_client_reads_pages_and_follows(job: Job, url: str) -> None:
    with ElectraClient(url) as client:
        first = client.log_page(job.job_id, limit=3, since=datetime(2020, 1, 1, tzinfo=UTC))
        rest = client.log_page(job.job_id, limit=3, cursor=first.next_cursor)
        assert (len(first.items), len(rest.items), rest.next_cursor) == (3, 1, None)
        followed = list(client.follow_log_records(job.job_id, level="error"))
        assert sorted(line.source for line in followed) == ["driver", "rank-0"]
        assert client.log_sources(job.job_id).attempt == 1
