"""Examples as token ids, against Transformers' tokenizer and by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from pipelines.errors import DataError
from pipelines.finetuning.batches import BatchOrder, RowCutter
from pipelines.specs.task import (
    ClassificationTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RegressionTask,
    TokenClassificationTask,
    UserTask,
)
from pipelines.tasks.examples import Answer, ChoiceExample, QuestionExample, TaggedExample, TextExample
from pipelines.tasks.features import NO_LABEL, FeatureMaker, Features
from pipelines.tokenizer import bert_tokenizer, save_tokenizer, special_ids

WORDS = ["red", "green", "blue", "river", "mountain", "bridge", "tower", "oslo", "bergen", "capital", "of", "norway"]
PIECES = ["##s", "##ing", "##er", "un", "##break", "##able", ".", ",", "?", "a", "b", "c", "##a", "##b", "##c"]
DATA = {"train": "x.jsonl"}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *PIECES]
    return bert_tokenizer({token: index for index, token in enumerate(tokens)}, True, None)


def maker(task: UserTask, tokenizer: Tokenizer, labels: tuple[str, ...] = (), length: int = 16) -> FeatureMaker:
    return FeatureMaker(task, tokenizer, special_ids(tokenizer), labels, length)


def row(features: Features, index: int) -> list[int]:
    return features.input_ids[features.starts[index] : features.starts[index + 1]].tolist()


@pytest.mark.parametrize("length", [8, 9, 16, 40])
def test_pairs_are_cut_as_transformers_cuts_them(tokenizer: Tokenizer, tmp_path: Path, length: int) -> None:
    """Token by token off the longer text, for forty pairs of any lengths: ids and token types."""
    save_tokenizer(tokenizer, str(tmp_path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rng = random.Random(length)
    texts = [" ".join(rng.choices([*WORDS, "towers", "unbreakable", "."], k=rng.randint(1, 20))) for _ in range(80)]
    examples = [TextExample(str(index), texts[2 * index], texts[2 * index + 1], "x") for index in range(40)]
    task = ClassificationTask.model_validate({"data": DATA, "text_pair": "other"})
    features = maker(task, tokenizer, ("x", "y"), length).make(examples)
    expected = theirs(
        [one.text for one in examples], [one.text_pair for one in examples], truncation=True, max_length=length
    )
    assert [row(features, index) for index in range(40)] == expected["input_ids"]
    assert features.num_first.tolist() == [types.count(0) for types in expected["token_type_ids"]]


def test_pairs_are_learned_both_ways_round_and_scored_one_way(tokenizer: Tokenizer) -> None:
    task = RegressionTask.model_validate({"data": DATA, "text_pair": "p", "swap_pairs": True, "label_range": [0, 5]})
    example = TextExample("1", "red", "green blue", 2.0)
    learned = maker(task, tokenizer).make([example], is_for_training=True)
    red, green, blue = (tokenizer.token_to_id(word) for word in ("red", "green", "blue"))
    assert [row(learned, 0), row(learned, 1)] == [[2, red, 3, green, blue, 3], [2, green, blue, 3, red, 3]]
    assert learned.labels.tolist() == pytest.approx([0.4, 0.4])
    assert maker(task, tokenizer).make([example]).num_rows == 1


def test_the_first_piece_of_a_word_carries_its_label(tokenizer: Tokenizer) -> None:
    task = TokenClassificationTask.model_validate({"data": DATA})
    example = TaggedExample("1", ("unbreakable", "towers", "."), ("A", "N", "P"))
    features = maker(task, tokenizer, ("A", "N", "P")).make([example])
    assert [tokenizer.id_to_token(token) for token in row(features, 0)] == (
        ["[CLS]", "un", "##break", "##able", "tower", "##s", ".", "[SEP]"]
    )
    no = NO_LABEL
    assert features.labels.tolist() == [no, 0, no, no, 1, no, 2, no]
    assert features.first_words is not None
    assert features.first_words.tolist() == [-1, 0, -1, -1, 1, -1, 2, -1]


def questions(
    tokenizer: Tokenizer, example: QuestionExample, *, is_for_training: bool = True, **fields: Any
) -> Features:
    task = QuestionAnsweringTask.model_validate({"data": DATA, "max_query_tokens": 3, "document_stride": 3, **fields})
    return maker(task, tokenizer, length=12).make([example], is_for_training=is_for_training)


CONTEXT = "red green blue river mountain bridge tower oslo bergen capital"


def test_a_long_context_is_read_in_windows_that_overlap(tokenizer: Tokenizer) -> None:
    """Six tokens of context fit beside three of a question; each window begins three later than the one before."""
    example = QuestionExample("1", "of norway a b c", CONTEXT, (Answer("oslo", CONTEXT.index("oslo")),))
    features = questions(tokenizer, example, is_for_training=False)
    words = [[tokenizer.id_to_token(token) for token in row(features, index)] for index in range(features.num_rows)]
    assert words[0] == ["[CLS]", "of", "norway", "a", "[SEP]", *CONTEXT.split()[:6], "[SEP]"]
    assert [one[5:-1] for one in words[1:]] == [CONTEXT.split()[3:9], CONTEXT.split()[6:10]]
    assert features.labels.tolist() == [[0, 0], [9, 9], [6, 6]]
    assert features.offsets is not None
    start, end = features.offsets[features.starts[1] + 9]
    assert CONTEXT[start:end] == "oslo"


def test_windows_without_the_answer_are_learned_from_only_where_some_questions_have_none(tokenizer: Tokenizer) -> None:
    answered = QuestionExample("1", "of norway a", CONTEXT, (Answer("oslo", CONTEXT.index("oslo")),))
    assert questions(tokenizer, answered, is_for_training=False).num_rows == 3
    assert questions(tokenizer, answered).num_rows == 2
    task = QuestionAnsweringTask.model_validate({"data": DATA, "max_query_tokens": 3, "document_stride": 3})
    unanswered = QuestionExample("2", "of", "red", ())
    both = maker(task, tokenizer, length=12).make([answered, unanswered], is_for_training=True)
    assert both.num_rows == 4
    assert both.labels[-1].tolist() == [0, 0]


def test_an_answer_that_a_window_cuts_is_none_of_it(tokenizer: Tokenizer) -> None:
    text = "bridge tower"
    example = QuestionExample("1", "of norway a", CONTEXT, (Answer(text, CONTEXT.index(text)),))
    features = questions(tokenizer, example, is_for_training=False)
    assert features.labels.tolist() == [[0, 0], [7, 8], [0, 0]]


def test_a_question_must_leave_room_for_a_text(tokenizer: Tokenizer) -> None:
    task = QuestionAnsweringTask.model_validate({"data": DATA, "max_query_tokens": 64})
    example = QuestionExample("1", " ".join(["red"] * 20), CONTEXT, ())
    with pytest.raises(DataError, match="got 12 and 64"):
        maker(task, tokenizer, length=12).make([example])


def test_each_choice_is_a_row(tokenizer: Tokenizer) -> None:
    task = MultipleChoiceTask.model_validate({"data": DATA})
    examples = [ChoiceExample("1", "red", ("green", "blue"), 1), ChoiceExample("2", "river", ("oslo", "of"), 0)]
    features = maker(task, tokenizer).make(examples)
    cut = RowCutter(features, 2, 0, torch.device("cpu")).cut(np.array([1, 0]))
    assert cut.labels.tolist() == [0, 1]
    assert cut.tokens.input_ids[0].tolist() == row(features, 2)
    with pytest.raises(DataError, match="one number of choices, got 2, 3"):
        maker(task, tokenizer).make([*examples, ChoiceExample("3", "red", ("a", "b", "c"), 0)])


def test_features_are_read_as_they_were_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    example = QuestionExample("1", "of", CONTEXT, ())
    features = questions(tokenizer, example)
    features.write(str(tmp_path / "a.npz"))
    again = Features.read(str(tmp_path / "a.npz"))
    assert again.first_words is None
    assert again.offsets is not None
    assert features.offsets is not None
    assert np.array_equal(again.offsets, features.offsets)
    assert np.array_equal(again.input_ids, features.input_ids)


def test_batches_are_padded_to_their_longest_row(tokenizer: Tokenizer) -> None:
    task = ClassificationTask.model_validate({"data": DATA, "text_pair": "p"})
    examples = [TextExample("1", "red", "green", "x"), TextExample("2", "red green blue", "oslo", "y")]
    cutter = RowCutter(maker(task, tokenizer, ("x", "y")).make(examples), 1, 0, torch.device("cpu"))
    batch = cutter.cut(np.array([1, 0]))
    assert batch.tokens.attention_mask.tolist() == [[True] * 7, [True] * 5 + [False] * 2]
    assert batch.tokens.input_ids[1, 5:].tolist() == [0, 0]
    assert batch.tokens.token_type_ids is not None
    assert batch.tokens.token_type_ids.tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0]]
    assert batch.labels.tolist() == [1, 0]
    assert not batch.tokens.is_packed
    assert cutter.cut(np.array([0])).tokens.is_packed


def test_each_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 1000)
    order = BatchOrder(lengths, 32, seed=7)
    epochs = [np.concatenate([order.at(32 * epoch + step) for step in range(32)]) for epoch in range(2)]
    assert all(sorted(epoch.tolist()) == list(range(1000)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()
    assert BatchOrder(lengths, 32, seed=7).at(40).tolist() == order.at(40).tolist()
    assert BatchOrder(lengths, 32, seed=8).at(40).tolist() != order.at(40).tolist()


def test_rows_of_a_batch_are_of_like_length() -> None:
    """Padding to the longest of a batch costs a few percent, where batches in random order are half padding."""
    lengths = np.random.default_rng(0).integers(3, 60, 4096)
    order = BatchOrder(lengths, 32, seed=7)
    batches = [order.at(step) for step in range(128)]
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded / lengths.sum() < 1.05
    # And their order is no order of length.
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3
