"""The client's calls for jobs, what they cost and what happens to them, and for presets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import TypeAdapter

from service.client import connection
from service.client.connection import Connection, segment
from service.client.errors import is_passing
from service.client.events import EventStream, FollowedEvent, follow_stream
from service.http.schemas import Health, JobDetail, JobPage, JobPublic, Preset, PresetList, TrialPage
from service.states import JobState

if TYPE_CHECKING:
    from pipelines.specs.plans import Plan


class JobCalls(Connection):
    """Part of `ElectraClient`."""

    def submit(
        self,
        spec: Mapping[str, Any],
        overrides: Sequence[str] = (),
        *,
        idempotency_key: str | None = None,
        fields: Mapping[str, Any] | None = None,
        project: str | None = None,
    ) -> JobPublic:
        """Hand in a job. The key makes repeating safe: one is made up unless given.

        Args:
            spec: as in a file.
            overrides: `section.field=value` each.
            idempotency_key: the caller's name for this request.
            fields: any of `priority`, `labels`, `notes` and `limits`.
            project: what the job belongs to; the key's own when absent.
        """
        body = {**_job_body(spec, overrides, project), **(fields or {})}
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._read(JobPublic, self._call("POST", "/v1/jobs", is_safe=True, json=body, headers=headers))

    def plan(self, spec: Mapping[str, Any], overrides: Sequence[str] = (), *, project: str | None = None) -> Plan:
        """The resolved spec and what it will cost; starts nothing."""
        from pipelines.specs.plans import Plan  # here: no other call needs the reckoning

        body = _job_body(spec, overrides, project)
        answer = self._call("POST", "/v1/jobs:plan", is_safe=True, json=body)
        plans: TypeAdapter[Plan] = TypeAdapter(Plan)
        return self._checked(plans.validate_json, "plan", answer)

    def jobs(
        self,
        states: Sequence[JobState] = (),
        *,
        name: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        labels: Sequence[str] = (),
        archived: bool = False,
        project: str | None = None,
        owner: str | None = None,
    ) -> JobPage:
        """One page of jobs, newest first: those with all labels, `key=value` each, and archived ones only if asked."""
        query: dict[str, Any] = {"limit": limit, "state": [state.value for state in states], "label": list(labels)}
        query |= {"archived": "true"} if archived else {}
        optional = (("name", name), ("cursor", cursor), ("project", project), ("owner", owner))
        query |= {key: value for key, value in optional if value is not None}
        return self._read(JobPage, self._get("/v1/jobs", params=query))

    def iter_jobs(self, states: Sequence[JobState] = (), *, name: str | None = None) -> Iterator[JobPublic]:
        """All jobs, newest first, page by page."""
        cursor = None
        while True:
            page = self.jobs(states, name=name, limit=200, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def job(self, job_id: str) -> JobDetail:
        """One job, with its spec."""
        return self._read(JobDetail, self._get(f"/v1/jobs/{segment(job_id)}"))

    def cancel(self, job_id: str) -> JobPublic:
        """Ask a job to stop. It stops at its next step, and its state says when it has."""
        return self._read(JobPublic, self._call("POST", f"/v1/jobs/{segment(job_id)}/cancel", is_safe=False))

    def trials(
        self,
        job_id: str,
        *,
        sort: str = "number",
        order: str | None = None,
        is_final: bool | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TrialPage:
        """One page of the trials of a search."""
        query: dict[str, Any] = {"sort": sort, "limit": limit}
        optional = (("order", order), ("is_final", is_final), ("cursor", cursor))
        query |= {key: value for key, value in optional if value is not None}
        return self._read(TrialPage, self._get(f"/v1/jobs/{segment(job_id)}/trials", params=query))

    def follow_events(self, job_id: str | None = None, *, after: int | None = None) -> Iterator[FollowedEvent]:
        """What happens to a job until it is over, or to all jobs for ever; from now on, or after event number `after`.

        Goes on where it was after a broken connection.
        """
        url = "/v1/events" if job_id is None else f"/v1/jobs/{segment(job_id)}/events"
        stream = EventStream(
            connect=lambda last_event_id: self._events_of(url, {}, last_event_id),
            is_passing=is_passing,
            patience_seconds=self._stream_patience_seconds,
            retry_seconds=connection.STREAM_RETRY_SECONDS,
        )
        return follow_stream(stream, after)

    def presets(self) -> tuple[Preset, ...]:
        """Whole specs by name."""
        return self._read(PresetList, self._get("/v1/presets")).items

    def ready(self) -> bool:
        """Whether the service answers and has all it needs. Never raises `UnreachableError`."""
        try:
            answer = self._http.get("/readyz")
        except httpx.HTTPError:
            return False
        return answer.is_success and self._read(Health, answer).status == "ok"


def _job_body(spec: Mapping[str, Any], overrides: Sequence[str], project: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"spec": dict(spec), "overrides": list(overrides)}
    return body if project is None else {**body, "project": project}
