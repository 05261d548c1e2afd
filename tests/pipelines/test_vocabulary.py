"""The vocabulary that a pretraining spec names becomes the corpus's tokenizer, by the rules that count."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pipelines.corpus.vocabulary import digest_inputs, write_tokenizer
from pipelines.specs.corpus import PretrainedTokenizerSpec
from pipelines.specs.resolving import resolve_pretraining
from pipelines.tokenizer import SPECIAL_TOKENS, load_tokenizer


@pytest.fixture
def cased(tmp_path: Path) -> Path:
    """The folder of a cased model, as it was released before there was a `tokenizer.json`."""
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in (*SPECIAL_TOKENS, "Anna", "anna")))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    return tmp_path


def named(uri: Path, **rules: bool) -> PretrainedTokenizerSpec:
    """As a document says it, over a preset."""
    document = {"kind": "pretrain", "preset": "tiny", "tokenizer": {"type": "pretrained", "uri": str(uri), **rules}}
    tokenizer = resolve_pretraining(document).tokenizer
    assert isinstance(tokenizer, PretrainedTokenizerSpec)
    return tokenizer


def written(spec: PretrainedTokenizerSpec, uri: Path) -> Any:
    unused: Any = None  # a vocabulary that exists is not trained
    write_tokenizer(str(uri), spec, unused, unused, unused)
    return load_tokenizer(str(uri))


def test_a_cased_vocabulary_is_not_lowercased_unasked(cased: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = written(named(cased / "vocab.txt"), cased / "out")
    assert tokenizer.encode("Anna anna", add_special_tokens=False).tokens == ["Anna", "anna"]
    assert json.loads((cased / "out/tokenizer_config.json").read_text())["do_lower_case"] is False
    assert not caplog.records


def test_the_rules_that_count_decide_the_digest(cased: Path) -> None:
    """The same tokenizer is made once, whoever says its rules; another rule makes another."""
    unsaid, said, other = (
        digest_inputs(spec, "texts", 0.1)
        for spec in (named(cased), named(cased, lowercase=False), named(cased, lowercase=True))
    )
    assert unsaid == said
    assert unsaid != other
    (cased / "tokenizer_config.json").unlink()
    assert digest_inputs(named(cased), "texts", 0.1) == other  # as before there was anything to be left unsaid


def test_rules_for_a_tokenizer_that_brings_its_own_are_ignored_aloud(
    cased: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(named(cased), cased / "out")
    with caplog.at_level(logging.WARNING):
        tokenizer = written(named(cased / "out", lowercase=True), cased / "again")
    assert tokenizer.encode("Anna", add_special_tokens=False).tokens == ["Anna"]
    assert [record.message for record in caplog.records] == ["tokenizer_rules_ignored"]
    assert digest_inputs(named(cased / "out", lowercase=True), "", 0.1) == digest_inputs(named(cased / "out"), "", 0.1)
