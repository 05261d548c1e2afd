"""The pretrained network of a finetuning job, copied into the folder `base` of its directory.

Every seed of every attempt starts from this copy, whatever becomes of the source.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

import safetensors.torch

from electra_core.config import EncoderConfig
from electra_core.conversion.finetuned import pretrained_backbone
from electra_core.finetuning.network import ElectraForFinetuning
from pipelines import storage
from pipelines.errors import CheckpointError, DataError
from pipelines.specs.task import TaskSpec
from pipelines.storage.artifacts import SpecialTokenIds
from pipelines.tasks.glue import reads_pairs

log = logging.getLogger(__name__)

WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True)
class BaseModel:
    """A complete copy."""

    uri: str
    """Its folder: weights, and the tokenizer in the layout of Transformers."""
    sha256: str
    """Of weights.safetensors; with a mark where the weights are not used."""
    encoder: EncoderConfig
    special: SpecialTokenIds
    origin: str
    """Where it came from, for people."""
    without_pretraining: bool
    longest_row: int | None = None
    """Tokens it was pretrained to read at once, where that is known."""

    def check_reads(self, name: str, task: TaskSpec, max_length: int) -> None:
        """Raise `DataError` where the network has no place for the rows of a task.

        Args:
            name: of the task, for the message.
            task: what is read.
            max_length: tokens of a row at most.
        """
        longest, num_types = self.encoder.max_position_embeddings, self.encoder.type_vocab_size
        if max_length > longest:
            raise DataError(
                f"max_sequence_length must be at most the model's max_position_embeddings, "
                f"got {max_length} for {name} and {longest}"
            )
        if num_types < 2 and reads_pairs(task):
            raise DataError(
                f"model must have two token types (type_vocab_size) where a task reads two texts, as {name} does, "
                f"got {num_types} of {self.origin}"
            )

    def load_into(self, network: ElectraForFinetuning) -> None:
        """Replace the network's start by the pretrained weights; its head stays as it is.

        Raises:
            CheckpointError: the file is not the one the digest belongs to, or a weight of the encoder is missing.
        """
        if self.without_pretraining:
            return
        uri = storage.join(self.uri, WEIGHTS_FILE)
        data = storage.read_bytes(uri)
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise CheckpointError(f"{uri} must have sha256 {self.sha256}, got {digest}")
        converted = pretrained_backbone(network, safetensors.torch.load(data))
        if converted.missing:
            raise CheckpointError(f"{self.origin} must hold every weight of its encoder, got no {converted.missing[0]}")
        network.load_state_dict(converted.state, strict=False)
