"""One trial: a pretraining spec in a folder of its own, trained from rung to rung and scored at each.

What a rung gave lies in the folder: a trial that is begun again goes on where it was, one that has ended only reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pipelines import storage
from pipelines.errors import StorageError
from pipelines.searching.rungs import rung_steps
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.resolving import merge, resolve_pretraining
from pipelines.specs.search import SearchSpec
from pipelines.specs.space import Point
from pipelines.specs.trials import trial_spec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.curve import say_alive
from pipelines.training.task import TrainingTask
from pipelines.weights.kept import InitialWeights

FOLDER = "trials"
PROBE_FOLDER = "probe"
"""In the folder of a trial: what is finetuned to score it, while it is."""
ERROR_FILE = "error.json"
"""What its process last died of, if it could say so."""
_SCORED = "scored_"


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
    """None where the loss or the score was not finite."""
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


def last_scored(trial: Trial, step: int) -> int:
    """The last step before this one at which the training was scored, by whichever shares; 0 where it was at none."""
    names = [uri.rpartition("/")[2] for uri in storage.list_directory(trial.uri)]
    steps = [int(name[len(_SCORED) : -len(".json")]) for name in names if name.startswith(_SCORED)]
    return max((one for one in steps if one < step), default=0)


class LastWord(NamedTuple):
    """What a process said that it died of."""

    reason: str
    is_passing: bool
    """Whether the fault is that of the machines around it, and may be gone the next time."""


def write_error(trial: Trial, error: BaseException, *, is_passing: bool) -> None:
    """Say what a process dies of, for whoever finds it gone.

    Raises:
        StorageError: it cannot be written.
    """
    said = LastWord(f"{type(error).__name__}: {error}"[:1000], is_passing)
    storage.write_json(storage.join(trial.uri, ERROR_FILE), said._asdict())


def read_error(trial: Trial) -> LastWord | None:
    """What `write_error` wrote; None where it wrote nothing, or it cannot be read."""
    uri = storage.join(trial.uri, ERROR_FILE)
    try:
        if not storage.exists(uri):
            return None
        said = storage.read_json(uri)
    except StorageError:
        return None
    return LastWord(str(said["reason"]), bool(said.get("is_passing")))


def forget_process(trial: Trial) -> None:
    """No process has the trial: what the last one said is neither a sign of life nor the reason of another's death."""
    say_alive(trial.uri, "waiting for a process", is_waiting=True)
    with contextlib.suppress(StorageError):
        storage.delete_tree(storage.join(trial.uri, ERROR_FILE))


def _uri(trial: Trial, rung: int) -> str:
    return storage.join(trial.uri, f"{_SCORED}{trial.steps[rung]:08d}.json")  # by step: other shares find it too


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
