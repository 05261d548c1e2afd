"""Exports of pretraining, in the layout of Transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from training_task import make_task

from pipelines.export import export_networks
from pipelines.training.task import build_networks


@torch.no_grad()
def test_transformers_cuts_at_the_positions_that_a_network_has(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    networks = build_networks(task.spec, task.corpus)
    cards = dict.fromkeys(("discriminator", "generator"), "")
    for folder in export_networks(networks, task.corpus, cards, tmp_path / "exports", 32).values():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert tokenizer.model_max_length == 32
        tokens = tokenizer("w5 w6 " * 100, truncation=True, return_tensors="pt")
        model = transformers.AutoModel.from_pretrained(folder).eval()
        assert model(**tokens).last_hidden_state.shape[1] == 32
        with pytest.raises(RuntimeError):
            model(**tokenizer("w5 w6 " * 100, return_tensors="pt"))
