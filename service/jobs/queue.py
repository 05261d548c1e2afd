"""The queue as people see it, and quotas that administrators set. Rows only; the reconciler acts on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from service.access.audit import Caller
from service.errors import QuotaNotFoundError
from service.interfaces import JobStore, QueueStore
from service.queueing.amounts import Amount, amount_of, num_slots, sum_of
from service.queueing.demand import Demand
from service.queueing.limits import read_quotas
from service.queueing.reckoning import demand_of_json
from service.queueing.records import Quota, QuotaException, Quotas, Scope
from service.queueing.shares import dominant_share, recent_share
from service.queueing.shown import OwnerShare, QueueState
from service.records import ClusterStatus, Job
from service.settings import Settings

MAX_SHOWN_PER_OWNER = 200
MAX_SHOWN = 2000


class QueueView:
    """What can be asked of the queue."""

    def __init__(
        self,
        store: QueueStore,
        jobs: JobStore,
        settings: Settings,
        wake: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`wake` tells the reconciler that there is something to do."""
        self._store = store
        self._jobs = jobs
        self._settings = settings
        self._wake = wake
        self._now = now

    def show(self, visible: frozenset[str] | None, reader: str) -> QueueState:
        """The queue as far as it is of these projects; None for all. What owners hold, and their shares, are of these
        projects alone; what they have used of late is not known by project, and told of the reader and to those who
        see all.
        """
        waiting = self._store.list_waiting(MAX_SHOWN_PER_OWNER, MAX_SHOWN, visible)
        active = [job for job in self._store.list_active() if visible is None or job.project in visible]
        waiting, active = sorted(map(_with_demand, waiting), key=_place), list(map(_with_demand, active))
        cluster = self._jobs.cluster_status()
        owners = {job.owner for job in (*waiting, *active)}
        with_recent = owners if visible is None else owners & {reader}
        return QueueState(
            waiting=tuple(waiting),
            running=tuple(active),
            owners=self._owners(owners, active, cluster, with_recent),
            cluster=cluster,
        )

    def quotas(self) -> tuple[Quotas, Sequence[QuotaException]]:
        """What counts, and the exceptions with who has set them."""
        exceptions = self._store.list_quotas()
        return read_quotas(self._settings, exceptions), exceptions

    def quota(self, scope: Scope, name: str) -> QuotaException:
        """The quota of its own that an owner or a project has. Raises `QuotaNotFoundError`."""
        found = self._store.find_quota(scope, name)
        if found is None:
            raise QuotaNotFoundError(scope, name)
        return found

    def set_quota(self, scope: Scope, name: str, quota: Quota, caller: Caller) -> QuotaException:
        """Give an owner or a project a quota of its own. Jobs that run go on."""
        assert caller.principal is not None
        exception = QuotaException(scope, name, quota, self._now(), caller.principal.name)
        project = name if scope == "project" else None
        self._store.put_quota(exception, caller.entry("quota.set", f"{scope} {name}", project))
        self._wake()
        return exception

    def remove_quota(self, scope: Scope, name: str, caller: Caller) -> None:
        """Let the settings count again. Raises `QuotaNotFoundError`."""
        project = name if scope == "project" else None
        if not self._store.delete_quota(scope, name, caller.entry("quota.remove", f"{scope} {name}", project)):
            raise QuotaNotFoundError(scope, name)
        self._wake()

    def _owners(
        self, owners: set[str], active: Sequence[Job], cluster: ClusterStatus | None, with_recent: set[str]
    ) -> tuple[OwnerShare, ...]:
        quotas, usages, now = self.quotas()[0], self._store.usages(), self._now()
        half_life = timedelta(seconds=self._settings.fair_share_half_life_seconds)
        whole = Amount() if cluster is None else Amount(cluster.num_cpus or 0.0, cluster.num_gpus or 0.0)
        shares = []
        for owner in sorted(owners):
            demands = [job.demand for job in active if job.owner == owner and job.demand is not None]
            held = sum_of(amount_of(_fitted(demand, whole)) for demand in demands)
            recent: float | None = None
            if owner in with_recent:
                recent = recent_share(usages[owner], now, half_life, whole) if owner in usages else 0.0
            quota = quotas.owners.get(owner, quotas.of_owners)
            shares.append(OwnerShare(owner, len(demands), held, dominant_share(held, whole), recent, quota))
        return tuple(shares)


def _fitted(demand: Demand, whole: Amount) -> Demand:
    """Of a search, the trials that a cluster of this size has room for; by the sum, for its nodes are not kept."""
    return demand.within(num_slots(whole, demand)) or demand


def _with_demand(job: Job) -> Job:
    """Also a job that was taken before demands were stored."""
    return job if job.demand is not None else replace(job, demand=demand_of_json(job.spec_json))


def _place(job: Job) -> tuple[float, int, datetime, str]:
    position = float("inf") if job.queue_position is None else float(job.queue_position)
    return position, -job.priority, job.created_at, job.job_id
