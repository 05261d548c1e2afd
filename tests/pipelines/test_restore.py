"""Two workers that find different checkpoints: they come to one, or training is refused."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path

import torch
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
    first, second = restore_in_processes(tmp_path)
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


def restore_in_processes(folder: Path) -> list[dict[str, object]]:
    """By rank and case: the step and what the embeddings were filled with, or why it was refused."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_restore_rank, args=(rank, port, folder, results)) for rank in range(2)]
    for process in processes:
        process.start()
    told = dict(results.get(timeout=240) for _ in processes)
    for process in processes:
        process.join(timeout=60)
    return [told[rank] for rank in range(2)]


def _restore_rank(rank, port, folder, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    worker, told = Worker(rank, 2), {}
    for case in STEPS_BY_RANK:
        task = task_of(folder, case, rank)
        networks = build_networks(task.spec, task.corpus)
        try:
            step = restore(task, worker, networks, make_optimizer(networks, task.spec.optimizer, worker))
            told[case] = (step, float(networks.embeddings.word.detach().mean()))
        except CheckpointError as error:
            told[case] = str(error)
    results.put((rank, told))
    results.close()
    results.join_thread()
    torch.distributed.destroy_process_group()
