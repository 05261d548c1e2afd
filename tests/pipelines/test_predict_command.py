"""`electra predict FOLDER`: a process of its own answers, and no service is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from prediction_models import model_folder
from typer.testing import CliRunner

from pipelines.predicting.local import predict_with_folder
from pipelines.specs.prediction import PredictAnswer, PredictInput
from service.cli import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "rtd", "ElectraForPreTraining")


def test_a_folder_is_asked_without_a_service(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    result = CliRunner().invoke(app, ["predict", "rtd", "--text", "Anna sees the sea.", "--json"])
    assert result.exit_code == 0
    told = PredictAnswer.model_validate_json(result.stdout)
    right = predict_with_folder(folder, [PredictInput(text="Anna sees the sea.")])
    assert (told.name, told.architecture) == (right.name, right.architecture)
    ours, theirs = ([token.replaced_probability for token in answer.predictions[0].tokens] for answer in (told, right))
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert capfd.readouterr().err == ""


def test_what_the_folders_model_cannot_read_is_wrong_input(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        CliRunner().invoke(app, ["predict", str(folder), "--text", "a", "--choice", "b", "--choice", "c"]).exit_code
        == 2
    )
    assert "/inputs/0/choices must be absent" in capfd.readouterr().err
