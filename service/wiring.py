"""The only place where implementations are chosen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from pipelines.storage import web_guard
from service.access.access import Access
from service.dispatch.folders import StoredJobFolders, StoredPredictionFolders
from service.dispatch.launcher import RayLauncher
from service.dispatch.reconciler import Reconciler
from service.dispatch.runs import MlflowRuns
from service.http.desk import Desk
from service.joblogs import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.trials import Trials
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.ledger.store import SqlJobStore
from service.predictions import Predictions
from service.settings import Settings


@contextmanager
def running(settings: Settings) -> Iterator[Desk]:
    """The desk on a database of the newest form, with the reconciler at work behind it."""
    engine = make_engine(settings.database_url)
    # Of the process, as pipelines.storage is: what the desk looks at is read as jobs read it.
    web_guard.install(settings.web_source_hosts if settings.restricts_sources else None)
    with closing(SqlJobStore(engine)) as store:
        upgrade_database(engine)
        folders = StoredJobFolders(settings)
        # Whoever follows a log or waits for a prediction asks Ray on connections of the desk's own, so that they never
        # hold up the reconciler.
        with (
            closing(RayLauncher(settings)) as launcher,
            closing(RayLauncher(settings)) as desk_launcher,
            closing(MlflowRuns(settings)) as runs,
            closing(Predictions(desk_launcher, StoredPredictionFolders(settings), settings)) as predictions,
        ):
            reconciler = Reconciler(store, launcher, folders, runs, settings)
            jobs = Jobs(store, settings, reconciler.wake)
            reconciler.start()
            # Beside the start: a storage that is slow or away must not hold it up.
            threading.Thread(target=predictions.delete_left_behind, name="left-behind", daemon=True).start()
            try:
                yield Desk(
                    settings=settings,
                    jobs=jobs,
                    logs=JobLogs(store, desk_launcher, folders),
                    predictions=predictions,
                    trials=Trials(folders),
                    access=Access(settings, SqlAccessStore(engine)),
                )
            finally:
                # Before the reconciler's last step, which may take its time: whoever waits for a prediction is let go.
                predictions.close()
                reconciler.stop()
