"""Words as files for tagging have them."""

from __future__ import annotations

import re

import pytest

from pipelines.predicting.words import words_of
from pipelines.tokenizer import SPECIAL_TOKENS, bert_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *"-.()'"]
TOKENIZER = bert_tokenizer({token: index for index, token in enumerate(VOCABULARY)}, True, None)


def words(text: str) -> list[str]:
    offsets = TOKENIZER.encode(text, add_special_tokens=False).offsets
    found = words_of(text, offsets)
    assert all(offsets[word.first][0] == word.start and offsets[word.last][1] == word.end for word in found)
    return [text[word.start : word.end] for word in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna sees the sea.", ["Anna", "sees", "the", "sea", "."]),
        ("a well-known man", ["a", "well-known", "man"]),
        ("the U.S. Army", ["the", "U.S", ".", "Army"]),
        ("(see “3.5”)?!", ["(", "see", "“", "3.5", "”", ")", "?", "!"]),
        ("don't pay $5", ["don't", "pay", "$", "5"]),
        ("a - b ...", ["a", "-", "b", ".", ".", "."]),
        ("in\u00a0oslo\n\tnow", ["in", "oslo", "now"]),
        ("in 北京, yes", ["in", "北", "京", ",", "yes"]),
        ("\u200b \u0001", []),
        ("café [MASK] x", ["café", "[MASK]", "x"]),
    ],
)
def test_words_are_parted_by_blanks_and_punctuation_at_their_ends(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_tokens_of_a_byte_level_vocabulary_make_the_same_words() -> None:
    """They begin with the blank before them, and an emoji is several of them."""
    text = "the sea 🌊 , now"
    offsets = [(0, 3), (3, 7), (7, 9), (8, 9), (8, 9), (9, 11), (11, 12), (12, 15)]
    assert [text[word.start : word.end] for word in words_of(text, offsets)] == re.findall(r"\S+", text)
    assert [(word.first, word.last) for word in words_of(text, offsets)] == [(0, 0), (1, 1), (2, 4), (5, 5), (7, 7)]
