"""The model card of a finetuned network."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.finetuning.export_task import ExportTask
from pipelines.finetuning.seed_task import SeedTask
from pipelines.specs.documents import TaskScores
from pipelines.tasks.scores import positive_label

PIPELINE_TAGS = {
    "classification": "text-classification",
    "regression": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
}


def finetuned_card(export: ExportTask, architecture: str) -> str:
    """README.md of an export: what it answers, how well, from which model, data and seeds."""
    run, scores = export.run, export.scores
    task, base, training = run.prepared.task, run.base, run.training
    license_line = f"license: {export.license}\n" if export.license else ""
    seeds = ", ".join(f"{seed}: {_shown(scores.by_seed.get(str(seed)))}" for seed in training.seeds)
    start = f"random weights, with the sizes and the vocabulary of {base.origin}"
    start = start if base.without_pretraining else base.origin
    files = "\n".join(f"- `{uri}`" for uri in task.data.train)
    return f"""---
{license_line}library_name: transformers
pipeline_tag: {PIPELINE_TAGS[task.kind]}
tags: [electra]
---

# {export.model_name}

An ELECTRA encoder finetuned for {task.kind.replace("_", " ")} ({run.prepared.name}), from
{start}.

```python
from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained(folder)
model = {architecture}.from_pretrained(folder)
```

## Scores

On {scores.num_validation_examples:,} validation examples, medians over {len(training.seeds)} seeds. These weights are
those of seed {scores.best_seed}, the best of them on that very split: expect the median, not the best.

{_figures(scores)}
{_positive(run)}
By seed, {scores.metric.replace("_", " ")}: {seeds}; standard deviation {_shown(scores.spread.get("std"))}.
{_leak(scores)}
## Training

- Job `{export.job_id}`: {export.result.num_steps:,} steps of {training.batch_size} examples, out of
  {scores.num_train_examples:,}; at most {run.max_sequence_length} tokens an example{_precision(export)}.
- Started from: {start}.
- The whole spec is in `spec.json` of the MLflow run. Its aliases may have moved since: versions
  are named here.{_head(run)}

## Data

{files}

{_splits(run)}

Licences of the data are theirs.
{_labels(run)}"""


def _precision(export: ExportTask) -> str:
    """That of the matrix products; the best seed's where the spec leaves it to the machine."""
    computed_in = export.result.precision or export.run.training.precision
    return "" if computed_in == "auto" else f", {computed_in}"


def _figures(scores: TaskScores) -> str:
    """A table: medians and baselines on the first validation split, and medians on the others with labels."""
    columns = {"median": scores.figures, **scores.baselines}
    columns |= {f"median on {name}": figures for name, figures in scores.other_splits.items()}
    rows = [
        [name.replace("_", " "), *(_shown(figures.get(name)) for figures in columns.values())]
        for name in sorted({name for figures in columns.values() for name in figures})
    ]
    return _table(["figure", *columns], rows)


def _positive(run: SeedTask) -> str:
    label = positive_label(run.prepared.task, run.prepared.labels)
    return "" if label is None else f"\n`f1` is that of the label `{label}`.\n"


def _splits(run: SeedTask) -> str:
    """A table of the counts, then what must be known to read the scores."""
    rows = [
        [split.name, *(f"{count:,}" for count in (split.num_examples, split.num_bad_rows, split.num_cut))]
        for split in run.prepared.splits
    ]
    notes = "".join(f"\n- {note}." for note in run.prepared.notes)
    return _table(["split", "examples", "malformed rows left out", "cut"], rows) + (notes and f"\n{notes}")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _leak(scores: TaskScores) -> str:
    if not scores.num_also_in_training:
        return ""
    return (
        f"\n{scores.num_also_in_training:,} of the validation examples are training examples too: "
        "the scores are too good by that much. The first of them are named in `data.json` of the MLflow run.\n"
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
