"""Finetune one task with one seed: the loop, its checkpoints, and what it leaves.

Batches, dropout and the head's start are pure functions of (seed, step, row): a run that was killed goes on from its
last checkpoint to the same weights, bit for bit.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch

from electra_core.finetuning.losses import mask_padding, task_loss
from electra_core.finetuning.network import ElectraForFinetuning
from electra_core.optimizer import clip_by_global_norm, make_optimizer, set_learning_rate
from electra_core.randomness import Draws
from electra_core.schedule import learning_rate
from pipelines import storage
from pipelines.errors import CheckpointError, NonFiniteLossError
from pipelines.finetuning.answers import Answers, answer, outputs_of
from pipelines.finetuning.batches import Batch, BatchOrder, RowCutter
from pipelines.finetuning.seed_task import PROGRESS_FILE, WEIGHTS_FILE, SeedResult, SeedTask
from pipelines.tasks.features import Features
from pipelines.tasks.prepare import TEST, TRAIN, VALIDATION, PreparedSplit
from pipelines.tasks.scores import is_better, main_metric
from pipelines.training.checkpoint import Checkpoint, list_checkpoints, read_state, write_checkpoint
from pipelines.training.precision import autocast, computed_in
from pipelines.training.workers import choose_cpu_kernels, limit_threads

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 60.0
"""Between two checkpoints of a run: shorter runs have none."""
PROGRESS_SECONDS = 1.0
LOG_POINTS = 100
"""Losses that a run keeps, about."""


def run_seed(
    task: SeedTask, checkpoint_seconds: float = CHECKPOINT_SECONDS, on_progress: Callable[[], None] = lambda: None
) -> SeedResult:
    """Finetune to the end and leave scores, predictions and weights; a finished run is returned as it is.

    Args:
        task: the run.
        checkpoint_seconds: at least so long between two checkpoints.
        on_progress: called every second or so, for whoever must know besides that it lives.

    Raises:
        NonFiniteLossError: the loss became NaN or infinite.
        CheckpointError: the pretrained weights do not fit.
        StorageError: a file cannot be read or written.
    """
    done = find_finished(task)
    if done is not None:
        return done
    limit_threads(task.compute)
    choose_cpu_kernels()
    device = torch.device("cuda" if task.compute.gpus_per_worker else "cpu")
    run = _Run(task, device, on_progress)
    run.restore()
    run.train(checkpoint_seconds)
    result = run.finish()
    _discard(_checkpoints(task))
    return result


def find_finished(task: SeedTask) -> SeedResult | None:
    """What a finished run left, or None; checkpoints that a kill after its last word left are deleted.

    Raises:
        StorageError: the result cannot be read.
    """
    done = SeedResult.find(task.uri, task.identity)
    if done is not None:
        _discard(_checkpoints(task))
    return done


def _checkpoints(task: SeedTask) -> str:
    return storage.join(task.uri, "checkpoints")


def _discard(uri: str) -> None:
    """Delete what nobody needs; another process may be doing the same."""
    try:
        storage.delete_tree(uri)
    except storage.StorageError as error:
        log.warning("checkpoints_left", extra={"uri": uri, "reason": str(error)[:300]})


def _state_of(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The content of a checkpoint, or None where it is damaged."""
    try:
        return read_state(checkpoint)
    except CheckpointError as error:
        log.warning("checkpoint_skipped", extra={"reason": str(error)})
        return None


class _Run:
    """What one run holds while it goes on."""

    def __init__(self, task: SeedTask, device: torch.device, on_progress: Callable[[], None]) -> None:
        self.task = task
        self.on_progress = on_progress
        self.device = device
        self.network = ElectraForFinetuning(task.encoder, task.head, torch.Generator().manual_seed(task.seed))
        task.base.load_into(self.network)
        self.network.to(device)
        self.features = task.prepared.features(TRAIN)
        self.cutter = RowCutter(self.features, task.prepared.num_choices, task.base.special.pad, device)
        self.order = BatchOrder(self.cutter.lengths, task.training.batch_size, task.seed)
        self.num_steps = task.num_steps(self.order.steps_per_epoch)
        self.rules = task.optimizer(self.num_steps)
        self.optimizer = make_optimizer(self.network, self.rules)
        weights = task.class_weights()
        self.class_weights = None if weights is None else torch.tensor(weights, device=device)
        self.metric = main_metric(task.prepared.task)
        self.held_out = task.prepared.splits_of(VALIDATION)
        self._loaded: dict[str, Any] = {}
        # What a checkpoint carries on besides weights and moments:
        self.step = 0
        self.losses: list[tuple[int, float]] = []
        self.loss_sum, self.loss_count = torch.zeros((), device=device), 0
        """Since the last entry of `losses`; not read before it is time."""
        self.evaluations: list[tuple[int, dict[str, float]]] = []
        self.best_step = 0
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.num_examples = 0
        self.seconds = 0.0
        # What is told of it alone:
        self.began_at = time.time()
        self.num_scored = 0
        self.told_at = 0.0

    def restore(self) -> None:
        """Go on from the last sound checkpoint of this very run, if there is one; others are deleted, since the newest
        step would outlive what this run writes.
        """
        for checkpoint in reversed(list_checkpoints(_checkpoints(self.task))):
            manifest = storage.read_json(storage.join(checkpoint.uri, "manifest.json"))
            state = _state_of(checkpoint) if manifest["identity"] == self.task.identity else None
            if state is None:
                _discard(checkpoint.uri)
                continue
            self.network.load_state_dict(state["networks"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = checkpoint.step
            self.losses = [(int(step), float(loss)) for step, loss in state["losses"]]
            self.loss_sum, self.loss_count = torch.tensor(state["loss_sum"], device=self.device), state["loss_count"]
            self.evaluations = [(int(step), dict(scores)) for step, scores in state["evaluations"]]
            self.best_step, self.best_weights = state["best_step"], state["best_weights"]
            self.num_examples, self.seconds = state["num_examples"], state["seconds"]
            log.info("run_resumed", extra={"run": self.task.name, "step": self.step})
            return

    def train(self, checkpoint_seconds: float) -> None:
        """Take all steps that are left, or as many as are worth it."""
        interval = self.task.evaluation_interval(self.order.steps_per_epoch)
        log_interval = max(1, self.num_steps // LOG_POINTS)
        saved_at = time.monotonic()
        self._tell()
        self.network.train()
        while self.step < self.num_steps and not self._is_enough():
            began = time.monotonic()
            batch = self.cutter.cut(self.order.at(self.step))
            self.loss_sum += self._take_step(batch)
            self.loss_count += 1
            self.num_examples += batch.num_examples
            self.step += 1
            is_end = self.step == self.num_steps
            if self.step % log_interval == 0 or is_end:
                loss = float(self.loss_sum) / self.loss_count
                if not loss - loss == 0.0:  # NaN and infinities differ from themselves
                    raise NonFiniteLossError(
                        self.step,
                        f"{self.task.name}: the loss must be finite, got {loss} by step {self.step}; "
                        "lower training.learning_rate, or lengthen training.warmup_fraction",
                    )
                self.losses.append((self.step, loss))
                self.loss_sum, self.loss_count = torch.zeros((), device=self.device), 0
            self.seconds += time.monotonic() - began
            if interval is not None and self.step % interval == 0 and not is_end:
                self._evaluate()
            self._tell()
            now = time.monotonic()
            if now - saved_at >= checkpoint_seconds and not is_end:
                saved_at = now
                self._save()

    def finish(self) -> SeedResult:
        """Score, predict and write everything; the result comes last."""
        task, began = self.task, time.monotonic()
        if self.best_weights is not None and task.training.early_stopping_patience is not None:
            final = self._scores(self.held_out[0])
            best = dict(self.evaluations)[self.best_step]
            if not is_better(self.metric, final[self.metric], best[self.metric]):
                self.network.load_state_dict(self.best_weights)
        scores = {}
        for split in (*self.held_out, *task.prepared.splits_of(TEST)):
            answers = self._answers(split)
            lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in answers.predictions)
            name = f"predictions-{split.name.replace(' ', '-')}.jsonl"
            storage.write_bytes(storage.join(task.uri, name), lines.encode())
            if answers.scores:
                scores[split.name] = answers.scores
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        storage.write_bytes(storage.join(task.uri, WEIGHTS_FILE), safetensors.torch.save(state))
        result = SeedResult(
            identity=task.identity,
            task=task.prepared.name,
            seed=task.seed,
            num_steps=self.step,
            scores=scores,
            losses=tuple(self.losses),
            evaluations=tuple(self.evaluations),
            examples_per_second=self.num_examples / max(self.seconds, 1e-9),
            seconds=self.seconds + time.monotonic() - began,
            precision=computed_in(task.training.precision, self.device),
        )
        result.write(task.uri)
        return result

    def _take_step(self, batch: Batch) -> torch.Tensor:
        """One update; returns the loss, not read."""
        task = self.task
        draws = Draws(task.seed, self.step, batch.tokens.rows)
        with autocast(task.training.precision, self.device):
            logits = self.network(batch.tokens, draws)
        kind = task.prepared.task.kind
        if kind == "question_answering":
            logits = mask_padding(logits, batch.tokens.attention_mask)
        loss = task_loss(kind, logits, batch.labels, self.class_weights, task.prepared.num_choices)
        loss.backward()
        clip_by_global_norm(self.network.parameters(), self.rules.max_grad_norm)
        set_learning_rate(self.optimizer, learning_rate(self.step, self.rules, self.num_steps))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def _evaluate(self) -> None:
        scores = self._scores(self.held_out[0])
        best = dict(self.evaluations).get(self.best_step)
        self.evaluations.append((self.step, scores))
        if best is None or is_better(self.metric, scores[self.metric], best[self.metric]):
            self.best_step = self.step
            if self.task.training.early_stopping_patience is not None:
                state = self.network.state_dict()
                self.best_weights = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def _is_enough(self) -> bool:
        patience = self.task.training.early_stopping_patience
        if patience is None or not self.evaluations:
            return False
        return sum(step > self.best_step for step, _ in self.evaluations) >= patience

    def _scores(self, split: PreparedSplit) -> dict[str, float]:
        return self._answers(split).scores

    def _answers(self, split: PreparedSplit) -> Answers:
        features, references = self._split(split.name)
        outputs = outputs_of(
            self.network, features, self.task.prepared, self.task.base.special.pad, self.device, self._tell
        )
        return answer(self.task.prepared, features, outputs, references)

    def _split(self, name: str) -> tuple[Features, list[dict[str, Any]]]:
        if name not in self._loaded:
            self._loaded[name] = (self.task.prepared.features(name), self.task.prepared.references(name))
        loaded: tuple[Features, list[dict[str, Any]]] = self._loaded[name]
        return loaded

    def _tell(self, num_scored: int = 0) -> None:
        """Say how far it is, every second or so: whoever waits takes a run that says nothing for one that hangs."""
        self.num_scored += num_scored
        now = time.monotonic()
        if now - self.told_at < PROGRESS_SECONDS:
            return
        self.told_at = now
        self.on_progress()
        document = {
            "began_at": self.began_at,
            "step": self.step,
            "num_steps": self.num_steps,
            "num_scored": self.num_scored,
            "examples_per_second": self.num_examples / max(self.seconds, 1e-9),
        }
        try:
            storage.write_json(storage.join(self.task.uri, PROGRESS_FILE), document)
        except storage.StorageError as error:
            log.warning("progress_unwritten", extra={"reason": str(error)[:300]})

    def _save(self) -> None:
        state = {
            "networks": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses,
            "loss_sum": float(self.loss_sum),
            "loss_count": self.loss_count,
            "evaluations": self.evaluations,
            "best_step": self.best_step,
            "best_weights": self.best_weights,
            "num_examples": self.num_examples,
            "seconds": self.seconds,
        }
        try:
            write_checkpoint(_checkpoints(self.task), self.step, state, self.task.identity, keep=1)
        except storage.StorageError as error:
            # It costs a minute's work if the run is killed before the next one, where giving up would cost the run.
            log.warning("checkpoint_failed", extra={"run": self.task.name, "reason": str(error)[:300]})
