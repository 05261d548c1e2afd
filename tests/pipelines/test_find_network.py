"""The vocabulary of a network is read by the rules that are written beside it, or that its own job had."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from toy_network import write_network
from training_task import VOCAB_SIZE, make_task

from electra_core.optimizer import make_optimizer
from pipelines.errors import CheckpointError, CorpusError
from pipelines.job import JobDirectory
from pipelines.specs.model_source import NetworkFiles
from pipelines.tokenizer import SPECIAL_TOKENS
from pipelines.training.checkpoint import state_of, write_checkpoint
from pipelines.training.task import build_networks
from pipelines.weights.find_network import find_network

CASED = [*SPECIAL_TOKENS, "Anna", "anna", "lives", "é"]
TEXT = "Anna lives é"


def cased_folder(folder: Path, config: dict[str, Any] | None) -> Path:
    """A network with a bare vocabulary of cased text, and with what is said of it, if anything."""
    write_network(folder, "ElectraForPreTraining", CASED)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def tokens_of(folder: Path, **fields: Any) -> list[str]:
    found = find_network(NetworkFiles(uri=str(folder), **fields), ("discriminator",), "")
    return found.tokenizer.encode(TEXT, add_special_tokens=False).tokens


@pytest.mark.parametrize(
    ("config", "fields", "tokens"),
    [
        ({"do_lower_case": False}, {}, ["Anna", "lives", "é"]),
        ({"do_lower_case": True, "strip_accents": False}, {}, ["anna", "lives", "é"]),
        ({"do_lower_case": True}, {}, ["anna", "lives", "[UNK]"]),
        ({}, {}, ["anna", "lives", "[UNK]"]),
        (None, {}, ["anna", "lives", "[UNK]"]),
        (None, {"lowercase": False}, ["Anna", "lives", "é"]),
        ({"do_lower_case": False, "tokenizer_class": "ElectraTokenizerFast"}, {}, ["Anna", "lives", "é"]),
        ({"do_lower_case": False}, {"lowercase": True, "strip_accents": False}, ["anna", "lives", "é"]),
    ],
)
def test_a_bare_vocabulary_has_the_rules_beside_it_unless_the_spec_has_others(
    tmp_path: Path, config: dict[str, Any] | None, fields: dict[str, Any], tokens: list[str]
) -> None:
    assert tokens_of(cased_folder(tmp_path, config), **fields) == tokens


def test_rules_beside_a_vocabulary_that_is_named_are_read(tmp_path: Path) -> None:
    network = cased_folder(tmp_path / "network", None)
    beside = cased_folder(tmp_path / "vocabulary", {"do_lower_case": False})
    for uri in (beside, beside / "vocab.txt"):
        assert tokens_of(network, tokenizer_uri=str(uri)) == ["Anna", "lives", "é"]


def test_a_rule_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="do_lower_case must be true or false, got 'no'"):
        tokens_of(cased_folder(tmp_path, {"do_lower_case": "no"}))


def test_a_vocabulary_whose_words_are_not_berts_is_refused(tmp_path: Path) -> None:
    """Japanese ELECTRAs lie so: MeCab finds their words, and none of it is in vocab.txt."""
    with pytest.raises(CorpusError, match=r"tokenizer_class must be BertTokenizer .* got 'BertJapaneseTokenizer'"):
        tokens_of(cased_folder(tmp_path, {"tokenizer_class": "BertJapaneseTokenizer", "do_lower_case": False}))


def test_capitals_that_lowercased_text_never_has_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and not where text stays as it is; [UNK] is no entry with capitals."""
    folder = cased_folder(tmp_path, None)
    tokens_of(folder, lowercase=False)
    assert not caplog.records
    tokens_of(folder)
    (told,) = [vars(record) for record in caplog.records]
    assert (told["message"], told["first"]) == ("lowercased_text_for_a_cased_vocabulary", ["Anna"])


def test_rules_for_a_tokenizer_that_brings_its_own_are_ignored_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_network(tmp_path, "ElectraForPreTraining", CASED)
    with caplog.at_level(logging.WARNING):
        assert tokens_of(folder, lowercase=False) == ["anna", "lives", "[UNK]"]
    assert [record.message for record in caplog.records] == ["tokenizer_rules_ignored"]


def test_rules_beside_a_tokenizer_that_say_something_else_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Transformers would read capitals."""
    folder = write_network(tmp_path, "ElectraForPreTraining", CASED)
    assert tokens_of(folder) == ["anna", "lives", "[UNK]"]
    assert not caplog.records
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "strip_accents": None}))
    assert tokens_of(folder) == ["anna", "lives", "[UNK]"]
    (told,) = [vars(record) for record in caplog.records]
    assert told["message"] == "tokenizer_rules_differ"
    assert told["reason"] == "tokenizer.json counts, with lowercase True; do_lower_case is False there"


@pytest.mark.parametrize("lowercase", [True, False, None])
def test_an_unfinished_job_of_ours_reads_text_as_it_did(tmp_path: Path, lowercase: bool | None) -> None:
    """It has no exports yet: its vocabulary is the one its spec names, with the spec's rules or those beside it."""
    words = [*CASED, *(f"w{index}" for index in range(len(CASED), VOCAB_SIZE))]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    tokenizer = {"type": "pretrained", "uri": str(tmp_path / "vocab.txt"), "lowercase": lowercase}
    task = make_task(tmp_path, f"tokenizer={json.dumps(tokenizer)}")
    JobDirectory(str(tmp_path / "job")).write_spec(task.spec)
    networks = build_networks(task.spec, task.corpus)
    state = state_of(networks, make_optimizer(networks, task.spec.optimizer))
    write_checkpoint(task.checkpoints_uri, 1, state, "id", keep=1)
    assert tokens_of(tmp_path / "job") == (["anna", "lives", "[UNK]"] if lowercase else ["Anna", "lives", "é"])


@pytest.mark.parametrize("part", [None, "../model.safetensors"])
def test_weights_may_be_in_several_files(tmp_path: Path, part: str | None) -> None:
    """As Transformers saves large models. The index names what lies beside it, and nothing else."""
    folder = write_network(tmp_path / "network", "ElectraForPreTraining", CASED)
    whole = find_network(NetworkFiles(uri=str(folder)), ("discriminator",), "").weights.state
    network = transformers.ElectraForPreTraining.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    network.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    if part is not None:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": part}}))
        with pytest.raises(CheckpointError, match="must name files beside it under weight_map"):
            find_network(NetworkFiles(uri=str(folder)), ("discriminator",), "")
        return
    found = find_network(NetworkFiles(uri=str(folder)), ("discriminator",), "").weights.state
    assert whole.keys() == found.keys()
    assert all(torch.equal(whole[name], found[name]) for name in whole)
