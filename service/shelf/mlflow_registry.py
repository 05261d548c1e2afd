"""MLflow's registry over its REST interface."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import httpx

from service.errors import InvalidCursorError, ModelNotFoundError, RegistryUnavailableError
from service.settings import Settings
from service.shelf.registry import JOB_TAG, RegisteredModel, RegisteredVersion

TIMEOUT = httpx.Timeout(10.0, connect=3.0)
_ABSENT = "RESOURCE_DOES_NOT_EXIST"


class MlflowRegistry:
    """`Registry` of the tracking server in the settings."""

    def __init__(self, settings: Settings) -> None:
        uri = settings.mlflow_tracking_uri or settings.mlflow_url or ""
        self._uri = uri if uri.startswith(("http://", "https://")) else None
        names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
        user, password = (os.environ.get(name) for name in names)
        self._client = httpx.Client(timeout=TIMEOUT, auth=(user, password) if user and password else None)

    def search_models(self, prefix: str, token: str | None, limit: int) -> tuple[list[RegisteredModel], str | None]:
        """Models whose names begin so, by name, and the token of the next page."""
        query = {"max_results": limit, "order_by": "name ASC"} | (
            {"filter": f"name LIKE '{prefix}%'"} if prefix else {}
        )
        found = self._ask("GET", "registered-models/search", query | _token(token)) or {}
        return [_model(one) for one in found.get("registered_models", [])], found.get("next_page_token") or None

    def model(self, name: str) -> RegisteredModel | None:
        """One model."""
        found = self._ask("GET", "registered-models/get", {"name": name})
        return None if found is None else _model(found["registered_model"])

    def search_versions(self, name: str, token: str | None, limit: int) -> tuple[list[RegisteredVersion], str | None]:
        """Versions of a model, the newest first, and the token of the next page."""
        query = {"filter": f"name='{name}'", "max_results": limit, "order_by": "version_number DESC"}
        found = self._ask("GET", "model-versions/search", query | _token(token)) or {}
        return [_version(one) for one in found.get("model_versions", [])], found.get("next_page_token") or None

    def version(self, name: str, version: int) -> RegisteredVersion | None:
        """One version."""
        found = self._ask("GET", "model-versions/get", {"name": name, "version": str(version)})
        return None if found is None else _version(found["model_version"])

    def version_of_job(self, job_id: str) -> RegisteredVersion | None:
        """A version that names a job as its maker."""
        query = {"filter": f"tags.`{JOB_TAG}` = '{job_id}'", "max_results": 1}
        found = (self._ask("GET", "model-versions/search", query) or {}).get("model_versions", [])
        return _version(found[0]) if found else None

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Let an alias name a version."""
        words = {"name": name, "alias": alias, "version": str(version)}
        if self._ask("POST", "registered-models/alias", words) is None:
            raise ModelNotFoundError(f"Model {name!r} has no version {version}.")

    def delete_alias(self, name: str, alias: str) -> None:
        """Let an alias name nothing."""
        self._ask("DELETE", "registered-models/alias", {"name": name, "alias": alias})

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _ask(self, method: str, path: str, words: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None where MLflow has no such thing.

        Raises:
            RegistryUnavailableError: no answer, or one of another kind.
            InvalidCursorError: MLflow knows no such token of a page.
        """
        if self._uri is None:
            raise RegistryUnavailableError("No MLflow server is named: set ELECTRA_MLFLOW_URL.")
        url = f"{self._uri}/api/2.0/mlflow/{path}"
        sent: dict[str, Any] = {"params": words} if method == "GET" else {"json": words}
        try:
            answer = self._client.request(method, url, **sent)
            document = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise RegistryUnavailableError(f"MLflow at {self._uri} does not answer as it should: {error}") from error
        if not isinstance(document, dict):
            raise RegistryUnavailableError(f"MLflow at {self._uri} answered {answer.status_code} with no object.")
        if answer.is_error and document.get("error_code") == _ABSENT:
            return None
        if answer.status_code == httpx.codes.BAD_REQUEST and "page_token" in words:
            raise InvalidCursorError("cursor must be the next_cursor of an earlier page.")
        if answer.is_error:
            said = str(document.get("message", ""))[:300]
            raise RegistryUnavailableError(f"MLflow at {self._uri} answered {answer.status_code}: {said}")
        return document


def _token(token: str | None) -> dict[str, str]:
    return {} if token is None else {"page_token": token}


def _model(document: dict[str, Any]) -> RegisteredModel:
    return RegisteredModel(
        name=document["name"],
        created_at=_moment(document.get("creation_timestamp")),
        updated_at=_moment(document.get("last_updated_timestamp")),
        description=document.get("description") or "",
        aliases={one["alias"]: int(one["version"]) for one in document.get("aliases", [])},
    )


def _version(document: dict[str, Any]) -> RegisteredVersion:
    return RegisteredVersion(
        name=document["name"],
        version=int(document["version"]),
        created_at=_moment(document.get("creation_timestamp")),
        description=document.get("description") or "",
        tags={one["key"]: one.get("value", "") for one in document.get("tags", [])},
        run_id=document.get("run_id") or None,
    )


def _moment(milliseconds: int | str | None) -> datetime:
    return datetime.fromtimestamp(int(milliseconds or 0) / 1000, UTC)
