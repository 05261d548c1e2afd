"""What Prometheus scrapes. Every label is one of a few words of the service's own: nothing a user wrote is a label."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.feeds.interfaces import LedgerHealth
from service.feeds.records import JobFigures
from service.interfaces import JobStore
from service.queueing.records import WaitReason
from service.records import ClusterStatus, Job
from service.states import JobState
from service.webhooks.records import DeliveryState

log = structlog.get_logger(__name__)

CACHE_SECONDS = 5.0
CONTENT_TYPE = CONTENT_TYPE_LATEST
UNMATCHED = "unmatched"
"""The route of requests for paths that there are not."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
_ROUND_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WAIT_SECONDS = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400)

_Read = tuple[JobFigures, ClusterStatus | None, Mapping[str, tuple[int, datetime]], Mapping[DeliveryState, int]]


class ServiceMetrics:
    """Metrics of one application, in a registry of its own."""

    def __init__(
        self,
        ledger: LedgerHealth,
        store: JobStore,
        *,
        waits: Callable[[], Mapping[str, tuple[int, datetime]]] = dict,
        is_lease_held: Callable[[], bool] = lambda: False,
        num_followers: Callable[[], int] = lambda: 0,
        webhook_figures: Callable[[], Mapping[DeliveryState, int]] = dict,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Args:
        ledger: what the database says of itself.
        store: where the reconciler notes what it sees.
        waits: by reason, how many jobs wait for it and since when the first of them does.
        is_lease_held: whether this replica reconciles.
        num_followers: connections that follow events.
        webhook_figures: messages to webhooks that wait and that were given up.
        now: the time.
        """
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "electra_http_request_seconds",
            "Time to the end of an answer; of a stream, to its end.",
            ["route", "method", "status_class"],
            registry=self._registry,
            buckets=_REQUEST_SECONDS,
        )
        self._rounds = Histogram(
            "electra_reconcile_round_seconds",
            "Time of a round of this replica's reconciler.",
            registry=self._registry,
            buckets=_ROUND_SECONDS,
        )
        self._waits = Histogram(
            "electra_queue_wait_seconds",
            "From a job's creation to the start of its first attempt, as this replica's reconciler saw it.",
            registry=self._registry,
            buckets=_WAIT_SECONDS,
        )
        self._ended = Counter(
            "electra_jobs_ended",
            "Jobs that this replica's reconciler saw end.",
            ["state"],
            registry=self._registry,
        )
        self._webhooks = Counter(
            "electra_webhook_attempts",
            "Messages that this replica sent to webhooks, by what came of it.",
            ["outcome"],
            registry=self._registry,
        )
        self._registry.register(_Ledger(ledger, store, waits, is_lease_held, num_followers, webhook_figures, now))

    def observe_request(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """An answer. `route`: its template, such as `/v1/jobs/{job_id}`; None where no route fits."""
        labels = (route or UNMATCHED, method if method in _METHODS else "other", f"{status // 100}xx")
        self._requests.labels(*labels).observe(seconds)

    def observe_round(self, seconds: float) -> None:
        """A round of the reconciler."""
        self._rounds.observe(seconds)

    def observe_update(self, job: Job, changes: Mapping[str, Any]) -> None:
        """A change to a job, after it was written."""
        started_at = changes.get("started_at")
        if job.started_at is None and started_at is not None:
            self._waits.observe(max(0.0, (started_at - job.created_at).total_seconds()))
        state = changes.get("state", job.state)
        if state != job.state and JobState(state).is_terminal:
            self._ended.labels(JobState(state).value).inc()

    def observe_webhook(self, outcome: str) -> None:
        """An attempt to send something to a webhook: `delivered`, or one of a few words on what went wrong."""
        self._webhooks.labels(outcome).inc()

    def render(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self._registry)


class _Ledger(Collector):
    """What is read at a scrape rather than counted; from the database at most every few seconds."""

    def __init__(
        self,
        ledger: LedgerHealth,
        store: JobStore,
        waits: Callable[[], Mapping[str, tuple[int, datetime]]],
        is_lease_held: Callable[[], bool],
        num_followers: Callable[[], int],
        webhook_figures: Callable[[], Mapping[DeliveryState, int]],
        now: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._waits = waits
        self._is_lease_held = is_lease_held
        self._num_followers = num_followers
        self._webhook_figures = webhook_figures
        self._now = now
        self._read: tuple[float, _Read | None] | None = None
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that registering asks the database nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The figures of now."""
        yield _gauge("electra_lease_held", "1 where this replica reconciles.", float(self._is_lease_held()))
        yield _gauge("electra_event_followers", "Connections that follow events.", self._num_followers())
        read = self._figures()
        yield _gauge("electra_database_up", "1 where the database answers.", float(read is not None))
        if read is None:
            return
        figures, status, queue, deliveries = read
        waiting = GaugeMetricFamily("electra_webhook_deliveries", "Messages to webhooks.", labels=["state"])
        for delivery_state, number in deliveries.items():
            waiting.add_metric([delivery_state.value], number)
        yield waiting
        jobs = GaugeMetricFamily("electra_jobs", "Jobs by state.", labels=["state"])
        for state in JobState:
            jobs.add_metric([state.value], figures.counts.get(state, 0))
        yield jobs
        oldest = figures.oldest_queued_at
        waits = 0.0 if oldest is None else max(0.0, (self._now() - oldest).total_seconds())
        yield _gauge("electra_oldest_queued_seconds", "Age of the job that waits longest; 0 where none waits.", waits)
        yield from _queue_gauges(queue, self._now())
        if status is not None:
            lag = max(0.0, (self._now() - status.reconciled_at).total_seconds())
            yield _gauge("electra_reconcile_lag_seconds", "Since some replica last began a round.", lag)
            yield _gauge("electra_ray_reachable", "1 where Ray answered.", float(status.is_ray_reachable))

    def _figures(self) -> _Read | None:
        with self._lock:
            if self._read is None or time.monotonic() - self._read[0] > CACHE_SECONDS:
                try:
                    read = (
                        self._ledger.job_figures(),
                        self._store.cluster_status(),
                        self._waits(),
                        self._webhook_figures(),
                    )
                except Exception:  # what is counted in memory is told all the same
                    log.exception("metrics_without_database")
                    read = None
                self._read = (time.monotonic(), read)
            return self._read[1]


def _queue_gauges(waits: Mapping[str, tuple[int, datetime]], now: datetime) -> Iterator[Metric]:
    """By reason, of which there is a closed list; those for which nobody waits are 0."""
    jobs = GaugeMetricFamily("electra_queue_jobs", "Jobs in the queue by why they wait.", labels=["reason"])
    oldest = GaugeMetricFamily(
        "electra_queue_oldest_seconds", "In the queue, of the job that waits longest, by why.", labels=["reason"]
    )
    for reason in WaitReason:
        count, since = waits.get(reason, (0, now))
        jobs.add_metric([reason.value], count)
        oldest.add_metric([reason.value], max(0.0, (now - since).total_seconds()))
    yield jobs
    yield oldest


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
