"""What is allowed in a spec and hardly meant: sentences for whoever plans or starts the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipelines.specs.comparing import ProbeObjective
from pipelines.specs.finetune import FinetuneSpec, FinetuneTrainingSpec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.search import SearchSpec
from pipelines.specs.task import QuestionAnsweringTask, TaskSpec, TaskSuite

UNEQUAL = 1.03
"""Times the FLOPs of another trial, above which a comparison is not fair."""


def spec_warnings(spec: PretrainSpec) -> tuple[str, ...]:
    """One sentence for each choice that does not do what it seems to; each starts with the field's name."""
    warnings = []
    weight, sharing = spec.objective.discriminator_weight, spec.model.sharing
    if sharing in ("none", "gdes") and weight > 0 and spec.objective.name != "two_stage":
        # At 0 the discriminator is not trained at all, which is what it says; in two stages it is trained alone.
        warnings.append(
            f"objective.discriminator_weight ({weight:g}) does next to nothing with model.sharing: {sharing}: "
            "no weight gets gradient from both losses, and Adam's updates do not depend on a loss's scale, so it acts "
            "through the joint gradient clip and Adam's epsilon alone. What counts is the ratio of the learning rates."
        )
    if spec.objective.name == "two_stage" and spec.initialization is not None:
        warnings.append(
            "initialization gives the discriminator weights that objective.name: two_stage replaces by the generator's "
            "before they are trained; only what it gives the generator and the discriminator's head lasts."
        )
    if spec.initialization is None and spec.longest_row < spec.model.max_position_embeddings:
        longest = spec.longest_row
        for field, length in _probed_lengths(spec):
            if length > longest:
                warnings.append(
                    f"{field} ({length}) is more than the {longest} tokens of training.sequence_length: the positions "
                    "past them are never trained, and rows that reach them score worse for it."
                )
    if spec.probe is not None:
        named = {f"probe.tasks.{name}": task for name, task in spec.probe.tasks.items()}
        warnings += _windows(named, spec.probe.training)
    return tuple(warnings)


def _probed_lengths(spec: PretrainSpec) -> Iterator[tuple[str, int]]:
    if spec.probe is None:
        return
    shared = spec.probe.training.max_sequence_length
    if any(task.max_sequence_length is None for task in spec.probe.tasks.values()):
        yield "probe.training.max_sequence_length", shared
    for name, task in spec.probe.tasks.items():
        if task.max_sequence_length is not None:
            yield f"probe.tasks.{name}.max_sequence_length", task.max_sequence_length


def search_warnings(spec: SearchSpec, base: PretrainSpec, flops: tuple[float, float]) -> tuple[str, ...]:
    """The same for a search, its base resolved; `flops` are the least and the most that a trial takes."""
    warnings = []
    weight = "objective.discriminator_weight"
    sharing = spec.space.get("model.sharing")
    sharings = getattr(sharing, "values", ()) if sharing is not None else (base.model.sharing,)
    if weight in spec.space and sharings and all(one in ("none", "gdes") for one in sharings):
        warnings.append(
            f"space.{weight} does next to nothing where model.sharing is {' or '.join(map(str, sharings))}: no weight "
            "gets gradient from both losses. Search optimizer.discriminator_learning_rate_ratio instead."
        )
    if base.compute.num_workers > 1:
        warnings.append(
            f"base.compute.num_workers is {base.compute.num_workers}: each trial starts its workers anew at each rung, "
            "some ten seconds. Trials of one worker share a process; compute.max_concurrent_trials uses the machine."
        )
    if spec.final is not None and len(spec.final.seeds) < 3:
        warnings.append(
            f"final.seeds has {len(spec.final.seeds)}: with so few the interval of a mean is many times its spread."
        )
    if spec.budget.flops is None:
        least, most = flops
        if most > UNEQUAL * least:
            warnings.append(
                f"budget is not in FLOPs, and a trial may take {most / least:.3g} times the computing of another: it "
                "will look better for it. budget.flops makes it equal."
            )
    if spec.searcher.type == "cma" and spec.scheduler.type != "none":
        warnings.append(
            f"searcher.type is 'cma', which learns from trials that came to their ends alone, and scheduler.type "
            f"{spec.scheduler.type!r} stops most of them. Take scheduler.type 'none', or the searcher 'tpe'."
        )
    if isinstance(spec.objective, ProbeObjective) and len(spec.objective.training.seeds) < 2:
        warnings.append("objective.training.seeds has 1: a trial's score is then as much its seed's as its setting's.")
    return tuple(warnings)


def finetuning_warnings(spec: FinetuneSpec) -> tuple[str, ...]:
    """The same for a finetuning job."""
    warnings = []
    if spec.training.early_stopping_patience is not None:
        warnings.append(
            "training.early_stopping_patience chooses weights on the validation split, so scores on it are too good; "
            "those on data.test are not."
        )
    if len(spec.training.seeds) < 3:
        warnings.append(
            f"training.seeds has {len(spec.training.seeds)}: differences of a point or two are within seed noise "
            "(σ is 1.9 on RTE, 1.3 on CoLA); the original took medians of 10."
        )
    named: dict[str, TaskSpec] = {} if spec.task is None else {"task": spec.task}
    if isinstance(spec.suite, TaskSuite):
        named |= {f"suite.tasks.{name}": task for name, task in spec.suite.tasks.items()}
    return (*warnings, *_windows(named, spec.training))


def _windows(tasks: Mapping[str, TaskSpec], training: FinetuneTrainingSpec) -> Iterator[str]:
    """Of tasks by the field that holds them: windows that do not overlap."""
    for field, task in tasks.items():
        if not isinstance(task, QuestionAnsweringTask) or task.document_stride is None:
            continue
        # [CLS], two [SEP], and the longest question there may be.
        room = (task.max_sequence_length or training.max_sequence_length) - 3 - task.max_query_tokens
        if task.document_stride >= room:
            yield (
                f"{field}.document_stride ({task.document_stride}) leaves windows that do not overlap, and answers "
                f"across their borders are lost: beside a question of {field}.max_query_tokens "
                f"({task.max_query_tokens}) there is room for {max(0, room)} tokens of the text."
            )
