"""Webhooks over HTTP and on the command line; what is sent is in `test_webhooks.py`."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from live_service import serve_desk
from service_doubles import make_job
from typer.testing import CliRunner

from service.cli import app
from service.http.desk import Desk
from service.ledger.store import SqlJobStore
from service.ledger.webhook_store import SqlWebhookStore
from service.settings import Settings

pytestmark = pytest.mark.anyio
HOOK = {"url": "https://hooks.test/x", "labels": {"team": "nlp"}}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return Settings.model_validate({**settings.model_dump(), "webhook_hosts": ("hooks.test",)})


async def create(client: httpx.AsyncClient, **changes: Any) -> Any:
    answer = await client.post("/v1/webhooks", json={**HOOK, **changes})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_secret_is_shown_once_and_kept_nowhere(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    made = await create(client)
    assert made["secret"].startswith("whsec_")
    assert (made["events"], made["labels"], made["project"]) == (["created", "state"], {"team": "nlp"}, "default")
    for path in ("/v1/webhooks", f"/v1/webhooks/{made['webhook_id']}", "/v1/audit"):
        assert made["secret"][6:] not in (await client.get(path)).text
    with store._engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM webhooks").all()
    assert made["secret"][6:] not in str(rows)


async def test_a_webhook_is_tried_listed_and_deleted(client: httpx.AsyncClient) -> None:
    webhook_id = (await create(client))["webhook_id"]
    ping = await client.post(f"/v1/webhooks/{webhook_id}/test")
    assert (ping.status_code, ping.json()["state"], ping.json()["job_id"]) == (202, "pending", None)
    again = f"/v1/webhooks/{webhook_id}/deliveries/{ping.json()['delivery_id']}/redeliver"
    refused = await client.post(again)
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_delivery_state")
    assert (await client.delete(f"/v1/webhooks/{webhook_id}")).status_code == 204
    assert (await client.get("/v1/webhooks")).json() == {"items": []}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries")):
        gone = await client.request(method, f"/v1/webhooks/{webhook_id}{path}")
        assert (gone.status_code, gone.json()["code"]) == (404, "webhook_not_found")
    actions = [row["action"] for row in (await client.get("/v1/audit")).json()["items"]]
    done = ["webhook.delete", "webhook.redeliver", "webhook.test", "webhook.create"]
    assert [action for action in actions if action in done][-4:] == done


async def test_pages_of_deliveries_join_to_the_whole_list(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    webhook_id = (await create(client, labels={}))["webhook_id"]
    for _ in range(5):
        store.insert(make_job())
    path, found, cursor = f"/v1/webhooks/{webhook_id}/deliveries", [], None
    while True:
        params = {"limit": 2, "state": "pending"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(path, params=params)).json()
        found += [one["seq"] for one in page["items"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    assert found == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"url": "https://10.1.2.3/"}, "/url"),
        ({"url": "http://example.org/"}, "/url"),
        ({"events": []}, "/events"),
        ({"events": ["other"]}, "/events/0"),
        ({"labels": {"-": "x"}}, "/labels"),
        ({"secret": "mine"}, "/secret"),
    ],
)
async def test_what_is_wrong_is_named(client: httpx.AsyncClient, changes: dict[str, Any], pointer: str) -> None:
    answer = await client.post("/v1/webhooks", json={**HOOK, **changes})
    assert answer.status_code == 422
    assert [item["pointer"] for item in answer.json()["errors"]] == [pointer]


async def test_metrics_tell_what_waits_and_what_was_given_up(client: httpx.AsyncClient, desk: Desk) -> None:
    webhook_id = (await create(client))["webhook_id"]
    await client.post(f"/v1/webhooks/{webhook_id}/test")
    desk.metrics.observe_webhook("timeout")
    text = (await client.get("/metrics")).text
    assert 'electra_webhook_deliveries{state="pending"} 1.0' in text
    assert 'electra_webhook_deliveries{state="dead"} 0.0' in text
    assert 'electra_webhook_attempts_total{outcome="timeout"} 1.0' in text


def test_the_command_line_does_it_all(settings: Settings, desk: Desk, store: SqlJobStore) -> None:
    runner = CliRunner()

    def run(*words: str) -> Any:
        result = runner.invoke(app, ["webhooks", *words, "--url", url, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    with serve_desk(settings, desk) as url:
        made = run("create", "https://hooks.test/x", "--event", "state", "--label", "team=nlp")
        webhook_id = made["webhook_id"]
        assert (made["events"], made["labels"]) == (["state"], {"team": "nlp"})
        sent = run("test", webhook_id)
        assert [one["delivery_id"] for one in run("deliveries", webhook_id)["items"]] == [sent["delivery_id"]]
        assert [one["webhook_id"] for one in run("list")] == [webhook_id]
        for command in ("list", "deliveries"):
            words = ["webhooks", command, *([webhook_id] if command == "deliveries" else []), "--url", url]
            assert webhook_id in runner.invoke(app, words).output
        assert run("enable", webhook_id)["disabled_at"] is None
        assert run("delete", webhook_id)["deleted"]
        assert SqlWebhookStore(store._engine).find(webhook_id) is None
