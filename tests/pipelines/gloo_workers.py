"""Processes joined by gloo, as Ray Train would start them."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import tempfile
from collections.abc import Callable

import torch


def run_workers(num_workers: int, task: Callable[[int, int], object]) -> list:
    """Run a function of rank and number in processes joined by gloo; the answers of those that gave one, by rank."""
    # They meet at a file: a port that is free now may be another's when they come to it.
    with tempfile.TemporaryDirectory() as folder:
        return _answers(num_workers, task, f"file://{folder}/store")


def _answers(num_workers, task, address):
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(num_workers)]
    processes = [
        context.Process(target=_run_rank, args=(rank, num_workers, address, task, pipes[rank][1]))
        for rank in range(num_workers)
    ]
    for process in processes:
        process.start()
    for _, sender in pipes:
        sender.close()
    answers = []
    # The last first: a process that ended stays in the table of processes until its parent has looked at it.
    for (receiver, _), process in reversed([*zip(pipes, processes, strict=True)]):
        if receiver.poll(240):
            with contextlib.suppress(EOFError):
                answers.append(torch.load(io.BytesIO(receiver.recv_bytes())))
        process.join(timeout=60)
    assert all(process.exitcode is not None for process in processes)
    return answers[::-1]


def _run_rank(rank, num_workers, address, task, sender):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=num_workers)
    answer = io.BytesIO()
    torch.save(task(rank, num_workers), answer)
    sender.send_bytes(answer.getvalue())
    sender.close()
