"""Two workers that find different checkpoints: they come to one, or training is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from gloo_workers import run_workers
from training_task import make_task

from electra_core.optimizer import make_optimizer
from pipelines.errors import CheckpointError
from pipelines.training.checkpoint import state_of, write_checkpoint
from pipelines.training.task import TrainingTask, build_networks
from pipelines.training.train_loop import restore
from pipelines.training.workers import Worker

STEPS_BY_RANK = {
    "alike": ((5, 10), (5, 10)),
    "the first has one damaged": ((5, 10), (5, 10)),
    "the first lacks one": ((5,), (5, 10)),
    "the second lacks one": ((5, 10), (5,)),
    "no older one is left": ((5,), (10,)),
    "the first has none": ((), (5,)),
    "the second has none": ((5,), ()),
    "none": ((), ()),
}
REFUSED = "all workers must start from one checkpoint"


def test_workers_start_from_the_newest_checkpoint_that_all_can_read(tmp_path: Path):
    for case, by_rank in STEPS_BY_RANK.items():
        for rank, steps in enumerate(by_rank):
            task = task_of(tmp_path, case, rank)
            for step in steps:
                networks = build_networks(task.spec, task.corpus)
                with torch.no_grad():
                    networks.embeddings.word.fill_(step)
                optimizer = make_optimizer(networks, task.spec.optimizer, Worker())
                write_checkpoint(task.checkpoints_uri, step, state_of(networks, optimizer), task.identity, keep=9)
    damaged = Path(task_of(tmp_path, "the first has one damaged", 0).checkpoints_uri) / "step_00000010" / "state.pt"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    first, second = run_workers(2, partial(_restore_rank, tmp_path))
    assert first == second
    assert first["alike"] == (10, 10.0)
    for case in ("the first has one damaged", "the first lacks one", "the second lacks one"):
        assert first[case] == (5, 5.0), case
    for case in ("no older one is left", "the first has none", "the second has none"):
        assert REFUSED in first[case], case
    assert first["none"][0] == 0


def task_of(folder: Path, case: str, rank: int) -> TrainingTask:
    """Of one job, whose storage the ranks see differently."""
    return make_task(folder, name=f"{case}-{rank}")


def _restore_rank(folder: Path, rank: int, num_workers: int) -> dict[str, object]:
    """By case: the step and what the embeddings were filled with, or why it was refused."""
    worker, told = Worker(rank, num_workers), {}
    for case in STEPS_BY_RANK:
        task = task_of(folder, case, rank)
        networks = build_networks(task.spec, task.corpus)
        try:
            step = restore(task, worker, networks, make_optimizer(networks, task.spec.optimizer, worker))
            told[case] = (step, float(networks.embeddings.word.detach().mean()))
        except CheckpointError as error:
            told[case] = str(error)
    return told
