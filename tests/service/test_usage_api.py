"""Usage over REST: windows, CSV, and who sees whose."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from access_world import AccessWorld, keys_settings
from service_doubles import Clock

from service.ledger.store import SqlJobStore
from service.states import JobState

pytestmark = pytest.mark.anyio

DAY = "from=2026-01-01&to=2026-01-02"
"""Two hours of each of three jobs on two CPUs."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path))
    clock = Clock()
    store = SqlJobStore(world.engine, now=clock)
    for owner, project in (("ada", "clinical"), ("ben", "clinical"), ("eve", "law")):
        job = store.update(world.job(owner, project), state=JobState.STARTING, attempt=1)
        job = store.update(job, state=JobState.RUNNING, started_at=clock())
        clock.pass_seconds(7200)
        store.update(job, state=JobState.CANCELLED, finished_at=clock())
    yield world
    world.close()


@pytest.fixture
async def keyed(world: AccessWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("viewer", {("clinical", "ada"): 4.0, ("clinical", "ben"): 4.0}),
        ("eve", {("law", "eve"): 4.0}),
        ("root", {("clinical", "ada"): 4.0, ("clinical", "ben"): 4.0, ("law", "eve"): 4.0}),
    ],
)
async def test_each_sees_their_projects(
    keyed: httpx.AsyncClient, world: AccessWorld, who: str, expected: dict[tuple[str, str], float]
) -> None:
    url = f"/v1/usage?{DAY}&group_by=project&group_by=owner"
    report = (await keyed.get(url, headers=world.bearer(who))).json()
    found = {(row["group"]["project"], row["group"]["owner"]): row["cpu_hours"] for row in report["rows"]}
    assert found == expected
    assert (report["total"]["cpu_hours"], report["total"]["jobs"]) == (sum(expected.values()), len(expected))


async def test_a_hidden_project_is_as_empty_as_one_that_is_not_there(
    keyed: httpx.AsyncClient, world: AccessWorld
) -> None:
    answers = [
        (await keyed.get(f"/v1/usage?{DAY}&project={project}", headers=world.bearer("ada"))).json()
        for project in ("law", "nowhere")
    ]
    assert answers[0] == answers[1]
    assert (answers[0]["rows"], answers[0]["total"]["cpu_hours"]) == ([], 0.0)


async def test_csv_has_the_same_figures(keyed: httpx.AsyncClient, world: AccessWorld) -> None:
    answer = await keyed.get(f"/v1/usage?{DAY}&group_by=owner&format=csv", headers=world.bearer("root"))
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["owner"], float(row["cpu_hours"])) for row in rows] == [("ada", 4.0), ("ben", 4.0), ("eve", 4.0)]


async def test_moments_cut_as_days_do(keyed: httpx.AsyncClient, world: AccessWorld) -> None:
    window = {"from": "2026-01-01T01:00:00+00:00", "to": "2026-01-01T04:00:00+01:00"}
    report = (await keyed.get("/v1/usage", params=window, headers=world.bearer("root"))).json()
    assert (report["total"]["cpu_hours"], report["total"]["jobs"]) == (4.0, 1)


async def test_the_last_thirty_days_are_meant_where_nothing_is_said(
    keyed: httpx.AsyncClient, world: AccessWorld
) -> None:
    report = (await keyed.get("/v1/usage", headers=world.bearer("root"))).json()
    window = datetime.fromisoformat(report["to"]) - datetime.fromisoformat(report["from"])
    assert (window, datetime.fromisoformat(report["to"]) <= datetime.now(UTC)) == (timedelta(days=30), True)


@pytest.mark.parametrize(
    "window",
    ["from=2026-01-02&to=2026-01-01", "to=0001-01-01", "from=0001-01-01", "from=2026-01-01T12:00:00", "from=x"],
)
async def test_what_is_no_window_is_refused(keyed: httpx.AsyncClient, world: AccessWorld, window: str) -> None:
    answer = await keyed.get(f"/v1/usage?{window}", headers=world.bearer("root"))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(("bound", "field"), [("MAX_GROUPS", "group_by"), ("MAX_ATTEMPTS", "from")])
async def test_more_than_one_answer_holds_is_refused_with_what_to_ask_for(
    keyed: httpx.AsyncClient, world: AccessWorld, monkeypatch: pytest.MonkeyPatch, bound: str, field: str
) -> None:
    path = "/v1/usage?from=2026-01-01&to=2026-02-01&group_by=project&group_by=owner"
    num_groups = len((await keyed.get(path, headers=world.bearer("root"))).json()["rows"])
    assert num_groups > 1
    monkeypatch.setattr(f"service.shelf.usage.{bound}", num_groups - 1)
    answer = await keyed.get(path, headers=world.bearer("root"))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"/query/{field}")
