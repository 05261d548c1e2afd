"""Calls side by side on a real Ray cluster: what is lost is called again, and nobody takes another stage's place."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ray.exceptions import OutOfMemoryError, WorkerCrashedError

from pipelines import resources
from pipelines.errors import ResourceError
from pipelines.resources import check_resources, has_room_beside, run_side_by_side
from pipelines.specs.compute import WorkerSpec

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_call_whose_process_is_lost_is_made_again(tmp_path: Path) -> None:
    def call(place: int) -> int:
        mark = tmp_path / str(place)
        if place == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 10 * place

    done = dict(run_side_by_side(call, [0, 1, 2], WorkerSpec(num_workers=2), lambda num_done: None))
    assert done == {0: 0, 1: 10, 2: 20}
    assert (tmp_path / "1").exists()


def test_a_call_that_is_lost_every_time_is_given_up(tmp_path: Path) -> None:
    def call(place: int) -> int:
        (tmp_path / str(len(list(tmp_path.iterdir())))).touch()
        os.kill(os.getpid(), signal.SIGKILL)
        return place

    with pytest.raises(WorkerCrashedError):
        list(run_side_by_side(call, [0], WorkerSpec(), lambda num_done: None))
    assert len(list(tmp_path.iterdir())) == 1 + resources.MAX_LOSSES


def test_memory_is_named_where_it_was_the_reason() -> None:
    with pytest.raises(ResourceError, match=r"4 times for the memory it took; lower compute\.num_workers"):
        resources._check_losses(4, OutOfMemoryError("node 1 has 95 % in use"))


def test_calls_wait_for_room() -> None:
    """None is made before there is room, and the caller goes on being asked whether to stop."""
    asked: list[int] = []
    looks: list[int] = []

    def has_room(num_running: int) -> bool:
        asked.append(num_running)
        return len(looks) >= 2

    def call(place: int) -> int:
        return place

    done = dict(run_side_by_side(call, [0, 1], WorkerSpec(num_workers=2), looks.append, has_room))
    assert done == {0: 0, 1: 1}
    assert looks[:2] == [0, 0]
    assert asked[:3] == [0, 0, 0]


def test_who_stops_while_there_is_no_room_is_heard() -> None:
    def call(place: int) -> int:
        return place

    def stop(num_done: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        list(run_side_by_side(call, [1], WorkerSpec(), stop, lambda num_running: False))


@pytest.mark.parametrize(
    ("reserved", "wanted", "num_running", "expected"),
    [
        (WorkerSpec(), WorkerSpec(), 0, True),
        (WorkerSpec(), WorkerSpec(), 1, False),
        (WorkerSpec(cpus_per_worker=0.5), WorkerSpec(cpus_per_worker=0.5), 2, True),
        (WorkerSpec(num_workers=2), WorkerSpec(), 0, False),
        (WorkerSpec(num_workers=2), WorkerSpec(cpus_per_worker=0.5), 0, False),
        (WorkerSpec(), WorkerSpec(gpus_per_worker=1), 0, False),
    ],
)
def test_room_is_what_the_other_workers_leave_even_where_they_are_away(
    reserved: WorkerSpec, wanted: WorkerSpec, num_running: int, expected: bool
) -> None:
    """Of two CPUs, none of which is in use."""
    assert has_room_beside(reserved, wanted, num_running) is expected


def test_workers_that_can_never_fit_are_refused_by_the_name_of_their_section() -> None:
    check_resources(WorkerSpec(num_workers=2))
    with pytest.raises(ResourceError, match=r"^probe\.compute\.num_workers × probe\.compute\.cpus_per_worker .* got 4"):
        check_resources(WorkerSpec(cpus_per_worker=4), "probe.compute")
    with pytest.raises(ResourceError, match=r"0 GPUs, got 1"):
        check_resources(WorkerSpec(gpus_per_worker=1))
