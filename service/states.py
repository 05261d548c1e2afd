"""The states of a job and the only moves between them. Pure."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is, as the service has written it down."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    """An attempt is numbered; it may or may not have reached Ray yet."""
    RUNNING = "RUNNING"
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
    _S.QUEUED: frozenset({_S.STARTING, _S.CANCELLED}),
    # RUNNING may be skipped: an attempt can end between two looks at Ray.
    _S.STARTING: frozenset({_S.STARTING, _S.RUNNING, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.STARTING, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    # A job asked to stop may have finished first.
    _S.CANCELLING: frozenset({_S.CANCELLED, _S.SUCCEEDED, _S.FAILED}),
    _S.CANCELLED: frozenset(),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
}
"""From a state to those that may follow it. STARTING to STARTING is the next attempt."""

ACTIVE_STATES = frozenset({_S.STARTING, _S.RUNNING, _S.CANCELLING})
TERMINAL_STATES = frozenset(state for state, after in TRANSITIONS.items() if not after)


def can_move(before: JobState, after: JobState) -> bool:
    """Whether the table allows the move."""
    return after in TRANSITIONS[before]
