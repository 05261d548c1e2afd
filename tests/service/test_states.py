from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from pipelines.specs.documents import Failure
from service.states import (
    ACTIVE_STATES,
    FAILS_AGAIN_UNCHANGED,
    MAY_BE_TRIED_AGAIN,
    REASON_OF_CODE,
    TERMINAL_STATES,
    TRANSITIONS,
    WAITING_STATES,
    FailureReason,
    JobState,
    can_move,
)

states = st.sampled_from(list(JobState))


def reachable(start: JobState) -> set[JobState]:
    found, waiting = {start}, [start]
    while waiting:
        for after in TRANSITIONS[waiting.pop()] - found:
            found.add(after)
            waiting.append(after)
    return found


@given(st.sampled_from(sorted(TERMINAL_STATES)), states)
def test_nothing_leaves_a_terminal_state(before: JobState, after: JobState) -> None:
    assert before.is_terminal
    assert not can_move(before, after)


@given(states)
def test_every_state_can_be_reached_and_can_end(state: JobState) -> None:
    assert state in reachable(JobState.QUEUED)
    assert reachable(state) & TERMINAL_STATES


@given(st.lists(states, max_size=30))
def test_a_walk_by_the_table_comes_back_to_the_queue_only_from_a_pause(wishes: list[JobState]) -> None:
    state = JobState.QUEUED
    for wish in wishes:
        if can_move(state, wish):
            assert wish is not JobState.QUEUED or state is JobState.PAUSED
            state = wish


def test_states_wait_are_active_or_are_terminal() -> None:
    kinds = [WAITING_STATES, ACTIVE_STATES, TERMINAL_STATES]
    assert set().union(*kinds) == set(JobState) == set(TRANSITIONS)
    assert sum(map(len, kinds)) == len(JobState)


def test_what_fails_again_unchanged_is_not_tried_again() -> None:
    assert set(MAY_BE_TRIED_AGAIN) == set(FailureReason) == set(REASON_OF_CODE.values())
    assert not any(MAY_BE_TRIED_AGAIN[reason] for reason in FAILS_AGAIN_UNCHANGED)


def test_every_code_of_a_job_has_a_reason() -> None:
    codes = get_args(Failure.model_fields["code"].annotation)
    assert set(codes) <= set(REASON_OF_CODE)
