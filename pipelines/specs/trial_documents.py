"""What a search tells of its trials while it runs, and of its final round when it has ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from pipelines.specs.document import Document
from pipelines.specs.space import Value

TRIALS_FILE = "trials.json"
"""A `TrialList` in the job's directory, written again whenever a trial goes on."""
NEW_TRIALS_FILE = "trials_new.json"
"""Another beside it: trials that began since the list was written last. What the list has too is old here."""

TrialState = Literal["RUNNING", "COMPLETED", "STOPPED", "DIVERGED", "FAILED", "INVALID"]


class RungScore(Document):
    """A trial after a share of its budget."""

    step: int
    tokens: int
    flops: float
    """Spent on training by then, all networks."""
    score: float | None = None
    """None where the loss or the score was not finite."""
    figures: dict[str, float] = Field(default_factory=dict)
    """What the score was made of."""
    losses: dict[str, float] = Field(default_factory=dict)
    """Of training, at the end of the rung: means over the last fifth of its log steps."""


class TrialSummary(Document):
    """One point of the space, and what became of it."""

    number: int
    """From 0, in the order in which the points were chosen."""
    is_final: bool = False
    """Of the final round."""
    state: TrialState
    point: dict[str, bool | int | float | str | None]
    """Value by path; empty for the base."""
    seed: int
    score: float | None = None
    """Of the last rung that was reached."""
    step: int = 0
    num_train_steps: int = 0
    tokens: int = 0
    flops: float = 0.0
    rungs: tuple[RungScore, ...] = ()
    train_seconds: float = 0.0
    score_seconds: float = 0.0
    reason: str = ""
    """Why it is INVALID, FAILED or DIVERGED."""
    folder: str = ""
    """Of its checkpoints and scores, below the job's `trials`."""


def rank(trial: TrialSummary, mode: Literal["max", "min"]) -> tuple[int, float, float, int]:
    """What sorts the best trial first: those that ran to their ends, then those that were scored at more rungs, of
    these the better score, then the lower number. One that was beaten at its last rung is behind all that came further,
    whatever its score there. What diverged or failed left no network: it is behind these, and before what has no score.
    """
    if trial.score is None:
        return 2, 0.0, 0.0, trial.number
    # Trainings of the final round are scored at their ends alone.
    num_scored = sum(one.score is not None for one in trial.rungs)
    came = math.inf if trial.state == "COMPLETED" else num_scored
    is_lost = trial.state in ("DIVERGED", "FAILED")
    return int(is_lost), -came, -trial.score if mode == "max" else trial.score, trial.number


class TrialList(Document):
    """All trials so far, by number."""

    metric: str
    mode: Literal["max", "min"]
    trials: tuple[TrialSummary, ...] = ()


class RungSpread(Document):
    """A setting after a share of its budget, over its seeds."""

    flops: float
    mean: float
    least: float
    most: float


class SettingScores(Document):
    """One setting of the final round, retrained with several seeds."""

    point: dict[str, bool | int | float | str | None]
    """Empty for the base."""
    is_base: bool
    by_seed: dict[str, float]
    diverged: tuple[int, ...] = ()
    """Seeds with which a loss was not finite."""
    mean: float | None
    low: float | None = None
    """Of the confidence interval of the mean, over seeds."""
    high: float | None = None
    flops: float
    """Of one training."""
    rungs: tuple[RungSpread, ...] = ()
    """Of a study, on the way to the end."""
    better_than_base_p: float | None = None
    """Chance to see such a lead over the base where there is none: one-sided t-test on the differences seed by seed,
    times the number of settings that were tested (Bonferroni)."""


class LossAgreement(Document):
    """Whether a loss of training ranks the trials as their scores do, at the first rung."""

    loss: str
    num_trials: int
    rank_correlation: float | None
    """Spearman's: 1 where the least loss has the best score and so on, −1 where it has the worst; None where either is
    the same for all trials."""
    chosen: int
    """The trial with the least loss."""
    chosen_score: float | None
    chosen_place: int
    """Of that trial by its score; 1 is the best."""


def values_of(setting: SettingScores, base: Mapping[str, Value]) -> dict[str, Value]:
    """What a setting has at the paths of the space; the base's own values where it is the base."""
    return dict(base) if setting.is_base else dict(setting.point)


class SearchOutcome(Document):
    """What a search found."""

    metric: str
    mode: Literal["max", "min"]
    num_trials: int
    num_by_state: dict[str, int]
    best: TrialSummary | None = None
    """Of the trials, by the score after the whole budget."""
    leaderboard: tuple[TrialSummary, ...] = ()
    """The ten best, without their rungs."""
    settings: tuple[SettingScores, ...] = ()
    """Of the final round, the best first."""
    is_study: bool = False
    """Every setting was trained with every seed, and none was searched for."""
    base: dict[str, bool | int | float | str | None] = Field(default_factory=dict)
    """What the base has at the paths of the space."""
    winner: dict[str, bool | int | float | str | None] = Field(default_factory=dict)
    """Empty where the base is best, or no setting is better than it by more than seed noise."""
    is_better_than_base: bool | None = None
    """By more than seed noise; None without a final round."""
    verdict: str
    """In a sentence."""
    loss_agreement: tuple[LossAgreement, ...] = ()
    """What choosing by losses of training would have come to; empty for few trials."""
    flops_trials: float
    flops_final: float = 0.0
    flops_reference: float = 0.0
    """Of the networks that made the fixed corruption."""
    flops_without_stopping: float
    """That the same trials would have taken to their ends."""
    transfer_uri: str | None = None
    """Of the spec for the larger preset."""
