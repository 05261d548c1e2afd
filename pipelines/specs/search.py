"""`kind: search`: everything that decides one search for the settings of pretraining."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.comparing import SearchObjective, check_comparable
from pipelines.specs.record import FinetuneRecordSpec, Name
from pipelines.specs.space import GridDimension, Space, check_conditions, count_grid_points

MAX_TRIALS = 10_000
DEFAULT_TRIALS = 16
_REFUSED: Mapping[str, Mapping[str, str]] = {
    "scheduler": {
        "pbt": "changes settings in mid-training: its winner is a schedule that no spec can write down and no final "
        "round can retrain. Take 'asha'",
        "pb2": "is population based training. Take 'asha'",
        "bohb": "is a searcher and a scheduler in one. Take 'asha' with the searcher 'tpe', which is the same idea",
    },
    "searcher": {
        "bohb": "has no implementation that is still kept up. Take 'tpe' with the scheduler 'asha', the same idea",
        "bayesopt": "has no implementation that is still kept up. Take 'tpe' or 'cma'",
    },
}
"""What people know from elsewhere, and why it is not here."""


class BudgetSpec(FrozenModel):
    """What a trial that runs to its end may spend: one of three."""

    flops: Annotated[float, Field(gt=0)] | None = None
    """Floating-point operations of training, all networks. The only budget that is fair where the space changes what a
    step costs: a larger generator then gets fewer steps."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens trained on."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Optimizer steps."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [name for name in ("flops", "tokens", "steps") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"one of flops, tokens and steps must be given, got {' and '.join(given) or 'none'}")
        return self


class NoScheduler(FrozenModel):
    """Every trial runs to its end."""

    type: Literal["none"] = "none"
    num_rungs: Annotated[int, Field(ge=1, le=100)] = 1
    """Times each trial is scored, at equal shares of its budget: quality against FLOPs."""


class AshaScheduler(FrozenModel):
    """Asynchronous successive halving (Li et al. 2020, arXiv:1810.05934), by FLOPs and not by time."""

    type: Literal["asha"] = "asha"
    reduction_factor: Annotated[float, Field(ge=1.5, le=10)] = 3.0
    """Of the trials that reach a rung one in so many goes on, and the next rung is so many times as far."""
    min_fraction: Annotated[float, Field(ge=0.001, lt=1)] = 1 / 9
    """Of the budget, where the first rung is."""


class HyperbandScheduler(FrozenModel):
    """Several brackets of successive halving (Li et al. 2018, arXiv:1603.06560), each with a first rung of its own."""

    type: Literal["hyperband"] = "hyperband"
    reduction_factor: Annotated[float, Field(ge=1.5, le=10)] = 3.0
    min_fraction: Annotated[float, Field(ge=0.001, lt=1)] = 1 / 9
    """Of the budget, where the first rung of the hardest bracket is."""
    num_brackets: Annotated[int, Field(ge=2, le=10)] = 2
    """Each begins a rung later than the one before."""


class MedianStoppingScheduler(FrozenModel):
    """A trial ends whose best score is below the median of the others' means up to there (Golovin et al. 2017)."""

    type: Literal["median_stopping"] = "median_stopping"
    grace_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Of the budget, before which none ends."""
    num_rungs: Annotated[int, Field(ge=2, le=100)] = 5
    """Times each trial is scored."""
    min_trials: Annotated[int, Field(ge=1)] = 3
    """That have come as far."""


Scheduler = Annotated[
    NoScheduler | AshaScheduler | HyperbandScheduler | MedianStoppingScheduler, Field(discriminator="type")
]


class SearcherSpec(FrozenModel):
    """Who chooses the points."""

    type: Literal["random", "grid", "tpe", "cma"] = "tpe"
    """`tpe` and `cma` are Optuna's; `cma` is for numbers alone, and learns nothing from trials that were stopped.
    `grid` wants a space of grids alone."""
    num_startup_trials: Annotated[int, Field(ge=1, le=1000)] = 8
    """Random points before `tpe` or `cma` learn."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class FinalRoundSpec(FrozenModel):
    """The best trials once more, from the start, with several seeds and the whole budget."""

    num_best: Annotated[int, Field(ge=1, le=100)] = 2
    is_study: bool = False
    """Train every combination of a grid with every seed, and try nothing before: not to find a winner, but to see what
    each setting is worth, and how far seeds make it differ."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=2, max_length=100)] = (1, 2, 3)
    """Of pretraining: one number for each retraining of a setting."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Of the interval around each mean, and of the claim that a setting is better than the base."""

    @model_validator(mode="after")
    def _seeds_differ(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must all be different, got {', '.join(map(str, self.seeds))}")
        return self


class SearchComputeSpec(FrozenModel):
    """How many trials run at a time; what each has says the base spec's `compute`."""

    max_concurrent_trials: Annotated[int, Field(ge=1, le=1000)] = 2


class SearchRecordSpec(FinetuneRecordSpec):
    """Where a search's runs are found afterwards."""

    experiment: Annotated[str, Field(min_length=1, max_length=200)] = "search"
    """MLflow experiment; each trial is a child of the job's run."""


class SearchSpec(FrozenModel):
    """One search. Trials are pretraining jobs on one corpus, prepared once."""

    schema_version: Literal[1] = 1
    kind: Literal["search"]
    name: Name = "electra-search"
    """What people call the job; names need not be unique."""
    preset: Literal["lambda", "generator-size", "lambda-and-generator-size", "learning-rates"] | None = None
    """The preset the spec was written on top of, for the record: its values are filled in below."""
    base: dict[str, Any]
    """A pretraining spec: what every trial has but for the fields of the space and the budget. It stays as written, for
    what it leaves open may depend on the objective of a trial."""
    space: Space
    objective: SearchObjective
    budget: BudgetSpec
    num_trials: Annotated[int, Field(ge=1, le=MAX_TRIALS)] | None = None
    """Points that are tried; 16 when absent. Of a grid all combinations are."""
    scheduler: Scheduler = AshaScheduler()
    searcher: SearcherSpec = SearcherSpec()
    final: FinalRoundSpec | None = FinalRoundSpec()
    transfer_to: Literal["small", "base", "large"] | None = None
    """Write a spec for this preset from the winner, with the rule behind each field."""
    compute: SearchComputeSpec = SearchComputeSpec()
    record: SearchRecordSpec = SearchRecordSpec()

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_refused(cls, document: Any) -> Any:
        for section, reasons in _REFUSED.items():
            given = document.get(section) if isinstance(document, Mapping) else None
            name = given.get("type") if isinstance(given, Mapping) else None
            if isinstance(name, str) and name in reasons:
                raise ValueError(f"{section}.type must not be {name!r}, which {reasons[name]}")
        return document

    @model_validator(mode="after")
    def _space_can_be_searched(self) -> Self:
        check_conditions(self.space)
        grids = [path for path, dimension in self.space.items() if isinstance(dimension, GridDimension)]
        others = [path for path in self.space if path not in grids]
        if self.searcher.type == "grid" and others:
            raise ValueError(f"space must have grids alone where searcher.type is 'grid', got {others[0]}")
        if self.searcher.type != "grid" and grids:
            raise ValueError(
                f"space must have no grids where searcher.type is {self.searcher.type!r}, which chooses its points "
                f"itself, got {grids[0]}; a choice has the same values"
            )
        if self.searcher.type == "cma":
            words = [path for path in self.space if self.space[path].type == "choice"]
            if words:
                raise ValueError(f"space must have numbers alone where searcher.type is 'cma', got {words[0]}")
        if self.searcher.type == "grid" and self.num_trials is not None:
            raise ValueError(f"num_trials must be absent where searcher.type is 'grid', got {self.num_trials}")
        if (
            self.final is not None
            and self.final.is_study
            and (self.searcher.type != "grid" or self.scheduler.type != "none")
        ):
            raise ValueError(
                "searcher.type must be 'grid' and scheduler.type 'none' where final.is_study is true, got "
                f"{self.searcher.type!r} and {self.scheduler.type!r}"
            )
        if self.most_trials > MAX_TRIALS:
            raise ValueError(f"space must have at most {MAX_TRIALS} combinations of its grids, got {self.most_trials}")
        return self

    @model_validator(mode="after")
    def _brackets_have_rungs(self) -> Self:
        if isinstance(self.scheduler, HyperbandScheduler):
            # The last bracket must have a rung below the whole budget: else nothing of it is ever stopped.
            lowest, factor = self.scheduler.min_fraction, self.scheduler.reduction_factor
            most = math.ceil(math.log(1 / lowest) / math.log(factor) - 1e-9)
            if self.scheduler.num_brackets > most:
                raise ValueError(
                    f"scheduler.num_brackets must be at most {most} with min_fraction {lowest:.3g} and "
                    f"reduction_factor {factor:g}, got {self.scheduler.num_brackets}"
                )
        return self

    @property
    def most_trials(self) -> int:
        """Points that are tried, if the space has as many."""
        if self.searcher.type == "grid":
            return count_grid_points(self.space)
        return self.num_trials or DEFAULT_TRIALS

    @model_validator(mode="after")
    def _scores_can_be_compared(self) -> Self:
        check_comparable(self.objective, self.space)
        return self
