"""Predictions of every head, against a forward pass of Transformers itself, and what is refused."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from prediction_models import ARCHITECTURES, MAX_LENGTH, TOKENS, forward, model_folder

from pipelines.predict import main
from pipelines.predicting.errors import PredictError
from pipelines.predicting.local import outcome_of, predict_with_folder
from pipelines.predicting.model import load_model
from pipelines.predicting.rows import num_tokens, pieces_of, question_rows, text_rows
from pipelines.specs.prediction import PredictAnswer, PredictInput, Prediction

TEXT = "Anna unseens the sea ."
LONG = "the sea sees bert . " * 10


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    made = {architecture: model_folder(root / architecture, architecture) for architecture in ARCHITECTURES}
    one_output = {"id2label": {0: "score"}, "problem_type": "regression"}
    return made | {"regression": model_folder(root / "regression", "ElectraForSequenceClassification", **one_output)}


def ask(folder: Path, **fields: Any) -> Prediction:
    answer = predict_with_folder(folder, [PredictInput(**fields)])
    assert (answer.name, answer.version) == (str(folder), None)
    assert PredictAnswer.model_validate_json(answer.model_dump_json()) == answer
    return answer.predictions[0]


def refused(folder: Path, **fields: Any) -> PredictError:
    with pytest.raises(PredictError) as caught:
        ask(folder, **fields)
    return caught.value


def test_a_discriminator_says_of_each_token_how_likely_it_was_replaced(folders: dict[str, Path]) -> None:
    folder = folders["ElectraForPreTraining"]
    told = ask(folder, text=TEXT)
    assert [token.token for token in told.tokens] == ["anna", "un", "##seen", "##s", "the", "sea", "."]
    assert [TEXT[token.start : token.end] for token in told.tokens] == ["Anna", "un", "seen", "s", "the", "sea", "."]
    expected = forward(folder, TEXT).logits[0, 1:-1].sigmoid().tolist()
    assert [token.replaced_probability for token in told.tokens] == pytest.approx(expected, abs=1e-5)


def test_a_generator_fills_each_mask(folders: dict[str, Path]) -> None:
    folder = folders["ElectraForMaskedLM"]
    text = "the [MASK] sees [MASK] ."
    told = ask(folder, text=text)
    assert [text[mask.start : mask.end] for mask in told.masks] == ["[MASK]", "[MASK]"]
    for mask, place in zip(told.masks, (2, 4), strict=True):
        best = forward(folder, text).logits[0, place].softmax(0).topk(5)
        assert [one.token for one in mask.candidates] == [TOKENS[index] for index in best.indices]
        assert [one.probability for one in mask.candidates] == pytest.approx(best.values.tolist(), abs=1e-5)


@pytest.mark.parametrize("pair", [(), ("who sees bert ?",)], ids=["text", "pair"])
def test_a_classifier_gives_each_label_a_probability(folders: dict[str, Path], pair: tuple[str, ...]) -> None:
    folder = folders["ElectraForSequenceClassification"]
    told = ask(folder, text=TEXT, text_pair=pair[0] if pair else None)
    expected = forward(folder, TEXT, *pair).logits[0].softmax(0)
    assert list(told.probabilities) == ["neutral", "good", "bad"]
    assert list(told.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert told.label == ["neutral", "good", "bad"][int(expected.argmax())]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_special_tokens_that_a_text_speaks_of_are_text(folders: dict[str, Path], architecture: str) -> None:
    """As in training; a mask is one where masks are filled alone."""
    model = load_model(folders[architecture])
    is_filling = architecture == "ElectraForMaskedLM"
    tokens = ["[MASK]"] if is_filling else ["[UNK]"] * 3  # "[", "mask" and "]"
    assert pieces_of(model, "the [MASK] sea").tokens == ["the", *tokens, "sea"]
    assert num_tokens(model, "the [MASK] sea") == 2 + len(tokens)
    assert (model.special.mask in text_rows(model, "the [MASK] sea").input_ids) == is_filling


def test_one_output_is_a_number(folders: dict[str, Path]) -> None:
    expected = forward(folders["regression"], TEXT).logits.item()
    assert ask(folders["regression"], text=TEXT).value == pytest.approx(expected, abs=1e-5)


def test_a_words_first_token_gives_its_label(folders: dict[str, Path]) -> None:
    folder = folders["ElectraForTokenClassification"]
    told = ask(folder, text="Anna unseens the sea.")
    assert [word.word for word in told.words] == ["Anna", "unseens", "the", "sea", "."]
    expected = forward(folder, "Anna unseens the sea.").logits[0].softmax(1)[[1, 2, 5, 6, 7]].max(1)
    assert [word.label for word in told.words] == [["O", "NAME", "PLACE"][index] for index in expected.indices]
    assert [word.probability for word in told.words] == pytest.approx(expected.values.tolist(), abs=1e-5)


def test_a_word_is_what_stands_between_blanks_without_the_punctuation_around_it(folders: dict[str, Path]) -> None:
    """Of "un-seen" the tokens behind the first were never trained to have a label."""
    folder = folders["ElectraForTokenClassification"]
    text = "(the un-seen sea)."
    told = ask(folder, text=text)
    assert [word.word for word in told.words] == ["(", "the", "un-seen", "sea", ")", "."]
    assert [text[word.start : word.end] for word in told.words] == [word.word for word in told.words]
    # [CLS] ( the un - seen sea ) . [SEP], in which "-" and "seen" decide nothing.
    expected = forward(folder, text).logits[0].softmax(1)[[1, 2, 3, 6, 7, 8]].max(1)
    assert [word.probability for word in told.words] == pytest.approx(expected.values.tolist(), abs=1e-5)


def test_a_word_of_which_only_a_part_is_read_has_no_label(folders: dict[str, Path]) -> None:
    folder = folders["ElectraForTokenClassification"]
    text = "the " * (MAX_LENGTH - 3) + "unseen"
    told = ask(folder, text=text)
    assert ([word.word for word in told.words], told.was_cut) == (["the"] * (MAX_LENGTH - 3), True)


def test_one_of_the_choices_is_taken_whatever_their_number(folders: dict[str, Path]) -> None:
    folder = folders["ElectraForMultipleChoice"]
    for choices in (("the sea", "oslo"), ("oslo", "anna lives in oslo .", "bert")):
        told = ask(folder, text=TEXT, choices=choices)
        expected = forward(folder, [TEXT] * len(choices), list(choices), padding=True).logits[0].softmax(0)
        assert told.probabilities == pytest.approx(expected.tolist(), abs=1e-5)
        assert told.choice == int(expected.argmax())


def best_span(folder: Path, question: str, context: str) -> tuple[float, int, int]:
    """Of one window: the highest sum of logits, over every span of at most 30 tokens; its characters."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(question, context, return_offsets_mapping=True)
    output = forward(folder, question, context)
    places = [index for index, sequence in enumerate(tokens.sequence_ids()) if sequence == 1]
    return max(
        (
            float(output.start_logits[0, first] + output.end_logits[0, last]),
            tokens["offset_mapping"][first][0],
            tokens["offset_mapping"][last][1],
        )
        for first in places
        for last in places
        if 0 <= last - first < 30
    )


def test_a_question_is_answered_by_the_best_span(folders: dict[str, Path]) -> None:
    folder = folders["ElectraForQuestionAnswering"]
    context = "anna lives in oslo . bert lives in the sea ."
    told = ask(folder, text="where lives bert ?", text_pair=context)
    assert (told.start, told.end) == best_span(folder, "where lives bert ?", context)[1:]
    assert told.answer == context[told.start : told.end]
    assert 0 < told.probability <= 1
    null = forward(folder, "where lives bert ?", context)
    best = best_span(folder, "where lives bert ?", context)[0]
    assert told.no_answer_is_likelier == (float(null.start_logits[0, 0] + null.end_logits[0, 0]) > best)


def test_a_long_context_is_read_in_windows(folders: dict[str, Path]) -> None:
    """By hand: 3 special tokens and 5 of the question leave 16 of the context, and windows so short overlap by half."""
    folder = folders["ElectraForQuestionAnswering"]
    question = "where lives bert now ?"
    context = (
        "the sea sees oslo . anna sees the unseen . bert sees anna in the sea . who lives in oslo ? bert . the sea ."
    )
    offsets = load_model(folder).tokenizer.encode(context, add_special_tokens=False).offsets
    room = MAX_LENGTH - 3 - 5
    assert len(offsets) > room
    found = []
    for first in range(0, len(offsets) - room // 2, room // 2):
        start, end = offsets[first][0], offsets[min(first + room, len(offsets)) - 1][1]
        score, *place = best_span(folder, question, context[start:end])
        found.append((score, start + place[0], start + place[1]))
    told = ask(folder, text=question, text_pair=context)
    assert (told.start, told.end) == max(found)[1:]
    assert not told.was_cut


def test_windows_begin_in_the_middle_of_the_one_before(tmp_path: Path) -> None:
    """Not 128 tokens on, as in training: of 512 that would have most of a long context read four times."""
    folder = model_folder(tmp_path, "ElectraForQuestionAnswering", max_position_embeddings=512)
    features = question_rows(load_model(folder), "where lives bert ?", "sea " * 2000)
    room = 512 - 3 - 4
    assert [features.starts[row + 1] - features.starts[row] for row in range(3)] == [512] * 3
    assert features.num_rows == 1 + -(-(2000 - room) // (room // 2))


def test_what_is_too_long_is_cut_and_said_to_be(folders: dict[str, Path]) -> None:
    cut = {
        architecture: ask(folders[architecture], **fields).was_cut
        for architecture, fields in (
            ("ElectraForPreTraining", {"text": LONG}),
            ("ElectraForMaskedLM", {"text": f"[MASK] {LONG}"}),
            ("ElectraForSequenceClassification", {"text": "the sea", "text_pair": LONG}),
            ("ElectraForTokenClassification", {"text": LONG}),
            ("ElectraForQuestionAnswering", {"text": LONG, "text_pair": LONG}),
            ("ElectraForMultipleChoice", {"text": LONG, "choices": ("oslo", "anna")}),
        )
    }
    assert cut == dict.fromkeys(cut, True)
    told = ask(folders["ElectraForPreTraining"], text=LONG)
    assert len(told.tokens) == MAX_LENGTH - 2
    assert not ask(folders["ElectraForPreTraining"], text=TEXT).was_cut


def test_a_length_that_the_tokenizer_names_is_kept(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = edited(folders["ElectraForPreTraining"], tmp_path / "short")
    options = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(options | {"model_max_length": 8}))
    told = ask(folder, text=LONG)
    assert (len(told.tokens), told.was_cut) == (6, True)


def test_inputs_are_answered_in_their_order(folders: dict[str, Path]) -> None:
    folder = folders["regression"]
    texts = [LONG, "anna", TEXT, "oslo"]
    together = predict_with_folder(folder, [PredictInput(text=text) for text in texts]).predictions
    assert list(together) == [ask(folder, text=text) for text in texts]


@pytest.mark.parametrize(
    ("architecture", "fields", "field"),
    [
        ("ElectraForPreTraining", {"text_pair": "a"}, "/inputs/0/text_pair"),
        ("ElectraForPreTraining", {"choices": ("a", "b")}, "/inputs/0/choices"),
        ("ElectraForPreTraining", {"text": "\u200b\u0001"}, "/inputs/0/text"),
        ("ElectraForMaskedLM", {}, "/inputs/0/text"),
        ("ElectraForMaskedLM", {"text": f"{LONG} [MASK]"}, "/inputs/0/text"),
        ("ElectraForMaskedLM", {"text": "the [mask]"}, "/inputs/0/text"),
        ("ElectraForSequenceClassification", {"choices": ("a", "b")}, "/inputs/0/choices"),
        ("ElectraForTokenClassification", {"text_pair": "a"}, "/inputs/0/text_pair"),
        ("ElectraForQuestionAnswering", {}, "/inputs/0/text_pair"),
        ("ElectraForMultipleChoice", {}, "/inputs/0/choices"),
        ("ElectraForMultipleChoice", {"choices": ("a", "\u0001")}, "/inputs/0/choices/1"),
        ("ElectraForMultipleChoice", {"text_pair": "a", "choices": ("a", "b")}, "/inputs/0/text_pair"),
    ],
)
def test_what_a_model_cannot_read_is_refused_by_field(
    folders: dict[str, Path], architecture: str, fields: dict[str, Any], field: str
) -> None:
    error = refused(folders[architecture], **{"text": TEXT, **fields})
    assert (error.code, error.field) == ("bad_input", field)
    assert error.message.startswith("must ")


def test_a_model_of_one_token_type_reads_one_text(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "one", "ElectraForSequenceClassification", type_vocab_size=1)
    assert predict_with_folder(folder, [PredictInput(text=TEXT)]).predictions
    error = refused(folder, text=TEXT, text_pair=TEXT)
    assert (error.code, error.message) == (
        "unsuitable_model",
        "a model that reads two texts must have two token types, got one",
    )


def edited(folder: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(folder, target)
    document = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(document | config))
    return target


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bert"}, "architectures must be one of"),
        ({"architectures": ["ElectraForCausalLM"]}, "got 'ElectraForCausalLM'"),
        ({"architectures": None}, "must name model_type and architectures"),
        ({"architectures": ["ElectraForQuestionAnswering"]}, "got no qa_outputs.bias"),
        ({"problem_type": "multi_label_classification"}, "problem_type must not be"),
        ({"problem_type": "regression"}, "a regression must have one output, got 3"),
        ({"id2label": {"1": "a", "2": "b", "3": "c"}}, "id2label must number the outputs from 0 to 2, got 1, 2, 3"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label must give each output a label of its own, got 'a'"),
        ({"hidden_size": 64}, "cannot be loaded as ElectraForSequenceClassification"),
    ],
)
def test_a_folder_that_is_no_such_model_is_told_apart(
    folders: dict[str, Path], tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    error = refused(edited(folders["ElectraForSequenceClassification"], tmp_path / "model", **config), text=TEXT)
    assert error.code == "unsuitable_model"
    assert message in error.message


def test_a_model_without_tokenizer_weights_or_config_is_told_apart(folders: dict[str, Path], tmp_path: Path) -> None:
    for names, message in (
        (("tokenizer.json", "tokenizer_config.json", "vocab.txt"), "tokenizer"),
        (("model.safetensors",), "cannot be loaded"),
        (("config.json",), "config.json must name"),
    ):
        folder = edited(folders["regression"], tmp_path / message)
        for name in names:
            (folder / name).unlink()
        error = refused(folder, text=TEXT)
        assert error.code == "unsuitable_model"
        assert message in error.message


def test_outputs_that_are_no_numbers_are_no_answer(folders: dict[str, Path], tmp_path: Path) -> None:
    broken = transformers.ElectraForPreTraining.from_pretrained(folders["ElectraForPreTraining"])
    with torch.no_grad():
        broken.discriminator_predictions.dense_prediction.bias.fill_(float("nan"))
    folder = edited(folders["ElectraForPreTraining"], tmp_path / "nan")
    broken.save_pretrained(folder)
    assert "must be finite" in refused(folder, text=TEXT).message


def given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_folder_is_asked_on_standard_input(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(json.dumps({"inputs": [{"text": TEXT}]}), monkeypatch)
    assert main(["--model", str(folders["regression"])]) == 0
    printed = PredictAnswer.model_validate_json(capsys.readouterr().out)
    assert printed.predictions == (ask(folders["regression"], text=TEXT),)


@pytest.mark.parametrize(
    ("request_text", "message"),
    [
        ("", "Invalid JSON"),
        ('{"inputs": []}', "inputs: "),
        ('{"inputs": [{"text": " "}]}', "inputs.0.text: Value error, must hold more than blanks"),
        ('{"inputs": [{"text": "a", "label": "b"}]}', "inputs.0.label: "),
        ('{"inputs": [{"text": "a", "choices": ["b", "c"]}]}', "/inputs/0/choices must be absent"),
    ],
)
def test_a_wrong_request_is_told_by_field(
    folders: dict[str, Path],
    request_text: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given(request_text, monkeypatch)
    assert main(["--model", str(folders["regression"])]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_what_nobody_foresaw_is_one_sentence_without_the_text(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(*args: Any) -> PredictAnswer:
        raise KeyError("a secret text")

    failure = outcome_of(break_down).failure
    assert failure is not None
    assert failure.code == "internal"
    monkeypatch.setattr("pipelines.predicting.local.predict", break_down)
    given('{"inputs": [{"text": "a"}]}', monkeypatch)
    assert main(["--model", str(folders["regression"])]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("cannot predict: predicting failed unexpectedly: KeyError in test_predict.py, line ")
    assert (told.err.count("\n"), "secret" in told.err) == (1, False)
