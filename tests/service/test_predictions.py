"""Models tried over REST: what is answered, what is refused, and what is left behind."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
from service_doubles import FakeLauncher, MemoryPredictionFolders, say_good

from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.prediction import FailureCode, PredictFailure, PredictJob, PredictOutcome, PredictRequest
from service import predictions as module
from service.errors import (
    PredictionFailedError,
    PredictionTimeoutError,
    PredictionUnavailableError,
    TooManyPredictionsError,
)
from service.interfaces import AttemptState
from service.launches import new_prediction_id
from service.predictions import Predictions
from service.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = RegisteredNetwork(name="m")
REQUEST = PredictRequest.model_validate({"inputs": [{"text": "a"}]})
URL = "/v1/models/m/newest:predict"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL_SECONDS", 0.01)


def inputs(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"inputs": [{"text": text, **fields} for text in texts]}


async def test_a_model_answers_in_the_order_of_the_inputs(
    client: httpx.AsyncClient, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    answer = await client.post("/v1/models/m/3:predict", json=inputs("one", "two"))
    assert answer.status_code == 200
    assert (answer.json()["name"], answer.json()["version"]) == ("m", "3")
    assert [one["label"] for one in answer.json()["predictions"]] == ["good", "good"]
    (prediction_id,) = launcher.submitted
    assert [one.text for one in prediction_folders.requests[prediction_id].inputs] == ["one", "two"]
    assert prediction_folders.deleted == [prediction_id]
    assert launcher.stopped == []


BAD: dict[str, tuple[str, Any, str]] = {
    "empty_text": (URL, inputs(""), "/inputs/0/text"),
    "blank_text": (URL, inputs("a", " \n"), "/inputs/1/text"),
    "long_text": (URL, inputs("a" * 20_001), "/inputs/0/text"),
    "text_is_a_number": (URL, {"inputs": [{"text": 5}]}, "/inputs/0/text"),
    "no_text": (URL, {"inputs": [{}]}, "/inputs/0/text"),
    "no_inputs": (URL, {"inputs": []}, "/inputs"),
    "33_inputs": (URL, inputs(*"a" * 33), "/inputs"),
    "unknown_field": (URL, inputs("a", label="b"), "/inputs/0/label"),
    "unknown_field_outside": (URL, {**inputs("a"), "model": "b"}, "/model"),
    "empty_pair": (URL, inputs("a", text_pair=""), "/inputs/0/text_pair"),
    "one_choice": (URL, inputs("a", choices=["b"]), "/inputs/0/choices"),
    "27_choices": (URL, inputs("a", choices=["b"] * 27), "/inputs/0/choices"),
    "blank_choice": (URL, inputs("a", choices=["b", " "]), "/inputs/0/choices/1"),
    "bad_alias": ("/v1/models/m/a b:predict", inputs("a"), "/path/alias"),
    "version_0": ("/v1/models/m/0:predict", inputs("a"), "/path/alias"),
    "bad_name": ("/v1/models/-m/newest:predict", inputs("a"), "/path/name"),
    "verb_twice": ("/v1/models/m/newest:predict:predict", inputs("a"), "/path/alias"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_wrong_request_is_refused_before_ray_hears_of_it(
    client: httpx.AsyncClient, launcher: FakeLauncher, name: str
) -> None:
    url, body, pointer = BAD[name]
    answer = await client.post(url, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert pointer in [item["pointer"] for item in answer.json()["errors"]]
    assert launcher.submitted == []


async def test_the_body_must_be_strict_json(client: httpx.AsyncClient) -> None:
    as_json = {"Content-Type": "application/json"}
    for content, headers, status in (
        (b'{"inputs": [], "inputs": []}', as_json, 400),
        (b"text=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b" " * 300_000, as_json, 413),
    ):
        assert (await client.post(URL, content=content, headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("code", "field", "status", "problem", "pointer"),
    [
        ("model_not_found", None, 404, "model_not_found", None),
        ("unsuitable_model", None, 422, "unsuitable_model", "/path/name"),
        ("bad_input", "/inputs/0/text", 422, "unsuitable_input", "/inputs/0/text"),
        ("timed_out", None, 504, "prediction_timeout", None),
        ("unavailable", None, 503, "prediction_unavailable", None),
        ("internal", None, 500, "prediction_failed", None),
    ],
)
async def test_what_the_program_says_becomes_a_problem(
    client: httpx.AsyncClient,
    prediction_folders: MemoryPredictionFolders,
    code: FailureCode,
    field: str | None,
    status: int,
    problem: str,
    pointer: str | None,
) -> None:
    failure = PredictFailure(code=code, message="must hold [MASK], got none", field=field)
    prediction_folders.answer = lambda job: PredictOutcome(failure=failure)
    answer = await client.post(URL, json=inputs("a"))
    assert (answer.status_code, answer.json()["code"]) == (status, problem)
    assert "ust hold [MASK], got none." in answer.json()["detail"]
    assert [item["pointer"] for item in answer.json()["errors"]] == ([pointer] if pointer else [])
    assert ("retry-after" in answer.headers) == (status == 503)
    assert len(prediction_folders.deleted) == 1


def test_a_prediction_that_takes_too_long_is_stopped_and_deleted(
    settings: Settings, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    prediction_folders.answer = lambda job: None
    impatient = settings.model_copy(update={"predict_timeout_seconds": 0.05})
    with pytest.raises(PredictionTimeoutError, match=r"ELECTRA_PREDICT_TIMEOUT_SECONDS, 0\.05"):
        Predictions(launcher, prediction_folders, impatient).predict(MODEL, REQUEST)
    assert launcher.stopped == launcher.submitted == prediction_folders.deleted
    assert len(launcher.submitted) == 1


def test_a_program_that_ends_without_a_word_is_a_failure(
    predictions: Predictions, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    def die(job: PredictJob) -> None:
        launcher.set(launcher.submitted[0], AttemptState.FAILED)

    prediction_folders.answer = die
    with pytest.raises(PredictionFailedError, match="pr-"):
        predictions.predict(MODEL, REQUEST)


def test_a_program_that_ray_has_forgotten_is_lost(
    predictions: Predictions, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    prediction_folders.answer = lambda job: launcher.restart_head()
    with pytest.raises(PredictionFailedError):
        predictions.predict(MODEL, REQUEST)


def test_an_answer_of_ray_that_was_lost_starts_nothing_twice(predictions: Predictions, launcher: FakeLauncher) -> None:
    launcher.num_lost_answers = 2
    assert predictions.predict(MODEL, REQUEST).name == "m"
    assert len(launcher.submitted) == 1


def test_without_ray_models_cannot_be_tried(
    predictions: Predictions, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    launcher.is_down = True
    with pytest.raises(PredictionUnavailableError, match="Ray does not answer"):
        predictions.predict(MODEL, REQUEST)
    assert len(prediction_folders.deleted) == 1


def test_a_ray_that_is_away_for_a_moment_is_waited_for(
    predictions: Predictions,
    launcher: FakeLauncher,
    prediction_folders: MemoryPredictionFolders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def answer(job: PredictJob) -> PredictOutcome | None:
        looks.append(len(looks))
        launcher.is_down = len(looks) < 4
        return say_good(job) if len(looks) > 4 else None

    prediction_folders.answer = answer
    assert predictions.predict(MODEL, REQUEST).name == "m"
    looks.clear()
    monkeypatch.setattr(module, "RAY_PATIENCE_SECONDS", 0.0)
    with pytest.raises(PredictionUnavailableError, match="Ray does not answer"):
        predictions.predict(MODEL, REQUEST)


def test_a_launch_that_ray_refuses_is_a_failure(predictions: Predictions, launcher: FakeLauncher) -> None:
    launcher.rejects = True
    with pytest.raises(PredictionFailedError):
        predictions.predict(MODEL, REQUEST)


def test_a_storage_that_cannot_be_written_is_unavailable(
    predictions: Predictions, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    prediction_folders.is_broken = True
    with pytest.raises(PredictionUnavailableError, match="the disk is full"):
        predictions.predict(MODEL, REQUEST)
    assert launcher.submitted == []


def test_no_more_run_at_a_time_than_may(
    settings: Settings, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    predictions = Predictions(launcher, prediction_folders, settings.model_copy(update={"max_running_predictions": 1}))

    def ask_again(job: PredictJob) -> PredictOutcome:
        with pytest.raises(TooManyPredictionsError, match="ELECTRA_MAX_RUNNING_PREDICTIONS is 1"):
            predictions.predict(MODEL, REQUEST)
        return say_good(job)

    prediction_folders.answer = ask_again
    for _ in range(2):  # the place is free again afterwards
        assert predictions.predict(MODEL, REQUEST).name == "m"


def test_the_end_of_the_service_ends_predictions_first(
    predictions: Predictions, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    closing = threading.Thread(target=predictions.close)

    def stop_the_service(job: PredictJob) -> None:
        if closing.ident is None:
            closing.start()

    prediction_folders.answer = stop_the_service
    with pytest.raises(PredictionUnavailableError, match="being stopped"):
        predictions.predict(MODEL, REQUEST)
    closing.join(timeout=10)
    assert not closing.is_alive()
    assert launcher.stopped == launcher.submitted == prediction_folders.deleted


def test_what_a_killed_service_left_behind_is_deleted_with_the_next_prediction(
    predictions: Predictions, prediction_folders: MemoryPredictionFolders
) -> None:
    old, young, other = f"pr-{1_700_000_000_000:012x}{'0' * 10}", new_prediction_id(), "notes"
    for name in (old, young, other):
        prediction_folders.requests[name] = PredictJob(model=MODEL, inputs=REQUEST.inputs, timeout_seconds=1)
    predictions.predict(MODEL, REQUEST)
    assert old in prediction_folders.deleted
    assert not {young, other} & set(prediction_folders.deleted)
