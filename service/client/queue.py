"""The client's calls for the queue and for quotas."""

from __future__ import annotations

from typing import Literal

from service.client.connection import Connection, segment
from service.http.queue_schemas import QueuePublic, QuotaList, QuotaPublic

QuotaScope = Literal["owners", "projects"]


class QueueCalls(Connection):
    """Part of `ElectraClient`."""

    def queue(self) -> QueuePublic:
        """Who waits and why, what runs, and what the cluster has."""
        return self._read(QueuePublic, self._call("GET", "/v1/queue", is_safe=True))

    def quotas(self) -> QuotaList:
        """All quotas that count."""
        return self._read(QuotaList, self._call("GET", "/v1/quotas", is_safe=True))

    def set_quota(
        self,
        scope: QuotaScope,
        name: str,
        *,
        max_running_jobs: int | None = None,
        max_cpus: float | None = None,
        max_gpus: int | None = None,
    ) -> QuotaPublic:
        """Give an owner or a project a quota of its own; None is no limit."""
        body = {"max_running_jobs": max_running_jobs, "max_cpus": max_cpus, "max_gpus": max_gpus}
        return self._read(QuotaPublic, self._call("PUT", _path(scope, name), is_safe=True, json=body))

    def remove_quota(self, scope: QuotaScope, name: str) -> None:
        """Let the settings count again."""
        self._call("DELETE", _path(scope, name), is_safe=False)


def _path(scope: QuotaScope, name: str) -> str:
    return f"/v1/quotas/{scope}/{segment(name)}"
