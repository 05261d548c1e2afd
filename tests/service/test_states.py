from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.states import ACTIVE_STATES, TERMINAL_STATES, TRANSITIONS, JobState, can_move

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
def test_a_walk_by_the_table_never_comes_back_to_the_queue(wishes: list[JobState]) -> None:
    state = JobState.QUEUED
    for wish in wishes:
        if can_move(state, wish):
            state = wish
            assert state is not JobState.QUEUED


def test_states_are_queued_active_or_terminal() -> None:
    assert {JobState.QUEUED} | ACTIVE_STATES | TERMINAL_STATES == set(JobState) == set(TRANSITIONS)
    assert not ACTIVE_STATES & TERMINAL_STATES
