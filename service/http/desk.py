"""What the routes are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.access.access import Access
from service.feeds.feed import EventFeed
from service.feeds.health import ServiceHealth
from service.feeds.metrics import ServiceMetrics
from service.joblogs.kept import KeptLogs
from service.joblogs.printed import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.queue import QueueView
from service.jobs.trials import Trials
from service.predictions import Predictions
from service.settings import Settings
from service.shelf.shelf import Shelf
from service.webhooks.webhooks import Webhooks


@dataclass(frozen=True)
class Desk:
    """Everything behind the routes, chosen in `wiring.py`."""

    settings: Settings
    jobs: Jobs
    logs: JobLogs
    kept_logs: KeptLogs
    predictions: Predictions
    trials: Trials
    events: EventFeed
    health: ServiceHealth
    metrics: ServiceMetrics
    access: Access
    webhooks: Webhooks
    queue: QueueView
    shelf: Shelf


def _desk(request: Request) -> Desk:
    desk = request.app.state.desk
    assert isinstance(desk, Desk)
    return desk


def _jobs(desk: Annotated[Desk, Depends(_desk)]) -> Jobs:
    return desk.jobs


def _logs(desk: Annotated[Desk, Depends(_desk)]) -> JobLogs:
    return desk.logs


def _kept_logs(desk: Annotated[Desk, Depends(_desk)]) -> KeptLogs:
    return desk.kept_logs


def _predictions(desk: Annotated[Desk, Depends(_desk)]) -> Predictions:
    return desk.predictions


def _trials(desk: Annotated[Desk, Depends(_desk)]) -> Trials:
    return desk.trials


def _events(desk: Annotated[Desk, Depends(_desk)]) -> EventFeed:
    return desk.events


def _health(desk: Annotated[Desk, Depends(_desk)]) -> ServiceHealth:
    return desk.health


def _metrics(desk: Annotated[Desk, Depends(_desk)]) -> ServiceMetrics:
    return desk.metrics


def _settings(desk: Annotated[Desk, Depends(_desk)]) -> Settings:
    return desk.settings


def _access(desk: Annotated[Desk, Depends(_desk)]) -> Access:
    return desk.access


def _webhooks(desk: Annotated[Desk, Depends(_desk)]) -> Webhooks:
    return desk.webhooks


def _queue(desk: Annotated[Desk, Depends(_desk)]) -> QueueView:
    return desk.queue


def _shelf(desk: Annotated[Desk, Depends(_desk)]) -> Shelf:
    return desk.shelf


JobsDep = Annotated[Jobs, Depends(_jobs)]
LogsDep = Annotated[JobLogs, Depends(_logs)]
KeptLogsDep = Annotated[KeptLogs, Depends(_kept_logs)]
PredictionsDep = Annotated[Predictions, Depends(_predictions)]
TrialsDep = Annotated[Trials, Depends(_trials)]
EventsDep = Annotated[EventFeed, Depends(_events)]
HealthDep = Annotated[ServiceHealth, Depends(_health)]
MetricsDep = Annotated[ServiceMetrics, Depends(_metrics)]
SettingsDep = Annotated[Settings, Depends(_settings)]
AccessDep = Annotated[Access, Depends(_access)]
WebhooksDep = Annotated[Webhooks, Depends(_webhooks)]
QueueDep = Annotated[QueueView, Depends(_queue)]
ShelfDep = Annotated[Shelf, Depends(_shelf)]
