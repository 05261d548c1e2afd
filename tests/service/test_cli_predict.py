"""`electra predict`: what is asked, and how answers are shown."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_service import serve_desk
from rich.console import Console
from service_doubles import MemoryPredictionFolders
from typer.testing import CliRunner, Result

from pipelines.specs.prediction import (
    ClassificationPrediction,
    FillMaskPrediction,
    MaskCandidate,
    MaskPrediction,
    MultipleChoicePrediction,
    PredictAnswer,
    PredictFailure,
    PredictInput,
    Prediction,
    PredictJob,
    PredictOutcome,
    QuestionAnsweringPrediction,
    RegressionPrediction,
    ReplacedTokenPrediction,
    TokenClassificationPrediction,
    TokenPrediction,
    WordPrediction,
)
from service.cli import app, predict
from service.cli.prediction_tables import marked_text, print_answer
from service.desk import Desk
from service.settings import Settings


@pytest.fixture(autouse=True)
def nothing_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELECTRA_URL", raising=False)
    monkeypatch.setenv("ELECTRA_HOME", str(tmp_path / "no-stack"))


@pytest.fixture
def asked(
    settings: Settings, desk: Desk, prediction_folders: MemoryPredictionFolders, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, PredictJob]]:
    """What the service was asked, by prediction."""
    with serve_desk(settings, desk) as address:
        monkeypatch.setenv("ELECTRA_URL", address)
        yield prediction_folders.requests


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["predict", *arguments], input=text)


@pytest.mark.parametrize(
    ("model", "uri"),
    [("m", "models:/m@newest"), ("m@best", "models:/m@best"), ("m/3", "models:/m/3"), ("models:/m/3", "models:/m/3")],
)
def test_a_registered_model_is_asked(asked: dict[str, PredictJob], model: str, uri: str) -> None:
    result = run(model, "--text", "one", "--text", "two")
    assert result.exit_code == 0, result.output
    (job,) = asked.values()
    assert job.model.uri == uri
    assert [one.text for one in job.inputs] == ["one", "two"]
    assert "ElectraForSequenceClassification" in result.stdout
    assert "75.0%" in result.stdout


def test_an_answer_is_json_for_programs(asked: dict[str, PredictJob]) -> None:
    answer = PredictAnswer.model_validate_json(run("m", "--text", "one", "--json").stdout)
    assert (answer.name, answer.predictions[0].type) == ("m", "classification")


def test_one_context_serves_all_questions(asked: dict[str, PredictJob]) -> None:
    run("m", "--text", "who?", "--text", "where?", "--text-pair", "in oslo")
    run("m", "--text", "who?", "--text", "where?", "--text-pair", "anna", "--text-pair", "in oslo")
    pairs = [[one.text_pair for one in job.inputs] for job in asked.values()]
    assert pairs == [["in oslo", "in oslo"], ["anna", "in oslo"]]


def test_text_comes_from_standard_input_and_choices_go_with_each(asked: dict[str, PredictJob]) -> None:
    run("m", "--text", "-", "--text", "two", "--choice", "a", "--choice", "b", text="one\nand more\n")
    (job,) = asked.values()
    assert [one.text for one in job.inputs] == ["one\nand more", "two"]
    assert [one.choices for one in job.inputs] == [("a", "b"), ("a", "b")]


@pytest.mark.usefixtures("asked")
def test_a_refusal_names_the_input(prediction_folders: MemoryPredictionFolders) -> None:
    failure = PredictFailure(code="bad_input", message="must hold [MASK], got none", field="/inputs/0/text")
    prediction_folders.answer = lambda job: PredictOutcome(failure=failure)
    result = run("m", "--text", "one")
    assert result.exit_code == 4
    assert "inputs.0.text: must hold [MASK], got none" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("m", "--text", " "), "--text: must hold more than blanks (got ' ')"),
        (("m", *("--text", "a") * 33), "--text: Tuple should have at most 32 items"),
        (("m", "--text", "a", "--choice", "b"), "--choice: Tuple should have at least 2 items"),
        (("m", "--text", "a", "--text-pair", ""), "--text-pair: "),
        (("m", *("--text", "a") * 3, *("--text-pair", "b") * 2), "--text-pair must be given once"),
        (("m", "--text", "-", "--text", "-"), "--text - must be given once"),
        (("a/b/c", "--text", "a"), "MODEL must be NAME"),
        (("a@", "--text", "a"), "MODEL must be NAME"),
        (("m/newest", "--text", "a"), "MODEL must be NAME"),
    ],
)
def test_wrong_words_are_told_before_anybody_is_asked(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_without_a_service_it_says_what_to_run() -> None:
    result = run("m", "--text", "a")
    assert (result.exit_code, "electra up" in result.stderr) == (3, True)


def test_a_folder_needs_packages_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(predict, "_NEEDED", ("a_package_nobody_has",))
    result = run(str(tmp_path), "--text", "a")
    assert (result.exit_code, "a_package_nobody_has" in result.stderr) == (2, True)


def shown(prediction: Prediction, *, version: str | None = "3", **fields: object) -> str:
    answer = PredictAnswer(name="m", version=version, architecture="Electra", predictions=(prediction,))
    console = Console(file=io.StringIO(), width=120, record=True)
    print_answer(console, answer, [PredictInput.model_validate({"text": "the text", **fields})])
    return console.export_text()


def token(text: str, piece: str, probability: float) -> TokenPrediction:
    start = text.index(piece)
    return TokenPrediction(token=piece, start=start, end=start + len(piece), replaced_probability=probability)


def test_a_text_is_marked_where_it_stands() -> None:
    text = "The  Cat [red]barks[/red], unknown"
    tokens = (token(text, "Cat", 0.9), token(text, "bark", 0.3), token(text, ",", 0.1), token(text, "known", 0.5))
    prediction = ReplacedTokenPrediction(tokens=tokens)
    assert marked_text(text, prediction).plain == "The  [Cat] [red]bark?s[/red], un[known]"
    told = shown(prediction, text=text)
    assert "The  [Cat] [red]bark?s[/red]" in told
    assert "2 of 4 tokens are marked" in told


def test_each_kind_of_answer_has_a_table() -> None:
    mask = MaskPrediction(start=0, end=6, candidates=(MaskCandidate(token="[UNK]", probability=0.5),))
    word = WordPrediction(word="Anna", start=0, end=4, label="B-PER", probability=0.25)
    for prediction, fields, expected in (
        (FillMaskPrediction(masks=(mask,)), {}, ("[UNK]", "50.0%")),
        (
            ClassificationPrediction(label="b", probabilities={"a": 0.2, "b": 0.7, "c": 0.1}),
            {},
            ("b", "70.0%", "a 20.0%, c 10.0%"),
        ),
        (RegressionPrediction(value=3.14159), {}, ("3.142",)),
        (TokenClassificationPrediction(words=(word,)), {}, ("Anna", "B-PER", "25.0%")),
        (
            QuestionAnsweringPrediction(
                answer="in oslo", start=11, end=18, probability=0.5, no_answer_is_likelier=True
            ),
            {"text_pair": "anna lives in oslo"},
            ("in oslo", "11–18", "to give no answer scores higher"),
        ),
        (
            MultipleChoicePrediction(choice=1, probabilities=(0.4, 0.6)),
            {"choices": ["no", "yes"]},
            ("yes", "60.0%", "no", "40.0%"),
        ),
    ):
        told = shown(prediction, **fields)
        assert "m version 3, Electra" in told
        assert all(piece in told for piece in ("the text", *expected)), told


def test_what_was_cut_is_said() -> None:
    assert "Text 1 is longer than the model can read" in shown(RegressionPrediction(value=1, was_cut=True))
    assert "longer" not in shown(RegressionPrediction(value=1), version=None)
