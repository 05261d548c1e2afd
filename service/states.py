"""The states of a job and the only moves between them; why jobs fail, and which of them are tried again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    """Where a job is, as the service has written it down."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    """An attempt is numbered; it may or may not have reached Ray yet."""
    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    """The job has been asked to save a checkpoint and to leave its place to others."""
    PAUSED = "PAUSED"
    """Nothing of the job runs, until somebody resumes it."""
    CANCELLING = "CANCELLING"
    """The job has been asked to stop."""
    CANCELLED = "CANCELLED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        """Nothing will happen to the job any more."""
        return not TRANSITIONS[self]

    @property
    def is_active(self) -> bool:
        """The job holds one of the places of `max_running_jobs`."""
        return self in ACTIVE_STATES


_S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    # Paused in the queue, a job is held back: it has lost nothing, and has nothing to save.
    _S.QUEUED: frozenset({_S.STARTING, _S.PAUSED, _S.CANCELLED}),
    # RUNNING may be skipped: an attempt can end between two looks at Ray.
    _S.STARTING: frozenset(
        {_S.STARTING, _S.RUNNING, _S.PAUSING, _S.PAUSED, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}
    ),
    _S.RUNNING: frozenset({_S.STARTING, _S.PAUSING, _S.PAUSED, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    # A process that is lost while it is to pause has left its place, which is what was wished: the job counts as paused
    # and goes on from its last checkpoint. To start it again only so that it may stop would take the place back.
    _S.PAUSING: frozenset({_S.PAUSED, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED}),
    # A job asked to stop may have finished first.
    _S.CANCELLING: frozenset({_S.CANCELLED, _S.SUCCEEDED, _S.FAILED}),
    _S.CANCELLED: frozenset(),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
}
"""From a state to those that may follow it. STARTING to STARTING is the next attempt. No way leads out of a terminal
state: to try a failed job again is a new job, which goes on from what the old one left."""

ACTIVE_STATES = frozenset({_S.STARTING, _S.RUNNING, _S.PAUSING, _S.CANCELLING})
WAITING_STATES = frozenset({_S.QUEUED, _S.PAUSED})
"""Nothing of the job is on Ray, and it is not over."""
TERMINAL_STATES = frozenset(state for state, after in TRANSITIONS.items() if not after)


def can_move(before: JobState, after: JobState) -> bool:
    """Whether the table allows the move."""
    return after in TRANSITIONS[before]


class FailureReason(StrEnum):
    """Why a job failed, in as many words as programs need; `JobFailure.code` beside it says more."""

    SUBMISSION = "submission"
    """The spec breaks a rule, the cluster is too small for it, or Ray would not take it."""
    OUT_OF_MEMORY = "out_of_memory"
    """A process was ended for the memory it took, on the machine or on a GPU."""
    DATA = "data"
    """The text or the labelled files give nothing to learn from."""
    NON_FINITE_LOSS = "non_finite_loss"
    """A loss became NaN or infinite."""
    DEADLINE = "deadline"
    """It took longer to start or to run than its limits allow."""
    LOST = "lost"
    """Its process ended, or fell silent, without a word."""
    INTERNAL = "internal"
    """Anything else."""


MAY_BE_TRIED_AGAIN: Mapping[FailureReason, bool] = {
    FailureReason.SUBMISSION: False,
    # The same steps take the same memory. Tried again with other overrides, as `retry` allows, it may fit.
    FailureReason.OUT_OF_MEMORY: False,
    FailureReason.DATA: False,
    # Resuming is exact to the bit: it would come to the same loss.
    FailureReason.NON_FINITE_LOSS: False,
    FailureReason.DEADLINE: False,
    FailureReason.LOST: True,
    # Only where the job itself says that the fault may pass.
    FailureReason.INTERNAL: True,
}
"""Whether the service makes another attempt by itself, up to `max_attempts`."""

FAILS_AGAIN_UNCHANGED = frozenset({FailureReason.OUT_OF_MEMORY, FailureReason.NON_FINITE_LOSS})
"""What a person who retries has to change something for: the same job would come to the same end."""

REASON_OF_CODE: Mapping[str, FailureReason] = {
    "spec": FailureReason.SUBMISSION,
    "resources": FailureReason.SUBMISSION,
    "rejected": FailureReason.SUBMISSION,
    "out_of_memory": FailureReason.OUT_OF_MEMORY,
    "data": FailureReason.DATA,
    "non_finite_loss": FailureReason.NON_FINITE_LOSS,
    "starting_deadline": FailureReason.DEADLINE,
    "running_deadline": FailureReason.DEADLINE,
    "lost": FailureReason.LOST,
    "checkpoint": FailureReason.INTERNAL,
    "record": FailureReason.INTERNAL,
    "internal": FailureReason.INTERNAL,
}
"""By the detailed code; a code that is not here comes from a newer version and is `internal`."""
