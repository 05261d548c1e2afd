"""A prediction as the service starts it: a request in a folder, a task on Ray, a model of MLflow's registry."""

from __future__ import annotations

import time
from pathlib import Path

import mlflow
import pytest
from prediction_models import model_folder

from pipelines import predict as command
from pipelines import storage
from pipelines.predict import main
from pipelines.predicting.local import predict_with_folder
from pipelines.predicting.ray_task import predict_on_ray
from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.prediction import (
    ClassificationPrediction,
    PredictAnswer,
    PredictInput,
    PredictJob,
    PredictOutcome,
)

INPUTS = (PredictInput(text="anna sees the sea ."), PredictInput(text="the sea"))


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(scope="module")
def folder(tracking_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the registry, in the layout of MLflow's flavour: its tokenizer lies apart."""
    root = tmp_path_factory.mktemp("registered")
    tokenizer = root / "components" / "tokenizer"
    folder = model_folder(root / "model", "ElectraForPreTraining", tokenizer)
    client = mlflow.MlflowClient(tracking_uri)
    client.create_registered_model("sea")
    version = client.create_model_version("sea", str(root))
    client.set_registered_model_alias("sea", "newest", version.version)
    plain = tmp_path_factory.mktemp("plain")
    (plain / "MLmodel").write_text("flavors: {}\n")
    client.create_registered_model("plain")
    client.create_model_version("plain", str(plain))
    return folder


def job(name: str = "sea", timeout_seconds: float = 120, **fields: object) -> PredictJob:
    model = RegisteredNetwork.model_validate({"name": name, **fields})
    return PredictJob(model=model, inputs=INPUTS, timeout_seconds=timeout_seconds)


@pytest.mark.usefixtures("ray_cluster")
def test_a_request_in_a_folder_becomes_an_answer_beside_it(
    folder: Path, tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri)
    storage.write_bytes(str(tmp_path / "request.json"), job().model_dump_json().encode())
    assert main(["--uri", str(tmp_path)]) == 0
    outcome = PredictOutcome.model_validate(storage.read_json(str(tmp_path / "answer.json")))
    assert outcome.answer is not None
    assert (outcome.answer.name, outcome.answer.version) == ("sea", "1")
    # The tokenizer is copied beside the model, where a folder has it.
    for file in (folder.parent / "components" / "tokenizer").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    expected = predict_with_folder(folder, INPUTS).predictions
    for told, right in zip(outcome.answer.predictions, expected, strict=True):
        probabilities = [token.replaced_probability for token in told.tokens]
        assert probabilities == pytest.approx([token.replaced_probability for token in right.tokens], abs=1e-5)


@pytest.mark.usefixtures("ray_cluster", "folder")
def test_it_does_not_wait_for_a_job_that_holds_every_cpu(tracking_uri: str) -> None:
    import ray

    @ray.remote(num_cpus=2)
    def hold() -> None:
        time.sleep(300)

    holding = hold.remote()
    try:
        deadline = time.monotonic() + 60
        while ray.available_resources().get("CPU", 0.0):
            assert time.monotonic() < deadline, "the CPUs were not taken within 60 s"
            time.sleep(0.1)
        assert predict_on_ray(job(), tracking_uri).answer is not None
    finally:
        ray.cancel(holding, force=True)


@pytest.mark.usefixtures("ray_cluster", "folder")
@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"name": "river"}, "model_not_found", "models:/river@newest"),
        ({"alias": "best"}, "model_not_found", "models:/sea@best"),
        ({"version": 9}, "model_not_found", "models:/sea/9"),
        ({"name": "plain", "version": 1}, "unsuitable_model", "transformers flavour"),
        ({"timeout_seconds": 0.001}, "timed_out", "within 0.001 s"),
    ],
)
def test_what_went_wrong_has_a_name(fields: dict[str, object], code: str, message: str, tracking_uri: str) -> None:
    failure = predict_on_ray(job(**fields), tracking_uri).failure
    assert failure is not None
    assert (failure.code, message in failure.message) == (code, True), failure


@pytest.mark.usefixtures("ray_cluster")
def test_an_mlflow_that_is_away_is_told_from_a_model_that_is_not_there() -> None:
    failure = predict_on_ray(job(), "http://127.0.0.1:9").failure
    assert failure is not None
    assert failure.code == "unavailable"


def test_without_a_request_it_cannot_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--uri", str(tmp_path)]) == 2
    assert "request.json" in capsys.readouterr().err


def test_the_answer_keeps_the_order_of_the_models_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ClassificationPrediction(label="no", probabilities={"yes": 0.2, "no": 0.7, "é": 0.1})
    outcome = PredictOutcome(answer=PredictAnswer(name="sea", architecture="Electra", predictions=(said,)))
    monkeypatch.setattr(command, "_ask_ray", lambda job, storage_uri: outcome)
    storage.write_bytes(str(tmp_path / "request.json"), job().model_dump_json().encode())
    assert main(["--uri", str(tmp_path)]) == 0
    read = PredictOutcome.model_validate_json(storage.read_bytes(str(tmp_path / "answer.json")))
    assert read == outcome
    assert read.answer is not None
    assert list(read.answer.predictions[0].probabilities) == ["yes", "no", "é"]


def test_an_mlflow_that_is_not_named_is_no_passing_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    failure = command._ask_ray(job(), "s3://bucket").failure
    assert failure is not None
    assert failure.code == "internal"
    assert "MLFLOW_TRACKING_URI must be set" in failure.message


def test_what_ray_itself_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> None:
        raise RuntimeError("Version mismatch:\nRay: 1 and 2")

    monkeypatch.setattr("pipelines.predicting.ray_task.connect_to_ray", break_down)
    failure = predict_on_ray(job(), "sqlite://").failure
    assert failure is not None
    assert (failure.code, failure.message) == ("internal", "the prediction failed on Ray: Ray: 1 and 2")
