"""What the service is told by its environment: where things are and how patient to be. Never what to compute."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipelines.specs.log_lines import DEFAULT_SOURCE_BYTES

MAX_PREDICT_TIMEOUT_SECONDS = 3600.0
"""That a service can be set to: no prediction of any service lasts longer."""


def _below_home(*parts: str) -> Any:
    def default(data: dict[str, Any]) -> str:
        return str(Path(data["home"]).joinpath(*parts))

    return default


class Settings(BaseSettings):
    """Read from `ELECTRA_*` variables; anything malformed stops the start with a message naming the variable."""

    model_config = SettingsConfigDict(
        env_prefix="ELECTRA_", frozen=True, extra="ignore", use_attribute_docstrings=True, validate_default=True
    )

    home: Path = Path("~/.electra")
    """Folder of everything that has no place of its own: the database, and job folders unless stored elsewhere."""
    host: str = "127.0.0.1"
    """Address to listen on. Only loopback for now: there are no keys yet, and nothing is open by accident."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    allowed_hosts: tuple[str, ...] = ()
    """Names besides localhost, 127.0.0.1 and [::1] that requests may give as `Host`. Any other is refused, so that a
    web page cannot reach the service by pointing a name of its own at this machine."""
    storage_uri: str = Field(default_factory=_below_home("storage"))
    """Where job folders, corpora and tokenizers lie: any URI both the service and the cluster can reach."""
    database_url: str = Field(default_factory=lambda data: "sqlite:///" + _below_home("service.sqlite")(data))
    """SQLAlchemy URL."""

    ray_address: str = "http://127.0.0.1:8265"
    """Ray's dashboard, which takes jobs."""
    ray_token: SecretStr | None = None
    """Token of the Ray cluster."""
    ray_token_path: Path | None = None
    """File that holds the token, when `ray_token` is not given."""
    ray_url: str | None = None
    """Ray dashboard as browsers reach it; `ray_address` when absent."""
    mlflow_url: str | None = None
    """MLflow as browsers reach it: what links point to."""
    mlflow_tracking_uri: str | None = None
    """MLflow as jobs reach it; `mlflow_url` when absent."""

    job_python: Annotated[str, Field(pattern=r"^[A-Za-z0-9_./+@-]{1,1024}$")] = "python"
    """Python that runs jobs on the cluster. Letters, digits and path characters: it stands in a shell command."""
    max_running_jobs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Jobs handed to Ray at a time; the others wait in the queue, oldest first."""
    max_running_predictions: Annotated[int, Field(ge=1, le=16)] = 2
    """Predictions at a time, each beside the jobs; others are refused until one is answered. Of the service's threads,
    some forty, each of them holds one."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Times a job is started before it is given up as lost."""
    max_spec_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 256 * 1024
    """Largest request body, `:predict` aside, whose texts are counted in characters."""

    reconcile_interval_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """Pause between two looks at Ray and at job folders."""
    retry_delay_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """Pause before the second attempt; doubled for each further one."""
    cancel_grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """Time a job has to stop by itself, with a checkpoint, before Ray ends it."""
    heartbeat_timeout_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """A running job whose progress file does not change for so long is stopped and started again, unless its
    `limits.silence_seconds` says otherwise."""
    starting_timeout_seconds: Annotated[float, Field(gt=0)] | None = 3600.0
    """Longest time from handing a job to Ray until its process runs, unless `limits.starting_seconds` says
    otherwise."""
    running_timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Longest time a job may run, all attempts together, unless `limits.running_seconds` says otherwise."""
    pause_grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    """Time a job has to save a checkpoint when it is to pause, before Ray ends it. It then goes on from the checkpoint
    before."""
    ray_timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Longest wait for one answer of Ray."""
    predict_timeout_seconds: Annotated[float, Field(gt=0, le=MAX_PREDICT_TIMEOUT_SECONDS)] = 120.0
    """Longest wait for a prediction; it is stopped then. Most of it goes into starting Python on the cluster."""

    check_sources: bool = True
    """Look at a spec's files before taking the job. Turn off where only the cluster can read them."""
    check_capacity: bool = True
    """Refuse jobs larger than the cluster was last seen to be. Turn off where the cluster grows on demand."""
    source_timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Time for looking at all of a spec's files."""

    job_log_max_bytes: Annotated[int, Field(ge=64 * 1024, le=1024**3)] = DEFAULT_SOURCE_BYTES
    """Of the log that each process of an attempt keeps in storage. Of a longer one the beginning and the end are kept,
    with a line between them that says how many lines were deleted."""
    lease_seconds: Annotated[float, Field(ge=3, le=600)] = 10.0
    """Of several replicas over one database one reconciles; when it dies, another does after so long at most."""
    event_retention_seconds: Annotated[float, Field(ge=60)] = 7 * 86400.0
    """Events older than this are deleted."""
    event_retention_count: Annotated[int, Field(ge=1000)] = 200_000
    """Of the events so many of the newest are kept at most."""
    event_poll_seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Pause between two looks for new events, one look for all who follow them; none while nobody does."""
    progress_event_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """A job's progress makes an event this often at most; a new stage always does."""
    max_event_followers: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Connections that follow events at a time, of one process; others are refused."""
    event_stream_seconds: Annotated[float, Field(gt=0, le=86400)] = 3600.0
    """A connection that follows events is closed after so long; whoever follows comes again with `Last-Event-ID`."""
    ready_without_ray: bool = False
    """Whether `/readyz` says ready while Ray does not answer. Jobs are taken all the same, and wait."""

    log_json: bool | None = None
    """Log lines as JSON; when absent, JSON unless standard error is a terminal."""

    @field_validator("home", mode="after")
    @classmethod
    def _home_is_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("host")
    @classmethod
    def _host_is_loopback(cls, value: str) -> str:
        try:
            is_loopback = value == "localhost" or ipaddress.ip_address(value).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise ValueError(
                "must be a loopback address such as 127.0.0.1: the service has no access keys yet, so it listens to "
                f"this machine only; reach it from elsewhere through an SSH tunnel. Got {value!r}"
            )
        return value

    @field_validator("storage_uri", "mlflow_url", "mlflow_tracking_uri", "ray_address", "ray_url")
    @classmethod
    def _no_passwords_in_uris(cls, value: str | None) -> str | None:
        # These are shown in answers and stand in the job's runtime environment, which Ray's dashboard displays.
        if value is not None and "@" in urlsplit(value).netloc:
            raise ValueError("must not carry a user name or password; give credentials through the environment")
        return value.rstrip("/") if value is not None and len(value) > 1 else value

    @field_validator("ray_address", "ray_url", "mlflow_url")
    @classmethod
    def _urls_are_http(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError(f"must start with http:// or https://, got {value!r}")
        return value

    def read_ray_token(self) -> str | None:
        """The token, from the variable or from its file; None when neither is given.

        Raises:
            OSError: the file cannot be read.
        """
        if self.ray_token is not None:
            return self.ray_token.get_secret_value()
        if self.ray_token_path is not None:
            return self.ray_token_path.expanduser().read_text(encoding="utf-8").strip()
        return None

    def job_uri(self, job_id: str) -> str:
        """Folder of a job."""
        return f"{self.storage_uri}/jobs/{job_id}"

    def prediction_uri(self, prediction_id: str) -> str:
        """Folder of a prediction."""
        return f"{self.storage_uri}/predictions/{prediction_id}"
