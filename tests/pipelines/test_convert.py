"""What is converted loads into Transformers' classes and computes what the source computes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import plain_electra
import pytest
import torch
from safetensors.torch import load_file
from tensorflow_variables import VOCAB_SIZE, variables
from training_task import make_task
from transformers import AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

from electra_core.conversion.to_transformers import exported_state_dicts
from electra_core.optimizer import make_optimizer
from pipelines.convert import main
from pipelines.job import JobDirectory
from pipelines.training.checkpoint import state_of, write_checkpoint
from pipelines.training.task import build_networks

GOLDEN = Path(__file__).parents[1] / "golden" / "tensorflow"
CLASSES = {"discriminator": ElectraForPreTraining, "encoder": ElectraForMaskedLM, "generator": ElectraForMaskedLM}


def write_vocabulary(path: Path, size: int = VOCAB_SIZE) -> Path:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{index}" for index in range(5, size))]
    path.write_text("".join(f"{one}\n" for one in words))
    return path


def loaded(folder: Path, network: str):
    model, report = CLASSES[network].from_pretrained(folder / network, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return model.eval()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder as Google's archives unpack: the checkpoint with its vocabulary beside it."""
    shutil.copytree(GOLDEN, tmp_path / "electra_tiny")
    write_vocabulary(tmp_path / "electra_tiny" / "vocab.txt")
    return tmp_path / "electra_tiny" / "electra.ckpt"


@torch.no_grad()
def test_tensorflows_checkpoint_computes_in_transformers_what_it_did(release: Path, tmp_path: Path):
    assert main([str(release), str(tmp_path / "out")]) == 0
    ids = torch.randint(0, VOCAB_SIZE, (3, 11), generator=torch.Generator().manual_seed(0))
    types = (torch.arange(11) > 5).long().expand(3, -1)
    for network, expected in (
        ("discriminator", plain_electra.discriminator_logits(variables(), ids.numpy(), types.numpy())),
        ("generator", plain_electra.generator_logits(variables(), ids.numpy(), types.numpy())),
    ):
        logits = loaded(tmp_path / "out", network)(ids, token_type_ids=types).logits
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "generator")
    assert tokenizer.convert_ids_to_tokens(tokenizer("Word7 word12").input_ids) == ["[CLS]", "word7", "word12", "[SEP]"]


@torch.no_grad()
def test_transformers_cuts_at_the_positions_that_a_converted_network_has(release: Path, tmp_path: Path):
    assert main([str(release), str(tmp_path / "out")]) == 0
    for network in ("discriminator", "generator"):
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / network)
        model = loaded(tmp_path / "out", network)
        tokens = tokenizer("word7 " * 100, truncation=True, return_tensors="pt")
        assert model(**tokens).logits.shape[1] == model.config.max_position_embeddings


def test_what_is_assumed_or_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([f"{GOLDEN}/electra.ckpt.index", str(tmp_path), "--network", "generator"]) == 0
    told = capsys.readouterr()
    assert "how many heads the generator has; one for each 64 of its width makes 1" in told.err
    assert "belongs to no network and is left out: types/bfloat16" in told.err
    assert "name one with --vocab" in told.err
    assert "generator: " in told.out
    assert not (tmp_path / "discriminator").exists()
    assert not (tmp_path / "generator" / "vocab.txt").exists()


@pytest.mark.parametrize("objective", ["name: electra", "name: mlm", "name: electric", "generator: unigram"])
def test_a_checkpoint_of_ours_becomes_what_the_job_would_export(
    tmp_path: Path, objective: str, capsys: pytest.CaptureFixture[str]
):
    task = make_task(tmp_path, f"objective={{{objective}}}")
    JobDirectory(str(tmp_path / "job")).write_spec(task.spec)
    networks = build_networks(task.spec, task.corpus)
    saved = state_of(networks, make_optimizer(networks, task.spec.optimizer))
    write_checkpoint(task.checkpoints_uri, 3, saved, task.identity, keep=1)
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", task.corpus.vocab_size)
    assert main([str(tmp_path / "job"), str(tmp_path / "out"), "--vocab", str(vocabulary)]) == 0
    exported = exported_state_dicts(networks)
    assert ("the source holds no generator" in capsys.readouterr().err) == ("generator" not in exported)
    for network, (state, _) in exported.items():
        loaded(tmp_path / "out", network)
        written = load_file(tmp_path / "out" / network / "model.safetensors")
        assert written.keys() == state.keys()
        assert all(torch.equal(written[name], state[name]) for name in state)


def test_an_old_export_is_rewritten_in_clean_form(release: Path, tmp_path: Path):
    assert main([str(release), str(tmp_path / "out")]) == 0
    folder = tmp_path / "out" / "generator"
    state = load_file(folder / "model.safetensors")
    old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): state[name] for name in state}
    old["generator_lm_head.weight"] = state["electra.embeddings.word_embeddings.weight"]
    old["electra.embeddings.position_ids"] = torch.arange(16)[None]
    (folder / "model.safetensors").unlink()
    torch.save(old, folder / "pytorch_model.bin")
    assert main([str(folder), str(tmp_path / "clean")]) == 0
    written = load_file(tmp_path / "clean" / "generator" / "model.safetensors")
    assert written.keys() == state.keys()
    assert all(torch.equal(written[name], state[name]) for name in state)
    assert json.loads((tmp_path / "clean" / "generator" / "config.json").read_text()) == json.loads(
        (folder / "config.json").read_text()
    )


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nothing", [], "must be the prefix of a TensorFlow checkpoint"),
        ("electra.ckpt", ["--num-attention-heads", "3"], "hidden_size must be a multiple of num_attention_heads"),
        ("electra.ckpt", ["--vocab", "nothing.txt"], "there is no such file"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_nothing_written(
    release: Path, source: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(release.parent / source), str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_of_another_size_is_refused(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_vocabulary(release.parent / "vocab.txt", 71)
    assert main([str(release), str(tmp_path / "out")]) == 2
    assert "must have the 70 entries of" in capsys.readouterr().err
