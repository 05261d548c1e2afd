"""WordPiece: the same vocabulary every time, the same ids as Transformers, five special tokens always."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from pipelines.errors import CorpusError, StorageError
from pipelines.specs.corpus import PretrainedTokenizerSpec, WordPieceSpec
from pipelines.storage.artifacts import SpecialTokenIds
from pipelines.tokenizer import (
    SPECIAL_TOKENS,
    bert_tokenizer,
    is_continuation,
    load_tokenizer,
    read_pretrained,
    save_tokenizer,
    special_ids,
    train_wordpiece,
    vocab_size,
)

SPEC = WordPieceSpec(vocab_size=2000, limit_alphabet=60)


@pytest.fixture(scope="module")
def trained(documents: list[str]) -> Tokenizer:
    return train_wordpiece(lambda: documents, SPEC)


TRAIN_AGAIN = """
import sys
from pydoc_data.topics import topics
from pipelines.specs.corpus import WordPieceSpec
from pipelines.tokenizer import save_tokenizer, train_wordpiece
texts = [f"{name}\\n\\n{text}" for name, text in sorted(topics.items())]
save_tokenizer(train_wordpiece(lambda: texts, WordPieceSpec(vocab_size=2000, limit_alphabet=60)), sys.argv[1])
"""


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_training_again_gives_the_same_file(trained: Tokenizer, tmp_path: Path, threads: str) -> None:
    """In a new process, with another hash seed and another number of threads."""
    environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
    subprocess.run([sys.executable, "-c", TRAIN_AGAIN, str(tmp_path / "again")], check=True, env=environment)
    save_tokenizer(trained, str(tmp_path / "first"))
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


def test_special_tokens_come_first(trained: Tokenizer) -> None:
    assert special_ids(trained) == SpecialTokenIds(0, 1, 2, 3, 4)
    assert [trained.id_to_token(i) for i in range(5)] == list(SPECIAL_TOKENS)


def test_the_vocabulary_has_the_size_asked_for(trained: Tokenizer) -> None:
    assert vocab_size(trained) == trained.get_vocab_size() == 2000


def test_the_vocabulary_learns_words_and_wastes_nothing(trained: Tokenizer) -> None:
    assert trained.encode("the statement", add_special_tokens=False).tokens == ["the", "statement"]
    assert "##," not in trained.get_vocab()


def test_a_small_text_gives_fewer_entries() -> None:
    tokenizer = train_wordpiece(lambda: ["one two three one two"], WordPieceSpec(vocab_size=500, limit_alphabet=100))
    assert 5 < vocab_size(tokenizer) < 100


def test_a_large_alphabet_stays_within_the_size() -> None:
    texts = ["".join(map(chr, range(0x0400, 0x0480))) * 3, "".join(map(chr, range(0x4E00, 0x4F00)))]
    tokenizer = train_wordpiece(lambda: texts, WordPieceSpec(vocab_size=128, limit_alphabet=100))
    assert vocab_size(tokenizer) <= 128


def test_rare_characters_become_unknown(documents: list[str]) -> None:
    spec = WordPieceSpec(vocab_size=500, limit_alphabet=40)
    tokenizer = train_wordpiece(lambda: [*documents, "ж"], spec)
    assert tokenizer.encode("ж", add_special_tokens=False).tokens == ["[UNK]"]


def test_no_text_is_told() -> None:
    with pytest.raises(CorpusError, match="no text"):
        train_wordpiece(lambda: ["  \n"], SPEC)


def test_pairs_are_framed_as_bert_does(trained: Tokenizer) -> None:
    encoding = trained.encode("if", "else")
    assert encoding.tokens == ["[CLS]", "if", "[SEP]", "else", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 1, 1]
    assert trained.decode(trained.encode("a statement").ids) == "a statement"


def lines_of(documents: list[str]) -> list[str]:
    lines = [line for text in documents for line in text.splitlines() if line.strip()][:980]
    odd = ["Ünïcödé ÀÉ ß", "中文字符 and 日本語", "a\tb\u00a0c", "e\u0301", "[MASK] is [SEP]", "ZWJ \u200d", "x" * 200]
    return [*lines, *odd, *(chr(code) * 3 for code in range(0x2010, 0x201E))]


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (False, None), (True, False), (False, True)])
def test_against_transformers(
    documents: list[str], tmp_path: Path, lowercase: bool, strip_accents: bool | None
) -> None:
    transformers = pytest.importorskip("transformers")
    spec = WordPieceSpec(vocab_size=1000, limit_alphabet=100, lowercase=lowercase, strip_accents=strip_accents)
    save_tokenizer(train_wordpiece(lambda: documents, spec), str(tmp_path))
    ours, theirs = load_tokenizer(str(tmp_path)), transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    lines = lines_of(documents)
    assert len(lines) >= 1000
    assert [ours.encode(line).ids for line in lines] == theirs(lines)["input_ids"]
    assert theirs.mask_token_id == 4
    assert theirs.vocab_size == vocab_size(ours)


def test_a_bare_vocabulary_is_read(trained: Tokenizer, documents: list[str], tmp_path: Path) -> None:
    save_tokenizer(trained, str(tmp_path))
    for uri in (tmp_path / "vocab.txt", tmp_path / "tokenizer.json", tmp_path):
        read = read_pretrained(PretrainedTokenizerSpec(uri=str(uri)))
        assert [e.ids for e in read.encode_batch(documents[:5])] == [e.ids for e in trained.encode_batch(documents[:5])]


@pytest.mark.parametrize(
    ("config", "rules", "tokens"),
    [
        ({"do_lower_case": False}, {}, ["Anna", "é"]),
        ({"do_lower_case": True, "strip_accents": False}, {}, ["anna", "é"]),
        ({"do_lower_case": False}, {"lowercase": True}, ["anna", "[UNK]"]),
        ({"do_lower_case": True}, {"lowercase": False}, ["Anna", "é"]),
        (None, {}, ["anna", "[UNK]"]),
    ],
)
def test_a_bare_vocabulary_has_the_rules_beside_it_unless_the_spec_has_others(
    tmp_path: Path, config: dict[str, bool] | None, rules: dict[str, bool], tokens: list[str]
) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in (*SPECIAL_TOKENS, "Anna", "anna", "é")))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for uri in (tmp_path, tmp_path / "vocab.txt"):
        read = read_pretrained(PretrainedTokenizerSpec(uri=str(uri), **rules))
        assert read.encode("Anna é", add_special_tokens=False).tokens == tokens


def test_truncation_and_padding_are_taken_off(trained: Tokenizer, tmp_path: Path) -> None:
    cut = Tokenizer.from_str(trained.to_str())
    cut.enable_truncation(4)
    cut.enable_padding(length=4)
    cut.save(str(tmp_path / "tokenizer.json"))
    read = read_pretrained(PretrainedTokenizerSpec(uri=str(tmp_path / "tokenizer.json")))
    assert len(read.encode("the statement the statement").ids) == 6
    assert len(read.encode("the").ids) == 3


def test_a_tokenizer_of_another_kind_keeps_its_rules(tmp_path: Path) -> None:
    vocabulary = {token: i for i, token in enumerate((*SPECIAL_TOKENS, "a", "b"))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    save_tokenizer(read_pretrained(PretrainedTokenizerSpec(uri=str(tmp_path))), str(tmp_path / "out"))
    assert load_tokenizer(str(tmp_path / "out")).encode("b a", add_special_tokens=False).ids == [6, 5]
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["mask_token"] == "[MASK]"


BERTS = bert_tokenizer({word: i for i, word in enumerate((*SPECIAL_TOKENS, "a", "b", "##b", "."))}, True, None)


def berts_but(**parts: Any) -> Tokenizer:
    """BERT's tokenizer with other parts."""
    changed = Tokenizer.from_str(BERTS.to_str())
    for name, part in parts.items():
        setattr(changed, name, part)
    return changed


@pytest.mark.parametrize(
    "tokenizer",
    [
        BERTS,
        berts_but(pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
        berts_but(normalizer=normalizers.BertNormalizer(clean_text=False)),
        berts_but(model=models.WordPiece(BERTS.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=2)),
        berts_but(model=models.BPE(BERTS.get_vocab(), [], unk_token="[UNK]")),
        berts_but(post_processor=processors.BertProcessing(("[SEP]", 0), ("[CLS]", 1))),
        berts_but(pre_tokenizer=pre_tokenizers.WhitespaceSplit(), post_processor=processors.ByteLevel()),
    ],
    ids=["berts", "blanks", "dirty", "short words", "BPE", "other ids", "no ids"],
)
def test_transformers_makes_the_rows_of_any_tokenizer_as_they_are_made_here(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    save_tokenizer(tokenizer, str(tmp_path))
    read = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a.b abb", "a\u200bb B"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cls, sep = special_ids(tokenizer).cls, special_ids(tokenizer).sep
        row = read(text, text)
        assert row["input_ids"] == [cls, *ids, sep, *ids, sep]
        assert row["token_type_ids"] == [0] * (len(ids) + 2) + [1] * (len(ids) + 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n", r"lacks \[MASK\]"),
        ("vocab.txt", "[PAD]\n[PAD]\n", "every entry once"),
        ("tokenizer.json", "{}", "is no tokenizer"),
        ("tokenizer.json", "not json", "is no tokenizer"),
    ],
)
def test_broken_vocabularies_are_told(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=message):
        read_pretrained(PretrainedTokenizerSpec(uri=str(tmp_path)))


def test_an_absent_vocabulary_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"tokenizer\.json or a vocab\.txt"):
        read_pretrained(PretrainedTokenizerSpec(uri=str(tmp_path)))


def test_continuations_are_what_stands_inside_words(trained: Tokenizer):
    flags = is_continuation(trained)
    encoded = trained.encode("unmistakably extraordinary parameterisations, undoubtedly", add_special_tokens=False)
    is_start = [start == 0 or encoded.word_ids[start] != encoded.word_ids[start - 1] for start in range(len(encoded))]
    assert [not flags[token_id] for token_id in encoded.ids] == is_start
    assert not all(is_start)
    assert len(flags) == vocab_size(trained)
    assert not flags[list(special_ids(trained))].any()


def test_a_vocabulary_without_a_prefix_has_no_continuations():
    """In it `##` is a heading of Markdown."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "##": 1, "###": 2}, []))
    assert is_continuation(tokenizer).tolist() == [False, False, False]
