"""One trial: a pretraining spec in a folder of its own, trained from rung to rung and scored at each.

What a rung gave lies in the folder: a trial that is begun again goes on where it was, one that has ended only reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import storage
from pipelines.errors import PipelineError
from pipelines.searching.rungs import rung_steps
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.resolving import merge, resolve_pretraining
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.trials import trial_spec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.curve import PROGRESS_FILE
from pipelines.training.task import TrainingTask
from pipelines.weights.kept import InitialWeights

FOLDER = "trials"
ERROR_FILE = "error.json"
"""What its process last died of, if it could say so."""


@dataclass(frozen=True)
class SearchContext:
    """What all trials of a search have in common."""

    search: SearchSpec
    base: PretrainSpec
    """Resolved, with the steps that the budget pays for."""
    corpus: PreparedCorpus
    initial_weights: InitialWeights | None
    job_uri: str
    shares: tuple[float, ...]
    """Of the budget, where trials are scored; the last is 1."""


@dataclass(frozen=True)
class Trial:
    """What one trial needs to know."""

    task: TrainingTask
    uri: str
    steps: tuple[int, ...]
    """At which it is scored; the last is `num_train_steps`."""

    @property
    def spec(self) -> PretrainSpec:
        """What it trains."""
        return self.task.spec

    @property
    def folder(self) -> str:
        """Last part of its URI: the same for the same training."""
        return self.uri.rpartition("/")[2]


@dataclass(frozen=True)
class RungResult:
    """What a trial has come to after a share of its budget."""

    step: int
    tokens: int
    flops: float
    score: float | None
    """None where the loss was not finite."""
    figures: Mapping[str, float]
    losses: tuple[tuple[int, Mapping[str, float]], ...]
    """Of training: step and figures at each log step since the rung before."""
    train_seconds: float
    score_seconds: float
    reason: str = ""
    """Why there is no score."""

    @classmethod
    def find(cls, trial: Trial, rung: int) -> RungResult | None:
        """What `write` wrote, or None."""
        uri = _uri(trial, rung)
        if not storage.exists(uri):
            return None
        found: dict[str, Any] = storage.read_json(uri)
        losses = tuple((int(step), figures) for step, figures in found.pop("losses"))
        return cls(**found, losses=losses)

    def write(self, trial: Trial, rung: int) -> None:
        """Keep for good."""
        storage.write_json(_uri(trial, rung), asdict(self))


def write_error(trial: Trial, error: BaseException) -> None:
    """Say what a process dies of, for whoever finds it gone."""
    storage.write_json(storage.join(trial.uri, ERROR_FILE), {"reason": f"{type(error).__name__}: {error}"[:1000]})


def read_error(trial: Trial) -> str | None:
    """What `write_error` wrote; None where it wrote nothing, or it cannot be read."""
    uri = storage.join(trial.uri, ERROR_FILE)
    try:
        return str(storage.read_json(uri)["reason"]) if storage.exists(uri) else None
    except PipelineError:
        return None


def say_alive(trial_uri: str, doing: str) -> None:
    """A sign of life; one that cannot be written is not worth a trial."""
    with contextlib.suppress(PipelineError):
        storage.write_json(storage.join(trial_uri, PROGRESS_FILE), {"doing": doing})


def _uri(trial: Trial, rung: int) -> str:
    return storage.join(trial.uri, f"scored_{trial.steps[rung]:08d}.json")  # by step: other shares find it too


def make_trial(context: SearchContext, point: Point, seed: int | None = None) -> Trial:
    """The trial of a point.

    Args:
        context: of the search.
        point: of its space; the empty one is the base.
        seed: of pretraining; the base's when None.

    Raises:
        SpecError: the point breaks a rule of pretraining specs, or the budget is too small for it.
    """
    spec = trial_spec(context.search, point, context.corpus.vocab_size)
    if seed is not None:
        spec = resolve_pretraining(merge(spec.model_dump(mode="json"), {"training": {"seed": seed}}))
    task = TrainingTask(spec, context.corpus, "", context.initial_weights)
    uri = storage.join(context.job_uri, FOLDER, task.identity[:16])
    task = TrainingTask(spec, context.corpus, storage.join(uri, "checkpoints"), context.initial_weights)
    return Trial(task, uri, rung_steps(context.shares, spec.training.num_train_steps))
