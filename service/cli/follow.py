"""Following a job: asks the service where it is, and shows that until the job ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

import typer
from rich.console import Console

from pipelines.specs.documents import Progress
from service.cli.console import FAILED, INTERRUPTED, stderr, stdout
from service.cli.live import LiveView
from service.cli.render import current_progress, duration, in_short, only_losses, quantity
from service.cli.result_tables import result_tables
from service.client import ApiError, ElectraClient, UnreachableError
from service.http.schemas import JobPublic
from service.states import JobState

POLL_SECONDS = 1.0
PLAIN_INTERVAL_SECONDS = 10.0
# A service that is restarted is back within seconds; jobs go on without it.
PATIENCE_SECONDS = 300.0


class View(AbstractContextManager["View"], Protocol):
    """Shows a job while it changes."""

    def update(self, job: JobPublic) -> None:
        """The job as it is now."""

    def note(self, line: str) -> None:
        """Something to say beside it."""


class PlainView:
    """One line per event and every few seconds: for logs and continuous integration."""

    def __init__(self, print_line: Callable[[str], None], interval_seconds: float = PLAIN_INTERVAL_SECONDS) -> None:
        self._print = print_line
        self._interval = interval_seconds
        self._started = time.monotonic()
        self._last_step_at = -interval_seconds
        self._said: dict[str, object] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, job: JobPublic) -> None:
        """Print what is new."""
        if self._is_new("state", (job.state, job.attempt)):
            attempt = f", attempt {job.attempt}" if job.attempt > 1 else ""
            self.note(f"{job.state}{attempt}")
        if job.failure is not None and not job.state.is_terminal and self._is_new("failure", job.failure):
            self.note(f"attempt {job.failure.attempt} failed: {in_short(job.failure.message)}")
        told = current_progress(job)
        if told is None:
            return
        is_new_stage = self._is_new("stage", (told.attempt, told.stage))
        is_due = time.monotonic() - self._last_step_at >= self._interval
        if is_new_stage or (is_due and self._is_new("progress", (told.message, told.step, told.fraction))):
            self._last_step_at = time.monotonic()
            self.note(progress_line(told))
        if told.evaluation and self._is_new("evaluation", told.evaluation):
            self.note(f"held out: {figures_line(told.evaluation)}")

    def note(self, line: str) -> None:
        """Print it with the time since the start."""
        self._print(f"{duration(time.monotonic() - self._started):>7}  {line}")

    def _is_new(self, key: str, value: object) -> bool:
        if self._said.get(key) == value:
            return False
        self._said[key] = value
        return True


def progress_line(told: Progress) -> str:
    """All that a job says of itself, in one line."""
    parts: list[str] = [told.stage]
    if told.stage == "train" and told.step is not None and told.num_train_steps:
        parts.append(f"step {told.step:,}/{told.num_train_steps:,}")
        if told.tokens_per_second is not None:
            parts.append(f"{quantity(round(told.tokens_per_second))} tokens/s")
        if told.eta_seconds is not None:
            parts.append(f"{duration(told.eta_seconds)} left")
        if told.losses:
            parts.append(figures_line(only_losses(told.losses)))
    else:
        if told.fraction is not None:
            parts.append(f"{told.fraction:.0%}")
        if told.message:
            parts.append(told.message)
    return "  ".join(parts)


def figures_line(figures: Mapping[str, float]) -> str:
    """Names and values in a row."""
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())


def make_view(console: Console) -> View:
    """Bars on a terminal, lines elsewhere."""
    if console.is_terminal:
        return LiveView(console)
    return PlainView(lambda line: typer.echo(line))


def follow_job(client: ElectraClient, job_id: str, view: View) -> JobPublic:
    """Show a job until it ends.

    Raises:
        UnreachableError: the service was away for longer than `PATIENCE_SECONDS`.
        KeyboardInterrupt: the user has seen enough; the job goes on.
    """
    last_answer_at = time.monotonic()
    is_away = False
    while True:
        try:
            job = client.job(job_id)
        except UnreachableError as error:
            if time.monotonic() - last_answer_at > PATIENCE_SECONDS:
                raise
            if not is_away:
                view.note(f"{error}; the job goes on without it, trying again")
            is_away = True
        except ApiError as error:
            if error.status < 500 or time.monotonic() - last_answer_at > PATIENCE_SECONDS:
                raise
            view.note(f"the service could not answer: {error}")
        else:
            if is_away:
                view.note("the service is back")
            is_away = False
            last_answer_at = time.monotonic()
            view.update(job)
            if job.state.is_terminal:
                return job
        time.sleep(POLL_SECONDS)


def follow_to_the_end(client: ElectraClient, job_id: str, *, show_outcome: bool = True) -> JobPublic:
    """Follow on this terminal and say how it ended.

    Raises:
        typer.Exit: with `INTERRUPTED` after Ctrl-C, with `FAILED` if the job did not succeed.
    """
    try:
        with make_view(stdout()) as view:
            job = follow_job(client, job_id, view)
    except KeyboardInterrupt:
        again = f"electra logs -f {job_id}, electra show {job_id}"
        stderr().print(f"\nStopped following; the job goes on. See:  {again}", markup=False, soft_wrap=True)
        stderr().print(f"To stop the job itself:  electra cancel {job_id}", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    if job.state is not JobState.SUCCEEDED:
        print_failure(job)
        stderr().print(f"What it printed:  electra logs {job.job_id}", markup=False)
        raise typer.Exit(FAILED)
    if show_outcome and job.result is not None:
        print_outcome(job)
    return job


def print_outcome(job: JobPublic) -> None:
    """Figures, and where the models are."""
    console = stdout()
    assert job.result is not None
    for table in result_tables(job.result):
        console.print(table)
    for name, reason in job.result.left_out.items():
        console.print(f"Left out: {name}, {reason}", markup=False, soft_wrap=True)
    for model in job.result.models:
        what = model.network if model.task is None else model.task
        line = f"{what}: {model.name} version {model.version} (@{model.alias}), exported to {model.export_uri}"
        console.print(line, markup=False, soft_wrap=True)
    if job.links.mlflow:
        console.print(f"MLflow run: {job.links.mlflow}", markup=False, soft_wrap=True)


def print_failure(job: JobPublic) -> None:
    """Why a job did not succeed, in its own words."""
    console = stderr()
    if job.failure is None:
        console.print(f"The job ended {job.state}.", markup=False)
        return
    where = f" in stage {job.failure.stage}" if job.failure.stage else ""
    where += f" at step {job.failure.step:,}" if job.failure.step is not None else ""
    console.print(f"The job ended {job.state}{where}: {job.failure.message}", markup=False, soft_wrap=True, style="red")
    for line in job.failure.details:
        console.print(f"  {line}", markup=False, soft_wrap=True)
