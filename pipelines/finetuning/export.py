"""The best seed's model in the layout of Transformers, with its tokenizer and a card."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import safetensors.torch
import torch
from safetensors.torch import save_file

from electra_core.batches import SpecialTokens
from electra_core.conversion.finetuned import ARCHITECTURES, finetuned_config, finetuned_state_dict
from electra_core.finetuning.network import ElectraForFinetuning
from pipelines import storage
from pipelines.finetuning.card import finetuned_card
from pipelines.finetuning.export_task import ExportTask
from pipelines.finetuning.seed_task import WEIGHTS_FILE, SeedTask
from pipelines.specs.task import RegressionTask
from pipelines.tokenizer import load_tokenizer, save_tokenizer


def export_finetuned(task: ExportTask) -> str:
    """Write the folder; returns its URI.

    Raises:
        StorageError: a file cannot be read or written.
    """
    run = task.run
    network = load_finetuned(run)
    label_range = run.prepared.task.label_range if isinstance(run.prepared.task, RegressionTask) else None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save_file(finetuned_state_dict(network, label_range), folder / "model.safetensors", metadata={"format": "pt"})
        config = finetuned_config(network, SpecialTokens(*run.base.special), run.prepared.labels)
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        # Past it the positions are those of pretraining at best, and were not finetuned.
        save_tokenizer(load_tokenizer(run.base.uri), str(folder), run.max_sequence_length)
        (folder / "README.md").write_text(
            finetuned_card(task, architecture(run)),
            encoding="utf-8",
        )
        storage.upload_tree(folder, task.uri)
    return task.uri


def architecture(run: SeedTask) -> str:
    """Transformers' class of the exported network."""
    return ARCHITECTURES[run.prepared.task.kind]


def load_finetuned(run: SeedTask) -> ElectraForFinetuning:
    """The network that a finished run left.

    Raises:
        StorageError: its weights cannot be read.
    """
    network = ElectraForFinetuning(run.encoder, run.head, torch.Generator().manual_seed(run.seed))
    network.load_state_dict(safetensors.torch.load(storage.read_bytes(storage.join(run.uri, WEIGHTS_FILE))))
    return network.eval()
