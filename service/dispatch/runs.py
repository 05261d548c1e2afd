"""Runs in MLflow, over its REST interface: only what a job that died can no longer do for itself."""

from __future__ import annotations

import time

import httpx

from service.interfaces import RunsUnavailableError
from service.settings import Settings
from service.states import JobState

TIMEOUT_SECONDS = 5.0
_STATUS = {JobState.FAILED: "FAILED", JobState.CANCELLED: "KILLED", JobState.PAUSED: "SCHEDULED"}


class MlflowRuns:
    """`Runs` of the tracking server in the settings; without one, or with a store that is no server, nothing."""

    def __init__(self, settings: Settings) -> None:
        uri = settings.mlflow_tracking_uri or settings.mlflow_url or ""
        self._uri = uri if uri.startswith(("http://", "https://")) else None
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS)

    def end(self, run_id: str, state: JobState) -> None:
        """Say that a run is over or, of a paused job, that it will go on."""
        if self._uri is None:
            return
        url = f"{self._uri}/api/2.0/mlflow/runs/update"
        update: dict[str, str | int] = {"run_id": run_id, "status": _STATUS[state]}
        if state.is_terminal:
            update["end_time"] = int(time.time() * 1000)
        try:
            answer = self._client.post(url, json=update)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RunsUnavailableError(f"MLflow at {self._uri} does not answer: {error}") from error
        if answer.is_error:
            raise RunsUnavailableError(f"MLflow at {self._uri} answered {answer.status_code}: {answer.text[:300]}")

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()
