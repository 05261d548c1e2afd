"""From a point of a search's space to a trial's pretraining spec; and whether points can be tried, before any is."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from electra_core.config import ObjectiveConfig
from electra_core.parts import network_parts
from pipelines.specs.comparing import FixedCorruptionObjective, ProbeObjective, TrainingMetricObjective
from pipelines.specs.plan import assumed_vocab_size, flops_until
from pipelines.specs.points import points_to_look_at
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.resolving import merge, resolve_pretraining
from pipelines.specs.search import BudgetSpec, NoScheduler, SearchSpec
from pipelines.specs.space import NOT_SEARCHABLE, SEARCHABLE, Point, Value, near_paths
from pipelines.specs.spec_errors import FieldProblem, SpecError, shown
from pipelines.specs.suggestions import did_you_mean

MIN_STEPS, MAX_STEPS = 10, 100_000_000
"""Of a trial: fewer teach nothing, and hardly tell settings apart; more no pretraining spec may have."""
MOST_LOOKED_AT = 1000
"""Points: each takes a millisecond or two of whoever asks."""
_FIT_ANY_WEIGHTS = frozenset(
    {
        "model.hidden_dropout_prob",
        "model.attention_probs_dropout_prob",
        "model.initializer_range",
        "model.position_embedding_init",
        "model.attention_init",
    }
)
"""Fields of the networks that say nothing of what finished weights were made for. Heads and `layer_norm_eps` are not
among them: they change no shape, and yet what the weights compute."""
_OF_NO_STEPS = {"training.num_train_steps": MAX_STEPS, "optimizer.warmup_steps": 0}
"""With so many steps and no warm-up nothing that is counted in steps breaks a rule."""
_WITHOUT_DETECTION = frozenset({"mlm", "replace_mlm"})
_WITHOUT_DETECTION_LOSS = _WITHOUT_DETECTION | {"all_tokens_mlm"}  # its gate learns without labels
_WITHOUT_GENERATOR_LOSS = frozenset({"mlm"})
MAX_SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class SpaceReport:
    """What was found of a space before anything was started."""

    num_looked_at: int
    num_invalid: int
    problems: tuple[str, ...]
    """Each reason once, with the first point that it holds for."""
    flops: tuple[float, float]
    """The least and the most that one training takes, of the points that can be tried; and of the base, where the final
    round trains it beside them."""


def base_spec(search: SearchSpec) -> PretrainSpec:
    """The base with its own number of steps, whatever the budget pays for.

    Raises:
        SpecError: it is no pretraining spec.
    """
    return _resolved(search.base)


def trial_spec(search: SearchSpec, point: Point, vocab_size: int | None = None) -> PretrainSpec:
    """What a trial trains.

    Args:
        search: the search.
        point: values by path; paths whose condition does not hold are absent.
        vocab_size: ids of the tokenizer, once it is known; until then what the base asks for.

    Raises:
        SpecError: the point breaks a rule of pretraining specs, or the budget is too small for it.
    """
    return _trial_spec(search, base_spec(search), point, vocab_size)


def _trial_spec(search: SearchSpec, base: PretrainSpec, point: Point, vocab_size: int | None = None) -> PretrainSpec:
    """The same, with the base resolved once for many points."""
    document = merge(search.base, nested(point))
    # What a step costs is known before there is a number of them; the base's own number judges no point.
    spec = _resolved(merge(document, nested(_OF_NO_STEPS)))
    steps = _num_steps(search.budget, spec, vocab_size or assumed_vocab_size(spec))
    if not MIN_STEPS <= steps <= MAX_STEPS:
        ((name, value),) = search.budget.model_dump(exclude_none=True).items()
        limit = f"at least {MIN_STEPS}" if steps < MIN_STEPS else f"at most {MAX_STEPS:,}"
        raise SpecError([FieldProblem(("budget", name), f"must pay for {limit} steps of a trial", _figure(value))])
    # Trials are scored at rungs, by the objective: held-out figures in between would cost and not count.
    changes: dict[str, Value] = {"training.num_train_steps": steps, "evaluation.interval_steps": steps}
    if "optimizer.warmup_steps" not in point:
        changes["optimizer.warmup_steps"] = base.optimizer.warmup_steps * steps // base.training.num_train_steps
    made = _resolved(merge(document, nested(changes)))
    _check_lengths(search, base, made)
    _check_weights_fit(base, made)
    return made


def reference_spec(search: SearchSpec, vocab_size: int | None = None) -> PretrainSpec:
    """Of the networks that make the fixed corruption: the base, with a schedule of so many of its steps.

    Raises:
        SpecError: there are too few steps.
    """
    assert isinstance(search.objective, FixedCorruptionObjective)
    share = search.objective.reference_fraction
    base = trial_spec(search, {}, vocab_size)
    steps = round(base.training.num_train_steps * share)
    if steps < MIN_STEPS:
        rule = f"must leave at least {MIN_STEPS} of the base's {base.training.num_train_steps} steps"
        raise SpecError([FieldProblem(("objective", "reference_fraction"), rule, f"{share:g}")])
    warmup = min(steps - 1, base.optimizer.warmup_steps * steps // base.training.num_train_steps)
    changes = {"training": {"num_train_steps": steps}, "optimizer": {"warmup_steps": warmup}}
    return _resolved(merge(base.model_dump(mode="json"), changes))


def _figure(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else shown(value)  # of a whole number there is no largest


def _check_lengths(search: SearchSpec, base: PretrainSpec, spec: PretrainSpec) -> None:
    """Whether the networks have positions for what they are scored on."""
    most = spec.model.max_position_embeddings
    wanted: list[tuple[tuple[str, ...], int]] = []
    if isinstance(search.objective, ProbeObjective):
        shared = search.objective.training.max_sequence_length
        for name, task in search.objective.tasks.items():
            own = task.max_sequence_length
            path = ("objective", "training") if own is None else ("objective", "tasks", name)
            wanted.append(((*path, "max_sequence_length"), own or shared))
    if isinstance(search.objective, FixedCorruptionObjective):
        wanted.append((("base", "training", "sequence_length"), base.training.sequence_length))
    problems = [
        FieldProblem(path, f"must be at most model.max_position_embeddings, {most}", str(length))
        for path, length in wanted
        if length > most
    ]
    if problems:
        raise SpecError(problems)


def _check_weights_fit(base: PretrainSpec, spec: PretrainSpec) -> None:
    """Whether what the base starts from, one copy for all trials, has its place in a trial's networks."""
    if spec.initialization is None:
        return
    wanted, own = asdict(network_parts(base.objective)), asdict(network_parts(spec.objective))
    lacking = [name.replace("_", " ") for name, is_there in wanted.items() if is_there and not own[name]]
    if lacking:
        name = "name" if spec.objective.name != base.objective.name else "generator"
        rule = f"must keep the {' and the '.join(lacking)} of the base, for which base.initialization has weights"
        raise SpecError([FieldProblem(("space", f"objective.{name}"), rule, repr(getattr(spec.objective, name)))])


def check_search(search: SearchSpec) -> SpaceReport:
    """Look at the base, at each dimension's ends, at every point of a grid and at random ones; of more than
    `MOST_LOOKED_AT` at so many.

    Raises:
        SpecError: the base is no pretraining spec, a path is no field that can be searched, or no point can be tried.
    """
    base = _check_base(search)
    _check_paths(search, base)
    of_base = _trial_spec(search, base, {})  # the base counts as a trial in the final round
    trained = [] if search.final is None or search.final.is_study else [of_base]
    if isinstance(search.objective, FixedCorruptionObjective):
        reference_spec(search)
    points = list({repr(sorted(point.items())): point for point in points_to_look_at(search)}.values())
    if len(points) > MOST_LOOKED_AT:
        points = random.Random(search.searcher.seed).sample(points, MOST_LOOKED_AT)
    problems: list[tuple[Point, SpecError]] = []
    for point in points:
        try:
            trained.append(_trial_spec(search, base, point))
        except SpecError as error:
            problems.append((point, error))
    if len(problems) == len(points):
        raise SpecError(
            [
                one if one.path[:1] in (("budget",), ("objective",), ("base",), ("space",)) else _at(("space",), one)
                for one in problems[0][1].problems
            ]
        )
    by_reason: dict[str, list[Point]] = {}
    for refused, problem in problems:
        by_reason.setdefault(str(problem), []).append(refused)
    shown = tuple(
        f"{shown_point(own[0])}: {reason}{f' ({len(own)} points)' if len(own) > 1 else ''}"
        for reason, own in list(by_reason.items())[:MAX_SHOWN_PROBLEMS]
    )
    flops = [flops_until(spec, assumed_vocab_size(spec), spec.training.num_train_steps) for spec in trained]
    return SpaceReport(len(points), len(problems), shown, (min(flops), max(flops)))


def nested(point: Point) -> dict[str, Any]:
    """A document of sections with the values of a point."""
    document: dict[str, Any] = {}
    for path, value in point.items():
        section = document
        *parents, name = path.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = value
    return document


def shown_point(point: Point) -> str:
    """For people."""
    return ", ".join(
        f"{path} = {value:.4g}" if isinstance(value, float) else f"{path} = {value}" for path, value in point.items()
    )


def _resolved(document: Mapping[str, Any]) -> PretrainSpec:
    return resolve_pretraining({**document, "kind": "pretrain"})


def _num_steps(budget: BudgetSpec, spec: PretrainSpec, vocab_size: int) -> int:
    if budget.steps is not None:
        return budget.steps
    steps = spec.training.num_train_steps
    if budget.tokens is not None:
        return budget.tokens // spec.training.tokens_until(1)  # no curriculum: every step has as many
    assert budget.flops is not None
    return int(budget.flops / flops_until(spec, vocab_size, steps) * steps)


def _check_base(search: SearchSpec) -> PretrainSpec:
    """The base, resolved."""
    kind = search.base.get("kind", "pretrain")
    if kind != "pretrain":
        raise SpecError([FieldProblem(("base", "kind"), "must be 'pretrain'", repr(kind))])
    try:
        spec = base_spec(search)
    except SpecError as error:
        raise SpecError([_at(("base",), problem) for problem in error.problems]) from error
    of_weights = [path for path in search.space if path.startswith("model.") and path not in _FIT_ANY_WEIGHTS]
    if spec.initialization is not None and of_weights:
        rule = "must be absent where the base has an initialization, whose weights fit networks of one size and make"
        raise SpecError([FieldProblem(("space", path), rule, None) for path in of_weights])
    _check_objective(search, spec)
    if search.final is not None and spec.training.seed in search.final.seeds:
        rule = f"must not have base.training.seed ({spec.training.seed}): the score a setting was chosen by would count"
        raise SpecError([FieldProblem(("final", "seeds"), rule, ", ".join(map(str, search.final.seeds)))])
    if spec.probe is not None:
        raise SpecError([FieldProblem(("base", "probe"), "must be absent: what scores trials is objective", "a probe")])
    if spec.training.curriculum:
        rule = "must be absent: its steps are not those of a trial, which follow from budget"
        raise SpecError(
            [FieldProblem(("base", "training", "curriculum"), rule, f"{len(spec.training.curriculum)} stages")]
        )
    return spec


def _check_objective(search: SearchSpec, base: PretrainSpec) -> None:
    """Whether the networks of every objective that is tried have what is measured."""
    dimension = search.space.get("objective.name")
    names = [base.objective.name, *(getattr(dimension, "values", ()) if dimension is not None else ())]
    without = [name for name in names if name in _WITHOUT_DETECTION]
    if "two_stage" in names and search.scheduler.type != "none":
        rule = "must be 'none' where objective.name may be 'two_stage', whose discriminator learns nothing at first"
        raise SpecError([FieldProblem(("scheduler", "type"), rule, repr(search.scheduler.type))])
    if without and search.objective.type in ("fixed_corruption", "minimal_pairs"):
        rule = (
            f"must not be {search.objective.type!r} where objective.name may be {without[0]!r}, which trains no "
            "discriminator; take 'probe'"
        )
        raise SpecError([FieldProblem(("objective", "type"), rule, None)])
    is_fixed_loss = isinstance(search.objective, FixedCorruptionObjective) and search.objective.metric == "loss"
    if "electric" in names and is_fixed_loss:
        rule = "must be 'auc' where objective.name may be 'electric', whose head gives an energy and no probability"
        raise SpecError([FieldProblem(("objective", "metric"), rule, "'loss'")])
    if isinstance(search.objective, TrainingMetricObjective):
        _check_metric(search, search.objective.metric, base.objective)


def _check_metric(search: SearchSpec, metric: str, objective: ObjectiveConfig) -> None:
    """Whether trials have the figure at every rung; they all have the base's objective, see `check_comparable`."""
    is_of_detection = metric.startswith("discriminator_")
    if is_of_detection:
        without = _WITHOUT_DETECTION_LOSS if metric == "discriminator_loss" else _WITHOUT_DETECTION
        is_lacking = objective.name in without
    else:
        is_lacking = objective.name in _WITHOUT_GENERATOR_LOSS or objective.generator != "transformer"
    if is_lacking:
        rule = f"must be a figure that every trial has, and objective.name {objective.name!r} has no {metric}"
        raise SpecError([FieldProblem(("objective", "metric"), rule, repr(metric))])
    if is_of_detection and objective.name == "two_stage" and isinstance(search.scheduler, NoScheduler):
        switch, num_rungs = objective.two_stage_switch_fraction, search.scheduler.num_rungs
        if 1 / num_rungs <= switch:
            rule = (
                f"must leave the first rung behind base.objective.two_stage_switch_fraction ({switch:g}), before which "
                f"there is no {metric}"
            )
            raise SpecError([FieldProblem(("scheduler", "num_rungs"), rule, str(num_rungs))])


def _check_paths(search: SearchSpec, base: PretrainSpec) -> None:
    problems = []
    fields = base.model_dump(mode="json")
    for path in search.space:
        section, _, name = path.partition(".")
        if section not in SEARCHABLE:
            advice = did_you_mean(near_paths(path))
            rule = f"must be a field of {', '.join(SEARCHABLE)}: trials share the rest{advice}"
            problems.append(FieldProblem(("space", path), rule, None))
        elif name not in fields[section]:
            advice = did_you_mean(near_paths(path)) or f", one of {', '.join(fields[section])}"
            rule = f"must be a field of {section}{advice}"
            problems.append(FieldProblem(("space", path), rule, None))
        elif path in NOT_SEARCHABLE:
            problems.append(FieldProblem(("space", path), f"must be absent: it {NOT_SEARCHABLE[path]}", None))
    if problems:
        raise SpecError(problems)


def _at(section: tuple[str, ...], problem: FieldProblem) -> FieldProblem:
    return FieldProblem((*section, *problem.path), problem.rule, problem.value)
