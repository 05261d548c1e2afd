"""The main network of a checkpoint of pretraining, copied to be finetuned."""

from __future__ import annotations

import hashlib

import safetensors.torch

from electra_core.conversion.to_transformers import discriminator_state_dict
from electra_core.pretraining import ElectraForPretraining
from pipelines import storage
from pipelines.finetuning.base_model import WEIGHTS_FILE, BaseModel
from pipelines.storage.artifacts import MANIFEST_FILE, SpecialTokenIds


def copy_network(networks: ElectraForPretraining, folder: str, special: SpecialTokenIds, origin: str) -> BaseModel:
    """Write the weights of the main network into a folder; the manifest last, so that what has one is complete.

    Args:
        networks: whose `discriminator`, of whatever objective, is wanted.
        folder: URI.
        special: ids of the corpus's special tokens.
        origin: where the weights come from, for people.

    Raises:
        StorageError: the folder cannot be written.
    """
    data = safetensors.torch.save(discriminator_state_dict(networks))
    storage.write_bytes(storage.join(folder, WEIGHTS_FILE), data)
    sha256 = hashlib.sha256(data).hexdigest()
    storage.write_json(storage.join(folder, MANIFEST_FILE), {"sha256": sha256})
    return BaseModel(folder, sha256, networks.discriminator.config, special, origin, without_pretraining=False)
