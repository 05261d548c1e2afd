"""Traces: of jobs, as a reconciler tells them, and of requests, as a service of its own process sends them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from service_doubles import MemoryJobStore
from service_world import World
from typer.testing import CliRunner
from webhook_receiver import Receiver, receiving

from pipelines.specs.documents import Failure, Progress
from service.cli import app
from service.interfaces import AttemptState
from service.local.ports import claim_port
from service.local.processes import Component, Plan
from service.records import Job
from service.settings import Settings
from service.tracing import setup
from service.tracing.ids import GivenIds, span_id_of, trace_id_of
from service.tracing.jobs import JobTraces


class ToldStore(MemoryJobStore):
    """Tells of each change once it is written, as the store of the reconciler does."""

    def __init__(self) -> None:
        super().__init__()
        self.observe: Callable[[Job, Mapping[str, Any]], None] = lambda job, changes: None

    def update(self, job: Job, **changes: Any) -> Job:
        after = super().update(job, **changes)
        self.observe(job, changes)
        return after


class TracedWorld(World):
    """A world whose reconcilers tell traces, each with a memory of its own."""

    store: ToldStore

    def __init__(self, settings: Settings, share: float = 1.0) -> None:
        self.spans = InMemorySpanExporter()
        self.ids = GivenIds()
        self.provider = TracerProvider(id_generator=self.ids, sampler=ParentBasedTraceIdRatio(share))
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        super().__init__(settings, store=ToldStore())
        self.restart()

    def restart(self) -> None:
        super().restart()
        self.store.observe = JobTraces(self.provider, self.ids, now=self.clock).observe_update

    def told(self) -> list[ReadableSpan]:
        return list(self.spans.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (span,) = [one for one in self.told() if one.name == name]
        return span

    def says(self, job_id: str, stage: str, seconds: float = 10) -> None:
        attempt = self[job_id].attempt
        said = {"attempt": attempt, "stage": stage, "heartbeat_at": datetime.now(UTC)}
        self.folders.progress[job_id] = Progress.model_validate(said)
        self.rounds(1)
        self.clock.pass_seconds(seconds)


@pytest.fixture
def world(settings: Settings) -> TracedWorld:
    return TracedWorld(settings)


def seconds_of(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return round((span.end_time - span.start_time) / 1e9, 3)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_a_job_is_one_trace_of_its_attempts_states_and_stages(world: TracedWorld) -> None:
    job_id = world.running()
    for stage, seconds in (("prepare", 20), ("train", 300), ("evaluate", 30)):
        world.says(job_id, stage, seconds)
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED, step=7)
    world.rounds(1)
    spans = world.told()
    assert {span.context.trace_id for span in spans if span.context} == {trace_id_of(job_id)}
    root, attempt = world.named("pretrain job"), world.named("attempt")
    assert root.context is not None
    assert attempt.context is not None
    assert (root.context.span_id, parent_of(root)) == (span_id_of(job_id), None)
    assert (attempt.context.span_id, parent_of(attempt)) == (span_id_of(f"{job_id}-a1"), span_id_of(job_id))
    within = {"starting", "running", "stage prepare", "stage train", "stage evaluate"}
    assert {span.name for span in spans if parent_of(span) == attempt.context.span_id} == within
    assert {span.name for span in spans if parent_of(span) == root.context.span_id} == {"attempt", "queued"}
    took = {
        name: seconds_of(world.named(name)) for name in ("stage prepare", "stage train", "stage evaluate", "running")
    }
    assert took == {"stage prepare": 20, "stage train": 300, "stage evaluate": 30, "running": 350}
    assert root.attributes is not None
    assert root.attributes["electra.state"] == "SUCCEEDED"
    assert root.attributes["electra.job_id"] == job_id
    assert root.status.is_unset


def test_another_replica_goes_on_with_the_trace(world: TracedWorld) -> None:
    """What the row does not tell the beginning of, here the stage, has no span; nothing is told twice."""
    job_id = world.running()
    world.says(job_id, "prepare", 60)
    world.restart()
    world.says(job_id, "train", 40)
    world.kill_process(job_id)
    world.rounds(3, seconds=20)
    assert world[job_id].attempt == 2
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds(1)
    assert sorted(span.name for span in world.told()) == sorted(
        ["queued", "starting", "running", "stage train", "attempt", "starting", "running", "attempt", "pretrain job"]
    )
    first, second = (span for span in world.told() if span.name == "attempt")
    assert first.context is not None
    assert second.context is not None
    assert first.context.span_id == span_id_of(f"{job_id}-a1")
    assert second.context.span_id == span_id_of(f"{job_id}-a2")
    assert seconds_of(first) > 100


def test_a_pause_stands_between_two_attempts(world: TracedWorld) -> None:
    job_id = world.running()
    world.pause(job_id)
    world.rounds(1)
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    world.rounds(2)
    world.clock.pass_seconds(500)
    world.resume(job_id)
    world.rounds(3)
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED)
    world.rounds(1)
    root = span_id_of(job_id)
    outside = [span.name for span in world.told() if parent_of(span) == root]
    assert outside == ["queued", "attempt", "paused", "queued", "attempt"]
    assert seconds_of(world.named("paused")) == 500
    assert seconds_of(world.named("pausing")) == 0


def test_a_failure_marks_its_attempt_and_the_job(world: TracedWorld) -> None:
    job_id = world.running()
    failure = Failure(stage="prepare", code="data", message="no text")
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=failure)
    world.rounds(1)
    for name in ("attempt", "pretrain job"):
        span = world.named(name)
        assert span.status.description == "no text"
        assert span.attributes is not None
        assert span.attributes["electra.failure.code"] == "data"


def test_a_retry_names_the_trace_it_goes_on_from(world: TracedWorld) -> None:
    job_id = world.add(retry_of="pt-before")
    world.cancel(job_id)
    world.rounds(1)
    (link,) = world.named("pretrain job").links
    assert link.context.trace_id == trace_id_of("pt-before")
    assert seconds_of(world.named("queued")) == seconds_of(world.named("pretrain job"))


def test_a_sampler_takes_or_leaves_whole_traces(settings: Settings) -> None:
    world = TracedWorld(settings, share=0.5)
    ids = [world.add(created_at=world.clock() - timedelta(seconds=number)) for number in range(40)]
    for job_id in ids:
        world.cancel(job_id)
    world.rounds(3)
    by_trace: dict[int, list[str]] = {}
    for span in world.told():
        assert span.context is not None
        by_trace.setdefault(span.context.trace_id, []).append(span.name)
    assert 0 < len(by_trace) < 40
    assert all(sorted(names) == ["pretrain job", "queued"] for names in by_trace.values())


def test_a_service_sends_requests_and_jobs_to_the_collector(settings: Settings, tmp_path: Path) -> None:
    caller = "0af7651916cd43dd8448eb211c80319c"
    text = tmp_path / "text.txt"
    text.write_text("A line of text.\n" * 200)
    with receiving() as collector, serving(settings, collector.url) as (url, log):
        corpus = {"sources": [{"type": "text", "uris": [str(text)]}]}
        spec = {"kind": "pretrain", "name": "traced", "preset": "tiny", "corpus": corpus}
        headers = {"traceparent": f"00-{caller}-b7ad6b7169203331-01"}
        made = httpx.post(f"{url}/v1/jobs", json={"spec": spec}, headers=headers)
        assert made.is_success, made.text
        job_id = made.json()["job_id"]
        assert httpx.post(f"{url}/v1/jobs/{job_id}/cancel").is_success
        httpx.get(f"{url}/healthz")
        assert httpx.get(f"{url}/v1/jobs", params={"name": "looked-for"}).is_success
        deadline = time.monotonic() + 30
        while httpx.get(f"{url}/v1/jobs/{job_id}").json()["state"] != "CANCELLED":
            assert time.monotonic() < deadline, "the job to be cancelled"
            time.sleep(0.2)
    spans = sent(collector)
    requests = {name: trace_id for name, trace_id in spans if " /" in name}
    assert requests["POST /v1/jobs"] == caller
    assert "GET /v1/jobs/{job_id}" in requests
    assert not [name for name, _ in spans if "healthz" in name]
    assert not [body for _, body in collector.got if b"looked-for" in body]
    assert ("pretrain job", f"{trace_id_of(job_id):032x}") in spans
    assert f'"trace_id": "{caller}"' in log.read_text()


def test_a_collector_that_is_away_holds_nothing_up(settings: Settings) -> None:
    nowhere = f"http://127.0.0.1:{claim_port(0, 'a test', '', set())}"
    with serving(settings, nowhere) as (url, log):
        assert httpx.get(f"{url}/v1/jobs").is_success
        began = time.monotonic()
    assert time.monotonic() - began < 30
    assert '"event": "request"' in log.read_text()


def test_without_the_packages_the_service_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_PACKAGES", ("opentelemetry.sdk", "opentelemetry.elsewhere", "nowhere.at.all"))
    setup.check_installed()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    said = CliRunner().invoke(app, ["serve"])
    assert said.exit_code == 2
    assert (
        "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, but opentelemetry.elsewhere is missing: pip install"
        in said.output
    )


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}],
)
def test_it_is_off_unless_a_collector_is_named(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    if variables and "OTEL_EXPORTER_OTLP_ENDPOINT" not in variables:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not setup.is_wanted()


@contextmanager
def serving(settings: Settings, collector_url: str) -> Iterator[tuple[str, Path]]:
    """A service in a process of its own, which sends its traces there; its address and its log."""
    port = claim_port(0, "a test", "", set())
    url, log = f"http://127.0.0.1:{port}", settings.home / "service.log"
    own = {
        "ELECTRA_HOME": str(settings.home),
        "ELECTRA_PORT": str(port),
        "ELECTRA_RAY_ADDRESS": f"http://127.0.0.1:{claim_port(0, 'nothing', '', {port})}",
        "ELECTRA_LOG_JSON": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector_url,
    }
    environment = {**os.environ, **own}

    def probe() -> str | None:
        try:
            return None if httpx.get(f"{url}/healthz").is_success else "not well"
        except httpx.TransportError as error:
            return str(error)

    plan = Plan("service", [sys.executable, "-m", "service.cli", "serve"], environment, probe)
    component = Component("service", plan, settings.home, log)
    component.start()
    try:
        component.wait_until_ready(60.0)
        yield url, log
    finally:
        component.stop(30.0)


def sent(collector: Receiver) -> list[tuple[str, str]]:
    """Names and traces of all spans that came."""
    found = []
    for headers, body in collector.got:
        assert headers["content-type"] == "application/x-protobuf"
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            (name,) = [one.value.string_value for one in resource.resource.attributes if one.key == "service.name"]
            assert name == "electra-service"
            found += [(span.name, span.trace_id.hex()) for scope in resource.scope_spans for span in scope.spans]
    return found
