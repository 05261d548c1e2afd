"""Attempts that run on Ray without this service having started them: they are taken into the list, or stopped.

They come two ways. A job that somebody sent by `ray job submit` leaves word of itself in the storage. And an attempt
that a service of this storage started carries its job in Ray's metadata: where the database is of before it was
started, as after a backup was put back, it is found by that.

Nothing is taken over that our Ray does not know, for nobody could tell then whether it lives; nor anything of another
storage, whose service sees to it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from pipelines.specs.documents import JobResult
from pipelines.specs.parsing import dump_spec
from service import launches
from service.access.audit import AuditEntry
from service.access.principals import DEFAULT_PROJECT, LOCAL_OWNER
from service.dispatch.endings import FRESH, NOT_WAITING
from service.feeds.interfaces import LeaseLostError
from service.interfaces import (
    FolderError,
    JobFolders,
    JobStore,
    Launcher,
    LauncherUnavailableError,
    RunningProgram,
    StaleJobError,
)
from service.queueing.reckoning import demand_of
from service.records import Job, submission_id
from service.settings import Settings
from service.states import ACTIVE_STATES, JobState, can_move

log = structlog.get_logger(__name__)
_One = TypeVar("_One", str, "Found")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")

ANNOUNCED_SECONDS = 10.0
"""Between two looks for jobs that have left word of themselves."""
STRAY_SECONDS = 60.0
"""Between two looks at all that Ray runs."""
PUT_OFF_SECONDS = 60.0
"""A job that cannot be taken over now is left alone for so long."""
FORGET_AFTER = timedelta(days=7)
"""Word of a job that could not be taken over by then is deleted: the job's cluster is not ours, or is gone."""
OWNER = "ray"
"""Whom a job belongs to, with keys, that came past the service: whoever has Ray's token is not told apart."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An attempt that runs, or ran, without a row that says so."""

    job_id: str
    attempt: int
    submission_id: str
    began_at: datetime
    owner: str
    project: str


def _is_at_its_end(result: JobResult | None, attempt: int) -> bool:
    """Whether an attempt has said that the job is over. One that failed and could be tried again is not: perhaps
    whoever sent it does so.
    """
    if result is None or result.attempt != attempt:
        return False
    can_retry = result.failure is not None and result.failure.can_retry
    return result.state in ("SUCCEEDED", "CANCELLED") or (result.state == "FAILED" and not can_retry)


class Adoption:
    """Looks for them."""

    def __init__(
        self,
        store: JobStore,
        launcher: Launcher,
        folders: JobFolders,
        settings: Settings,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` dates what is written; `clock` counts seconds from any start."""
        self._store = store
        self._launcher = launcher
        self._folders = folders
        self._settings = settings
        self._now = now
        self._clock = clock
        self._announced_due = self._stray_due = clock()
        self._put_off: dict[str, float] = {}

    def look(self) -> bool:
        """Look, where it is time to; whether a job came into the list or began another attempt."""
        moved = False
        if self._clock() >= self._announced_due:
            self._announced_due = self._clock() + ANNOUNCED_SECONDS
            moved |= self._look_at_announced()
        if self._clock() >= self._stray_due:
            self._stray_due = self._clock() + STRAY_SECONDS
            moved |= self._look_at_running()
        return moved

    # ── jobs that have left word ──────────────────────────────────────────────────────────────────────────────────

    def _look_at_announced(self) -> bool:
        now = self._clock()
        self._put_off = {job_id: until for job_id, until in self._put_off.items() if until > now}
        try:
            names = self._folders.list_announced()
        except FolderError as error:
            log.warning("announced_not_listed", error=str(error)[:300])
            return False
        moved = [self._guarded(self._hear, name) for name in names if name not in self._put_off]
        return any(moved)

    def _hear(self, job_id: str) -> bool:
        """Go by one job's word, and delete it once the row says the same."""
        word = self._folders.read_announcement(job_id)
        if word is None:
            return self._put_off_until_later(job_id)
        is_open = self._settings.access == "open"
        found = Found(
            job_id=job_id,
            attempt=word.attempt,
            submission_id=word.submission_id,
            began_at=word.began_at,
            owner=LOCAL_OWNER if is_open else OWNER,
            project=DEFAULT_PROJECT,
        )
        job = self._store.get(job_id)
        if job is not None and (job.attempt >= found.attempt or job.state.is_terminal):
            self._folders.withdraw_announcement(job_id)
            return False
        is_known = self._launcher.status(found.submission_id) is not None
        if not is_known and not _is_at_its_end(self._folders.read_result(job_id), found.attempt):
            if self._now() - found.began_at > FORGET_AFTER:
                log.warning("announced_job_unknown_to_ray", job_id=job_id, ray_submission_id=found.submission_id)
                self._folders.withdraw_announcement(job_id)
                return False
            return self._put_off_until_later(job_id)
        try:
            is_taken = self._take_over(job, found)
        except FolderError:
            if self._now() - found.began_at > FORGET_AFTER:
                self._folders.withdraw_announcement(job_id)
            raise
        if not is_taken:
            return self._put_off_until_later(job_id)
        self._folders.withdraw_announcement(job_id)
        return True

    def _put_off_until_later(self, job_id: str) -> bool:
        self._put_off[job_id] = self._clock() + PUT_OFF_SECONDS
        return False

    # ── attempts of ours ──────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_running(self) -> bool:
        try:
            programs = self._launcher.list_running()
        except LauncherUnavailableError as error:
            log.warning("running_not_listed", error=str(error)[:300])
            return False
        attempts = [found for program in programs if (found := self._attempt_of(program)) is not None]
        moved = [self._guarded(self._settle_stray, found) for found in attempts]
        return any(moved)

    def _attempt_of(self, program: RunningProgram) -> Found | None:
        """The attempt that a program is of, if a service of this storage started it."""
        said = program.metadata
        job_id, number = said.get(launches.JOB_ID, ""), said.get(launches.ATTEMPT, "")
        if not job_id or said.get(launches.JOB_URI) != self._settings.job_uri(job_id):
            return None
        if _NUMBER.fullmatch(number) is None:
            return None
        if program.submission_id != submission_id(job_id, int(number)):
            return None
        return Found(
            job_id=job_id,
            attempt=int(number),
            submission_id=program.submission_id,
            began_at=program.started_at or self._now(),
            owner=said.get(launches.OWNER) or LOCAL_OWNER,
            project=said.get(launches.PROJECT) or DEFAULT_PROJECT,
        )

    def _settle_stray(self, found: Found) -> bool:
        job = self._store.get(found.job_id)
        if job is None or (job.attempt < found.attempt and not job.state.is_terminal):
            return self._take_over(job, found)
        is_leaving = job.state.is_terminal and not job.is_log_saved
        if job.attempt == found.attempt and (job.state in ACTIVE_STATES or is_leaving):
            return False  # as it should be: its own steps look after it
        log.warning("stray_stopped", job_id=job.job_id, state=job.state, ray_submission_id=found.submission_id)
        self._launcher.stop(found.submission_id)
        return False

    # ── both ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_over(self, job: Job | None, found: Found) -> bool:
        """Give the attempt its row, from which all else follows; False where the row is of another mind now."""
        adopted = dict({} if job is None else job.adopted_submissions)
        if found.submission_id != submission_id(found.job_id, found.attempt):  # else it is one of ours, as any other
            adopted[str(found.attempt)] = found.submission_id
        if job is None:
            spec = self._folders.read_spec(found.job_id)
            spec_json = dump_spec(spec)
            job = Job(
                job_id=found.job_id,
                name=spec.name,
                kind=spec.kind,
                spec_json=spec_json,
                spec_sha256=hashlib.sha256(spec_json.encode()).hexdigest(),
                created_at=found.began_at,
                state=JobState.STARTING,
                attempt=found.attempt,
                adopted_submissions=adopted,
                demand=demand_of(spec),
                owner=found.owner,
                project=found.project,
            )
            self._store.insert(job, audit=self._entry(job))
        elif can_move(job.state, JobState.STARTING):
            changes = {"attempt": found.attempt, "not_before_at": None, "adopted_submissions": adopted}
            job = self._store.update(job, state=JobState.STARTING, **changes, **NOT_WAITING, **FRESH)
        else:
            return False
        log.info("attempt_adopted", job_id=job.job_id, attempt=job.attempt, ray_submission_id=found.submission_id)
        return True

    def _entry(self, job: Job) -> AuditEntry:
        """In the audit log: nobody asked for it at the desk."""
        return AuditEntry(
            at=self._now(),
            request_id="",
            principal="service",
            action="job.adopt",
            object=job.job_id,
            project=job.project,
            outcome="done",
            address="",
        )

    def _guarded(self, take: Callable[[_One], bool], one: _One) -> bool:
        """What goes wrong with one is no matter of the others'."""
        name = one.job_id if isinstance(one, Found) else str(one)
        with structlog.contextvars.bound_contextvars(job_id=name):
            try:
                return take(one)
            except StaleJobError:
                return True  # somebody else moved it: look again
            except LeaseLostError:
                raise  # another replica acts by now
            except (FolderError, LauncherUnavailableError) as error:
                log.warning("not_adopted", error=str(error)[:300])
            except Exception:  # whatever somebody wrote there must not stop the round, which is of all jobs
                log.exception("adoption_failed")
            self._put_off_until_later(name)
            return False
