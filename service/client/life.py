"""The calls of the client by which a job's life is ruled."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from service.client.connection import Connection, segment
from service.http.schemas import JobPublic


class LifeCalls(Connection):
    """Part of `ElectraClient`."""

    def kill(self, job_id: str) -> JobPublic:
        """End a job at once, without a checkpoint."""
        return self._wish(job_id, "kill")

    def pause(self, job_id: str) -> JobPublic:
        """Ask a job to save a checkpoint and to leave its place; its state says when it has."""
        return self._wish(job_id, "pause")

    def resume(self, job_id: str) -> JobPublic:
        """Put a paused job back into the queue."""
        return self._wish(job_id, "resume")

    def archive(self, job_id: str) -> JobPublic:
        """Leave a finished job out of lists."""
        return self._wish(job_id, "archive")

    def unarchive(self, job_id: str) -> JobPublic:
        """Show a job in lists again."""
        return self._wish(job_id, "unarchive")

    def retry(
        self,
        job_id: str,
        overrides: Sequence[str] = (),
        *,
        idempotency_key: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> JobPublic:
        """A new job that goes on where a failed or cancelled one ended. Arguments as of `submit`."""
        return self._again(job_id, "retry", overrides, idempotency_key, fields)

    def clone(
        self,
        job_id: str,
        overrides: Sequence[str] = (),
        *,
        idempotency_key: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> JobPublic:
        """A new job with the spec of another one, from the start. Arguments as of `submit`."""
        return self._again(job_id, "clone", overrides, idempotency_key, fields)

    def edit(self, job_id: str, fields: Mapping[str, Any]) -> JobPublic:
        """Change any of `priority`, `labels` (all of them) and `notes`; None clears."""
        answer = self._call("PATCH", f"/v1/jobs/{segment(job_id)}", is_safe=True, json=dict(fields))
        return self._read(JobPublic, answer)

    def _wish(self, job_id: str, verb: str) -> JobPublic:
        return self._read(JobPublic, self._call("POST", f"/v1/jobs/{segment(job_id)}/{verb}", is_safe=False))

    def _again(
        self,
        job_id: str,
        verb: str,
        overrides: Sequence[str],
        idempotency_key: str | None,
        fields: Mapping[str, Any] | None,
    ) -> JobPublic:
        body = {"overrides": list(overrides), **(fields or {})}
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        url = f"/v1/jobs/{segment(job_id)}/{verb}"
        return self._read(JobPublic, self._call("POST", url, is_safe=True, json=body, headers=headers))
