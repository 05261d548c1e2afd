"""Everything the service refuses, by name.

ServiceError
├── InvalidRequestError
│   ├── InvalidSpecError
│   ├── InvalidCursorError
│   ├── CorpusUnreadableError
│   ├── InsufficientResourcesError
│   ├── QuotaExceededError
│   ├── UnsuitableModelError
│   ├── UnsuitableInputError
│   ├── SourceNotAllowedError
│   ├── SecretInRequestError
│   └── MalformedBodyError
├── HostNotAllowedError
├── NotAuthenticatedError
├── PermissionDeniedError
├── TooManyRequestsError
├── NotFoundError
│   ├── JobNotFoundError
│   ├── AttemptNotFoundError
│   ├── ModelNotFoundError
│   ├── ProjectNotFoundError
│   ├── KeyNotFoundError
│   ├── WebhookNotFoundError
│   ├── DeliveryNotFoundError
│   ├── QuotaNotFoundError
│   ├── CorpusNotFoundError
│   ├── ExportNotFoundError
│   └── PresetNotFoundError
├── ProjectExistsError
├── IdentityProviderUnavailableError
├── JobFinishedError
├── WrongStateError
├── FailsAgainError
├── NoTrialsError
├── IdempotencyConflictError
├── BodyTooLargeError
├── UnsupportedMediaTypeError
├── LogsUnavailableError
├── TrialsUnavailableError
├── PredictionUnavailableError
│   └── TooManyPredictionsError
├── PredictionTimeoutError
├── PredictionFailedError
├── WebhooksOffError
├── WrongDeliveryStateError
├── RegistryUnavailableError
├── StorageUnavailableError
├── AliasMovedError
├── CleaningRunsError
├── TooManyFollowersError
├── DatabaseUnavailableError
└── NotReadyError

Only `problems.py` turns them into answers. What goes wrong behind the desk (store, launcher, folders) is in
`interfaces.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a request."""

    pointer: str
    rule: str
    value: str | None = None


class ServiceError(Exception):
    """A request that is refused: with an HTTP status, a stable code and a title."""

    status = 500
    code = "internal_error"
    title = "Internal error"
    headers: Mapping[str, str] = MappingProxyType({})
    """Of the answer, besides those of every answer."""

    def __init__(self, detail: str, faults: Sequence[Fault] = ()) -> None:
        self.detail = detail
        self.faults = tuple(faults)
        super().__init__(detail)


class InvalidRequestError(ServiceError):
    """Something in the request breaks a rule."""

    status, code, title = 422, "invalid_request", "The request is not valid"


class InvalidSpecError(InvalidRequestError):
    """The spec breaks a rule."""

    code, title = "invalid_spec", "The spec is not valid"


class InvalidCursorError(InvalidRequestError):
    """The cursor was not made by this service."""

    code, title = "invalid_cursor", "The cursor is not valid"


class CorpusUnreadableError(InvalidRequestError):
    """A source, a tokenizer or initial weights of the spec cannot be read."""

    code, title = "corpus_unreadable", "A file of the spec cannot be read"


class InsufficientResourcesError(InvalidRequestError):
    """The job is larger than the cluster."""

    code, title = "insufficient_resources", "The cluster is too small for the job"


class QuotaExceededError(InvalidRequestError):
    """The job alone is more than its owner or its project may run: it would wait for ever."""

    code, title = "quota_exceeded", "The job is larger than a quota"


class UnsuitableModelError(InvalidRequestError):
    """The model is there, and is none that can be tried."""

    code, title = "unsuitable_model", "The model cannot be tried"


class UnsuitableInputError(InvalidRequestError):
    """The model cannot read an input."""

    code, title = "unsuitable_input", "The model cannot read an input"


class MalformedBodyError(InvalidRequestError):
    """The body is not JSON as RFC 8259 has it."""

    status, code, title = 400, "malformed_json", "The body is not valid JSON"


class HostNotAllowedError(ServiceError):
    """The `Host` header names another machine."""

    status, code, title = 400, "host_not_allowed", "The host name is not this service's"


class NotFoundError(ServiceError):
    """There is nothing of that name."""

    status, code, title = 404, "not_found", "Not found"


class JobNotFoundError(NotFoundError):
    """No job has that id."""

    code, title = "job_not_found", "There is no such job"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"No job has the id {job_id!r}.")


class AttemptNotFoundError(NotFoundError):
    """The job has had no such attempt."""

    code, title = "attempt_not_found", "There is no such attempt"

    def __init__(self, job_id: str, attempt: int, last: int) -> None:
        super().__init__(f"attempt must be between 1 and {last}, the last of {job_id}, got {attempt}.")


class ModelNotFoundError(NotFoundError):
    """MLflow's registry has no such model, version or alias."""

    code, title = "model_not_found", "There is no such model"


class PresetNotFoundError(NotFoundError):
    """No preset has that name."""

    code, title = "preset_not_found", "There is no such preset"


class NoTrialsError(ServiceError):
    """Only searches have trials."""

    status, code, title = 409, "no_trials", "The job is no search"

    def __init__(self, job_id: str, kind: str) -> None:
        super().__init__(f"Only jobs of kind 'search' have trials; {job_id} is of kind {kind!r}.")


class JobFinishedError(ServiceError):
    """The job is over, and nothing can be done to it."""

    status, code, title = 409, "job_finished", "The job is finished"


class WrongStateError(ServiceError):
    """The job is not where this can be done to it."""

    status, code, title = 409, "wrong_state", "The job's state does not allow this"

    def __init__(self, job_id: str, state: str, rule: str) -> None:
        super().__init__(f"{rule}; {job_id} is {state}.", [Fault("/state", rule, state)])


class FailsAgainError(ServiceError):
    """The job would come to the same end."""

    status, code, title = 409, "fails_again", "The job would fail the same way again"


class IdempotencyConflictError(ServiceError):
    """The key was used with another body."""

    status, code, title = 409, "idempotency_conflict", "The idempotency key belongs to another request"


class BodyTooLargeError(ServiceError):
    """The body is longer than what this route takes may be."""

    status, code, title = 413, "body_too_large", "The body is too large"


class UnsupportedMediaTypeError(ServiceError):
    """The body is not sent as JSON."""

    status, code, title = 415, "unsupported_media_type", "The body must be JSON"


class TrialsUnavailableError(ServiceError):
    """The storage that has the trials does not answer."""

    status, code, title = 503, "trials_unavailable", "The trials cannot be read now"


class LogsUnavailableError(ServiceError):
    """Ray or the storage does not answer now."""

    status, code, title = 503, "logs_unavailable", "The logs cannot be read now"


class PredictionUnavailableError(ServiceError):
    """Ray, MLflow or the storage does not answer now."""

    status, code, title = 503, "prediction_unavailable", "Models cannot be tried now"


class TooManyPredictionsError(PredictionUnavailableError):
    """As many predictions are running as may."""

    code, title = "too_many_predictions", "Too many predictions at a time"


class PredictionTimeoutError(ServiceError):
    """The prediction took too long, and was stopped."""

    status, code, title = 504, "prediction_timeout", "The prediction took too long"


class PredictionFailedError(ServiceError):
    """The program that should predict ended without an answer."""

    code, title = "prediction_failed", "The prediction failed"


class NotReadyError(ServiceError):
    """Something the service needs is missing."""

    status, code, title = 503, "not_ready", "The service is not ready"


class DatabaseUnavailableError(ServiceError):
    """The database does not answer, or takes no write now."""

    status, code, title = 503, "database_unavailable", "The database is not available"


class TooManyFollowersError(ServiceError):
    """As many follow events as may."""

    status, code, title = 503, "too_many_followers", "Too many follow events"


class SourceNotAllowedError(InvalidRequestError):
    """The spec names a place that jobs of its project may not read."""

    code, title = "source_not_allowed", "The spec names a place it may not read"


class SecretInRequestError(InvalidRequestError):
    """The request carries a password or a signature: it would be stored, shown and recorded."""

    code, title = "secret_in_request", "The request carries a secret"


class NotAuthenticatedError(ServiceError):
    """Nobody we know: no key or token, or one that is not valid."""

    status, code, title = 401, "not_authenticated", "A key or token is needed"
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="electra"'})


class PermissionDeniedError(ServiceError):
    """The principal is known, and this is not allowed to it."""

    status, code, title = 403, "permission_denied", "This is not allowed"


class TooManyRequestsError(ServiceError):
    """More requests than `rate_limit_per_minute`, or more failed authentications of an address than are looked at."""

    status, code, title = 429, "too_many_requests", "Too many requests"

    def __init__(self, detail: str, retry_after_seconds: float) -> None:
        super().__init__(detail)
        self.headers = {"Retry-After": str(max(1, math.ceil(retry_after_seconds)))}


class ProjectNotFoundError(NotFoundError):
    """No project has that name, or none that the principal may see."""

    code, title = "project_not_found", "There is no such project"

    def __init__(self, project: str) -> None:
        super().__init__(f"There is no project {project!r}.")


class KeyNotFoundError(NotFoundError):
    """No key has that id, or none that the principal may see."""

    code, title = "key_not_found", "There is no such key"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"No key has the id {key_id!r}.")


class QuotaNotFoundError(NotFoundError):
    """The owner or the project has no quota of its own."""

    code, title = "quota_not_found", "There is no such quota"

    def __init__(self, scope: str, name: str) -> None:
        super().__init__(f"The {scope} {name!r} has no quota of its own: that of the settings counts.")


class ProjectExistsError(ServiceError):
    """The name is taken."""

    status, code, title = 409, "project_exists", "There is such a project already"


class IdentityProviderUnavailableError(ServiceError):
    """The issuer of tokens does not answer, and its keys are not known."""

    status, code, title = 503, "identity_provider_unavailable", "Tokens cannot be checked now"


class WebhookNotFoundError(NotFoundError):
    """No webhook has that id, or none that the principal may see."""

    code, title = "webhook_not_found", "There is no such webhook"


class DeliveryNotFoundError(NotFoundError):
    """The webhook has no such delivery."""

    code, title = "delivery_not_found", "There is no such delivery"


class WrongDeliveryStateError(ServiceError):
    """The delivery waits already, or nothing is sent to its webhook."""

    status, code, title = 409, "wrong_delivery_state", "The delivery cannot be made again now"


class WebhooksOffError(ServiceError):
    """The service has no key to sign with."""

    status, code, title = 409, "webhooks_off", "Webhooks are not set up"


class CorpusNotFoundError(NotFoundError):
    """No prepared corpus has that digest, or none that the principal may see."""

    code, title = "corpus_not_found", "There is no such corpus"

    def __init__(self, digest: str) -> None:
        super().__init__(f"There is no prepared corpus {digest!r}.")


class ExportNotFoundError(NotFoundError):
    """The version is there, and no export of it lies in the storage."""

    code, title = "export_not_found", "The version has no export"


class RegistryUnavailableError(ServiceError):
    """MLflow does not answer, or not in words we know."""

    status, code, title = 503, "registry_unavailable", "MLflow does not answer"


class StorageUnavailableError(ServiceError):
    """The storage of jobs and corpora does not answer."""

    status, code, title = 503, "storage_unavailable", "The storage does not answer"


class AliasMovedError(ServiceError):
    """The alias is not at the version that was expected, or somebody moves it now."""

    status, code, title = 409, "alias_moved", "The alias has moved"


class CleaningRunsError(ServiceError):
    """One cleaning at a time."""

    status, code, title = 409, "cleaning_runs", "A cleaning is running"
