"""`electra models …`, `electra corpora`, `electra clean`, `electra usage`: against a service on a real port."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_service import serve_desk
from service_doubles import MemoryFolders, make_job
from service_shelf import DIGEST, MemoryRegistry, export_files, keep_corpus, made_by
from typer.testing import CliRunner, Result

from service.cli import app
from service.cli.shelf import size_text
from service.http.desk import Desk
from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState


@pytest.fixture(autouse=True)
def address(
    settings: Settings,
    desk: Desk,
    store: SqlJobStore,
    folders: MemoryFolders,
    registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """A service with a job that has run, its model `m` and its corpus."""
    job = make_job(job_id="pt-1")
    store.insert(job)
    job = store.update(job, state=JobState.STARTING, attempt=1)
    store.update(job, state=JobState.RUNNING, started_at=job.created_at)
    registry.add("m", aliases={"newest": 1}, tags={"electra.job_id": "pt-1", "electra.network": "discriminator"})
    registry.add("m", 2)
    folders.results["pt-1"] = made_by(settings, "pt-1", "m", 1)
    export_files(settings, "pt-1")
    keep_corpus(settings, "pt-1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with serve_desk(settings, desk) as url:
        monkeypatch.setenv("ELECTRA_URL", url)
        yield url


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_models_are_listed_and_shown() -> None:
    assert "newest → 1" in run("models", "list").stdout
    assert json.loads(run("models", "list", "--json").stdout)[0]["aliases"] == {"newest": 1}
    assert "discriminator" in run("models", "show", "m").stdout
    shown = json.loads(run("models", "show", "m", "--json").stdout)
    assert [one["version"] for one in shown["versions"]["items"]] == [2, 1]


def test_a_model_is_promoted_unless_somebody_was_faster(registry: MemoryRegistry) -> None:
    done = run("models", "promote", "m", "champion", "2", "--expected", "0")
    assert (done.exit_code, "version 2 now; nothing before" in done.stdout) == (0, True)
    refused = run("models", "promote", "m", "champion", "1", "--expected", "1")
    assert (refused.exit_code, "alias_moved" in refused.output) == (4, True)
    assert json.loads(run("models", "promote", "m", "champion", "1", "--json").stdout)["before"] == 2


def test_lineage_is_shown_as_a_tree() -> None:
    shown = run("models", "lineage", "m@1")
    assert "job pt-1" in shown.stdout
    assert "attempt 1" in shown.stdout
    assert json.loads(run("models", "lineage", "m", "--json").stdout)["job"]["job_id"] == "pt-1"


def test_an_export_is_downloaded_and_unpacked(tmp_path: Path, settings: Settings) -> None:
    target = tmp_path / "here"
    target.mkdir()
    done = run("models", "download", "m@newest", "--to", str(target))
    assert done.exit_code == 0, done.output
    source = Path(settings.storage_uri, "jobs", "pt-1", "exports", "discriminator")
    assert {path.name: path.read_bytes() for path in (target / "m-1").iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }
    assert run("models", "download", "m", "--to", str(target)).exit_code == 2
    assert run("models", "download", "m@2", "--to", str(target)).exit_code == 4
    assert [path.name for path in target.iterdir()] == ["m-1"]


def test_corpora_are_listed() -> None:
    assert "pt-1" in run("corpora").stdout
    assert json.loads(run("corpora", "--json").stdout)[0]["digest"] == DIGEST
    assert json.loads(run("corpora", DIGEST).stdout)["num_tokens"] == 60


def test_cleaning_is_a_dry_run_unless_told_otherwise(settings: Settings) -> None:
    checkpoint = Path(settings.storage_uri, "texts", "ab" * 32)
    checkpoint.mkdir(parents=True)
    (checkpoint / "piece.parquet").write_text("x")
    shown = run("clean", "--corpora-days", "0", "--only", "--kept")
    assert (shown.exit_code, "pt-1 uses it and is RUNNING" in shown.stdout) == (0, True)
    assert "1 would be deleted" in shown.stdout
    assert (checkpoint / "piece.parquet").exists()
    done = json.loads(run("clean", "--corpora-days", "0", "--only", "--delete", "--json").stdout)
    assert (done["num_deleted"], done["num_kept"], (checkpoint / "piece.parquet").exists()) == (1, 1, False)


def test_usage_is_shown_in_three_ways() -> None:
    assert "local" in run("usage").stdout
    report = json.loads(run("usage", "--by", "kind", "--by", "day", "--json").stdout)
    assert (report["group_by"], report["rows"][0]["group"]["kind"], report["total"]["jobs"]) == (
        ["kind", "day"],
        "pretrain",
        1,
    )
    rows = list(csv.DictReader(io.StringIO(run("usage", "--csv", "--by", "owner", "--from", "2020-01-01").stdout)))
    assert (rows[0]["owner"], rows[0]["attempts"], float(rows[0]["cpu_hours"]) >= 0) == ("local", "1", True)


@pytest.mark.parametrize("arguments", [("--from", "yesterday"), ("--to", "2026-13-01")])
def test_a_day_that_is_none_is_said_so(arguments: tuple[str, str]) -> None:
    assert run("usage", *arguments).exit_code == 2


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    refused = run("usage", "--from", "2026-02-01", "--to", "2026-01-01")
    assert (refused.exit_code, "from must be before to" in refused.output) == (4, True)


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (3e12, "3.0 TB"), (5e15, "5000.0 TB")]
)
def test_sizes(size: float, shown: str) -> None:
    assert size_text(int(size)) == shown
