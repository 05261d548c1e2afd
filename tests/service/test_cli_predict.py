"""`electra predict`: what is asked, and how answers are shown."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
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
from service.cli import app, console, predict
from service.cli.prediction_tables import marked_text, print_answer
from service.client import ElectraClient, SlowAnswerError
from service.http.desk import Desk
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
        yield prediction_folders.asked


def run(*arguments: str, text: str | bytes | None = None) -> Result:
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


def test_a_context_comes_from_standard_input_for_all_questions(asked: dict[str, PredictJob]) -> None:
    run("m", "--text", "who?", "--text", "where?", "--text-pair", "-", text=b"\xef\xbb\xbfanna lives in \xc3\xb8slo\n")
    (job,) = asked.values()
    assert [one.text_pair for one in job.inputs] == ["anna lives in øslo"] * 2


def test_blanks_around_standard_input_are_no_characters(asked: dict[str, PredictJob]) -> None:
    assert run("m", "--text", "-", text=" " * 30_000 + "a" * 20_000 + "\n" * 30_000).exit_code == 0
    (job,) = asked.values()
    assert job.inputs[0].text == "a" * 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"caf\xe9", "--text: standard input must be UTF-8"),
        (b"a" * 20_001, "--text: String should have at most 20000 characters"),
        (b"a" * 2_000_000, "--text: standard input must hold at most 1048576 bytes"),
        (b" \n", "--text: "),
    ],
)
def test_a_standard_input_that_is_no_text_is_told(text: bytes, message: str) -> None:
    result = run("m", "--text", "-", text=text)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_the_patience_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRA_URL", "http://127.0.0.1:9")  # nobody is asked
    told: list[float] = []

    def ask(client: ElectraClient, *args: Any, timeout_seconds: float, **fields: Any) -> PredictAnswer:
        told.append(timeout_seconds)
        raise SlowAnswerError(f"the service took longer than {timeout_seconds:g} s to answer")

    monkeypatch.setattr(ElectraClient, "predict", ask)
    for arguments in ((), ("--timeout", "7.5")):
        result = run("m", "--text", "a", *arguments)
        assert result.exit_code == 3
        assert "took longer than" in result.stderr
        assert "electra up" not in result.stderr
    assert told == [180.0, 7.5]


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
        (("m", "--text", "-", "--text", "-"), "--text - and --text-pair - must be given once in all"),
        (("m", "--text", "-", "--text-pair", "-"), "there is one standard input; got 2"),
        (("m", *("--text", "a" * 20_000) * 5, "--text", "b"), "must hold at most 100000 characters in all, got 100001"),
        (("m", "--text", "a", "--timeout", "0"), "--timeout"),
        (("models:/.", "--text", "a"), "MODEL must be NAME"),
        (("m@..", "--text", "a"), "MODEL must be NAME"),
        (("~nobody-of-this-name/m", "--text", "a"), "MODEL must be a model's name or a folder"),
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


@pytest.mark.parametrize("name", ["model", ".", ".."])
def test_a_folder_without_a_model_is_told_by_the_file_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    result = run(name, "--text", "a")
    assert (result.exit_code, "must hold a config.json" in result.stderr) == (2, True)
    assert ("write models:/model" in result.stderr) == (name == "model")


def test_a_registered_model_is_asked_though_a_folder_has_its_name(
    asked: dict[str, PredictJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("models:/model", "--text", "a").exit_code == 0
    (job,) = asked.values()
    assert job.model.uri == "models:/model@newest"


def child(return_code: int, output: bytes, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every process that predicts ends like this; the commands that were run."""
    commands: list[list[str]] = []

    def end(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, return_code, output)

    monkeypatch.setattr(predict.subprocess, "run", end)
    monkeypatch.setattr(predict, "_NEEDED", ())
    return commands


def test_a_process_that_was_killed_is_a_failure_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    commands = child(-9, b"", monkeypatch)
    result = run(str(tmp_path), "--text", "a")
    assert (result.exit_code, "killed by signal 9" in result.stderr) == (1, True), result.stderr
    assert commands == [[sys.executable, "-P", "-m", "pipelines.predict", "--model", str(tmp_path)]]


@pytest.mark.parametrize("code", [1, 2])
def test_a_process_that_says_why_ends_the_command_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "config.json").write_text("{}")
    child(code, b"", monkeypatch)
    assert run(str(tmp_path), "--text", "a").exit_code == code


def test_code_of_the_folder_one_stands_in_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("raise SystemExit('this is not ours')")
    command = console.program("pipelines.predict", "--help")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "not ours" in done.stderr) == (0, False), done.stderr
    assert "python -m pipelines.predict" in done.stdout


def test_a_process_that_ended_well_ends_nothing() -> None:
    console.exit_like(0)
    with pytest.raises(typer.Exit):
        console.exit_like(2)


def shown(prediction: Prediction, *, version: str | None = "3", **fields: object) -> str:
    answer = PredictAnswer(name="m", version=version, architecture="Electra", predictions=(prediction,))
    screen = Console(file=io.StringIO(), width=120, record=True)
    print_answer(screen, answer, [PredictInput.model_validate({"text": "the text", **fields})])
    return screen.export_text()


def cells(told: str) -> list[list[str]]:
    """Of the table's lines, its head aside."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in told.splitlines() if "│" in line]


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


def test_tokens_that_share_a_character_are_marked_as_one() -> None:
    """As the uncased normaliser takes Hangul apart: each jamo stands for its whole syllable."""
    text = "한국 옷"
    spans = [(0, 1, 0.1), (0, 1, 0.7), (0, 1, 0.2), (1, 2, 0.1), (1, 2, 0.3), (3, 4, 0.2), (3, 4, 0.1)]
    tokens = tuple(
        TokenPrediction(token="ㅎ", start=start, end=end, replaced_probability=probability)
        for start, end, probability in spans
    )
    assert marked_text(text, ReplacedTokenPrediction(tokens=tokens)).plain == "[한]국? 옷"
    assert "1 of 7 tokens are marked" in shown(ReplacedTokenPrediction(tokens=tokens), text=text)


MASK = MaskPrediction(
    start=0,
    end=6,
    candidates=(MaskCandidate(token="[UNK]", probability=0.5), MaskCandidate(token="b", probability=0.2)),
)
WORDS = (
    WordPrediction(word="Anna", start=0, end=4, label="B-PER", probability=0.25),
    WordPrediction(word=".", start=4, end=5, label="O", probability=1),
)
SPAN = QuestionAnsweringPrediction(answer="in oslo", start=11, end=18, probability=0.5, no_answer_is_likelier=True)


@pytest.mark.parametrize(
    ("prediction", "fields", "expected"),
    [
        (FillMaskPrediction(masks=(MASK,)), {}, [["the text", "1", "[UNK]", "50.0%"], ["", "", "b", "20.0%"]]),
        (
            ClassificationPrediction(label="b", probabilities={"c": 0.1, "b": 0.7, "a": 0.2}),
            {},
            [["the text", "b", "70.0%", "a 20.0%, c 10.0%"]],
        ),
        (RegressionPrediction(value=3.14159), {}, [["the text", "3.142"]]),
        (
            TokenClassificationPrediction(words=WORDS),
            {},
            [["the text", "Anna", "B-PER", "25.0%"], ["", ".", "O", "100.0%"]],
        ),
        (SPAN, {"text_pair": "anna lives in oslo"}, [["the text", "in oslo", "50.0%", "11–18"]]),
        (
            MultipleChoicePrediction(choice=1, probabilities=(0.4, 0.6)),
            {"choices": ["no", "yes"]},
            [["the text", "yes", "60.0%"], ["", "no", "40.0%"]],
        ),
    ],
    ids=lambda value: getattr(value, "type", ""),
)
def test_each_kind_of_answer_has_a_table(
    prediction: Prediction, fields: dict[str, object], expected: list[list[str]]
) -> None:
    told = shown(prediction, **fields)
    assert told.startswith("m version 3, Electra\n")
    assert cells(told) == expected


def test_that_no_answer_is_likelier_is_said() -> None:
    assert "Question 1: to give no answer scores higher" in shown(SPAN, text_pair="anna lives in oslo")


def test_what_would_steer_the_terminal_is_not_printed() -> None:
    label = "bad\x1b]0;title\x07\x9b31m"
    told = shown(ClassificationPrediction(label=label, probabilities={label: 1.0}), text="a\x1b[2Jb")
    assert cells(told) == [["a[2Jb", "bad]0;title31m", "100.0%", ""]]
    text = "\x1b[1mthe\x1b sea"
    prediction = ReplacedTokenPrediction(tokens=(token(text, "the\x1b", 0.9),))
    assert marked_text(text, prediction).plain == "[1m[the] sea"


def test_what_was_cut_is_said() -> None:
    assert "Text 1 is longer than the model can read" in shown(RegressionPrediction(value=1, was_cut=True))
    assert "longer" not in shown(RegressionPrediction(value=1), version=None)
