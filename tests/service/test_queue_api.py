"""The queue and quotas over HTTP, and in `electra`'s own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from access_world import TINY, AccessWorld, keys_settings
from live_service import serve_desk
from service_doubles import make_job
from typer.testing import CliRunner, Result

from service.access.interfaces import AuditFilter
from service.cli import app
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.queueing.demand import Demand
from service.queueing.records import Wait, WaitReason
from service.queueing.shares import Usage
from service.records import ClusterStatus
from service.settings import Settings
from service.states import JobState


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path))
    yield world
    world.close()


@pytest.fixture
def waiting(store: SqlJobStore) -> str:
    """A job that waits second for two CPUs."""
    job = make_job(demand=Demand(num_workers=2, group_workers=2), queued_at=datetime(2026, 1, 1, tzinfo=UTC))
    store.insert(job)
    SqlQueueStore(store._engine).save_waits([Wait(job.job_id, WaitReason.CLUSTER_BUSY, "Nothing is free.", 2)])
    return job.job_id


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.anyio
async def test_a_job_says_why_it_waits(client: httpx.AsyncClient, waiting: str) -> None:
    told = (await client.get(f"/v1/jobs/{waiting}")).json()["waiting"]
    assert told == {
        "reason": "cluster_busy",
        "message": "Nothing is free.",
        "since": "2026-01-01T00:00:00Z",
        "position": 2,
    }


@pytest.mark.anyio
async def test_a_job_that_was_not_looked_at_yet_says_so_and_one_that_runs_says_nothing(
    client: httpx.AsyncClient, store: SqlJobStore
) -> None:
    new, runs = make_job(), make_job(state=JobState.RUNNING, waiting_reason="cluster_busy")
    store.insert(new)
    store.insert(runs)
    told = (await client.get(f"/v1/jobs/{new.job_id}")).json()["waiting"]
    assert (told["reason"], told["position"]) == ("behind", None)
    assert (await client.get(f"/v1/jobs/{runs.job_id}")).json()["waiting"] is None


@pytest.mark.anyio
async def test_a_reason_of_a_later_version_is_shown_as_one_that_is_known(
    client: httpx.AsyncClient, store: SqlJobStore
) -> None:
    job = make_job(waiting_reason="full_moon", waiting_message="The moon is full.")
    store.insert(job)
    told = (await client.get(f"/v1/jobs/{job.job_id}")).json()["waiting"]
    assert (told["reason"], told["message"]) == ("behind", "The moon is full.")


@pytest.mark.anyio
async def test_the_queue_shows_who_waits_who_runs_and_what_is_free(
    client: httpx.AsyncClient, store: SqlJobStore, waiting: str
) -> None:
    now = datetime.now(UTC)
    runs = make_job(state=JobState.RUNNING, owner="ben", demand=Demand(cpus_per_worker=3))
    store.insert(runs)
    store.save_cluster_status(
        ClusterStatus(
            reconciled_at=now, is_ray_reachable=True, num_cpus=4, num_gpus=0, free_cpus=1, free_gpus=0, resources_at=now
        )
    )
    SqlQueueStore(store._engine).save_usages([Usage("ben", 4 * 21_600 / 0.6931, 0, now)])
    told = (await client.get("/v1/queue")).json()
    assert [(job["job_id"], job["waiting"]["position"], job["num_cpus"]) for job in told["waiting"]] == [
        (waiting, 2, 2)
    ]
    assert [job["job_id"] for job in told["running"]] == [runs.job_id]
    ben = next(one for one in told["owners"] if one["owner"] == "ben")
    assert (ben["num_cpus"], ben["share"], round(ben["recent_share"], 1)) == (3, 0.75, 1.0)
    assert (told["cluster"]["free_cpus"], told["cluster"]["num_cpus"], told["max_running_jobs"]) == (1, 4, 1)


@pytest.mark.anyio
async def test_the_queue_hides_projects_that_one_does_not_see(world: AccessWorld) -> None:
    mine, others = world.job(project="clinical", owner="ada"), world.job(project="law", owner="eve")
    async with world.client() as client:
        told = (await client.get("/v1/queue", headers=world.bearer("ada"))).json()
        all_of_it = (await client.get("/v1/queue", headers=world.bearer("root"))).json()
    assert [job["job_id"] for job in told["waiting"]] == [mine.job_id]
    assert [one["owner"] for one in told["owners"]] == ["ada"]
    assert {job["job_id"] for job in all_of_it["waiting"]} == {mine.job_id, others.job_id}


@pytest.mark.anyio
async def test_what_an_owner_holds_elsewhere_is_not_told(world: AccessWorld) -> None:
    """Ben runs a job that Ada sees and one that she does not; both have used something of late."""
    seen = world.job(project="clinical", owner="ben", state=JobState.RUNNING, demand=Demand(cpus_per_worker=2))
    world.job(project="law", owner="ben", state=JobState.RUNNING, demand=Demand(cpus_per_worker=5))
    world.job(project="clinical", owner="ada")
    now = datetime.now(UTC)
    world.store.save_cluster_status(ClusterStatus(reconciled_at=now, is_ray_reachable=True, num_cpus=10, num_gpus=0))
    SqlQueueStore(world.engine).save_usages([Usage(owner, 21_600, 0, now) for owner in ("ada", "ben")])
    async with world.client() as client:
        ada = (await client.get("/v1/queue", headers=world.bearer("ada"))).json()
        root = (await client.get("/v1/queue", headers=world.bearer("root"))).json()
    assert [job["job_id"] for job in ada["running"]] == [seen.job_id]
    told = {one["owner"]: one for one in ada["owners"]}
    assert (told["ben"]["num_running_jobs"], told["ben"]["num_cpus"], told["ben"]["share"]) == (1, 2, 0.2)
    assert (told["ben"]["recent_share"], told["ada"]["recent_share"] > 0) == (None, True)
    told = {one["owner"]: one for one in root["owners"]}
    assert (told["ben"]["num_cpus"], told["ben"]["recent_share"] > 0) == (7, True)


@pytest.mark.anyio
async def test_the_first_two_hundred_of_another_project_hide_none_of_ones_own(world: AccessWorld) -> None:
    for _ in range(201):
        world.job(project="law", owner="ada")
    mine = world.job(project="clinical", owner="ada", priority=-1)
    async with world.client() as client:
        told = (await client.get("/v1/queue", headers=world.bearer("ben"))).json()
    assert [job["job_id"] for job in told["waiting"]] == [mine.job_id]


@pytest.mark.anyio
async def test_a_search_is_shown_with_the_trials_that_have_room(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    demand = Demand(num_workers=100, group_workers=1)
    store.insert(make_job(state=JobState.RUNNING, owner="ben", demand=demand))
    now = datetime.now(UTC)
    store.save_cluster_status(ClusterStatus(reconciled_at=now, is_ray_reachable=True, num_cpus=8, num_gpus=0))
    (ben,) = (await client.get("/v1/queue")).json()["owners"]
    assert (ben["num_cpus"], ben["share"]) == (8, 1.0)


@pytest.mark.anyio
async def test_a_quota_is_set_shown_held_and_taken_away_and_each_has_its_row(world: AccessWorld) -> None:
    async with world.client() as client:
        root, ada = world.bearer("root"), world.bearer("ada")
        made = await client.put("/v1/quotas/owners/ada", json={"max_cpus": 0.5}, headers=root)
        assert (made.status_code, made.json()["set_by"].split()[0]) == (200, "root")
        assert (await client.get("/v1/quotas/owners/ada", headers=root)).json()["max_cpus"] == 0.5
        refused = (await client.post("/v1/jobs", json={**TINY, "project": "clinical"}, headers=ada)).json()
        assert (refused["status"], refused["code"]) == (422, "quota_exceeded")
        assert refused["errors"][0]["pointer"] == "/spec/compute/num_workers"
        assert (await client.delete("/v1/quotas/owners/ada", headers=root)).status_code == 204
        assert (await client.delete("/v1/quotas/owners/ada", headers=root)).json()["code"] == "quota_not_found"
        assert (await client.post("/v1/jobs", json={**TINY, "project": "clinical"}, headers=ada)).status_code == 202
        assert (await client.put("/v1/quotas/projects/none", json={}, headers=root)).json()[
            "code"
        ] == "project_not_found"
    rows = [(row.action, row.object, row.outcome) for row in world.access.store.page_audit(AuditFilter(limit=20))]
    for action, outcome in (("quota.set", "done"), ("quota.remove", "done"), ("quota.remove", "refused 404")):
        assert sum(row[0] == action and row[2] == outcome for row in rows) == 1
    assert ("quota.set", "owner ada", "done") in rows


@pytest.mark.anyio
async def test_quotas_of_the_settings_refuse_too(tmp_path: Path) -> None:
    world = AccessWorld(keys_settings(tmp_path, quota_project_running_jobs=0, quota_owner_gpus=0))
    body = {"spec": {**TINY["spec"], "compute": {"gpus_per_worker": 1}}, "project": "clinical"}  # type: ignore[dict-item]
    async with world.client() as client:
        refused = (await client.post("/v1/jobs", json=body, headers=world.bearer("ada"))).json()
    world.close()
    assert [item["rule"] for item in refused["errors"]] == [
        "compute.num_workers × gpus_per_worker must be at most 0 GPUs, the quota of owner ada",
        "project clinical may have 0 running jobs",
    ]


@pytest.mark.anyio
async def test_metrics_count_the_queue_by_reason(client: httpx.AsyncClient, waiting: str) -> None:
    text = (await client.get("/metrics")).text
    assert 'electra_queue_jobs{reason="cluster_busy"} 1.0' in text
    assert 'electra_queue_jobs{reason="quota_cpus"} 0.0' in text
    assert 'electra_queue_oldest_seconds{reason="quota_cpus"} 0.0' in text


def test_a_cluster_of_unknown_size_is_no_reason_to_look(tmp_path: Path) -> None:
    """`ELECTRA_CHECK_CAPACITY=false` takes jobs that are larger than the cluster."""
    world = AccessWorld(keys_settings(tmp_path, check_capacity=False))
    small = ClusterStatus(reconciled_at=datetime.now(UTC), is_ray_reachable=True, num_cpus=0.5, num_gpus=0)
    world.store.save_cluster_status(small)
    with serve_desk(world.settings, world.desk) as url:
        key = {"Authorization": f"Bearer {world.keys['ada']}"}
        assert httpx.post(f"{url}/v1/jobs", json=TINY, headers=key).status_code == 202
    world.close()


def test_the_queue_and_quotas_in_the_terminal(world: AccessWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.job(project="clinical", owner="ada", name="nightly")
    wait = Wait(job.job_id, WaitReason.QUOTA_CPUS, "The quota of owner ada is 4 CPUs.", 1)
    SqlQueueStore(world.engine).save_waits([wait])
    with serve_desk(world.settings, world.desk) as url:
        monkeypatch.setenv("ELECTRA_URL", url)
        monkeypatch.setenv("ELECTRA_API_KEY", world.keys["root"])
        monkeypatch.setenv("COLUMNS", "250")
        assert run("quotas", "set", "--owner", "ada", "--cpus", "4").stdout == (
            "owner ada: running jobs any, CPUs 4, GPUs any.\n"
        )
        shown = run("queue").stdout
        assert all(word in shown for word in (job.job_id, "quota_cpus", "0 of 4", "0 of 1 places"))
        assert json.loads(run("queue", "--json").stdout)["waiting"][0]["owner"] == "ada"
        assert "1. quota cpus" in run("jobs").stdout
        assert "The quota of owner ada is 4 CPUs." in run("show", job.job_id).stdout
        assert "ada" in run("quotas", "list").stdout
        assert run("quotas", "remove", "--owner", "ada").exit_code == 0
        assert json.loads(run("quotas", "list", "--json").stdout)["items"] == []
        assert run("quotas", "set", "--cpus", "4").exit_code == 2


def test_defaults_set_no_quota(settings: Settings) -> None:
    limits = {name: value for name, value in settings.model_dump().items() if name.startswith("quota_")}
    assert len(limits) == 6
    assert set(limits.values()) == {None}
