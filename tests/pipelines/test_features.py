"""Examples as token ids, against Transformers' tokenizer and by hand."""

from __future__ import annotations

import itertools
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
from pipelines.tasks.examples import Answer, ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from pipelines.tasks.feature_maker import FeatureMaker
from pipelines.tasks.features import NO_LABEL, Features
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


def test_windows_overlap_where_nothing_is_said(tokenizer: Tokenizer) -> None:
    """Six tokens fit, so each window begins three later: an answer across the border of the first is in the second."""
    answer = "bridge tower"
    example = QuestionExample("1", "of norway a", CONTEXT, (Answer(answer, CONTEXT.index(answer)),))
    features = questions(tokenizer, example, document_stride=None)
    assert features.num_rows == 1
    assert row(features, 0)[5:-1] == [tokenizer.token_to_id(word) for word in CONTEXT.split()[3:9]]
    assert features.labels.tolist() == [[7, 8]]


@pytest.mark.parametrize(("given", "room", "stride"), [(None, 445, 128), (None, 61, 30), (None, 1, 1), (128, 61, 61)])
def test_windows_begin_a_stride_after_one_another(given: int | None, room: int, stride: int) -> None:
    task = QuestionAnsweringTask.model_validate({"data": DATA, "document_stride": given})
    assert task.stride(room) == stride


def test_answers_that_fit_into_no_window_are_no_training_rows(tokenizer: Tokenizer) -> None:
    fits = QuestionExample("1", "of norway a", CONTEXT, (Answer("oslo", CONTEXT.index("oslo")),))
    too_long = QuestionExample("2", "of norway a", CONTEXT, (Answer(CONTEXT, 0),))
    task = QuestionAnsweringTask.model_validate({"data": DATA, "max_query_tokens": 3})
    made = maker(task, tokenizer, length=12).make([too_long, fits], is_for_training=True)
    assert (made.num_examples, set(made.examples.tolist())) == (1, {1})
    with pytest.raises(DataError, match=r"max_sequence_length must leave windows .* got 12, with which none of 1"):
        maker(task, tokenizer, length=12).make([too_long], is_for_training=True)


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


@pytest.mark.parametrize(
    ("task", "long", "short"),
    [
        (ClassificationTask, TextExample("1", "red " * 7, None, "x"), TextExample("2", "red " * 6, None, "x")),
        (TokenClassificationTask, TaggedExample("1", ("towers",) * 4), TaggedExample("2", ("towers",) * 3)),
        (
            QuestionAnsweringTask,
            QuestionExample("1", "red green blue", CONTEXT),
            QuestionExample("2", "red green", CONTEXT),
        ),
        (MultipleChoiceTask, ChoiceExample("1", "red", ("a", "b " * 5)), ChoiceExample("2", "red", ("a", "b " * 4))),
    ],
)
def test_what_is_cut_is_counted(tokenizer: Tokenizer, task: type[Any], long: Example, short: Example) -> None:
    """Rows of eight tokens; contexts are read in windows, and of questions two tokens."""
    fields = {"max_query_tokens": 2} if task is QuestionAnsweringTask else {}
    features = maker(task.model_validate({"data": DATA, **fields}), tokenizer, ("x", "y"), 8).make([long, short])
    assert features.num_cut == 1
    assert set(features.examples[features.is_cut].tolist()) == {0}


def test_pairs_that_are_cut_are_counted(tokenizer: Tokenizer) -> None:
    task = ClassificationTask.model_validate({"data": DATA, "text_pair": "p"})
    examples = [TextExample(str(count), "red " * count, "red " * 3, "x") for count in (2, 3, 9)]
    assert maker(task, tokenizer, ("x", "y"), 8).make(examples).is_cut.tolist() == [False, True, True]


class WatchedTokenizer:
    """Hands on what it is asked, and remembers how much that was at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.batches: list[int] = []

    def encode_batch(self, texts: list[Any], **fields: Any) -> list[Any]:
        self.batches.append(sum(len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts))
        return self._tokenizer.encode_batch(texts, **fields)


@pytest.mark.parametrize("kind", [ClassificationTask, TokenClassificationTask])
def test_texts_are_tokenised_a_bounded_number_of_characters_at_a_time(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    """However long they are: one that is longer by itself goes in pieces, and rows are the same."""
    lengths = [10, 30, 90, 5, 200, 1, 99]
    examples: list[Example] = [
        TextExample(str(index), "a b " * (count // 4 + 1), None, "x")
        if kind is ClassificationTask
        else TaggedExample(str(index), ("b",) * count)
        for index, count in enumerate(lengths)
    ]
    task = kind.model_validate({"data": DATA})
    whole = maker(task, tokenizer, ("x", "y")).make(examples)
    monkeypatch.setattr("pipelines.tasks.encodings.CHUNK_CHARACTERS", 101)
    watched = WatchedTokenizer(tokenizer)
    made = FeatureMaker(task, watched, special_ids(tokenizer), ("x", "y"), 16).make(examples)
    assert max(watched.batches) <= 101
    assert len(watched.batches) < len(lengths)
    assert all(np.array_equal(getattr(made, name), getattr(whole, name)) for name in ("input_ids", "labels", "is_cut"))


def long_text(seed: int, blanks: str) -> str:
    """Some thousand characters, in which blanks may come in runs."""
    rng = random.Random(seed)
    words = rng.choices([*WORDS, "towers", "unbreakable", ".", "aaab" * 3], k=600)
    return "".join(word + rng.choice(blanks) * rng.choice([1, 1, 1, 9]) for word in words)


@pytest.mark.parametrize("blanks", [" ", "\n", " \t\n"])
def test_a_long_context_is_tokenised_in_pieces_to_the_same_tokens(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, blanks: str
) -> None:
    """And where each token stands, in the whole text."""
    text = long_text(7, blanks)
    start = text.index("oslo", 3000)
    examples = [QuestionExample("1", "of", text, (Answer("oslo", start),)), QuestionExample("2", "of", CONTEXT, ())]
    task = QuestionAnsweringTask.model_validate({"data": DATA, "document_stride": 5})
    whole = maker(task, tokenizer).make(examples)
    monkeypatch.setattr("pipelines.tasks.encodings.CHUNK_CHARACTERS", 101)
    watched = WatchedTokenizer(tokenizer)
    made = FeatureMaker(task, watched, special_ids(tokenizer), (), 16).make(examples)
    assert max(watched.batches) <= 101
    assert np.array_equal(made.input_ids, whole.input_ids)
    assert np.array_equal(made.labels, whole.labels)
    assert made.offsets is not None
    assert whole.offsets is not None
    assert np.array_equal(made.offsets, whole.offsets)


def test_of_a_long_text_no_more_is_tokenised_than_a_row_takes(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a pair with it is cut as ever, and counted as such."""
    task = ClassificationTask.model_validate({"data": DATA, "text_pair": "p"})
    examples = [TextExample("1", long_text(1, " "), "red green blue", "x"), TextExample("2", "of", "red", "x")]
    whole = maker(task, tokenizer, ("x", "y")).make(examples)
    monkeypatch.setattr("pipelines.tasks.encodings.CHUNK_CHARACTERS", 101)
    watched = WatchedTokenizer(tokenizer)
    made = FeatureMaker(task, watched, special_ids(tokenizer), ("x", "y"), 16).make(examples)
    assert sum(watched.batches) < 400
    assert np.array_equal(made.input_ids, whole.input_ids)
    assert made.is_cut.tolist() == [True, False]


def test_a_text_without_blanks_is_cut_anywhere(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chinese has none, and each of its characters is a token; of a word that is as long two are made."""
    task = QuestionAnsweringTask.model_validate({"data": DATA})
    example = QuestionExample("1", "of", "漢" * 250, ())
    whole = maker(task, tokenizer).make([example])
    monkeypatch.setattr("pipelines.tasks.encodings.CHUNK_CHARACTERS", 100)
    made = maker(task, tokenizer).make([example])
    assert np.array_equal(made.input_ids, whole.input_ids)
    assert made.offsets is not None
    assert made.offsets.max() == 250


def test_words_keep_their_numbers_in_pieces(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One word is longer than a piece, some have several tokens, and one has none."""
    words = ("a" * 99, "\u200b", *["towers", "x" * 300, "."] * 20)
    task = TokenClassificationTask.model_validate({"data": DATA})
    example = TaggedExample("1", words, tuple("xy"[index % 2] for index in range(len(words))))
    whole = maker(task, tokenizer, ("x", "y"), length=150).make([example])
    monkeypatch.setattr("pipelines.tasks.encodings.CHUNK_CHARACTERS", 150)
    watched = WatchedTokenizer(tokenizer)
    made = FeatureMaker(task, watched, special_ids(tokenizer), ("x", "y"), 150).make([example])
    assert max(watched.batches) <= 150
    assert np.array_equal(made.input_ids, whole.input_ids)
    assert np.array_equal(made.labels, whole.labels)
    assert made.first_words is not None
    assert whole.first_words is not None
    assert np.array_equal(made.first_words, whole.first_words)
    assert made.is_cut.tolist() == whole.is_cut.tolist() == [True]


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
    assert cutter.cut(np.array([1])).tokens.is_packed


def test_batches_have_few_lengths(tokenizer: Tokenizer) -> None:
    """Multiples of eight, and that of the longest row of all."""
    task = ClassificationTask.model_validate({"data": DATA})
    examples = [TextExample(str(count), "red " * count, None, "x") for count in range(1, 13)]
    cutter = RowCutter(maker(task, tokenizer, ("x",)).make(examples), 1, 0, torch.device("cpu"))
    batches = [cutter.cut(np.array([index])).tokens for index in range(len(examples))]
    assert [batch.input_ids.shape[1] for batch in batches] == [8] * 6 + [14] * 6
    assert [int(batch.attention_mask.sum()) for batch in batches] == list(range(3, 15))


def test_each_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 1000)
    order = BatchOrder(lengths, 32, seed=7)
    epochs = [np.concatenate([order.at(32 * epoch + step) for step in range(32)]) for epoch in range(2)]
    assert all(sorted(epoch.tolist()) == list(range(1000)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()
    assert BatchOrder(lengths, 32, seed=7).at(40).tolist() == order.at(40).tolist()
    assert BatchOrder(lengths, 32, seed=8).at(40).tolist() != order.at(40).tolist()


def test_an_order_of_nothing_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="there must be an example to learn from"):
        BatchOrder(np.zeros(0, np.int64), 32, seed=7)


def epochs_of(num_examples: int, num_epochs: int) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Lengths as texts have them, and the batches of each epoch."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(3.2, 0.6, num_examples)), 4, 128).astype(np.int64)
    order = BatchOrder(lengths, 32, seed=7)
    steps = order.steps_per_epoch
    return lengths, [[order.at(epoch * steps + step) for step in range(steps)] for epoch in range(num_epochs)]


@pytest.mark.parametrize("num_examples", [200, 635, 2490])
def test_examples_of_a_small_set_are_seldom_together_again(num_examples: int) -> None:
    """Sorted as a whole a small set would give the same batches in each epoch, but for ties."""
    _, epochs = epochs_of(num_examples, 4)
    places = np.zeros((4, num_examples), np.int64)
    for epoch, batches in enumerate(epochs):
        for place, batch in enumerate(batches):
            places[epoch, batch] = place
    together = [place[:, None] == place for place in places]
    again = [(one & two).sum() - num_examples for one, two in itertools.pairwise(together)]
    assert sum(again) / sum(one.sum() - num_examples for one in together[:-1]) < 0.2


def test_the_short_batch_is_any() -> None:
    """And not that of the longest texts, which would then count for more each time."""
    lengths, epochs = epochs_of(200, 40)
    short = [lengths[batch].mean() for batches in epochs for batch in batches if len(batch) == 8]
    assert len(short) == 40
    assert abs(np.mean(short) / lengths.mean() - 1) < 0.2


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
