"""What principals may do with webhooks: those of projects that they administer are there for them, and no others."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from service.access.access import Access
from service.access.audit import Caller
from service.access.principals import Permission, Principal
from service.errors import (
    DeliveryNotFoundError,
    Fault,
    InvalidRequestError,
    WebhookNotFoundError,
    WebhooksOffError,
    WrongDeliveryStateError,
)
from service.settings import MIN_WEBHOOK_KEY_CHARACTERS, Settings
from service.webhooks.addresses import check_url
from service.webhooks.records import PING, Delivery, DeliveryState, Webhook, WebhookStore
from service.webhooks.signing import key_fingerprint, new_webhook_id, webhook_secret

MAX_WEBHOOKS = 100
"""Of a project."""
MAX_SHOWN = 1000


class Webhooks:
    """Makes, lists and deletes webhooks, and looks after what was sent to them."""

    def __init__(
        self,
        settings: Settings,
        store: WebhookStore,
        access: Access,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._store = store
        self._access = access
        self._now = now

    def create(
        self, caller: Caller, *, url: str, events: Sequence[str], labels: Mapping[str, str], project: str | None
    ) -> tuple[Webhook, str]:
        """A new webhook, and its secret, which is shown once.

        Raises:
            InvalidRequestError: the URL is none that may be asked, or the project has as many as may be.
            PermissionDeniedError: the caller does not administer the project, or may not read its jobs.
            ProjectNotFoundError: there is no such project, or none that the caller sees.
            WebhooksOffError: the service has no key to sign with.
        """
        name = self._access.project_for(caller, project, Permission.ADMIN)
        # What is sent is what the scopes would have to allow to be read.
        self._access.project_for(caller, name, Permission.JOBS_READ)
        key = self._settings.read_webhook_key()
        if key is None:
            rule = f"of {MIN_WEBHOOK_KEY_CHARACTERS} characters or more: without it nothing is signed"
            raise WebhooksOffError(f"Set ELECTRA_WEBHOOK_KEY or ELECTRA_WEBHOOK_KEY_PATH, a secret {rule}.")
        check_url(url, self._settings.webhook_hosts)
        if len(self._store.list_webhooks(frozenset({name}), MAX_WEBHOOKS)) >= MAX_WEBHOOKS:
            rule = f"must have {MAX_WEBHOOKS} webhooks at most"
            raise InvalidRequestError(f"project {rule}.", [Fault("/project", rule, name)])
        webhook_id = new_webhook_id()
        webhook = Webhook(
            webhook_id=webhook_id,
            project=name,
            url=url,
            events=tuple(sorted(set(events))),
            labels=labels,
            key_fingerprint=key_fingerprint(key),
            created_at=self._now(),
            created_by=_of(caller).name,
        )
        self._store.insert(webhook, caller.entry("webhook.create", webhook_id, name))
        return webhook, webhook_secret(key, webhook_id)

    def list_webhooks(self, caller: Caller) -> Sequence[Webhook]:
        """Webhooks of the projects that the caller administers, newest first."""
        return self._store.list_webhooks(_of(caller).projects_with(Permission.ADMIN), MAX_SHOWN)

    def get(self, caller: Caller, webhook_id: str) -> Webhook:
        """One webhook.

        Raises:
            WebhookNotFoundError: there is no such webhook, or none that the caller administers.
        """
        webhook = self._store.find(webhook_id)
        if webhook is None or not _of(caller).may(Permission.ADMIN, webhook.project):
            raise WebhookNotFoundError(f"No webhook has the id {webhook_id!r}.")
        return webhook

    def delete(self, caller: Caller, webhook_id: str) -> None:
        """Delete a webhook, and what was to be sent to it. Raises as `get` does."""
        webhook = self.get(caller, webhook_id)
        self._store.delete(webhook_id, caller.entry("webhook.delete", webhook_id, webhook.project))

    def enable(self, caller: Caller, webhook_id: str) -> Webhook:
        """Send to a webhook again that was disabled. Raises as `get` does."""
        webhook = self.get(caller, webhook_id)
        self._store.enable(webhook_id, caller.entry("webhook.enable", webhook_id, webhook.project))
        return self.get(caller, webhook_id)

    def ping(self, caller: Caller, webhook_id: str) -> Delivery:
        """Send something that tells of nothing. Raises as `get` does.

        Raises:
            WrongDeliveryStateError: the webhook is disabled.
        """
        webhook = self.get(caller, webhook_id)
        _check_enabled(webhook)
        now = self._now()
        document = {"type": PING, "timestamp": now.isoformat(), "data": {"project": webhook.project}}
        delivery = Delivery(
            delivery_id=f"{webhook_id}-{PING}-{secrets.token_hex(8)}",
            webhook_id=webhook_id,
            seq=0,
            job_id="",
            type=PING,
            body=json.dumps(document),
            created_at=now,
            first_due_at=now,
            due_at=now,
        )
        self._store.add(delivery, caller.entry("webhook.test", webhook_id, webhook.project))
        return delivery

    def deliveries(
        self,
        caller: Caller,
        webhook_id: str,
        state: DeliveryState | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> Sequence[Delivery]:
        """What was sent to a webhook and what waits, newest first. Raises as `get` does."""
        self.get(caller, webhook_id)
        return self._store.deliveries(webhook_id, state, before, limit)

    def send_again(self, caller: Caller, webhook_id: str, delivery_id: str) -> Delivery:
        """Make a delivery once more that succeeded or was given up. Raises as `get` does.

        Raises:
            DeliveryNotFoundError: the webhook has no such delivery.
            WrongDeliveryStateError: it waits already, or the webhook is disabled.
        """
        webhook = self.get(caller, webhook_id)
        delivery = self._store.find_delivery(delivery_id)
        if delivery is None or delivery.webhook_id != webhook_id:
            raise DeliveryNotFoundError(f"The webhook {webhook_id} has no delivery {delivery_id[:100]!r}.")
        _check_enabled(webhook)
        if delivery.state is DeliveryState.PENDING:
            raise WrongDeliveryStateError(f"The delivery {delivery_id} is not over: it is tried again by itself.")
        self._store.send_again(
            delivery_id, self._now(), caller.entry("webhook.redeliver", delivery_id, webhook.project)
        )
        found = self._store.find_delivery(delivery_id)
        return delivery if found is None else found


def _check_enabled(webhook: Webhook) -> None:
    if webhook.disabled_at is not None:
        raise WrongDeliveryStateError(f"The webhook {webhook.webhook_id} is disabled; enable it first.")


def _of(caller: Caller) -> Principal:
    assert caller.principal is not None, "no public path leads here"
    return caller.principal
