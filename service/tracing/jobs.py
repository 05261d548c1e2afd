"""One trace for each job: its attempts, how long it was in each state, and what an attempt did when.

It is told by whichever replica reconciles, from what it writes into the database: a job needs no way to the collector.
What began before this replica was the one has a span only where the row says when.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from pipelines.specs.documents import Progress
from service.records import Job, JobFailure, submission_id
from service.states import JobState
from service.tracing.ids import GivenIds, span_id_of, trace_id_of

MAX_JOBS = 10_000
"""Whose beginnings are remembered."""
_MAX_MESSAGE_CHARACTERS = 1000


@dataclass
class _Began:
    """When what a job is at now began, as far as this replica saw it."""

    state_at: datetime | None = None
    attempt_at: datetime | None = None
    stage: str | None = None
    stage_at: datetime | None = None


@dataclass(frozen=True)
class _Span:
    name: str
    began_at: datetime | None
    ended_at: datetime
    parent_id: int | None
    span_id: int | None = None
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    failure: JobFailure | None = None
    links: tuple[Link, ...] = ()


class JobTraces:
    """Makes spans of what changes in the rows of jobs."""

    def __init__(
        self, provider: TracerProvider, ids: GivenIds, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Args:
        provider: where spans go; `ids` is its generator.
        now: the time.
        """
        self._tracer = provider.get_tracer("electra.jobs")
        self._sampler = provider.sampler
        self._ids = ids
        self._now = now
        self._began: OrderedDict[str, _Began] = OrderedDict()
        self._lock = threading.Lock()

    def observe_update(self, job: Job, changes: Mapping[str, Any]) -> None:
        """A change to a job, after it was written; `job` is as it was before."""
        if job.state.is_terminal or not self._is_sampled(job):
            return
        now = self._now()
        with self._lock:
            spans = self._ended_by(job, changes, now)
        for span in spans:
            self._tell(job, span)

    def _is_sampled(self, job: Job) -> bool:
        """The sampler is asked of the whole trace, for the same answer at each of its spans."""
        result = self._sampler.should_sample(None, trace_id_of(job.job_id), _root_name(job))
        return result.decision is Decision.RECORD_AND_SAMPLE

    def _ended_by(self, job: Job, changes: Mapping[str, Any], now: datetime) -> list[_Span]:
        began = self._began_of(job)
        state, attempt = JobState(changes.get("state", job.state)), int(changes.get("attempt", job.attempt))
        moves = (state, attempt) != (job.state, job.attempt)
        ends_attempt = moves and job.state.is_active and (attempt != job.attempt or not state.is_active)
        progress = changes.get("progress")
        spans = []
        if isinstance(progress, Progress) and progress.attempt == job.attempt and progress.stage != began.stage:
            spans += _stage(job, began, now)
            began.stage, began.stage_at = progress.stage, now
        if ends_attempt:
            spans += _stage(job, began, now)
            began.stage = began.stage_at = None
        if moves:
            spans.append(_stay(job, began, now))
            began.state_at = now
        if ends_attempt:
            spans.append(_attempt(job, began, now, changes.get("failure")))
            began.attempt_at = None
        if moves and state.is_active and began.attempt_at is None:
            began.attempt_at = now
        if moves and state.is_terminal:
            spans.append(_whole(job, state, attempt, now, changes))
            self._began.pop(job.job_id, None)
        return spans

    def _began_of(self, job: Job) -> _Began:
        began = self._began.get(job.job_id)
        if began is None:
            state_at = None
            if job.state == JobState.QUEUED:
                state_at = job.queued_at or job.created_at
            elif job.state == JobState.RUNNING:
                state_at = job.run_started_at
            is_under_way = job.state.is_active
            began = _Began(state_at=state_at, attempt_at=job.run_started_at if is_under_way else None)
            if is_under_way and job.progress is not None and job.progress.attempt == job.attempt:
                began.stage = job.progress.stage
            self._began[job.job_id] = began
            while len(self._began) > MAX_JOBS:
                self._began.popitem(last=False)
        return began

    def _tell(self, job: Job, span: _Span) -> None:
        if span.began_at is None:
            return
        trace_id = trace_id_of(job.job_id)
        context = Context()
        if span.parent_id is not None:
            parent = SpanContext(trace_id, span.parent_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
            context = set_span_in_context(NonRecordingSpan(parent), context)
        attributes = {"electra.job_id": job.job_id, "electra.project": job.project, **span.attributes}
        with self._ids.given(trace_id, span.span_id):
            told = self._tracer.start_span(
                span.name,
                context=context,
                attributes=attributes,
                links=span.links,
                start_time=_nanoseconds(min(span.began_at, span.ended_at)),
            )
        if span.failure is not None:
            told.set_attribute("electra.failure.code", span.failure.code)
            told.set_status(Status(StatusCode.ERROR, span.failure.message[:_MAX_MESSAGE_CHARACTERS]))
        told.end(end_time=_nanoseconds(span.ended_at))


def _root_name(job: Job) -> str:
    return f"{job.kind} job"


def _attempt_id(job: Job) -> int:
    return span_id_of(submission_id(job.job_id, job.attempt))


def _stay(job: Job, began: _Began, now: datetime) -> _Span:
    parent = _attempt_id(job) if job.state.is_active else span_id_of(job.job_id)
    return _Span(job.state.value.lower(), began.state_at, now, parent)


def _stage(job: Job, began: _Began, now: datetime) -> list[_Span]:
    if began.stage is None:
        return []
    return [_Span(f"stage {began.stage}", began.stage_at, now, _attempt_id(job))]


def _attempt(job: Job, began: _Began, now: datetime, failure: object) -> _Span:
    attributes: dict[str, str | int] = {"electra.attempt": job.attempt}
    if job.ray_submission_id is not None:
        attributes["electra.ray_submission_id"] = job.ray_submission_id
    return _Span(
        name="attempt",
        began_at=began.attempt_at,
        ended_at=now,
        parent_id=span_id_of(job.job_id),
        span_id=_attempt_id(job),
        attributes=attributes,
        failure=failure if isinstance(failure, JobFailure) else None,
    )


def _whole(job: Job, state: JobState, attempt: int, now: datetime, changes: Mapping[str, Any]) -> _Span:
    progress = changes.get("progress", job.progress)
    attributes: dict[str, str | int] = {
        "electra.job_name": job.name,
        "electra.kind": job.kind,
        "electra.owner": job.owner,
        "electra.state": state.value,
        "electra.num_attempts": attempt,
        "electra.num_preemptions": job.num_preemptions,
    }
    if progress is not None and progress.mlflow_run_id is not None:
        attributes["electra.mlflow_run_id"] = progress.mlflow_run_id
    failure = changes.get("failure", job.failure) if state == JobState.FAILED else None
    return _Span(
        name=_root_name(job),
        began_at=job.created_at,
        ended_at=now,
        parent_id=None,
        span_id=span_id_of(job.job_id),
        attributes=attributes,
        failure=failure,
        links=() if job.retry_of is None else (Link(_root_of(job.retry_of)),),
    )


def _root_of(job_id: str) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id_of(job_id), span_id_of(job_id), is_remote=True, trace_flags=flags)


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1e9)
