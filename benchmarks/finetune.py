"""Our finetuning run against Transformers' own Trainer: same weights, data, head and hyperparameters.

    python benchmarks/finetune.py [--model FOLDER] [--glue FOLDER --task SST-2] [--seeds 3] [--quick] [--json PATH]

The model is a folder in the layout of Transformers; random weights of ELECTRA-Small without one. The data are those of
a GLUE task; without a folder sentences of like lengths are made up, and only speed means anything. Three contenders
take turns, each in a process of its own with the same threads: ours, Trainer as users write it (dynamic padding), and
Trainer that groups examples by length. All take Adam with bias correction, one rate for all layers, and fp32. Speed is
examples over the time of the training loop, start-up and evaluation left out on both sides. Needs
`pip install accelerate`.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import Samples, in_turn, option_parser, report

OURS, PLAIN, GROUPED = "ours", "trainer", "trainer, grouped by length"
TIMEOUT_SECONDS = 3600
BATCH_SIZE, LEARNING_RATE, WARMUP, WEIGHT_DECAY, EPSILON = 32, 3e-4, 0.1, 0.01, 1e-6
MAX_LENGTH = 128


def main() -> None:
    """Run, print, and write the figures where asked."""
    parser = option_parser(__doc__ or "", "a tenth of the examples, one seed")
    parser.add_argument("--model", type=Path, help="folder in the layout of Transformers; random weights without one")
    parser.add_argument("--glue", type=Path, help="folder of GLUE; made-up sentences without one")
    parser.add_argument("--task", default="SST-2", help="of GLUE: one with texts and labels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--examples", type=int, default=20_000, help="training examples at most")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    seeds = 1 if options.quick else options.seeds
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = options.model or random_model(folder / "model")
        glue = options.glue or made_up_task(folder / "glue" / options.task, options.examples).parent
        settings = {
            "model": str(model.absolute()),
            "task_folder": str((glue / options.task).absolute()),
            "task": options.task,
            "epochs": options.epochs,
            "examples": options.examples // (10 if options.quick else 1),
            "threads": options.threads,
            "scratch": str(folder),
        }
        results: dict[str, list[dict[str, float]]] = {OURS: [], PLAIN: [], GROUPED: []}
        for repetition, name in in_turn(results, seeds):
            result = in_process(run_ours if name == OURS else run_trainer, settings, name, repetition + 1)
            results[name].append(result)
            speed, score = result["examples_per_second"], result["score"]
            print(f"  {name:28} seed {repetition + 1}  {speed:9,.1f} examples/s  {score:.4f}")
    speeds = {name: Samples(tuple(one["examples_per_second"] for one in found)) for name, found in results.items()}
    scores = {name: [one["score"] for one in found] for name, found in results.items()}
    figures = {
        "finetune_vs_trainer": speeds[OURS].median / speeds[PLAIN].median,
        "finetune_vs_trainer_grouped": speeds[OURS].median / speeds[GROUPED].median,
        "finetune_score_difference": statistics.median(scores[OURS]) - statistics.median(scores[PLAIN]),
    }
    details: dict[str, Any] = {"settings": {key: settings[key] for key in ("task", "epochs", "examples", "threads")}}
    details |= {name: {**speeds[name].as_details(), "scores": scores[name]} for name in results}
    report(figures, details, options.json)


def in_process(function: Any, *arguments: Any) -> dict[str, float]:
    """Call it in a process of its own: none inherits another's allocator, threads or settings of torch."""
    with get_context("spawn").Pool(1) as pool:
        result: dict[str, float] = pool.apply_async(function, arguments).get(timeout=TIMEOUT_SECONDS)
        return result


def run_ours(settings: dict[str, Any], name: str, seed: int) -> dict[str, float]:
    """One run of ours, with the rules of Trainer's."""
    import os

    os.environ["MALLOC_ARENA_MAX"] = "1"
    from pipelines.finetuning.keep_base_model import keep_base_model
    from pipelines.finetuning.run_seed import run_seed
    from pipelines.finetuning.seed_task import SeedTask
    from pipelines.specs.compute import WorkerSpec
    from pipelines.specs.finetune import BaselineSpec, FinetuneTrainingSpec, ModelFiles
    from pipelines.specs.task import GlueTask
    from pipelines.tasks.prepare import TaskPreparation, prepare_task
    from pipelines.tasks.scores import main_metric

    scratch = settings["scratch"]
    base = keep_base_model(ModelFiles(uri=settings["model"]), f"{scratch}/job", "")
    glue = GlueTask(name=settings["task"], uri=settings["task_folder"], max_train_examples=settings["examples"])
    prepared = prepare_task(
        TaskPreparation(
            settings["task"],
            glue,
            base.uri,
            MAX_LENGTH,
            f"{scratch}/storage",
            BaselineSpec(majority=False, tfidf=False),
        )
    )
    training = FinetuneTrainingSpec(
        num_epochs=settings["epochs"],
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        layerwise_decay=1.0,
        warmup_fraction=WARMUP,
        weight_decay=WEIGHT_DECAY,
        optimizer="adamw",
        max_sequence_length=MAX_LENGTH,
    )
    task = SeedTask(
        prepared, base, training, WorkerSpec(cpus_per_worker=settings["threads"]), seed, f"{scratch}/ours/{seed}"
    )
    result = run_seed(task)
    split = prepared.splits_of("validation")[0].name
    return {
        "examples_per_second": result.examples_per_second,
        "score": result.scores[split][main_metric(prepared.task)],
    }


def run_trainer(settings: dict[str, Any], name: str, seed: int) -> dict[str, float]:
    """One run of Transformers' Trainer on the same examples."""
    import torch
    import transformers

    from pipelines.specs.task import ClassificationTask, GlueTask
    from pipelines.tasks.glue import glue_task
    from pipelines.tasks.read import read_task
    from pipelines.tasks.scores import classification_scores, main_metric

    torch.set_num_threads(settings["threads"])
    transformers.utils.logging.set_verbosity_error()
    task, files = glue_task(
        GlueTask(name=settings["task"], uri=settings["task_folder"], max_train_examples=settings["examples"])
    )
    assert isinstance(task, ClassificationTask)
    data = read_task(task, files)
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    ids = {label: index for index, label in enumerate(data.labels)}

    def encoded(split: Any) -> list[dict[str, Any]]:
        texts = [one.text for one in split.examples]
        pairs = [one.text_pair for one in split.examples] if task.text_pair else None
        rows = tokenizer(texts, pairs, truncation=True, max_length=MAX_LENGTH)
        labels = [ids[one.label] for one in split.examples]
        return [{**{key: rows[key][index] for key in rows}, "labels": label} for index, label in enumerate(labels)]

    transformers.set_seed(seed)
    model = transformers.ElectraForSequenceClassification.from_pretrained(
        settings["model"], num_labels=len(data.labels), hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
    )
    arguments = transformers.TrainingArguments(
        output_dir=f"{settings['scratch']}/trainer",
        per_device_train_batch_size=BATCH_SIZE,
        per_device_eval_batch_size=64,
        num_train_epochs=settings["epochs"],
        learning_rate=LEARNING_RATE,
        warmup_steps=WARMUP,
        weight_decay=WEIGHT_DECAY,
        adam_epsilon=EPSILON,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        train_sampling_strategy="group_by_length" if name == GROUPED else "random",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        seed=seed,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=encoded(data.train),
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    metrics = trainer.train().metrics
    # Its own labels: where it groups by length it reads what it predicts in that order too.
    found = trainer.predict(encoded(next(iter(data.validation.values()))))
    scores = classification_scores(found.predictions.argmax(axis=1), found.label_ids, len(data.labels))
    return {
        "examples_per_second": float(metrics["train_samples_per_second"]),
        "score": scores[main_metric(task)],
    }


def random_model(folder: Path) -> Path:
    """ELECTRA-Small with random weights and BERT's kind of tokenizer, as a folder of Transformers."""
    import transformers

    from pipelines.tokenizer import SPECIAL_TOKENS, bert_tokenizer, save_tokenizer

    words = [f"w{index}" for index in range(30_000)]
    save_tokenizer(
        bert_tokenizer({word: at for at, word in enumerate([*SPECIAL_TOKENS, *words])}, True, None), str(folder)
    )
    config = transformers.ElectraConfig(vocab_size=30_005)
    transformers.ElectraForPreTraining(config).save_pretrained(folder)
    return folder


def made_up_task(folder: Path, count: int) -> Path:
    """Sentences as long as those of SST-2, whose label is told by a word."""
    rng = random.Random(0)
    folder.mkdir(parents=True)
    for split, rows in (("train", count), ("dev", 500)):
        lines = ["sentence\tlabel"]
        for _ in range(rows):
            label = rng.randint(0, 1)
            words = [f"w{rng.randint(10, 29_999)}" for _ in range(min(50, 1 + int(rng.expovariate(1 / 9.0))))]
            lines.append(" ".join([f"w{label}", *words]) + f"\t{label}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


if __name__ == "__main__":
    main()
