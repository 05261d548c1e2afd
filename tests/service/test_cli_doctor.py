"""`electra doctor`, on real services and on broken ones."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from live_service import serve_desk
from sqlalchemy import text
from typer.testing import CliRunner

from service.cli import app
from service.doctor import installed, reachable
from service.doctor.findings import Finding, Status, look_over
from service.doctor.reachable import Places
from service.http.desk import Desk
from service.ledger.database import make_engine, upgrade_database
from service.ledger.store import SqlJobStore
from service.records import ClusterStatus
from service.settings import Settings

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it takes many seconds, and is looked at by itself."""
    monkeypatch.setattr(installed, "_torch", lambda: Finding("torch", Status.OK, ""))


def places(home: Path, **changes: Any) -> Places:
    given = {"service_url": None, "ray_url": None, "mlflow_url": None, "database_url": None}
    return Places(**{"storage_uri": str(home / "storage"), **given, **changes})


def run(*arguments: str, home: Path, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    given = {"ELECTRA_HOME": str(home), **environment}
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments], env=given)
    return result.exit_code, {row["name"]: row for row in json.loads(result.output)}


@contextmanager
def answering(body: bytes, **headers: str) -> Iterator[str]:
    """A server that says the same to all."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_machine_with_a_service_is_well(settings: Settings, desk: Desk, store: SqlJobStore, tmp_path: Path) -> None:
    from datetime import UTC, datetime

    store.save_cluster_status(ClusterStatus(reconciled_at=datetime.now(UTC), is_ray_reachable=True))
    with serve_desk(settings, desk) as url:
        code, rows = run("--url", url, home=tmp_path)
    assert code == 0, rows
    named = ("python", "packages", "storage", "service", "service parts", "clock")
    assert [rows[name]["status"] for name in named] == ["ok"] * 6
    assert list((tmp_path / "storage").iterdir()) == []  # nothing is left behind


def test_what_is_away_fails_with_what_to_do(tmp_path: Path) -> None:
    environment = {"ELECTRA_RAY_ADDRESS": NOWHERE, "ELECTRA_MLFLOW_URL": NOWHERE}
    code, rows = run("--url", NOWHERE, home=tmp_path, **environment)
    assert code == 1
    assert all(rows[name]["status"] == "fail" and rows[name]["advice"] for name in ("service", "ray", "mlflow"))


def test_nothing_named_is_no_fault(tmp_path: Path) -> None:
    code, rows = run(home=tmp_path)
    assert code == 0
    assert rows["service"]["status"] == "warn"
    assert (rows["ray"]["status"], rows["database"]["status"]) == ("ok", "ok")


def test_a_storage_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file where the folder should be")
    (found,) = reachable.check_storage(places(tmp_path))
    assert (found.status, "ELECTRA_STORAGE_URI" in found.advice) == (Status.FAIL, True)


def test_another_program_at_the_address_is_told_from_the_service(tmp_path: Path) -> None:
    with answering(b"<html>") as url:
        (service,) = reachable.check_service(places(tmp_path, service_url=url))
        (ray,) = reachable.check_ray(places(tmp_path, ray_url=url))
    assert (service.status, ray.status) == (Status.FAIL, Status.FAIL)


def test_another_version_and_another_time_are_warned_of(tmp_path: Path) -> None:
    document = json.dumps({"info": {"version": "99.0"}}).encode()
    with answering(document, Date="Sun, 01 Jan 2023 00:00:00 GMT") as url:
        rows = {row.name: row for row in reachable.check_service(places(tmp_path, service_url=url))}
    assert (rows["service"].status, rows["clock"].status) == (Status.WARN, Status.WARN)
    assert "99.0" in rows["service"].detail


def test_a_database_that_waits_for_migrations_is_said_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'd.sqlite'}"
    engine = make_engine(url)
    upgrade_database(engine)
    assert [one.status for one in reachable.check_database(places(tmp_path, database_url=url))] == [Status.OK]
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    engine.dispose()
    (found,) = reachable.check_database(places(tmp_path, database_url=url))
    assert (found.status, "electra migrate" in found.advice) == (Status.WARN, True)


def test_a_database_that_is_away_fails_and_its_password_stays_unsaid(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:hunter2@127.0.0.1:9/x"
    (found,) = reachable.check_database(places(tmp_path, database_url=url))
    assert (found.status, "hunter2" in f"{found}") == (Status.FAIL, False)


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.2.3", ">=1,<2", True),
        ("2.0.0", ">=1,<2", False),
        ("0.9", ">=1", False),
        ("2.13.0+cpu", ">=2.13,<3", True),
        ("3.11.9", "<3.12,>=3.11", True),
        ("1.0", "", True),
        ("1.0.0", "==1.0", True),
    ],
)
def test_versions_are_held_against_what_is_asked_for(version: str, wanted: str, fits: bool) -> None:
    assert installed._fits(version, wanted) is fits


def test_a_check_that_breaks_hides_no_other() -> None:
    def breaks() -> list[Finding]:
        raise RuntimeError("out of order")

    rows = look_over([("a", breaks), ("b", lambda: [Finding("b", Status.OK, "")])])
    assert [(row.name, row.status) for row in rows] == [("a", Status.FAIL), ("b", Status.OK)]


def test_torch_and_ray_stay_out_of_this_process(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho \'{"version": "9", "cuda": null, "devices": []}\'\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    code = (
        "import sys\nfrom service.doctor import installed\n"
        f"sys.executable = {str(program)!r}\nrows = list(installed.check_machine())\n"
        "assert rows[1].detail.startswith('9, for CPUs'), rows\n"
        "assert not {'torch', 'ray', 'mlflow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
