"""What a job takes over of the one it is a retry of."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from finetuning_world import seed_task
from test_train_loop import Notebook, assert_bitwise_equal, weights_of
from training_task import make_task

from pipelines.errors import JobCancelled
from pipelines.finetuning.run_seed import run_seed
from pipelines.finetuning.take_over import take_over_runs
from pipelines.job import JobDirectory
from pipelines.origin import origins, take_over_checkpoint, taken_over_step
from pipelines.specs.documents import Origin
from pipelines.training.checkpoint import list_checkpoints
from pipelines.training.train_loop import train
from pipelines.training.workers import Worker

pytestmark = pytest.mark.usefixtures("one_thread")


def folder_of(tmp_path: Path, job_id: str, retry_of: str | None = None) -> JobDirectory:
    directory = JobDirectory(str(tmp_path / "jobs" / job_id))
    path = Path(directory.path("origin.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    if retry_of is not None:
        path.write_text(Origin(job_id=retry_of).model_dump_json())
    return directory


def stop_at(tmp_path: Path, step: int, job_id: str = "old"):
    task = make_task(tmp_path, name=f"jobs/{job_id}")
    with pytest.raises(JobCancelled):
        train(task, Worker(), Notebook(stop_at=step))
    return task


def test_a_retry_ends_with_the_weights_of_an_undisturbed_run(tmp_path: Path):
    """Of another number of micro-batches too, which is what a job without memory enough asks for."""
    whole = make_task(tmp_path, name="jobs/whole")
    train(whole, Worker(), Notebook())
    old = stop_at(tmp_path, 7)
    retry = make_task(tmp_path, name="jobs/new")
    assert take_over_checkpoint(folder_of(tmp_path, "new", "old"), retry.identity) == 7
    shutil.rmtree(tmp_path / "jobs" / "old")
    resumed = Notebook()
    train(retry, Worker(), resumed)
    assert min(resumed.losses) == 8
    assert_bitwise_equal(weights_of(retry), weights_of(whole))
    fewer = make_task(tmp_path, "training.gradient_accumulation_steps=4")
    assert fewer.identity == old.identity


def test_a_retry_of_a_retry_finds_the_first_ones_checkpoint(tmp_path: Path):
    task = stop_at(tmp_path, 6, "first")
    folder_of(tmp_path, "second", "first")
    third = folder_of(tmp_path, "third", "second")
    assert [origin.job_id for origin in origins(third)] == ["second", "first"]
    assert taken_over_step(third) is None
    assert take_over_checkpoint(third, task.identity) == 6
    assert taken_over_step(third) == 6


def test_jobs_that_name_each_other_end_the_search(tmp_path: Path):
    folder_of(tmp_path, "a", "b")
    assert [origin.job_id for origin in origins(folder_of(tmp_path, "b", "a"))] == ["a"]


def test_an_own_checkpoint_is_kept(tmp_path: Path):
    task = stop_at(tmp_path, 6)
    stop_at(tmp_path, 3, "new")
    new = folder_of(tmp_path, "new", "old")
    assert take_over_checkpoint(new, task.identity) is None
    assert [one.step for one in list_checkpoints(new.path("checkpoints"))] == [3]


def test_a_checkpoint_of_another_spec_is_left_and_the_job_starts_over(tmp_path: Path):
    stop_at(tmp_path, 6)
    other = make_task(tmp_path, "objective.discriminator_weight=20", name="jobs/new")
    assert take_over_checkpoint(folder_of(tmp_path, "new", "old"), other.identity) is None
    train(other, Worker(), Notebook(stop_at=None))


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path):
    task = stop_at(tmp_path, 12)
    newest = Path(list_checkpoints(task.checkpoints_uri)[-1].uri) / "state.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert take_over_checkpoint(folder_of(tmp_path, "new", "old"), task.identity) == 10


@pytest.mark.parametrize("job_id", ["../../etc", "a/b", "", "..", "A"])
def test_an_origin_outside_the_jobs_is_refused(job_id: str):
    with pytest.raises(ValueError):
        Origin(job_id=job_id)


def test_finished_seeds_are_taken_over_and_others_are_not(tmp_path: Path):
    old = seed_task(tmp_path, run="jobs/old/seeds/classification", num_epochs=1)
    result = run_seed(old)
    seeds = str(tmp_path / "jobs" / "new" / "seeds" / "classification")
    new, other = replace(old, uri=f"{seeds}/1"), replace(old, seed=2, uri=f"{seeds}/2")
    training = old.training.model_copy(update={"num_epochs": 2})
    longer = replace(old, training=training, uri=f"{tmp_path}/jobs/other/seeds/classification/1")
    assert take_over_runs([new, other], folder_of(tmp_path, "new", "old")) == [new]
    assert take_over_runs([longer], folder_of(tmp_path, "other", "old")) == []
    shutil.rmtree(tmp_path / "jobs" / "old")
    assert run_seed(new) == result
