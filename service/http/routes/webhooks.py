"""`/v1/webhooks`: addresses that are told of what happens to the jobs of a project."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from service.http.authorisation import CallerDep
from service.http.desk import WebhooksDep
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute
from service.http.webhook_schemas import (
    DELIVERY_ID_PATTERN,
    DeliveryPage,
    DeliveryPublic,
    DeliveryQuery,
    WebhookCreate,
    WebhookCreated,
    WebhookList,
    WebhookPublic,
)
from service.webhooks.signing import WEBHOOK_ID_PATTERN

router = APIRouter(prefix="/v1", tags=["webhooks"], route_class=StrictJsonRoute)

WebhookId = Annotated[str, Path(pattern=WEBHOOK_ID_PATTERN)]


@router.post("/webhooks", status_code=201, responses=problems(404, 409, 415))
def create_webhook(request: WebhookCreate, webhooks: WebhooksDep, caller: CallerDep) -> WebhookCreated:
    """Make a webhook. Its secret is shown in this answer and never again."""
    events = [event.value for event in request.events]
    webhook, secret = webhooks.create(
        caller, url=request.url, events=events, labels=request.labels, project=request.project
    )
    return WebhookCreated.made(webhook, secret)


@router.get("/webhooks", responses=problems())
def list_webhooks(webhooks: WebhooksDep, caller: CallerDep) -> WebhookList:
    """Webhooks of the projects that the principal administers, newest first."""
    return WebhookList(items=tuple(WebhookPublic.from_webhook(one) for one in webhooks.list_webhooks(caller)))


@router.get("/webhooks/{webhook_id}", responses=problems(404))
def get_webhook(webhook_id: WebhookId, webhooks: WebhooksDep, caller: CallerDep) -> WebhookPublic:
    """One webhook."""
    return WebhookPublic.from_webhook(webhooks.get(caller, webhook_id))


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=problems(404))
def delete_webhook(webhook_id: WebhookId, webhooks: WebhooksDep, caller: CallerDep) -> None:
    """Delete a webhook, with what was sent to it and what waits."""
    webhooks.delete(caller, webhook_id)


@router.post("/webhooks/{webhook_id}/enable", responses=problems(404))
def enable_webhook(webhook_id: WebhookId, webhooks: WebhooksDep, caller: CallerDep) -> WebhookPublic:
    """Send again to a webhook that was disabled: what happens from now on. What was given up can be redelivered."""
    return WebhookPublic.from_webhook(webhooks.enable(caller, webhook_id))


@router.post("/webhooks/{webhook_id}/test", status_code=202, responses=problems(404, 409))
def test_webhook(webhook_id: WebhookId, webhooks: WebhooksDep, caller: CallerDep) -> DeliveryPublic:
    """Send a `ping`; the deliveries say what became of it."""
    return DeliveryPublic.from_delivery(webhooks.ping(caller, webhook_id))


@router.get("/webhooks/{webhook_id}/deliveries", responses=problems(404))
def list_deliveries(
    webhook_id: WebhookId, query: Annotated[DeliveryQuery, Query()], webhooks: WebhooksDep, caller: CallerDep
) -> DeliveryPage:
    """What was sent to a webhook and what waits, newest first."""
    # One more tells whether there is another page.
    found = webhooks.deliveries(caller, webhook_id, query.state, query.before, query.limit + 1)
    return DeliveryPage.of(list(found), query.limit)


@router.post("/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", status_code=202, responses=problems(404, 409))
def redeliver(
    webhook_id: WebhookId,
    delivery_id: Annotated[str, Path(pattern=DELIVERY_ID_PATTERN)],
    webhooks: WebhooksDep,
    caller: CallerDep,
) -> DeliveryPublic:
    """Make a delivery once more, under the same id: one that was given up, or one that its receiver lost."""
    return DeliveryPublic.from_delivery(webhooks.send_again(caller, webhook_id, delivery_id))
