"""The trials of a search over REST: pages, orders, filters, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from service_doubles import MemoryFolders, make_job

from pipelines.specs.parsing import resolve_spec
from pipelines.specs.trial_documents import TrialList, TrialState, TrialSummary
from service.jobs.jobs import _new_job
from service.ledger.store import SqlJobStore

pytestmark = pytest.mark.anyio

SEARCH = {
    "kind": "search",
    "preset": "lambda",
    "base": {"preset": "tiny"},
    "objective": {"type": "fixed_corruption"},
    "budget": {"flops": 1e12},
}


def trial(number: int, score: float | None = None, state: TrialState = "COMPLETED", **fields: Any) -> TrialSummary:
    given = {"point": {"objective.discriminator_weight": 2.0}, "seed": 42, "step": 10 * number, "flops": 1e9 * number}
    return TrialSummary(number=number, state=state, score=score, **{**given, **fields})


@pytest.fixture
def job_id(store: SqlJobStore) -> str:
    """Of a search that the service knows."""
    job = _new_job(resolve_spec(SEARCH))
    store.insert(job)
    return job.job_id


def put_down(folders: MemoryFolders, job_id: str, *trials: TrialSummary, mode: Any = "max") -> None:
    folders.trials[job_id] = TrialList(metric="fixed_corruption_auc", mode=mode, trials=trials)


async def page_of(client: httpx.AsyncClient, job_id: str, **query: Any) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job_id}/trials", params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def numbers(page: dict[str, Any]) -> list[int]:
    return [one["number"] for one in page["items"]]


async def test_trials_are_shown_as_they_were_put_down(
    client: httpx.AsyncClient, folders: MemoryFolders, job_id: str
) -> None:
    given = trial(0, 0.75, reason="a reason", train_seconds=3.0)
    put_down(folders, job_id, given)
    page = await page_of(client, job_id)
    assert page == {
        "items": [given.model_dump(mode="json")],
        "total": 1,
        "metric": "fixed_corruption_auc",
        "mode": "max",
        "next_cursor": None,
    }


async def test_a_search_that_has_tried_nothing_has_an_empty_page(client: httpx.AsyncClient, job_id: str) -> None:
    page = await page_of(client, job_id)
    assert (page["items"], page["total"], page["metric"], page["next_cursor"]) == ([], 0, None, None)


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
@pytest.mark.parametrize("sort", ["number", "score"])
async def test_pages_visit_every_trial_once_and_in_order(
    client: httpx.AsyncClient, folders: MemoryFolders, job_id: str, limit: int, sort: str
) -> None:
    """Every third has no score; the last page says that it is the last, a full one too."""
    put_down(folders, job_id, *(trial(n, None if n % 3 == 0 else (n * 7) % 10 / 10) for n in range(10)))
    whole = numbers(await page_of(client, job_id, sort=sort, limit=100))
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = await page_of(client, job_id, sort=sort, limit=limit, **cursor)
        assert page["total"] == 10
        assert len(page["items"]) <= limit
        seen += numbers(page)
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == whole
    assert sorted(seen) == list(range(10))


async def test_a_cursor_behind_the_end_is_an_empty_page(
    client: httpx.AsyncClient, folders: MemoryFolders, job_id: str
) -> None:
    put_down(folders, job_id, trial(0, 0.5))
    page = await page_of(client, job_id, cursor="7")
    assert (page["items"], page["total"], page["next_cursor"]) == ([], 1, None)


@pytest.mark.parametrize(
    ("mode", "order", "expected"),
    [
        ("max", None, [3, 1, 4, 0, 2, 5]),
        ("max", "desc", [3, 1, 4, 0, 2, 5]),
        ("max", "asc", [0, 1, 4, 3, 2, 5]),
        ("min", None, [0, 1, 4, 3, 2, 5]),
        ("min", "asc", [0, 1, 4, 3, 2, 5]),
        ("min", "desc", [3, 1, 4, 0, 2, 5]),
    ],
)
async def test_scores_come_the_best_first_and_none_at_all_last(
    client: httpx.AsyncClient,
    folders: MemoryFolders,
    job_id: str,
    mode: str,
    order: str | None,
    expected: list[int],
) -> None:
    """Whichever way round; equal scores by number."""
    scores = (0.1, 0.5, None, 0.9, 0.5, None)
    put_down(folders, job_id, *(trial(n, score) for n, score in enumerate(scores)), mode=mode)
    query = {"sort": "score"} | ({} if order is None else {"order": order})
    assert numbers(await page_of(client, job_id, **query)) == expected


@pytest.mark.parametrize(
    ("sort", "order", "expected"),
    [
        ("number", None, [0, 1, 2]),
        ("number", "desc", [2, 1, 0]),
        ("flops", None, [1, 2, 0]),
        ("flops", "desc", [0, 2, 1]),
        ("step", None, [2, 0, 1]),
        ("step", "asc", [2, 0, 1]),
    ],
)
async def test_of_all_else_the_least_comes_first(
    client: httpx.AsyncClient,
    folders: MemoryFolders,
    job_id: str,
    sort: str,
    order: str | None,
    expected: list[int],
) -> None:
    """Also where more of a score is better."""
    put_down(
        folders,
        job_id,
        trial(0, flops=3e9, step=20),
        trial(1, flops=1e9, step=30),
        trial(2, flops=2e9, step=10),
    )
    query = {"sort": sort} | ({} if order is None else {"order": order})
    assert numbers(await page_of(client, job_id, **query)) == expected


async def test_without_an_order_trials_come_by_number(
    client: httpx.AsyncClient, folders: MemoryFolders, job_id: str
) -> None:
    put_down(folders, job_id, trial(0, 0.1), trial(1, 0.9))
    assert numbers(await page_of(client, job_id)) == [0, 1]


async def test_trials_are_chosen_by_state_and_by_round(
    client: httpx.AsyncClient, folders: MemoryFolders, job_id: str
) -> None:
    states: list[TrialState] = ["RUNNING", "COMPLETED", "STOPPED", "DIVERGED", "FAILED", "INVALID"]
    final = trial(6, 0.5, is_final=True)
    put_down(folders, job_id, *(trial(n, 0.5, state) for n, state in enumerate(states)), final)
    assert numbers(await page_of(client, job_id, state="STOPPED")) == [2]
    assert numbers(await page_of(client, job_id, state=["RUNNING", "COMPLETED"])) == [0, 1, 6]
    assert numbers(await page_of(client, job_id, is_final="true")) == [6]
    assert numbers(await page_of(client, job_id, is_final="false")) == [0, 1, 2, 3, 4, 5]
    both = await page_of(client, job_id, state="COMPLETED", is_final="false")
    assert (numbers(both), both["total"]) == ([1], 1)
    page = await page_of(client, job_id, is_final="false", limit=4)
    assert (page["total"], page["next_cursor"]) == (6, "4")


async def test_no_job_has_no_trials(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/jobs/nope/trials")
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


async def test_a_job_of_another_kind_has_none_either(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    job = make_job()
    store.insert(job)
    answer = await client.get(f"/v1/jobs/{job.job_id}/trials")
    assert (answer.status_code, answer.json()["code"]) == (409, "no_trials")
    assert answer.json()["detail"] == (f"Only jobs of kind 'search' have trials; {job.job_id} is of kind 'pretrain'.")


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "loss"},
        {"order": "up"},
        {"state": "DONE"},
        {"is_final": "perhaps"},
        {"limit": 0},
        {"limit": 501},
        {"cursor": "-1"},
        {"cursor": "x"},
        {"cursor": "9" * 10},
        {"page": 2},
    ],
)
async def test_a_query_that_cannot_be_is_refused(client: httpx.AsyncClient, job_id: str, query: dict[str, Any]) -> None:
    answer = await client.get(f"/v1/jobs/{job_id}/trials", params=query)
    assert answer.status_code == 422
    (name,) = query
    assert any(name in fault["pointer"] for fault in answer.json()["errors"]), answer.text


async def test_a_storage_that_does_not_answer_is_to_be_asked_again(
    client: httpx.AsyncClient, folders: MemoryFolders, job_id: str
) -> None:
    folders.broken.add(job_id)
    answer = await client.get(f"/v1/jobs/{job_id}/trials")
    assert (answer.status_code, answer.json()["code"]) == (503, "trials_unavailable")
    assert answer.json()["detail"] == "the disk is full. Try again in a moment."
