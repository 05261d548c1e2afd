"""One training run, and what every worker makes of it: networks and rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_core.batches import SpecialTokens
from electra_core.noise import noise_weights
from electra_core.pretraining import ElectraForPretraining
from pipelines.rows.loader import read_continuations, read_unigram_counts
from pipelines.rows.staged import StagedRows
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.training.workers import Worker
from pipelines.weights.kept import InitialWeights


@dataclass(frozen=True)
class TrainingTask:
    """What one training run needs to know; the same on every worker."""

    spec: PretrainSpec
    corpus: PreparedCorpus
    checkpoints_uri: str
    initial_weights: InitialWeights | None = None
    """What to start from instead of the seed's weights."""
    until_step: int | None = None
    """Stop here with a checkpoint, to go on later; None trains to the end. Changes no weight."""

    @property
    def end_step(self) -> int:
        """The step this run ends at."""
        return self.spec.training.num_train_steps if self.until_step is None else self.until_step

    @property
    def identity(self) -> str:
        """Digest of what decides the weights. The number of workers, the intervals and the record are left out:
        a job may be resumed on another cluster, and saved or evaluated more often.
        """
        spec = self.spec
        weights = [source.weight for source in spec.corpus.sources]
        training = spec.training.model_dump(
            mode="json",
            include={"num_train_steps", "global_batch_size", "sequence_length", "curriculum", "precision", "seed"},
        )
        if spec.training.two_segment_fraction:  # a field that jobs of an earlier version did not have
            training["two_segment_fraction"] = spec.training.two_segment_fraction
        if self.initial_weights is not None:
            training["initial_weights"] = self.initial_weights.sha256
        optimizer = spec.optimizer.model_dump(mode="json")
        for name in ("layerwise_decay_skips_one", "embedding_learning_rate"):
            if not optimizer[name]:  # a field that jobs of an earlier version did not have
                del optimizer[name]
        model = spec.model.model_dump(mode="json")
        if spec.model.attention_init == "normal":  # likewise
            del model["attention_init"]
        sections = [section.model_dump(mode="json") for section in (spec.objective, spec.masking)]
        decisive = [self.corpus.digest, weights, training, model, *sections, optimizer]
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def is_continuation(self, worker: Worker) -> Tensor | None:
        """bool[vocab_size] on the worker's device: ids that go on with a word. None where words do not matter.

        Raises:
            CorpusError: the vocabulary has none.
        """
        if not self.spec.masking.whole_word:
            return None
        return torch.from_numpy(read_continuations(self.corpus)).to(worker.device)


def build_networks(spec: PretrainSpec, corpus: PreparedCorpus) -> ElectraForPretraining:
    """The objective's networks with the initial weights the seed gives, in its first stage."""
    rng = torch.Generator().manual_seed(spec.training.seed)
    noise = None
    if spec.objective.generator != "transformer":
        counts = torch.from_numpy(read_unigram_counts(corpus)) if spec.objective.generator == "unigram" else None
        noise = noise_weights(corpus.vocab_size, SpecialTokens(*corpus.special), counts)
    return ElectraForPretraining(spec.model, corpus.vocab_size, spec.objective, rng, noise)


def training_rows(task: TrainingTask) -> StagedRows:
    """The rows of every step, in the order the seed gives.

    Raises:
        CorpusError: the corpus has not one row of the longest length.
        StorageError: a shard is absent or incomplete.
    """
    training, weights = task.spec.training, tuple(source.weight for source in task.spec.corpus.sources)
    return StagedRows(task.corpus, weights, training.stages, training.seed)
