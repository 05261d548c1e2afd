"""Webhooks from the event to a real receiver, on both databases."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from service_doubles import Clock, make_job
from sqlalchemy import Engine, delete, text
from sqlalchemy.orm import Session
from webhook_receiver import LOCAL, Receiver, receiving

from pipelines.specs.documents import Progress
from service.access.access import Access
from service.access.audit import Caller
from service.access.interfaces import AuditFilter
from service.access.principals import LOCAL as LOCAL_USER
from service.access.principals import Permission, Principal, Role
from service.errors import (
    PermissionDeniedError,
    WebhookNotFoundError,
    WebhooksOffError,
    WrongDeliveryStateError,
)
from service.interfaces import StaleJobError
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.ledger.store import SqlJobStore
from service.ledger.webhook_store import SqlWebhookStore
from service.ledger.webhook_tables import WebhookRow
from service.settings import Settings
from service.states import JobState
from service.webhooks import addresses
from service.webhooks.delivering import MAX_ATTEMPTS, Surroundings, WebhookDelivery, delay_seconds
from service.webhooks.records import DeliveryState, Webhook
from service.webhooks.sending import Sender, SendError
from service.webhooks.signing import signed_headers, webhook_secret
from service.webhooks.webhooks import Webhooks

KEY = "k" * 32


class World:
    """Webhooks over one database, sent by hand at a time that is told."""

    def __init__(self, engine: Engine, settings: Settings, **changes: Any) -> None:
        given = {"home": settings.home, "webhook_key": KEY, "webhook_hosts": (LOCAL,), "webhook_timeout_seconds": 5}
        self.settings = Settings.model_validate(given | changes)
        self.clock = Clock()
        self.outcomes: list[str] = []
        self.jobs = SqlJobStore(engine)
        self.store = SqlWebhookStore(engine)
        self.audit = SqlAccessStore(engine)
        self.webhooks = Webhooks(self.settings, self.store, Access(self.settings, self.audit), self.clock)
        self.caller = Caller(LOCAL_USER)
        self.delivery = self.replica()

    def replica(self) -> WebhookDelivery:
        around = Surroundings(on_attempt=self.outcomes.append, now=self.clock, jitter=lambda: 1.0)
        sender = Sender(self.settings.webhook_hosts, self.settings.webhook_timeout_seconds)
        return WebhookDelivery(self.store, sender.send, self.settings, around)

    def create(self, url: str, events: tuple[str, ...] = ("created", "state"), **labels: str) -> tuple[Webhook, str]:
        return self.webhooks.create(self.caller, url=url, events=events, labels=labels, project="default")

    def send(self, seconds_later: float = 0.0) -> None:
        """One round, after a while."""
        # Events have the time of the machine; the doubles' clock stands in another year.
        self.clock.time = max(self.clock.time, latest(self)) + timedelta(seconds=seconds_later)
        for webhook in self.store.list_due(self.clock(), 100):
            self.delivery.send_due(webhook)

    def states(self, webhook: Webhook) -> list[DeliveryState]:
        return [one.state for one in reversed(self.store.deliveries(webhook.webhook_id, None, None, 100))]


def latest(world: World) -> Any:
    due = [
        one.due_at
        for webhook in world.store.list_webhooks(None, 100)
        for one in world.store.deliveries(webhook.webhook_id, DeliveryState.PENDING, None, 100)
        if one.num_attempts == 0
    ]
    return max([*due, world.clock.time])


@pytest.fixture
def world(engine: Engine, settings: Settings) -> World:
    return World(engine, settings)


@pytest.fixture
def lite(settings: Settings) -> Iterator[World]:
    """On SQLite alone: what no database decides."""
    engine = make_engine(settings.database_url)
    upgrade_database(engine)
    yield World(engine, settings)
    engine.dispose()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As docs/webhooks.md tells receivers to check."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    return headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_events_of_a_job_arrive_signed_and_in_order(world: World, receiver: Receiver) -> None:
    webhook, secret = world.create(receiver.url)
    job = make_job()
    world.jobs.insert(job)
    world.jobs.update(job, state=JobState.STARTING, attempt=1)
    world.send()
    assert receiver.types() == ["job.created", "job.state"]
    assert all(is_signed(secret, *one) for one in receiver.got)
    assert json.loads(receiver.got[1][1])["data"]["payload"]["state"] == "STARTING"
    assert world.states(webhook) == [DeliveryState.DELIVERED] * 2


def test_only_what_was_asked_for_is_sent(world: World, receiver: Receiver) -> None:
    world.create(receiver.url, ("state",), team="nlp")
    for labels in ({}, {"team": "other"}, {"team": "nlp", "more": "x"}):
        job = make_job(labels=labels)
        world.jobs.insert(job)
        job = world.jobs.update(job, state=JobState.STARTING, attempt=1)
        world.jobs.update(job, progress=Progress(heartbeat_at=job.created_at))
    world.send()
    assert [json.loads(body)["data"]["job_id"] for _, body in receiver.got] == [job.job_id]


def test_labels_count_from_the_first_event_on(world: World, receiver: Receiver) -> None:
    world.create(receiver.url, ("created",), team="nlp")
    world.jobs.insert(make_job(labels={"team": "nlp"}))
    world.jobs.insert(make_job(labels={"team": "cv"}))
    world.send()
    assert receiver.types() == ["job.created"]


def test_a_webhook_that_is_deleted_meanwhile_is_no_jobs_fault(world: World, engine: Engine) -> None:
    """Its row is locked by the deletion when the event is written, which waits and then finds it gone."""
    if engine.dialect.name == "sqlite":
        pytest.skip("one writes at a time there")
    webhook, _ = world.create(f"http://{LOCAL}:9/")
    job = make_job()
    writer = threading.Thread(target=world.jobs.insert, args=(job,))
    with Session(engine) as session, session.begin():
        session.execute(delete(WebhookRow).where(WebhookRow.webhook_id == webhook.webhook_id))
        writer.start()
        until(lambda: is_waited_for(engine))
    writer.join(30)
    assert world.jobs.get(job.job_id) == job
    assert world.store.deliveries(webhook.webhook_id, None, None, 10) == []


def is_waited_for(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_was_not_written_is_not_sent(world: World) -> None:
    webhook, _ = world.create(f"http://{LOCAL}:9/")
    job = make_job()
    world.jobs.insert(job)
    world.jobs.update(job, state=JobState.STARTING, attempt=1)
    with pytest.raises(StaleJobError):
        world.jobs.update(job, state=JobState.STARTING, attempt=1)
    assert len(world.states(webhook)) == 2


def test_a_receiver_that_flaps_gets_each_event_in_order_and_the_same_id_again(world: World) -> None:
    with receiving(statuses=[500, 503, 200]) as receiver:
        webhook, _ = world.create(receiver.url)
        job = make_job()
        world.jobs.insert(job)
        world.jobs.update(job, state=JobState.STARTING, attempt=1)
        world.send()
        world.send(5)  # too early
        assert receiver.types() == ["job.created"]
        world.send(10)
        world.send(30)
    assert receiver.types() == ["job.created"] * 3 + ["job.state"]
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 2
    assert world.outcomes == ["status", "status", "delivered", "delivered"]
    found = world.store.find(webhook.webhook_id)
    assert found is not None
    assert found.failing_since is None


def test_a_failing_job_does_not_hold_up_others(world: World) -> None:
    with receiving(statuses=[500, 200]) as receiver:
        world.create(receiver.url, ("created",))
        world.jobs.insert(make_job())
        world.send()
        world.jobs.insert(make_job())
        world.send()
        assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 2


def test_webhooks_that_fail_come_after_those_that_do_not(world: World, receiver: Receiver) -> None:
    with receiving(statuses=[500]) as broken:
        failing, _ = world.create(broken.url, ("created",))
        world.jobs.insert(make_job())
        world.send()
        sound, _ = world.create(receiver.url, ("created",))
        world.jobs.insert(make_job())
        due = [one.webhook_id for one in world.store.list_due(latest(world), 100)]
        assert due == [sound.webhook_id, failing.webhook_id]


def test_what_waits_behind_an_earlier_message_takes_no_turn(world: World) -> None:
    with receiving(statuses=[500]) as receiver:
        webhook, _ = world.create(receiver.url)
        job = make_job()
        world.jobs.insert(job)
        world.send()
        world.jobs.update(job, state=JobState.STARTING, attempt=1)
        assert world.states(webhook) == [DeliveryState.PENDING] * 2
        assert world.store.list_due(latest(world), 100) == []


def test_what_never_arrives_is_given_up_and_can_be_sent_again(world: World, receiver: Receiver) -> None:
    receiver.statuses = [500]
    webhook, _ = world.create(receiver.url, ("created",))
    world.jobs.insert(make_job())
    for attempt in range(MAX_ATTEMPTS):
        world.send(delay_seconds(attempt, 1.0) if attempt else 0.0)
    assert world.states(webhook) == [DeliveryState.DEAD]
    assert world.store.figures() == {DeliveryState.PENDING: 0, DeliveryState.DEAD: 1}
    receiver.statuses = [204]
    (dead,) = world.store.deliveries(webhook.webhook_id, DeliveryState.DEAD, None, 10)
    world.webhooks.send_again(world.caller, webhook.webhook_id, dead.delivery_id)
    world.send()
    assert world.states(webhook) == [DeliveryState.DELIVERED]
    assert len(receiver.got) == MAX_ATTEMPTS + 1


def test_a_webhook_that_fails_for_days_is_disabled_until_it_is_enabled(world: World, receiver: Receiver) -> None:
    receiver.statuses = [500]
    webhook, _ = world.create(receiver.url, ("created",))
    for _ in range(2):
        world.jobs.insert(make_job())
        world.send(world.settings.webhook_disable_seconds)
    world.jobs.insert(make_job())
    found = world.store.find(webhook.webhook_id)
    assert found is not None
    assert found.disabled_at is not None
    assert world.states(webhook) == [DeliveryState.DEAD] * 2  # and of the third there is nothing
    with pytest.raises(WrongDeliveryStateError):
        world.webhooks.ping(world.caller, webhook.webhook_id)
    assert world.webhooks.enable(world.caller, webhook.webhook_id).disabled_at is None
    actions = [entry.action for entry in world.audit.page_audit(AuditFilter(object=webhook.webhook_id))]
    assert actions == ["webhook.enable", "webhook.disable", "webhook.create"]


def test_a_deleted_webhook_leaves_nothing(world: World, receiver: Receiver) -> None:
    webhook, _ = world.create(receiver.url, ("created",), team="nlp")
    world.webhooks.ping(world.caller, webhook.webhook_id)
    world.webhooks.delete(world.caller, webhook.webhook_id)
    world.send()
    assert (receiver.got, world.store.figures()[DeliveryState.PENDING]) == ([], 0)
    with pytest.raises(WebhookNotFoundError):
        world.webhooks.get(world.caller, webhook.webhook_id)


def test_who_may_not_read_jobs_is_not_told_of_them(lite: World) -> None:
    """By an address of their own, that is: the scopes of a key narrow what its owner may."""
    narrow = Principal(owner="a", roles={"default": Role.ADMIN}, scopes=frozenset({Permission.ADMIN}), method="key")
    lite.caller = Caller(narrow)
    with pytest.raises(PermissionDeniedError, match="jobs:read"):
        lite.create(f"http://{LOCAL}:9/")


def test_deliveries_are_listed_page_by_page(world: World, receiver: Receiver) -> None:
    webhook, _ = world.create(receiver.url)
    made = []
    for _ in range(3):
        made.append(world.webhooks.ping(world.caller, webhook.webhook_id))
        world.clock.time += timedelta(seconds=1)
    first = world.store.deliveries(webhook.webhook_id, None, None, 2)
    place = (first[-1].created_at, first[-1].delivery_id)
    rest = world.store.deliveries(webhook.webhook_id, None, place, 2)
    assert [*first, *rest] == made[::-1]


def test_old_deliveries_are_deleted_and_those_that_wait_are_not(world: World, receiver: Receiver) -> None:
    webhook, _ = world.create(receiver.url)
    world.webhooks.ping(world.caller, webhook.webhook_id)
    world.send()
    world.webhooks.ping(world.caller, webhook.webhook_id)
    assert world.store.prune(world.clock() + timedelta(days=1), 10) == 1
    assert world.states(webhook) == [DeliveryState.PENDING]


def test_the_thread_sends_by_itself(lite: World, receiver: Receiver) -> None:
    webhook, _ = lite.create(receiver.url)
    lite.webhooks.ping(lite.caller, webhook.webhook_id)
    lite.delivery.begin_round()
    lite.delivery._pool.shutdown(wait=True)
    assert receiver.types() == ["ping"]


def test_who_does_not_lead_sends_nothing(lite: World, receiver: Receiver) -> None:
    webhook, _ = lite.create(receiver.url)
    lite.webhooks.ping(lite.caller, webhook.webhook_id)
    around = Surroundings(is_leading=lambda: False, now=lite.clock)
    WebhookDelivery(lite.store, Sender((LOCAL,), 5).send, lite.settings, around).send_due(webhook)
    assert receiver.got == []


def test_nothing_is_signed_with_another_key(lite: World, receiver: Receiver) -> None:
    webhook, _ = lite.create(receiver.url)
    lite.webhooks.ping(lite.caller, webhook.webhook_id)
    lite.settings = lite.settings.model_copy(update={"webhook_key": None, "webhook_key_path": None})
    lite.delivery = lite.replica()
    lite.send()
    assert (receiver.got, lite.outcomes) == ([], ["key_changed"])


def test_redirects_are_not_followed(lite: World, receiver: Receiver) -> None:
    receiver.statuses = [307]
    webhook, _ = lite.create(receiver.url)
    lite.webhooks.ping(lite.caller, webhook.webhook_id)
    lite.send()
    assert (len(receiver.got), lite.outcomes) == (1, ["redirect"])


def test_a_receiver_that_answers_byte_by_byte_gains_no_time() -> None:
    with receiving(drip_seconds=0.05) as receiver, pytest.raises(SendError, match="timeout"):
        Sender((LOCAL,), 0.5).send(receiver.url, {}, b"{}")


def test_a_receiver_that_is_not_there_is_said_so() -> None:
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        with pytest.raises(SendError, match="connect"):
            Sender((LOCAL,), 5).send(f"http://{LOCAL}:{taken.getsockname()[1]}/", {}, b"{}")


def test_a_name_that_comes_to_mean_a_place_inside_is_not_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was public when the webhook was made; the connection looks again."""
    port = int(receiver.url.rpartition(":")[2].partition("/")[0])
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (LOCAL, port))]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *_args, **_named: inside)
    with pytest.raises(SendError, match="address_refused"):
        Sender((), 5).send(f"http://hooks.example.org:{port}/", {}, b"{}")
    assert receiver.got == []


def test_with_keys_there_are_no_webhooks_before_there_is_a_key(engine: Engine, settings: Settings) -> None:
    world = World(engine, settings, access="keys", webhook_key=None)
    with pytest.raises(WebhooksOffError):
        world.create(f"http://{LOCAL}:9/")


def test_the_documents_own_check_takes_what_we_send_and_nothing_else(world: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    secret, body, now = webhook_secret(KEY, "0" * 16), b'{"a": 1}', datetime.now(UTC)
    headers = dict(signed_headers(secret, "id", now, body))
    is_ours = names["is_ours"]
    assert is_ours(secret, headers, body)
    assert not is_ours(secret, headers, b'{"a": 2}')
    assert not is_ours(webhook_secret(KEY, "1" * 16), headers, body)
    assert not is_ours(secret, {**headers, "webhook-id": "other"}, body)
    assert not is_ours(secret, dict(signed_headers(secret, "id", now - timedelta(hours=1), body)), body)


def test_signatures_are_those_of_standard_webhooks(world: World) -> None:
    """The example of the specification's reference libraries."""
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        world.clock.time.fromtimestamp(1614265330, world.clock.time.tzinfo),
        b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("named", [(), ("hooks.example.org",)])
def test_a_name_that_is_looked_up_for_long_takes_no_more_than_the_messages_time(
    monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    is_over, was_looked_up = threading.Event(), threading.Event()

    def look_up(*_args: Any, **_named: Any) -> list[Any]:
        is_over.wait(20)
        was_looked_up.set()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.1", 80))]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", look_up)
    with pytest.raises(SendError, match="timeout"):
        Sender(named, 0.2).send("http://hooks.example.org/", {}, b"{}")
    assert not was_looked_up.is_set()
    is_over.set()
    assert was_looked_up.wait(60)


def test_what_an_event_left_waiting_at_a_disabled_webhook_is_given_up(world: World, receiver: Receiver) -> None:
    """It was written at the moment in which the webhook was disabled."""
    webhook, _ = world.create(receiver.url)
    world.jobs.insert(make_job())
    with Session(world.store._engine) as session, session.begin():
        session.execute(text("UPDATE webhooks SET disabled_at = '2026-01-01'"))
    assert world.states(webhook) == [DeliveryState.PENDING]
    world.store.prune(world.clock(), 100)
    assert world.states(webhook) == [DeliveryState.DEAD]


def test_pruning_waits_for_nobody_who_deletes_a_webhook(postgres_url: str, settings: Settings) -> None:
    """Each would hold what the other waits for: a deletion takes the webhook, and then all that was sent to it."""
    engine = make_engine(postgres_url)
    upgrade_database(engine)
    world = World(engine, settings)
    webhook, _ = world.create(f"http://{LOCAL}:9/")
    for _ in range(3):
        world.jobs.insert(make_job())
    with Session(engine) as session, session.begin():
        session.execute(text("UPDATE webhook_deliveries SET state = 'dead', created_at = '2020-01-01'"))
    held = world.store.deliveries(webhook.webhook_id, None, None, 10)[1].delivery_id
    with Session(engine) as deleting, deleting.begin():
        deleting.execute(text("SELECT 1 FROM webhook_deliveries WHERE delivery_id = :id FOR UPDATE"), {"id": held})
        assert world.store.prune(world.clock(), 100) == 2
    assert [one.delivery_id for one in world.store.deliveries(webhook.webhook_id, None, None, 10)] == [held]
    engine.dispose()
