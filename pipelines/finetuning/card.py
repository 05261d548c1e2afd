"""The model card of a finetuned network."""

from __future__ import annotations

from pipelines.finetuning.seed_task import SeedTask
from pipelines.specs.documents import TaskScores

PIPELINE_TAGS = {
    "classification": "text-classification",
    "regression": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
}


def finetuned_card(
    run: SeedTask, scores: TaskScores, job_id: str, model_name: str, architecture: str, license_name: str | None
) -> str:
    """README.md of an export: what it answers, how well, from which model, data and seeds."""
    task, base, training = run.prepared.task, run.base, run.training
    license_line = f"license: {license_name}\n" if license_name else ""
    names = sorted({*scores.figures, *(name for figures in scores.baselines.values() for name in figures)})
    header = "".join(f" {name} |" for name in scores.baselines)
    rows = "\n".join(
        f"| {name.replace('_', ' ')} | {_shown(scores.figures.get(name))} |"
        + "".join(f" {_shown(figures.get(name))} |" for figures in scores.baselines.values())
        for name in names
    )
    seeds = ", ".join(f"{seed}: {value:.4g}" for seed, value in scores.by_seed.items())
    parent = "the sizes of `{}`, from random weights" if base.without_pretraining else "`{}`"
    files = "\n".join(f"- `{uri}`" for uri in task.data.train)
    return f"""---
{license_line}library_name: transformers
pipeline_tag: {PIPELINE_TAGS[task.kind]}
tags: [electra]
---

# {model_name}

An ELECTRA encoder finetuned for {task.kind.replace("_", " ")} ({run.prepared.name}), from {parent.format(base.origin)}.

```python
from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained(folder)
model = {architecture}.from_pretrained(folder)
```

## Scores

On {scores.num_validation_examples:,} validation examples, medians over {len(scores.by_seed)} seeds. These weights are
those of seed {scores.best_seed}, the best of them on that very split: expect the median, not the best.

| figure | median |{header}
|---|---|{"---|" * len(scores.baselines)}
{rows}

By seed, {scores.metric.replace("_", " ")}: {seeds}; standard deviation {_shown(scores.spread.get("std"))}.
{_leak(scores)}
## Training

- Job `{job_id}`: {run.num_epochs:g} epochs of {scores.num_train_examples:,} examples in batches of
  {training.batch_size}, at most {training.max_sequence_length} tokens an example, {training.precision}.
- Parent model: {base.origin}.
- The whole spec is in `spec.json` of the MLflow run; it reproduces the job.{_head(run)}

## Data

{files}

Licences of the data are theirs.
{_labels(run)}"""


def _leak(scores: TaskScores) -> str:
    if not scores.num_also_in_training:
        return ""
    return (
        f"\n{scores.num_also_in_training:,} of the validation examples are training examples too: "
        "the scores are too good by that much.\n"
    )


def _head(run: SeedTask) -> str:
    if run.head.style == "transformers":
        return ""
    return (
        "\n- The head is the original's, [CLS] → dropout → linear. Transformers' class has a dense layer and a GELU"
        "\n  more; here they are the identity, so logits are the same, but train on with care."
    )


def _labels(run: SeedTask) -> str:
    if not run.prepared.labels:
        return ""
    shown = ", ".join(f"`{label}`" for label in run.prepared.labels[:100])
    return f"\n## Labels\n\n{shown}{' …' if len(run.prepared.labels) > 100 else ''}\n"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
