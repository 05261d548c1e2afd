"""Jobs, figures and sentences as people read them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime

from rich.table import Table
from rich.text import Text

from pipelines.specs.documents import ExampleToken, JobResult, Progress
from service.http.schemas import JobDetail, JobPublic
from service.states import JobState

STATE_STYLES = {
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.RUNNING: "cyan",
    JobState.CANCELLED: "yellow",
    JobState.PAUSED: "magenta",
}
_TELLING = (
    "discriminator_auc",
    "discriminator_f1",
    "discriminator_loss",
    "generator_accuracy",
    "generator_loss",
    "mlm_accuracy",
    "mlm_loss",
)
REPLACED_FROM = 0.5
_DOUBTFUL_FROM = 0.25
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}%'’”")
_NO_SPACE_AFTER = frozenset("([{$“‘")


def quantity(value: float) -> str:
    """A count with its thousands apart; a very large or broken one in short."""
    if abs(value) >= 1e12:
        return f"{value:.3g}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds, such as 1:02:03."""
    if seconds is None:
        return "–"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def moment(at: datetime | None) -> str:
    """A time in this machine's zone."""
    return "–" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def in_short(message: str) -> str:
    """A message on one line: its first, and of a traceback the last, which says what went wrong."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return " … ".join(lines if len(lines) < 2 else (lines[0], lines[-1]))


def only_losses(figures: Mapping[str, float]) -> dict[str, float]:
    """Of a dozen training figures those to watch; all, where none is called a loss. MLflow draws every one."""
    losses = {name: value for name, value in figures.items() if name.endswith("_loss")}
    return losses or dict(figures)


def telling(figures: Mapping[str, float]) -> dict[str, float]:
    """Of the held-out figures those that fit in one line and say most; all, where none has such a name."""
    return {name: figures[name] for name in _TELLING if name in figures} or dict(figures)


def state_text(state: JobState) -> Text:
    """A state in its colour."""
    return Text(state.value, style=STATE_STYLES.get(state, ""))


def current_progress(job: JobPublic) -> Progress | None:
    """What the attempt that runs now says of itself; an earlier one's words are out of date."""
    told = job.progress
    return told if told is not None and told.attempt == job.attempt and not job.state.is_terminal else None


def progress_text(job: JobPublic) -> str:
    """Where a job is, in a few words."""
    if job.waiting is not None:
        place = "" if job.waiting.position is None else f"{job.waiting.position}. "
        return f"{place}{job.waiting.reason.value.replace('_', ' ')}"
    told = current_progress(job)
    if told is None:
        return ""
    if told.step is not None and told.num_train_steps:
        return f"{told.stage} {told.step:,}/{told.num_train_steps:,}, {duration(told.eta_seconds)} left"
    share = "" if told.fraction is None else f" {told.fraction:.0%}"
    return f"{told.stage}{share}"


def jobs_table(jobs: Iterable[JobPublic]) -> Table:
    """One line a job."""
    table = Table()
    for column in ("job", "name", "state", "attempt", "created", "progress"):
        table.add_column(column, no_wrap=column in ("job", "state", "created"))
    for job in jobs:
        table.add_row(
            job.job_id, job.name, state_text(job.state), str(job.attempt), moment(job.created_at), progress_text(job)
        )
    return table


def _preemptions(job: JobPublic) -> str:
    if not job.num_preemptions:
        return ""
    times = "once" if job.num_preemptions == 1 else f"{job.num_preemptions} times"
    return f"{times}, last {moment(job.preempted_at)} for {job.preempted_for or 'a job of another project'}"


def job_table(job: JobDetail) -> Table:
    """Everything worth seeing of one job but its spec and its figures."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows: list[tuple[str, str | Text]] = [
        ("job", job.job_id),
        ("name", job.name),
        ("state", state_text(job.state)),
        ("attempt", str(job.attempt)),
        ("created", moment(job.created_at)),
        ("started", moment(job.started_at)),
        ("finished", moment(job.finished_at)),
        ("progress", progress_text(job)),
        ("waits", "" if job.waiting is None else printable(job.waiting.message)),
        ("preempted", _preemptions(job)),
        ("MLflow", job.links.mlflow or ""),
        ("Ray", job.links.ray or ""),
        ("spec sha256", job.spec_sha256),
        ("priority", str(job.priority) if job.priority else ""),
        ("labels", "  ".join(f"{key}={value}" for key, value in job.labels.items())),
        ("notes", printable(job.notes)),
        ("retry of", job.retry_of or ""),
        ("clone of", job.clone_of or ""),
    ]
    for name, value in rows:
        if str(value):
            table.add_row(name, value)
    return table


def figures_table(result: JobResult) -> Table:
    """Held-out figures beside what no learning would score."""
    table = Table(title="On held-out text", title_justify="left")
    table.add_column("figure")
    table.add_column("this model", justify="right")
    table.add_column("without learning", justify="right")
    for name, value in result.evaluation.items():
        baseline = result.baselines.get(name)
        table.add_row(name.replace("_", " "), f"{value:.4g}", "" if baseline is None else f"{baseline:.4g}")
    for name, value in result.baselines.items():
        if name not in result.evaluation:
            table.add_row(name.replace("_", " "), "", f"{value:.4g}")
    return table


def tasks_table(result: JobResult) -> Table:
    """Each task's score over its seeds, beside what needs no encoder."""
    baselines = sorted({name for task in result.tasks for name in task.baselines})
    table = Table(title="On validation data, medians over seeds", title_justify="left")
    for column in ("task", "metric", "median", "std", "seeds", *baselines, "test"):
        table.add_column(column, justify="left" if column in ("task", "metric") else "right")
    for task in result.tasks:
        table.add_row(
            task.task,
            task.metric.replace("_", " "),
            _figure(task.median),
            _figure(task.spread.get("std")),
            str(len(task.by_seed)),
            *(_figure(task.baselines.get(name, {}).get(task.metric)) for name in baselines),
            _figure(task.other_splits.get("test", {}).get(task.metric)),
        )
    if "mean" in result.evaluation:
        table.add_row("mean", "percent", f"{result.evaluation['mean']:.1f}", *[""] * (3 + len(baselines)), style="bold")
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def marked_sentence(tokens: Iterable[ExampleToken]) -> Text:
    """A corrupted sentence: in brackets and red what the discriminator takes for replaced, with a question mark and
    yellow where it doubts, and behind what really was replaced the original in parentheses.
    """
    text = Text()
    last = ""
    for one in tokens:
        shown, is_piece = one.token.removeprefix("##"), one.token.startswith("##")
        if text and not is_piece and shown not in _NO_SPACE_BEFORE and last not in _NO_SPACE_AFTER:
            text.append(" ")
        append_marked(text, shown, one.replaced_probability)
        if one.token != one.original:
            text.append(f"({one.original.removeprefix('##')})", style="dim")
        last = shown
    return text


def printable(text: str) -> str:
    """A text without control characters, line ends and tabs aside: with an escape a label or a token of a model from
    elsewhere could change what the terminal shows.
    """
    return "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter) != "Cc")


def append_marked(text: Text, token: str, replaced_probability: float) -> None:
    """Add a token, in brackets and red if it is taken for replaced, with a question mark and yellow if doubted."""
    token = printable(token)
    if replaced_probability >= REPLACED_FROM:
        text.append(f"[{token}]", style="bold red")
    elif replaced_probability >= _DOUBTFUL_FROM:
        text.append(f"{token}?", style="yellow")
    else:
        text.append(token)


def sentence_legend(tokens: Iterable[ExampleToken]) -> str:
    """How well the marks fit, in one line."""
    tokens = tuple(tokens)
    replaced = [one for one in tokens if one.token != one.original]
    marked = [one for one in tokens if one.replaced_probability >= REPLACED_FROM]
    right = [one for one in marked if one.token != one.original]
    return (
        "[marked]: taken for replaced; doubted?: from a quarter on; (original) behind what was replaced. "
        f"{len(replaced)} of {len(tokens)} tokens were replaced; "
        f"{len(marked)} are marked, {len(right)} of them rightly."
    )
