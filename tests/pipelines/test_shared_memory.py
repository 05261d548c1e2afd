"""Sums and gathers over processes that share memory, and what becomes of them when one does not come."""

from __future__ import annotations

import os

import pytest
import torch
from gloo_workers import run_workers

from pipelines.training.native_build import build_native_library
from pipelines.training.shared_memory import DIRECTORY, WorkerLostError, open_shared_memory
from pipelines.training.workers import Worker

CHUNK = 1 << 18
"""Of shared_memory.h, in floats."""
LENGTHS = ([3], [0, 1024, 1], [5, 1020], [CHUNK], [CHUNK - 1, 2, 0], [7, 2 * CHUNK + 11, 300], [0])

pytestmark = pytest.mark.skipif(build_native_library() is None, reason="there is no C++ compiler")


@pytest.mark.parametrize("num_workers", [2, 3])
def test_every_worker_gets_the_same_sums_and_gathers(num_workers):
    answers = run_workers(num_workers, _sum_and_gather)
    random = torch.Generator().manual_seed(0)
    for _ in range(6):
        for lengths in LENGTHS:
            parts = [[torch.randn(length, generator=random) for length in lengths] for _ in range(num_workers)]
            expected = [sum(same[1:], start=same[0]) for same in zip(*parts, strict=True)]
            together = torch.cat([torch.cat(part) for part in parts])
            for answer in answers:
                summed, gathered = answer.pop(0)
                assert torch.equal(torch.cat(summed), torch.cat(expected))
                assert torch.equal(gathered, together)


def test_gradients_are_summed_alike_in_memory_and_over_the_network():
    in_memory, over_network = zip(*run_workers(2, _sum_gradients), strict=True)
    for gradients in (*in_memory, *over_network):
        for gradient, expected in zip(gradients, in_memory[0], strict=True):
            assert torch.equal(gradient, expected)


def test_a_worker_that_dies_is_named():
    (answer,) = run_workers(2, _lose_the_last)
    assert answer == "worker 1 is gone; this is worker 0"


def test_a_worker_that_does_not_come_is_named():
    (answer,) = run_workers(2, _wait_for_the_last)
    assert answer == "worker 1 did not come within 0.5 s; this is worker 0"


def test_all_do_without_where_one_has_nothing_compiled():
    assert run_workers(2, _open_without_a_library_on_the_last) == [True, True]


def test_no_name_is_left_behind():
    assert run_workers(2, _names_of_memory) == [[], []]


def _sum_and_gather(rank, num_workers):
    memory = open_shared_memory(build_native_library(), rank, num_workers)
    random, answers = torch.Generator().manual_seed(0), []
    for _ in range(6):
        for lengths in LENGTHS:
            parts = [[torch.randn(length, generator=random) for length in lengths] for _ in range(num_workers)]
            gathered = memory.gather(torch.cat(parts[rank]))
            memory.sum_(parts[rank])
            answers.append((parts[rank], gathered))
    return answers


def _sum_gradients(rank, num_workers):
    memory = open_shared_memory(build_native_library(), rank, num_workers)
    answers = []
    for worker in (Worker(rank, num_workers, shared_memory=memory), Worker(rank, num_workers)):
        random = torch.Generator().manual_seed(rank)
        parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in [(40, 30), (), (3000, 3000), (5,), (7, 2)]]
        for parameter in parameters[:-1]:  # the last takes no gradient in this stage
            parameter.grad = torch.randn(parameter.shape, generator=random)
        parameters[0].grad = parameters[0].grad.T.contiguous().T  # autograd may leave it so
        worker.sum_gradients(parameters)
        assert parameters[-1].grad is None
        answers.append([parameter.grad for parameter in parameters[:-1]])
    return tuple(answers)


def _lose_the_last(rank, num_workers):
    memory = open_shared_memory(build_native_library(), rank, num_workers)
    if rank == 1:
        os._exit(1)
    return _complaint(memory)


def _wait_for_the_last(rank, num_workers):
    memory = open_shared_memory(build_native_library(), rank, num_workers)
    torch.distributed.barrier()
    if rank == 1:
        torch.distributed.barrier()  # until the other has given up
        os._exit(0)
    memory._region = (*memory._region[:3], 0.5)
    complaint = _complaint(memory)
    torch.distributed.barrier()
    return complaint


def _complaint(memory) -> str:
    try:
        memory.sum_([torch.ones(10_000)])
    except WorkerLostError as error:
        return str(error)
    return "nothing"


def _open_without_a_library_on_the_last(rank, num_workers):
    return open_shared_memory(None if rank == 1 else build_native_library(), rank, num_workers) is None


def _names_of_memory(rank, num_workers):
    before = {*DIRECTORY.glob("electra-*")}
    memory = open_shared_memory(build_native_library(), rank, num_workers)
    memory.sum_([torch.ones(3)])
    return sorted(str(path) for path in {*DIRECTORY.glob("electra-*")} - before)
