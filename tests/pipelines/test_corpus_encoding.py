"""Fast encoding gives the ids that the tokenizer gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from pipelines.corpus import encoding
from pipelines.corpus.cleaning import clean
from pipelines.corpus.encoding import Encoder, looks_at_single_words
from pipelines.specs.corpus import CleaningSpec, WordPieceSpec
from pipelines.tokenizer import bert_tokenizer, train_wordpiece


@pytest.fixture(scope="session", params=[(True, None), (False, None), (True, False), (False, True)])
def tokenizer(request: pytest.FixtureRequest, documents: list[str]) -> Tokenizer:
    lowercase, strip_accents = request.param
    spec = WordPieceSpec(vocab_size=1000, limit_alphabet=200, lowercase=lowercase, strip_accents=strip_accents)
    return train_wordpiece(lambda: [*documents, "éÉñçüАБВабв 中文 àâ\u0300\u0301 ΣΑΣ σας İ ß"], spec)


def plainly(tokenizer: Tokenizer, text: str) -> list[int]:
    tokenizer.encode_special_tokens = True
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def test_real_text(tokenizer: Tokenizer, documents: list[str]) -> None:
    encoder = Encoder(tokenizer, np.uint16)
    for text, ids in zip(documents, encoder.encode(documents), strict=True):
        assert ids.tolist() == plainly(tokenizer, text)
        assert ids.dtype == np.uint16


words = st.text(
    alphabet=st.one_of(
        st.sampled_from("aÉé<,\u0301\u0338\u0300 \n\t\u3000\u00a0\u2009\u200b\u00ad中.,[]Σσς İß"), st.characters()
    )
)


@given(texts=st.lists(st.one_of(words, st.sampled_from(["[SEP]", "a[MASK]b", "[CLS] x", "", "  "])), max_size=6))
def test_any_text(texts: list[str], tokenizer: Tokenizer) -> None:
    cleaned = [clean(text.encode(errors="replace").decode(), CleaningSpec()) for text in texts]
    encoder = Encoder(tokenizer, np.uint32)
    assert [ids.tolist() for ids in encoder.encode(cleaned)] == [plainly(tokenizer, text) for text in cleaned]


def test_forgetting_changes_nothing(
    tokenizer: Tokenizer, documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_KNOWN_WORDS", 100)
    monkeypatch.setattr(encoding, "_LONGEST_KEPT_WORD", 5)
    encoder = Encoder(tokenizer, np.uint16)
    assert [ids.tolist() for ids in encoder.encode(documents[:10])] == [plainly(tokenizer, t) for t in documents[:10]]


def test_other_tokenizers_see_the_text_itself() -> None:
    """One that joins words across spaces must not be given words."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a b": 5, "a": 6, "b": 7}
    whole = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    assert not looks_at_single_words(whole)
    assert [ids.tolist() for ids in Encoder(whole, np.uint16).encode(["a b", "a", ""])] == [[5], [6], []]
    bert = bert_tokenizer(vocabulary, lowercase=True, strip_accents=None)
    assert looks_at_single_words(bert)
    bert.add_tokens([AddedToken("a b")])
    assert not looks_at_single_words(bert)
    bert.pre_tokenizer = pre_tokenizers.Metaspace()
    assert not looks_at_single_words(bert)
