"""One corruption of held-out text for all trials: rows that a reference generator wrote into, once.

A trial's own generator would make the ruler as long as what it measures: the discriminator of a weak generator has the
lower loss.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from electra_core.batches import TokenBatch
from electra_core.pretraining import ElectraForPretraining
from electra_core.scoring.networks import Discriminator
from pipelines import storage
from pipelines.errors import CorpusError, NonFiniteLossError
from pipelines.rows.loader import ValidationRows
from pipelines.searching.train_trial import device_of, networks_at, train_until
from pipelines.searching.trial import SearchContext
from pipelines.specs.trials import reference_spec
from pipelines.storage.artifacts import MANIFEST_FILE
from pipelines.training.batches import HeldOutBatches
from pipelines.training.curve import say_alive
from pipelines.training.evaluate import ROWS_PER_BATCH
from pipelines.training.fitting import RAY_TRAIN_FOLDER
from pipelines.training.roc import area_under_roc
from pipelines.training.task import TrainingTask
from pipelines.training.workers import Worker, choose_cpu_kernels, limit_threads

FOLDER, ROWS_FILE = "reference", "corruption.npz"


@dataclass(frozen=True)
class CorruptionTask:
    """The base's networks, trained for a share of a trial's budget."""

    context: SearchContext

    def training(self) -> TrainingTask:
        """A schedule of its own, of so many of the base's steps."""
        spec = reference_spec(self.context.search, self.context.corpus.vocab_size)
        uri = storage.join(self.uri, "checkpoints")
        return TrainingTask(spec, self.context.corpus, uri, self.context.initial_weights)

    @property
    def uri(self) -> str:
        """Folder of the networks and the rows."""
        return storage.join(self.context.job_uri, FOLDER)


def train_reference(task: CorruptionTask) -> None:
    """Train to the end; returns at once where that, or all, was done.

    Raises:
        PipelineError: see `train`.
    """
    if storage.exists(storage.join(task.uri, MANIFEST_FILE)):
        return
    training = task.training()
    num_workers = training.spec.compute.num_workers
    # Of several workers this process is the host, which only waits for them.
    say_alive(task.uri, "training the reference", is_waiting=num_workers > 1)
    if num_workers == 1:
        limit_threads(training.spec.compute)
        choose_cpu_kernels()
    train_until(training, training.spec.training.num_train_steps, task.uri, task.context.job_uri)


def make_corruption(task: CorruptionTask) -> str:
    """Corrupt and write; returns at once where that was done.

    Returns:
        URI of an `.npz`: int32[N, L] `corrupted_ids`, bool[N, L] `is_replaced` and `is_scored`.

    Raises:
        CheckpointError: the networks are not trained.
        CorpusError: they replace no token.
    """
    uri = storage.join(task.uri, ROWS_FILE)
    done = storage.join(task.uri, MANIFEST_FILE)
    training = task.training()
    if storage.exists(done):
        _forget_training(task)  # left where an attempt ended in the midst of it
        return uri
    say_alive(task.uri, "corrupting held-out text")
    limit_threads(training.spec.compute)
    choose_cpu_kernels()
    steps = training.spec.training.num_train_steps
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **_corrupted(networks_at(training, steps), training))
    storage.write_bytes(uri, buffer.getvalue())
    storage.write_json(done, {"num_train_steps": steps})
    _forget_training(task)
    return uri


def _forget_training(task: CorruptionTask) -> None:
    for uri in (task.training().checkpoints_uri, storage.join(task.uri, RAY_TRAIN_FOLDER)):
        storage.delete_tree(uri)


@torch.no_grad()
def _corrupted(networks: ElectraForPretraining, task: TrainingTask) -> dict[str, npt.NDArray[np.generic]]:
    worker = Worker(device=device_of(task.spec))
    networks.to(worker.device)
    rows = ValidationRows(task.corpus, task.spec.training.sequence_length, task.spec.evaluation.max_rows)
    batches = HeldOutBatches(rows, task, worker)
    parts: dict[str, list[npt.NDArray[np.generic]]] = {"corrupted_ids": [], "is_replaced": [], "is_scored": []}
    for start in range(0, rows.num_rows, ROWS_PER_BATCH):
        masked, draws = batches.of(np.arange(start, min(start + ROWS_PER_BATCH, rows.num_rows)))
        detection = networks(masked, draws).detection
        assert detection is not None  # of an objective that detects nothing the spec is refused
        parts["corrupted_ids"].append(detection.corrupted_ids.cpu().numpy().astype(np.int32))
        parts["is_replaced"].append(detection.is_replaced.cpu().numpy())
        parts["is_scored"].append(detection.is_scored.cpu().numpy())
    corrupted = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    if not corrupted["is_replaced"][corrupted["is_scored"]].any():
        raise CorpusError(
            f"held-out text must have tokens that the reference generator replaces, got none in {rows.num_rows} rows"
        )
    return corrupted


@torch.no_grad()
def score_on_corruption(discriminator: Discriminator, uri: str, device: torch.device, step: int) -> dict[str, float]:
    """`auc`, and `loss` in nats a token, on the rows that `make_corruption` wrote.

    Raises:
        NonFiniteLossError: logits after this step are not finite.
    """
    with np.load(io.BytesIO(storage.read_bytes(uri)), allow_pickle=False) as arrays:
        ids, is_replaced, is_scored = (arrays[name] for name in ("corrupted_ids", "is_replaced", "is_scored"))
    logits = []
    for start in range(0, len(ids), ROWS_PER_BATCH):
        part = torch.from_numpy(ids[start : start + ROWS_PER_BATCH].astype(np.int64)).to(device)
        batch = TokenBatch(
            input_ids=part,
            attention_mask=torch.ones_like(part, dtype=torch.bool),
            rows=torch.arange(start, start + len(part), device=device),
            is_packed=True,
        )
        logits.append(discriminator(batch).cpu())
    scored = torch.from_numpy(is_scored)
    all_logits, labels = torch.cat(logits)[scored], torch.from_numpy(is_replaced)[scored].float()
    num_bad = int((~all_logits.isfinite()).sum())
    if num_bad:
        raise NonFiniteLossError(
            step, f"the discriminator's logits must be finite, got {num_bad} of {len(all_logits)} that are not"
        )
    loss = torch.nn.functional.binary_cross_entropy_with_logits(all_logits.double(), labels.double())
    return {"auc": area_under_roc(labels.numpy(), all_logits.numpy()), "loss": float(loss)}
