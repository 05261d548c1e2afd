"""Two processes of one job: the one that is thought lost writes nothing that counts once another has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines import claims
from pipelines.claims import Claim, claim, tenure, wait_for_leave
from pipelines.errors import JobSuperseded
from pipelines.record import tracking
from pipelines.training.checkpoint import list_checkpoints, write_checkpoint
from pipelines.training.checkpoint_writer import CheckpointWriter


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "jobs" / "pt-1")


class Clock:
    """Passes as far as somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def waited(mine: Claim, before: Any) -> float:
    clock = Clock()
    wait_for_leave(mine, before, claims.FENCE_SECONDS, clock, clock.sleep)
    return clock.time


def test_the_first_waits_for_nobody(uri: str):
    assert waited(*claim(uri, 1)) == 0


@pytest.mark.parametrize("attempt", [1, 2])
def test_whoever_comes_after_a_process_that_has_left_waits_for_nobody(uri: str, attempt: int):
    first, _ = claim(uri, 1)
    with tenure(first):
        pass
    assert waited(*claim(uri, attempt)) == 0


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("had_begun", [False, True])
def test_whoever_comes_after_a_process_that_said_no_word_waits_until_it_must_have_looked(
    uri: str, attempt: int, had_begun: bool
):
    first, _ = claim(uri, 1)
    work = tenure(first)
    if had_begun:
        work.__enter__()
    assert waited(*claim(uri, attempt)) == claims.FENCE_SECONDS


def test_whoever_waits_goes_on_when_the_other_leaves(uri: str):
    first, _ = claim(uri, 1)
    work = tenure(first)
    work.__enter__()
    second, before = claim(uri, 2)
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        work.__exit__(None, None, None)

    wait_for_leave(second, before, claims.FENCE_SECONDS, clock, sleep)
    assert 0 < clock.time < claims.FENCE_SECONDS


def test_whoever_waits_leaves_if_meanwhile_another_has_come(uri: str):
    claim(uri, 1)
    second, before = claim(uri, 2)
    third, _ = claim(uri, 2)
    clock = Clock()
    with pytest.raises(JobSuperseded, match="attempt 2 has begun once more"):
        wait_for_leave(second, before, claims.FENCE_SECONDS, clock, clock.sleep)
    third.check()


def test_a_note_of_an_earlier_version_is_understood(uri: str):
    """It has no token."""
    mine, _ = claim(uri, 1)
    note = Path(uri) / "attempt.json"
    note.write_text('{"attempt": 1, "began_at": "2026-01-01T00:00:00Z"}')
    mine.hold()
    second, before = claim(uri, 2)
    assert waited(second, before) == claims.FENCE_SECONDS


def test_a_checkpoint_of_a_process_that_was_replaced_does_not_count(uri: str):
    """Nor does it delete any of the other's."""
    first, _ = claim(uri, 1)
    folder = f"{uri}/checkpoints"
    write_checkpoint(folder, 1, {"networks": {}}, "same", keep=1, guard=first.guard)
    claim(uri, 2)
    with pytest.raises(JobSuperseded):
        write_checkpoint(folder, 2, {"networks": {}}, "same", keep=1, guard=first.guard)
    assert [checkpoint.step for checkpoint in list_checkpoints(folder)] == [1]


def test_training_ends_with_a_checkpoint_that_was_refused(uri: str):
    first, _ = claim(uri, 1)
    network = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(network.parameters())
    claim(uri, 2)
    saved: list[int] = []

    def train() -> None:
        with CheckpointWriter(f"{uri}/checkpoints", "same", 1, first.guard) as checkpoints:
            for step in (1, 2):
                checkpoints.save(step, network, optimizer)
                saved.append(step)

    with pytest.raises(JobSuperseded):
        train()
    assert saved == [1]
    assert list_checkpoints(f"{uri}/checkpoints") == []


def test_figures_of_a_process_that_was_replaced_are_not_recorded(uri: str, tmp_path: Path):
    store = f"sqlite:///{tmp_path}/mlflow.sqlite"
    identity = tracking.open_run(store, "test", "pt-1", "name", {}, str(tmp_path / "artifacts"))
    first, _ = claim(uri, 1)
    run = tracking.Run(identity, guard=first.guard)
    claim(uri, 2)
    run.log_metrics(1, {"train/loss": 1.0})
    assert run.close() == 0
    assert tracking.metric_history(identity, "train/loss") == []


def test_a_folder_that_cannot_be_read_refuses_nothing(uri: str):
    mine, _ = claim(uri, 1)
    (Path(uri) / "attempt.json").write_text("{")
    mine.guard()
