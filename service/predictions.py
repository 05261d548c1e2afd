"""Registered models, tried on a few texts: each prediction is a program of its own on Ray, which is waited for."""

from __future__ import annotations

import threading
import time

import structlog

from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.prediction import PredictAnswer, PredictFailure, PredictJob, PredictOutcome, PredictRequest
from service.errors import (
    Fault,
    ModelNotFoundError,
    PredictionFailedError,
    PredictionTimeoutError,
    PredictionUnavailableError,
    ServiceError,
    TooManyPredictionsError,
    UnsuitableInputError,
    UnsuitableModelError,
)
from service.interfaces import (
    AnswerNotUnderstoodError,
    FolderError,
    Launcher,
    LauncherUnavailableError,
    LaunchRejectedError,
    PredictionFolders,
)
from service.launches import Launch, asked_at, new_prediction_id, prediction_launch
from service.settings import MAX_PREDICT_TIMEOUT_SECONDS, Settings

log = structlog.get_logger(__name__)

POLL_INTERVAL_SECONDS = 0.5
"""Pause between two looks at Ray and at the folder."""
SUBMIT_TRIES = 3
"""Times the program is handed to Ray when the answer to that is lost; Ray starts it once."""
RAY_PATIENCE_SECONDS = 15.0
"""How long Ray may be out of reach while a prediction is waited for."""
RAY_PATIENCE_LOOKS = 3
"""Looks in a row that must have failed besides: a single one may take all of that time to fail."""
LEFT_BEHIND_SECONDS = MAX_PREDICT_TIMEOUT_SECONDS + 600.0
"""A prediction of this age is nobody's any more. Services that share a storage may have other time-outs than this one:
what counts is the longest there can be."""
CLOSE_PATIENCE_SECONDS = 5.0
"""How long the service's end is held up by predictions that run."""


class Predictions:
    """Asks models. What is asked is written to the storage and deleted with the answer, and never logged."""

    def __init__(self, launcher: Launcher, folders: PredictionFolders, settings: Settings) -> None:
        self._launcher = launcher
        self._folders = folders
        self._settings = settings
        self._places = threading.BoundedSemaphore(settings.max_running_predictions)
        self._closing = threading.Event()

    def predict(self, model: RegisteredNetwork, request: PredictRequest) -> PredictAnswer:
        """What a model says; takes seconds, for a process of its own loads it.

        Raises:
            ModelNotFoundError: the registry has no such model, version or alias.
            UnsuitableModelError: it is no Electra model that can be tried.
            UnsuitableInputError: the model cannot read an input; the fault says which.
            TooManyPredictionsError: `max_running_predictions` are running.
            PredictionTimeoutError: it took longer than `predict_timeout_seconds`.
            PredictionUnavailableError: Ray, MLflow or the storage does not answer.
            PredictionFailedError: the program ended without an answer.
        """
        if self._closing.is_set():
            raise PredictionUnavailableError("The service is being stopped.")
        if not self._places.acquire(blocking=False):
            limit = self._settings.max_running_predictions
            raise TooManyPredictionsError(f"ELECTRA_MAX_RUNNING_PREDICTIONS is {limit}, and so many are running.")
        try:
            outcome = self._run(
                PredictJob(model=model, inputs=request.inputs, timeout_seconds=self._settings.predict_timeout_seconds)
            )
        finally:
            self._places.release()
        if outcome.answer is not None:
            return outcome.answer
        raise _refusal(outcome.failure)

    def close(self) -> None:
        """Let those who wait go, and wait until what they started is stopped and deleted. May be called again."""
        if self._closing.is_set():
            return  # the places are taken already, and nobody gives them back
        self._closing.set()
        deadline = time.monotonic() + CLOSE_PATIENCE_SECONDS
        for _ in range(self._settings.max_running_predictions):
            self._places.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def delete_left_behind(self) -> None:
        """Delete what services that were killed in the middle could not. Raises nothing: what fails is told the log."""
        oldest = time.time() - LEFT_BEHIND_SECONDS
        try:
            prediction_ids = self._folders.list_ids()
        except Exception as error:  # noqa: BLE001 - of a storage that is away or closed to us, libraries raise all kinds
            log.warning("predictions_not_listed", reason=str(error))
            return
        for prediction_id in prediction_ids:
            if self._closing.is_set():
                return
            asked = asked_at(prediction_id)
            if asked is not None and asked < oldest:
                self._delete(prediction_id)

    def _run(self, job: PredictJob) -> PredictOutcome:
        prediction_id = new_prediction_id()
        launch = prediction_launch(self._settings.prediction_uri(prediction_id), prediction_id)
        started = time.monotonic()
        deadline = started + self._settings.predict_timeout_seconds
        outcome = None
        try:
            self._folders.write_request(prediction_id, job)
            self._submit(launch, deadline)
            outcome = self._wait(prediction_id, deadline)
        except (LauncherUnavailableError, FolderError) as error:
            raise PredictionUnavailableError(f"{error}. Try again in a moment.") from error
        except LaunchRejectedError as error:
            log.warning("prediction_rejected", prediction_id=prediction_id, reason=str(error))
            raise PredictionFailedError("Ray would not take the prediction; the service's log says why.") from error
        except AnswerNotUnderstoodError as error:
            log.warning("prediction_not_understood", prediction_id=prediction_id, reason=str(error))
            message = "The program's answer cannot be read: does the cluster have another version of this software?"
            raise PredictionFailedError(message) from error
        finally:
            self._clean_up(prediction_id, was_answered=outcome is not None)
        seconds = round(time.monotonic() - started, 3)
        log.info("prediction_ended", prediction_id=prediction_id, model=job.model.uri, seconds=seconds)
        return outcome

    def _submit(self, launch: Launch, deadline: float) -> None:
        for tries_left in reversed(range(SUBMIT_TRIES)):
            try:
                self._launcher.submit(launch)
            except LauncherUnavailableError:
                # The answer may have been lost and not the wish: it is sent again under the same name.
                is_last = not tries_left or time.monotonic() >= deadline
                if is_last or self._closing.wait(POLL_INTERVAL_SECONDS):
                    raise
            else:
                return

    def _wait(self, prediction_id: str, deadline: float) -> PredictOutcome:
        heard_at, failures = time.monotonic(), 0
        while True:
            # Ray is asked before the folder is read: a program that is over has written all it will.
            is_over = False
            try:
                is_over = self._is_over(prediction_id)
                heard_at, failures = time.monotonic(), 0
            except LauncherUnavailableError:
                failures += 1
                if failures >= RAY_PATIENCE_LOOKS and time.monotonic() - heard_at > RAY_PATIENCE_SECONDS:
                    raise
            outcome = self._folders.read_outcome(prediction_id)
            if outcome is not None:
                return outcome
            if is_over:
                raise PredictionFailedError(
                    f"The program ended without an answer. Ray keeps what it printed as {prediction_id}."
                )
            if time.monotonic() >= deadline:
                limit = self._settings.predict_timeout_seconds
                raise PredictionTimeoutError(
                    f"There was no answer within ELECTRA_PREDICT_TIMEOUT_SECONDS, {limit:g}, and it was stopped."
                )
            if self._closing.wait(POLL_INTERVAL_SECONDS):
                raise PredictionUnavailableError("The service is being stopped.")

    def _is_over(self, prediction_id: str) -> bool:
        status = self._launcher.status(prediction_id)
        return status is None or status.state.is_terminal  # None: Ray's head was started anew, and the program is lost

    def _clean_up(self, prediction_id: str, *, was_answered: bool) -> None:
        """End what may still run, and delete what was asked. What fails is told the log: nobody waits for it."""
        try:
            if not was_answered:
                self._launcher.stop(prediction_id)
        except Exception as error:  # noqa: BLE001 - Ray does not answer, or its connections are closed already
            log.warning("prediction_not_stopped", prediction_id=prediction_id, reason=str(error))
        finally:
            self._delete(prediction_id)
        self.delete_left_behind()

    def _delete(self, prediction_id: str) -> None:
        try:
            self._folders.delete(prediction_id)
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("prediction_not_deleted", prediction_id=prediction_id, reason=str(error))


def _refusal(failure: PredictFailure | None) -> ServiceError:
    """What the program's own words become."""
    if failure is None:
        return PredictionFailedError("The program left neither an answer nor a reason.")
    sentence = f"{failure.message[:1].upper()}{failure.message[1:].rstrip('.')}."
    match failure.code:
        case "model_not_found":
            return ModelNotFoundError(sentence)
        case "unsuitable_model":
            return UnsuitableModelError(sentence, [Fault("/path/name", failure.message)])
        case "bad_input":
            pointer = failure.field or ""
            return UnsuitableInputError(f"{pointer} {failure.message}.", [Fault(pointer, failure.message)])
        case "timed_out":
            return PredictionTimeoutError(sentence)
        case "unavailable":
            return PredictionUnavailableError(sentence)
        case "internal":
            return PredictionFailedError(sentence)
