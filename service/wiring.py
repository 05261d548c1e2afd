"""The only place where implementations are chosen."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from pipelines.storage import web_guard
from service.access.access import Access
from service.dispatch.folders import StoredJobFolders, StoredPredictionFolders
from service.dispatch.launcher import RayLauncher
from service.dispatch.leadership import LeaseKeeper
from service.dispatch.reconciler import Reconciler
from service.dispatch.runs import MlflowRuns
from service.feeds.feed import EventFeed
from service.feeds.health import ServiceHealth
from service.feeds.metrics import ServiceMetrics
from service.feeds.pruning import EventPruning
from service.feeds.telling import ProgressGate
from service.http.desk import Desk
from service.http.problems import DatabaseAway
from service.joblogs.kept import KeptLogs
from service.joblogs.printed import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.queue import QueueView
from service.jobs.trials import Trials
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import DATABASE_FAULTS, is_away, make_engine, upgrade_database
from service.ledger.events import SqlEventStore
from service.ledger.health import SqlLedgerHealth
from service.ledger.lease import SqlLease
from service.ledger.locks import SqlLocks
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.ledger.usage import SqlUsageStore
from service.ledger.usage_repair import UsageRepair
from service.ledger.webhook_store import SqlWebhookStore
from service.predictions import Predictions
from service.records import Job
from service.settings import Settings
from service.shelf.alias_versions import AliasVersions
from service.shelf.mlflow_registry import MlflowRegistry
from service.shelf.shelf import make_shelf
from service.tracing.setup import job_traces
from service.webhooks.delivering import Surroundings, WebhookDelivery
from service.webhooks.sending import Sender
from service.webhooks.webhooks import Webhooks

DATABASE_AWAY = DatabaseAway(DATABASE_FAULTS, is_away)
"""What a request meets where the database is gone: no fault of the request's."""


@contextmanager
def running(settings: Settings) -> Iterator[Desk]:
    """The desk on a database of the newest form, with the reconciler at work behind it."""
    engine = make_engine(settings.database_url)
    # Requests that use up the connections of the other must not cost this replica its lease.
    lease_engine = make_engine(settings.database_url, pool_size=1)
    # Of the process, as pipelines.storage is: what the desk looks at is read as jobs read it.
    web_guard.install(settings.web_source_hosts if settings.restricts_sources else None)
    with ExitStack() as held, closing(SqlJobStore(engine)) as store:
        held.callback(lease_engine.dispose)
        upgrade_database(engine)
        folders = StoredJobFolders(settings)
        # Whoever follows a log or waits for a prediction asks Ray on connections of the desk's own, so that they never
        # hold up the reconciler.
        with (
            closing(RayLauncher(settings)) as launcher,
            closing(RayLauncher(settings)) as desk_launcher,
            closing(MlflowRuns(settings)) as runs,
            closing(MlflowRegistry(settings)) as registry,
            closing(Predictions(desk_launcher, StoredPredictionFolders(settings), settings)) as predictions,
        ):
            lease = SqlLease(lease_engine, settings.lease_seconds)
            ledger, event_store = SqlLedgerHealth(engine), SqlEventStore(engine)
            events = EventFeed(
                event_store,
                store.get,
                poll_seconds=settings.event_poll_seconds,
                max_followers=settings.max_event_followers,
                stream_seconds=settings.event_stream_seconds,
            )
            metrics = ServiceMetrics(
                ledger,
                store,
                waits=SqlQueueStore(engine).waiting_figures,
                is_lease_held=lambda: lease.is_held,
                num_followers=lambda: events.num_followers,
                webhook_figures=SqlWebhookStore(engine).figures,
            )
            traces = job_traces()

            def on_update(job: Job, changes: Mapping[str, Any]) -> None:
                metrics.observe_update(job, changes)
                if traces is not None:
                    traces.observe_update(job, changes)

            pruning = EventPruning(event_store, settings)
            repair = UsageRepair(engine, guard=lease.guard)

            def after_round(seconds: float) -> None:
                metrics.observe_round(seconds)
                pruning.run()
                repair.run()

            webhook_store = SqlWebhookStore(engine)
            delivery = WebhookDelivery(
                webhook_store,
                Sender(settings.webhook_hosts, settings.webhook_timeout_seconds).send,
                settings,
                Surroundings(is_leading=lambda: lease.is_held, on_attempt=metrics.observe_webhook),
            )
            reconciler = Reconciler(
                # Its own: what it writes counts only as long as the lease is this replica's.
                SqlJobStore(
                    engine,
                    guard=lease.guard,
                    gate=ProgressGate(settings.progress_event_seconds),
                    on_update=on_update,
                ),
                launcher,
                folders,
                runs,
                settings,
                queue=SqlQueueStore(engine, guard=lease.guard),
                leadership=LeaseKeeper(lease, settings.lease_seconds),
                after_round=after_round,
            )
            queue = SqlQueueStore(engine)
            jobs = Jobs(store, settings, reconciler.wake, quotas=queue, version_of=AliasVersions(registry))
            reconciler.start()
            delivery.start()
            # Beside the start: a storage that is slow or away must not hold it up.
            threading.Thread(target=predictions.delete_left_behind, name="left-behind", daemon=True).start()
            access = Access(settings, SqlAccessStore(engine))
            try:
                yield Desk(
                    settings=settings,
                    jobs=jobs,
                    logs=JobLogs(store, desk_launcher, folders),
                    kept_logs=KeptLogs(store, settings),
                    predictions=predictions,
                    trials=Trials(folders),
                    events=events,
                    health=ServiceHealth(ledger, store, settings, own_fault=lambda: reconciler.fault),
                    metrics=metrics,
                    access=access,
                    webhooks=Webhooks(settings, webhook_store, access),
                    queue=QueueView(queue, store, settings, reconciler.wake),
                    shelf=make_shelf(
                        settings,
                        jobs=store,
                        folders=folders,
                        registry=registry,
                        locks=SqlLocks(engine),
                        usage=SqlUsageStore(engine),
                        record=access.store.record,
                    ),
                )
            finally:
                events.close()
                # Before the reconciler's last step, which may take its time: whoever waits for a prediction is let go.
                predictions.close()
                delivery.stop()
                reconciler.stop()
