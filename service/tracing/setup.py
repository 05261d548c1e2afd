"""Traces by OpenTelemetry, where the environment names a collector, in the variables that OpenTelemetry has for it.

Without one nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

    from service.tracing.ids import GivenIds
    from service.tracing.jobs import JobTraces

SERVICE_NAME = "electra-service"
FLUSH_SECONDS = 5.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PACKAGES = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.instrumentation.fastapi", "opentelemetry.sdk")
_UNTRACED = "/healthz$,/readyz$,/metrics$"
"""What machines ask every few seconds."""


class TracingNotInstalledError(RuntimeError):
    """Traces are asked for, and the packages for them are not there."""


@dataclass(frozen=True)
class _Tracing:
    provider: TracerProvider
    ids: GivenIds


def is_wanted() -> bool:
    """Whether the environment names a collector."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(os.environ.get(name) for name in _ENDPOINTS)


def check_installed() -> None:
    """Do nothing where no collector is named, or where all is there that sends to it.

    Raises:
        TracingNotInstalledError: otherwise.
    """
    if not is_wanted():
        return
    for package in _PACKAGES:
        if not _is_installed(package):
            named = next(name for name in _ENDPOINTS if os.environ.get(name))
            raise TracingNotInstalledError(
                f"{named} asks for traces, but {package} is missing: pip install 'electra-pretraining[tracing]', or "
                "unset it"
            )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def trace_requests(app: FastAPI) -> None:
    """Have each request make a span, within the caller's where it names one by `traceparent`. To be called before the
    application serves.

    Raises:
        TracingNotInstalledError: a collector is named, but there is nothing to send with.
    """
    tracing = _tracing()
    if tracing is None:
        return
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(
        app,
        tracer_provider=tracing.provider,
        excluded_urls=_UNTRACED,
        exclude_spans=["receive", "send"],
        server_request_hook=_leave_query_out,
    )


def _leave_query_out(span: Span, _: dict[str, Any]) -> None:
    """What somebody looked for is theirs, and stands in no log of ours either."""
    said = getattr(span, "attributes", None) or {}  # a span that is not sampled has none
    for name in ("http.url", "url.full"):
        if name in said:
            span.set_attribute(name, str(said[name]).partition("?")[0])
    if "url.query" in said:
        span.set_attribute("url.query", "")


def job_traces() -> JobTraces | None:
    """What makes a trace of each job; None where no collector is named."""
    tracing = _tracing()
    if tracing is None:
        return None
    from service.tracing.jobs import JobTraces

    return JobTraces(tracing.provider, tracing.ids)


def flush() -> None:
    """Send what is left, for a few seconds at the longest: a collector that is away must not hold a replica up.

    By hand: uvicorn ends its process by the signal that it got, which is no time for `atexit`.
    """
    tracing = _tracing()
    if tracing is None:
        return
    sending = threading.Thread(target=tracing.provider.force_flush, name="last-spans", daemon=True)
    sending.start()
    sending.join(FLUSH_SECONDS)


def note_trace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For structlog: a line written while a request is served names its trace and span."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


@lru_cache(maxsize=1)
def _tracing() -> _Tracing | None:
    """Of the process."""
    if not is_wanted():
        return None
    check_installed()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME as NAME
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from service.tracing.ids import GivenIds

    ids = GivenIds()
    # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say comes before ours.
    resource = Resource.create({NAME: SERVICE_NAME}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, id_generator=ids)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return _Tracing(provider, ids)
