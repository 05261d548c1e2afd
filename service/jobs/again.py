"""New jobs from old ones: `retry` goes on with what a failed one left, `clone` starts from its spec."""

from __future__ import annotations

from typing import Any, Literal

from pipelines.specs.jobs import JobSpec
from pipelines.specs.parsing import dump_spec
from service.access.audit import Caller
from service.errors import FailsAgainError, Fault, WrongStateError
from service.http.schemas import JobAgain
from service.jobs.jobs import Created, Jobs
from service.records import Job
from service.states import FAILS_AGAIN_UNCHANGED, JobState


class Again:
    """Makes jobs from jobs, in the project of the old one and for whoever asks. What may go wrong is what may with
    `Jobs.create`, and `JobNotFoundError`.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def retry(self, job_id: str, request: JobAgain, key: str | None = None, *, caller: Caller) -> Created:
        """A new job that goes on where a failed or cancelled one ended, from the same models and the same corpus.

        Raises:
            WrongStateError: the old job is not over, or has succeeded.
            FailsAgainError: it failed of something that the same spec would meet again.
        """
        return self._make("retry", job_id, request, key, caller)

    def clone(self, job_id: str, request: JobAgain, key: str | None = None, *, caller: Caller) -> Created:
        """A new job with the spec of another one, whatever became of that, from the start.

        Aliases of models and sources are looked up anew.
        """
        return self._make("clone", job_id, request, key, caller)

    def _make(
        self, verb: Literal["retry", "clone"], job_id: str, request: JobAgain, key: str | None, caller: Caller
    ) -> Created:
        old = self._jobs.get(job_id)
        named = self._jobs.named(key, caller, old.project, _body(verb, old, request))
        # What a key has made is answered whatever became of the old job since.
        if (earlier := self._jobs.find(named, key)) is not None:
            return self._jobs.replay(earlier, caller)
        if verb == "retry" and old.state not in (JobState.FAILED, JobState.CANCELLED):
            raise WrongStateError(job_id, old.state, "retry needs a job that is FAILED or CANCELLED")
        spec, aliases = self._jobs.admit_again(old, request.overrides, keeps_pins=verb == "retry")
        kept: tuple[str, ...] = ()
        if verb == "retry":
            _check_changed(old, spec)
            kept = tuple(self._jobs.kept_for(spec, old))
        said = {**self._said(old, request, caller), f"{verb}_of": job_id, "resolved_aliases": aliases, "kept": kept}
        return self._jobs.take(spec, named, key, caller=caller, action=f"job.{verb}", project=old.project, **said)

    def _said(self, old: Job, request: JobAgain, caller: Caller) -> dict[str, Any]:
        """What is said of the new job: what the request says, else what the old job has and the caller may give."""
        assert caller.principal is not None
        bounds, principal = self._jobs.bounds, caller.principal
        if request.priority is not None:
            bounds.check_priority(principal, request.priority)
        if request.limits is not None:
            bounds.check_limits(principal, request.limits)
        inherited = {
            "priority": bounds.priority_within(principal, old.priority),
            "labels": old.labels,
            "notes": old.notes,
            "limits": bounds.limits_within(principal, old.limits),
        }
        return inherited | {name: own for name in inherited if (own := getattr(request, name)) is not None}


def _check_changed(old: Job, spec: JobSpec) -> None:
    if old.failure is None or old.state is not JobState.FAILED or old.failure.reason not in FAILS_AGAIN_UNCHANGED:
        return
    if dump_spec(spec) != old.spec_json:
        return
    rule = f"a job that failed of {old.failure.reason} needs overrides to be retried"
    hint = (
        "training.gradient_accumulation_steps and compute change no weight, so that the checkpoint stays of use."
        if old.failure.reason.value == "out_of_memory"
        else "Other rules of learning start over; clone says the same."
    )
    raise FailsAgainError(f"{rule}: the same spec would fail again. {hint}", [Fault("/overrides", rule, "[]")])


def _body(verb: str, old: Job, request: JobAgain) -> list[Any]:
    return [verb, old.job_id, request.model_dump(mode="json", exclude_unset=True)]
