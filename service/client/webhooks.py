"""The client's calls for webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.client.connection import Connection, segment
from service.http.webhook_schemas import (
    DeliveryPage,
    DeliveryPublic,
    WebhookCreated,
    WebhookList,
    WebhookPublic,
)


class WebhookCalls(Connection):
    """Part of `ElectraClient`."""

    def create_webhook(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        project: str | None = None,
    ) -> WebhookCreated:
        """Make a webhook. The answer has its secret, which is shown only this once.

        Args:
            url: what is posted to.
            events: types of events; those that the service chooses when empty.
            labels: only of jobs that have all of these.
            project: whose jobs; the key's own when absent.
        """
        body: dict[str, Any] = {"url": url, "labels": dict(labels or {})}
        body |= {"events": list(events)} if events else {}
        body |= {"project": project} if project is not None else {}
        # Not repeated: a lost answer is a secret that nobody has.
        return self._read(WebhookCreated, self._call("POST", "/v1/webhooks", is_safe=False, json=body))

    def webhooks(self) -> tuple[WebhookPublic, ...]:
        """Webhooks of the projects that we administer, newest first."""
        return self._read(WebhookList, self._get("/v1/webhooks")).items

    def webhook(self, webhook_id: str) -> WebhookPublic:
        """One webhook."""
        return self._read(WebhookPublic, self._get(_path(webhook_id)))

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook, and what waits to be sent to it."""
        self._call("DELETE", _path(webhook_id), is_safe=False)

    def enable_webhook(self, webhook_id: str) -> WebhookPublic:
        """Send again to a webhook that was disabled."""
        return self._read(WebhookPublic, self._call("POST", f"{_path(webhook_id)}/enable", is_safe=True))

    def test_webhook(self, webhook_id: str) -> DeliveryPublic:
        """Send a `ping`."""
        return self._read(DeliveryPublic, self._call("POST", f"{_path(webhook_id)}/test", is_safe=False))

    def webhook_deliveries(
        self, webhook_id: str, *, state: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """One page of what was sent to a webhook and what waits, newest first."""
        query = {"state": state, "limit": limit, "cursor": cursor}
        params = {key: value for key, value in query.items() if value is not None}
        return self._read(DeliveryPage, self._get(f"{_path(webhook_id)}/deliveries", params=params))

    def redeliver(self, webhook_id: str, delivery_id: str) -> DeliveryPublic:
        """Make a delivery once more that succeeded or was given up."""
        path = f"{_path(webhook_id)}/deliveries/{segment(delivery_id)}/redeliver"
        return self._read(DeliveryPublic, self._call("POST", path, is_safe=False))


def _path(webhook_id: str) -> str:
    return f"/v1/webhooks/{segment(webhook_id)}"
