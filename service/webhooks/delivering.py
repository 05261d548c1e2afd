"""The thread that sends what waits to be sent, on the replica that holds the lease."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from service.access.audit import AuditEntry
from service.settings import Settings
from service.webhooks.records import Attempt, Delivery, DeliveryState, Webhook, WebhookStore
from service.webhooks.sending import SendError
from service.webhooks.signing import key_fingerprint, signed_headers, webhook_secret

log = structlog.get_logger(__name__)

WORKERS = 8
"""Webhooks that are sent to at a time; to each one message after the other."""
BATCH = 20
POLL_SECONDS = 1.0
PRUNE_SECONDS = 60.0
PRUNE_BATCH = 1000
FIRST_DELAY_SECONDS = 10.0
MAX_DELAY_SECONDS = 4 * 3600.0
MAX_ATTEMPTS = 16
"""With the delays between them some 20 hours; `webhook_retry_seconds` may end it before."""
DISABLER = "service"
"""Who it was, in the audit log, that disabled a webhook that failed for long."""


class Send(Protocol):
    """`Sender.send`."""

    def __call__(self, url: str, headers: dict[str, str], body: bytes) -> int:
        """The status of the answer. Raises `SendError`."""


@dataclass(frozen=True)
class Surroundings:
    """What the thread is given besides its work; tests give others."""

    is_leading: Callable[[], bool] = lambda: True
    on_attempt: Callable[[str], None] = lambda outcome: None
    """Told of each: `delivered` or what went wrong."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    jitter: Callable[[], float] = random.random


class WebhookDelivery:
    """Sends, at least once, the events of each job in their order."""

    def __init__(
        self, store: WebhookStore, send: Send, settings: Settings, surroundings: Surroundings | None = None
    ) -> None:
        self._store = store
        self._send = send
        self._settings = settings
        self._around = surroundings or Surroundings()
        self._in_flight: set[str] = set()
        self._lock = threading.Lock()
        self._pruned_at = time.monotonic()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="webhook")
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the messages that are being sent; what waits is sent by whoever leads next."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._settings.webhook_timeout_seconds + 5)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin_round(self) -> int:
        """Begin to send to each webhook that has something due and is not being sent to; how many those are."""
        begun = 0
        for webhook in self._store.list_due(self._around.now(), WORKERS * 4):
            with self._lock:
                if webhook.webhook_id in self._in_flight or len(self._in_flight) >= WORKERS:
                    continue
                self._in_flight.add(webhook.webhook_id)
            self._pool.submit(self._send_guarded, webhook)
            begun += 1
        return begun

    def send_due(self, webhook: Webhook) -> None:
        """Send to one webhook what is due, one message after the other."""
        key = self._settings.read_webhook_key()
        for delivery in self._store.due_deliveries(webhook.webhook_id, self._around.now(), BATCH):
            if self._stop.is_set() or not self._around.is_leading():
                return
            attempt = self._attempt(webhook, delivery, key)
            self._around.on_attempt(attempt.error or DeliveryState.DELIVERED)
            self._note(webhook, delivery, attempt)
            if attempt.error is not None:
                return  # the others wait for the next round: a receiver that is away is not asked for each of them

    def _attempt(self, webhook: Webhook, delivery: Delivery, key: str | None) -> Attempt:
        at = self._around.now()
        if key is None or key_fingerprint(key) != webhook.key_fingerprint:
            # Signed with another key it would look forged.
            return Attempt(at=at, status=None, error="key_changed")
        body = delivery.body.encode()
        headers = {"Content-Type": "application/json", "User-Agent": "electra-webhooks/1"}
        headers |= signed_headers(webhook_secret(key, webhook.webhook_id), delivery.delivery_id, at, body)
        try:
            status = self._send(webhook.url, headers, body)
        except SendError as error:
            return Attempt(at=at, status=None, error=str(error))
        if 200 <= status < 300:
            return Attempt(at=at, status=status, error=None)
        return Attempt(at=at, status=status, error="redirect" if 300 <= status < 400 else "status")

    def _note(self, webhook: Webhook, delivery: Delivery, attempt: Attempt) -> None:
        if attempt.error is None:
            self._store.note_attempt(delivery, attempt, DeliveryState.DELIVERED, attempt.at)
            return
        made = delivery.num_attempts + 1
        age = attempt.at - delivery.first_due_at
        is_over = made >= MAX_ATTEMPTS or age >= timedelta(seconds=self._settings.webhook_retry_seconds)
        state = DeliveryState.DEAD if is_over else DeliveryState.PENDING
        due_at = attempt.at + timedelta(seconds=delay_seconds(made, self._around.jitter()))
        self._store.note_attempt(delivery, attempt, state, due_at)
        log.info(
            "webhook_failed",
            webhook_id=webhook.webhook_id,
            delivery_id=delivery.delivery_id,
            error=attempt.error,
            status=attempt.status,
            attempts=made,
            is_given_up=is_over,
        )
        failing_since = webhook.failing_since or attempt.at
        if attempt.at - failing_since >= timedelta(seconds=self._settings.webhook_disable_seconds):
            log.warning("webhook_disabled", webhook_id=webhook.webhook_id, failing_since=failing_since.isoformat())
            self._store.disable(webhook.webhook_id, attempt.at, _disabled(webhook, attempt.at))

    def _send_guarded(self, webhook: Webhook) -> None:
        try:
            self.send_due(webhook)
        except Exception:  # a database that is away comes back
            log.exception("webhook_not_sent", webhook_id=webhook.webhook_id)
        finally:
            with self._lock:
                self._in_flight.discard(webhook.webhook_id)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._around.is_leading():
                    self.begin_round()
                    self._prune()
            except Exception:  # a database that is away comes back
                log.exception("webhooks_unreadable")
            self._stop.wait(POLL_SECONDS)

    def _prune(self) -> None:
        if time.monotonic() - self._pruned_at < PRUNE_SECONDS:
            return
        before = self._around.now() - timedelta(seconds=self._settings.event_retention_seconds)
        if self._store.prune(before, PRUNE_BATCH) < PRUNE_BATCH:
            self._pruned_at = time.monotonic()


def delay_seconds(attempts: int, jitter: float) -> float:
    """Pause after so many attempts: doubled for each, and between the half and the whole of it by `jitter` in [0, 1),
    so that a receiver that comes back is not asked for everything at once.
    """
    whole = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempts - 1, 30))
    return whole * (0.5 + jitter / 2)


def _disabled(webhook: Webhook, at: datetime) -> AuditEntry:
    return AuditEntry(
        at=at,
        request_id="",
        principal=DISABLER,
        action="webhook.disable",
        object=webhook.webhook_id,
        project=webhook.project,
        outcome="done",
        address="",
    )
