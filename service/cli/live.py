"""A job on a terminal: a bar per stage, and the latest figures below."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from pipelines.specs import documents
from service.cli.render import current_progress, duration, in_short, only_losses, quantity, state_text, telling
from service.http.schemas import JobPublic
from service.states import JobState

STAGES: tuple[documents.Stage, ...] = ("prepare", "train", "evaluate", "record")
_REFRESHES_PER_SECOND = 4


class LiveView:
    """Redraws the same lines; what it is told beside scrolls above them."""

    def __init__(self, console: Console) -> None:
        self._job: JobPublic | None = None
        self._attempt = 0
        self._bars = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description:<8}"),
            _StageBar(bar_width=None),
            TextColumn("{task.fields[share]:>4}"),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._add_bars()
        # Its own lines only: output of other programs is not ours to catch.
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def note(self, line: str) -> None:
        """A line above the bars."""
        self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def update(self, job: JobPublic) -> None:
        """Move the bars."""
        before, self._job = self._job, job
        if job.failure is not None and not job.state.is_terminal and (before is None or before.failure != job.failure):
            self.note(f"attempt {job.failure.attempt} failed: {in_short(job.failure.message)}")
        told = current_progress(job)
        if told is not None:
            if told.attempt != self._attempt and self._attempt:
                self._add_bars()
            self._attempt = told.attempt
            self._move_bars(told)
        if job.state is JobState.SUCCEEDED:
            for task in self._tasks.values():
                self._finish(task)
        elif job.state.is_terminal:
            for task in self._tasks.values():
                self._bars.stop_task(task)

    def _add_bars(self) -> None:
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks = {stage: self._bars.add_task(stage, total=1.0, start=False, share="") for stage in STAGES}

    def _move_bars(self, told: documents.Progress) -> None:
        if told.stage not in self._tasks:
            return
        for stage in STAGES:
            task = self._tasks[stage]
            if stage == told.stage:
                self._start(task)
                done = _done(told)
                share = "" if done is None else f"{done:.0%}"
                # Without a total the bar only says that something is going on.
                self._bars.update(task, total=None if done is None else 1.0, completed=done or 0.0, share=share)
                return
            self._finish(task)

    def _start(self, task: TaskID) -> None:
        if self._bars.tasks[self._bars.task_ids.index(task)].start_time is None:
            self._bars.start_task(task)

    def _finish(self, task: TaskID) -> None:
        self._start(task)
        self._bars.update(task, total=1.0, completed=1.0, share="100%")
        self._bars.stop_task(task)

    def _draw(self) -> RenderableType:
        lines: list[RenderableType] = [self._bars.get_renderable()]
        if self._job is not None:
            lines.append(_status(self._job))
            if self._job.progress is not None:
                told = self._job.progress
                if (now := _now(told)) and not self._job.state.is_terminal:
                    lines.append(Text.assemble(("now      ", "dim"), now, overflow="ellipsis", no_wrap=True))
                if told.losses:
                    lines.append(_figures("losses  ", only_losses(told.losses)))
                if told.evaluation:
                    lines.append(_figures("held out", telling(told.evaluation)))
        return Group(*lines)


class _StageBar(BarColumn):
    """Empty until its stage begins; rich would draw a stage to come as one that is going on."""

    def render(self, task: Task) -> ProgressBar:
        """The bar."""
        bar = super().render(task)
        bar.pulse = False
        return bar


def _status(job: JobPublic) -> Text:
    text = Text.assemble(("job      ", "dim"), f"{job.job_id}  {job.name}  ", state_text(job.state))
    if job.attempt > 1:
        text.append(f"  attempt {job.attempt}", style="yellow")
    return text


def _figures(title: str, figures: Mapping[str, float]) -> Text:
    text = Text(f"{title} ", style="dim")
    for name, value in figures.items():
        text.append(f"{name.replace('_', ' ')} ", style="dim")
        text.append(f"{value:.4g}  ", style="bold")
    return text


def _done(told: documents.Progress) -> float | None:
    if told.stage == "train" and told.step is not None and told.num_train_steps:
        return told.step / told.num_train_steps
    return told.fraction


def _now(told: documents.Progress) -> str:
    if told.stage != "train" or told.step is None:
        return told.message
    parts = [f"{told.step:,}/{told.num_train_steps or 0:,} steps"]
    if told.tokens_per_second is not None:
        parts.append(f"{quantity(round(told.tokens_per_second))} tokens/s")
    if told.eta_seconds is not None:
        parts.append(f"{duration(told.eta_seconds)} left")
    return ", ".join(parts)
