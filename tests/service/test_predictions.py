"""Models tried over REST: what is answered, what is refused, and what is left behind."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest
from service_doubles import FakeLauncher, MemoryPredictionFolders, say_good

from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.prediction import (
    MAX_REQUEST_BYTES,
    MAX_TOTAL_CHARACTERS,
    FailureCode,
    PredictFailure,
    PredictJob,
    PredictOutcome,
    PredictRequest,
)
from service import predictions as module
from service.errors import (
    PredictionFailedError,
    PredictionTimeoutError,
    PredictionUnavailableError,
    TooManyPredictionsError,
)
from service.interfaces import AnswerNotUnderstoodError, AttemptState, AttemptStatus
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
    assert [one.text for one in prediction_folders.asked[prediction_id].inputs] == ["one", "two"]
    assert prediction_folders.requests == {}
    assert launcher.stopped == []


BAD: dict[str, tuple[str, Any, str]] = {
    "empty_text": (URL, inputs(""), "/inputs/0/text"),
    "blank_text": (URL, inputs("a", " \n"), "/inputs/1/text"),
    "long_text": (URL, inputs("a" * 20_001), "/inputs/0/text"),
    "text_is_a_number": (URL, {"inputs": [{"text": 5}]}, "/inputs/0/text"),
    "no_text": (URL, {"inputs": [{}]}, "/inputs/0/text"),
    "no_inputs": (URL, {"inputs": []}, "/inputs"),
    "too_much_in_all": (URL, inputs(*["a" * 20_000] * 5, "b"), "/inputs"),
    "too_much_with_pairs": (URL, inputs(*["a" * 20_000] * 3, text_pair="b" * 20_000), "/inputs"),
    "too_much_with_choices": (URL, inputs("a", choices=["b" * 20_000] * 5), "/inputs"),
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
        (b" " * (MAX_REQUEST_BYTES + 1), as_json, 413),
    ):
        assert (await client.post(URL, content=content, headers=headers)).status_code == status


async def test_all_the_characters_that_are_promised_are_taken_however_they_are_written(
    client: httpx.AsyncClient,
) -> None:
    """Escaped as two surrogates of 6 bytes each, which is the longest way."""
    headers = {"Content-Type": "application/json"}
    texts = ["\U0001f600" * 20_000] * (MAX_TOTAL_CHARACTERS // 20_000)
    content = json.dumps(inputs(*texts)).encode()
    assert 12 * MAX_TOTAL_CHARACTERS < len(content) <= MAX_REQUEST_BYTES
    assert (await client.post(URL, content=content, headers=headers)).status_code == 200
    padded = content + b" " * (MAX_REQUEST_BYTES - len(content))
    assert (await client.post(URL, content=padded, headers=headers)).status_code == 200
    refused = await client.post(URL, content=padded + b" ", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
    assert f"at most {MAX_TOTAL_CHARACTERS} characters" in refused.json()["detail"]
    assert "Specs" not in refused.json()["detail"]


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


def test_an_answer_between_the_last_look_and_the_end_counts(
    settings: Settings, prediction_folders: MemoryPredictionFolders
) -> None:
    """Ray is asked before the folder is read: the other way round this answer would not be seen."""

    class EndsWhenAsked(FakeLauncher):
        is_over = False

        def status(self, submission_id: str) -> AttemptStatus | None:
            self.is_over = True
            self.set(submission_id, AttemptState.SUCCEEDED)
            return super().status(submission_id)

    launcher = EndsWhenAsked()
    prediction_folders.answer = lambda job: say_good(job) if launcher.is_over else None
    assert Predictions(launcher, prediction_folders, settings).predict(MODEL, REQUEST).name == "m"


def test_an_answer_that_cannot_be_read_ends_the_wait(
    predictions: Predictions, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    looks: list[PredictJob] = []

    def make_no_sense(job: PredictJob) -> None:
        looks.append(job)
        raise AnswerNotUnderstoodError("answer: Field required")

    prediction_folders.answer = make_no_sense
    with pytest.raises(PredictionFailedError, match="another version"):
        predictions.predict(MODEL, REQUEST)
    assert len(looks) == 1
    assert prediction_folders.requests == {}


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


def test_one_look_that_takes_long_to_fail_is_not_all_of_the_patience(
    settings: Settings, prediction_folders: MemoryPredictionFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AwayTwice(FakeLauncher):
        looks = 0

        def status(self, submission_id: str) -> AttemptStatus | None:
            self.looks += 1
            self.is_down = self.looks <= 2
            return super().status(submission_id)

    launcher = AwayTwice()
    monkeypatch.setattr(module, "RAY_PATIENCE_SECONDS", -1.0)  # each look takes longer than that
    prediction_folders.answer = lambda job: say_good(job) if launcher.looks > 2 else None
    assert Predictions(launcher, prediction_folders, settings).predict(MODEL, REQUEST).name == "m"


def test_a_submission_that_takes_all_the_time_is_not_repeated(
    settings: Settings, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders
) -> None:
    impatient = settings.model_copy(update={"predict_timeout_seconds": 0.0})
    launcher.num_lost_answers = 3
    with pytest.raises(PredictionUnavailableError, match="the answer was lost"):
        Predictions(launcher, prediction_folders, impatient).predict(MODEL, REQUEST)
    assert launcher.num_lost_answers == 2


def test_what_was_asked_is_deleted_though_ray_cannot_be_told_to_stop(
    settings: Settings, prediction_folders: MemoryPredictionFolders
) -> None:
    class Closed(FakeLauncher):
        def stop(self, submission_id: str) -> None:
            raise RuntimeError("Cannot send a request, as the client has been closed.")

    prediction_folders.answer = lambda job: None
    impatient = settings.model_copy(update={"predict_timeout_seconds": 0.01})
    with pytest.raises(PredictionTimeoutError):
        Predictions(Closed(), prediction_folders, impatient).predict(MODEL, REQUEST)
    assert prediction_folders.requests == {}
    assert len(prediction_folders.deleted) == 1


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


def test_the_end_of_the_service_ends_predictions_first(settings: Settings, launcher: FakeLauncher) -> None:
    was_waited_for: list[bool] = []

    class SlowToDelete(MemoryPredictionFolders):
        def delete(self, prediction_id: str) -> None:
            closing.join(timeout=0.3)  # a close that does not wait is over by then
            was_waited_for.append(closing.is_alive())
            super().delete(prediction_id)

    def stop_the_service(job: PredictJob) -> None:
        if closing.ident is None:
            closing.start()

    folders = SlowToDelete()
    folders.answer = stop_the_service
    predictions = Predictions(launcher, folders, settings)
    closing = threading.Thread(target=predictions.close)
    with pytest.raises(PredictionUnavailableError, match="being stopped"):
        predictions.predict(MODEL, REQUEST)
    closing.join(timeout=10)
    assert not closing.is_alive()
    assert was_waited_for == [True]
    assert launcher.stopped == launcher.submitted == folders.deleted


def test_the_end_may_be_told_twice_and_nothing_begins_after_it(
    predictions: Predictions, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions.close()
    monkeypatch.setattr(module, "CLOSE_PATIENCE_SECONDS", 10**6)  # to wait again would be to wait for ever
    predictions.close()
    with pytest.raises(PredictionUnavailableError, match="being stopped"):
        predictions.predict(MODEL, REQUEST)
    assert launcher.submitted == []


def named(age_seconds: float) -> str:
    """Of a prediction that was asked so long ago."""
    return f"pr-{int((time.time() - age_seconds) * 1000):012x}{'0' * 10}"


def test_what_a_killed_service_left_behind_is_deleted(
    predictions: Predictions, prediction_folders: MemoryPredictionFolders
) -> None:
    """An hour is the longest that any service's time-out can be: a younger one may be another's."""
    old, others, young, foreign = named(2 * 3600), named(3500), new_prediction_id(), "notes"
    job = PredictJob(model=MODEL, inputs=REQUEST.inputs, timeout_seconds=1)
    prediction_folders.requests.update(dict.fromkeys((old, others, young, foreign), job))
    predictions.delete_left_behind()
    assert set(prediction_folders.requests) == {others, young, foreign}
    prediction_folders.requests[old] = job
    predictions.predict(MODEL, REQUEST)
    assert set(prediction_folders.requests) == {others, young, foreign}


def test_a_storage_that_cannot_be_swept_disturbs_nobody(
    predictions: Predictions, prediction_folders: MemoryPredictionFolders
) -> None:
    prediction_folders.is_broken = True
    predictions.delete_left_behind()
