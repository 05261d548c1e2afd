"""What is told while Ray Train replaces workers that were lost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pipelines.claims import Claim, claim
from pipelines.job import JobDirectory
from pipelines.specs.documents import Progress
from pipelines.training.lost_workers import TellJob

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
LOST = {1: RuntimeError("its node is gone")}


def job_at_step(folder: Path, attempt: int = 1) -> tuple[JobDirectory, Claim]:
    directory = JobDirectory(str(folder))
    mine, _ = claim(directory.uri, attempt)
    directory.write_progress(
        Progress(
            attempt=attempt,
            stage="train",
            step=604,
            tokens_per_second=5600.0,
            eta_seconds=110.0,
            losses={"generator_loss": 5.2},
            heartbeat_at=LONG_AGO,
        )
    )
    return directory, mine


def test_the_progress_of_a_job_says_that_it_waits_for_workers(tmp_path: Path) -> None:
    directory, mine = job_at_step(tmp_path)
    TellJob(mine, 2).after_exception(None, LOST)
    told = directory.read_progress()
    assert told is not None
    assert told.message == "lost workers (rank 1): all 2 go on from the last checkpoint once there is room"
    assert (told.step, told.losses) == (604, {"generator_loss": 5.2})
    assert (told.tokens_per_second, told.eta_seconds) == (None, None)
    assert told.heartbeat_at > LONG_AGO


def test_nothing_is_told_of_a_folder_that_is_another_attempts(tmp_path: Path) -> None:
    directory, mine = job_at_step(tmp_path)
    job_at_step(tmp_path, attempt=2)
    TellJob(mine, 2).after_exception(None, LOST)
    told = directory.read_progress()
    assert told is not None
    assert (told.attempt, told.message, told.heartbeat_at) == (2, "", LONG_AGO)


def test_a_job_that_has_told_nothing_yet_is_left_to_its_driver(tmp_path: Path) -> None:
    mine, _ = claim(str(tmp_path), 1)
    TellJob(mine, 2).after_exception(None, LOST)
    assert JobDirectory(str(tmp_path)).read_progress() is None
