"""Want of memory is told apart, whoever says so and however deep it is wrapped."""

from __future__ import annotations

import numpy as np
import pytest
import ray.exceptions
import ray.train
import torch

from pipelines.errors import NonFiniteLossError, ResourceError
from pipelines.main import describe_failure
from pipelines.memory import is_out_of_memory


def raised(make) -> BaseException:
    with pytest.raises(BaseException) as caught:
        make()
    return caught.value


def after(cause: BaseException) -> BaseException:
    def fail():
        raise ResourceError("Ray ended a process 4 times for the memory it took") from cause

    return raised(fail)


def of_task(cause: BaseException) -> BaseException:
    return ray.exceptions.RayTaskError("train", "traceback", cause).as_instanceof_cause()


OUT_OF_MEMORY = {
    "python": lambda: MemoryError(),
    "numpy": lambda: raised(lambda: np.zeros(2**50)),
    "torch_on_the_host": lambda: raised(lambda: torch.empty(2**60)),
    "torch_on_a_gpu": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    "ray": lambda: ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory."),
    "ray_again_and_again": lambda: after(ray.exceptions.OutOfMemoryError("killed")),
    "in_a_task": lambda: of_task(MemoryError()),
    "in_a_worker": lambda: ray.train.WorkerGroupError("died", {0: of_task(torch.OutOfMemoryError("CUDA"))}),
}


@pytest.mark.parametrize("make", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
def test_want_of_memory_is_named_with_what_to_do_and_not_tried_again(make):
    failure = describe_failure(make(), "train", "/our/storage")
    assert (failure.code, failure.can_retry) == ("out_of_memory", False)
    assert "gradient_accumulation_steps" in failure.message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the word memory pressure in a user's own message"),
        NonFiniteLossError(3),
        ray.exceptions.WorkerCrashedError(),
        of_task(KeyError("out of memory")),
        RuntimeError("The process is killed by SIGKILL by OOM killer due to high memory usage, or by ray stop."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_faults_are_not(error: BaseException):
    """Ray names the kernel's killer as a possible cause of every process that died."""
    assert not is_out_of_memory(error)
