"""What the service is told by its environment: where things are and how patient to be. Never what to compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipelines.specs.log_lines import DEFAULT_SOURCE_BYTES
from service.access.addresses import is_loopback
from service.access.claims import read_grant
from service.access.own_secrets import own_secret
from service.access.places import check_root

SignatureAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Of keys with a public half: what the same key makes and checks could be anybody's, and `none` is anybody's."""

MAX_PREDICT_TIMEOUT_SECONDS = 3600.0
"""That a service can be set to: no prediction of any service lasts longer."""

MIN_WEBHOOK_KEY_CHARACTERS = 32


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
    """Address to listen on. Any but loopback demands `access=keys`, `tls_upstream=true` and `allowed_hosts`: nothing is
    open by accident."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    access: Literal["open", "keys"] = "open"
    """`open`: whoever reaches the service may do everything, which is why it then listens to this machine alone.
    `keys`: every request carries an API key or a token."""
    tls_upstream: bool = False
    """State that requests come through a proxy that speaks TLS with the outside: the service itself speaks plain HTTP,
    and keys must not cross a network in the clear. Answers then carry Strict-Transport-Security."""
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
    """Jobs handed to Ray at a time; the others wait in the queue."""
    max_member_priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Highest priority that whoever is no administrator of all projects may give a job: the queue is of all projects,
    and without a bound each of them could push past the others. With `access=keys`."""
    check_room: bool = True
    """Start a job only when all its workers have room on the cluster. Turn off where Ray does not say what is free:
    jobs are then handed to it unseen, and wait there."""
    cluster_max_cpus: Annotated[float, Field(gt=0)] | None = None
    """To which an autoscaling cluster grows: jobs are started as if it were so large, which makes it grow. Absent: as
    large as it is."""
    cluster_max_gpus: Annotated[float, Field(ge=0)] | None = None
    """The same of GPUs."""
    quota_owner_running_jobs: Annotated[int, Field(ge=0)] | None = None
    """Running jobs of an owner at a time, unless they have a quota of their own. None is no limit."""
    quota_owner_cpus: Annotated[float, Field(ge=0)] | None = None
    """CPUs that an owner's running jobs hold together."""
    quota_owner_gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs that an owner's running jobs hold together."""
    quota_project_running_jobs: Annotated[int, Field(ge=0)] | None = None
    """Running jobs of a project at a time, unless it has a quota of its own."""
    quota_project_cpus: Annotated[float, Field(ge=0)] | None = None
    """CPUs that a project's running jobs hold together."""
    quota_project_gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs that a project's running jobs hold together."""
    fair_share_half_life_seconds: Annotated[float, Field(ge=60, le=366 * 86400)] = 6 * 3600.0
    """What an owner has used counts half as much after so long, when it is decided whose turn it is."""
    reservation_seconds: Annotated[float, Field(ge=0, le=30 * 86400)] = 600.0
    """Of a job that has waited for room so long, what is free is kept and given to no job behind it."""
    preemption: bool = True
    """Pause running jobs, at a checkpoint, for a job of strictly higher priority that does not fit."""
    preemption_min_run_seconds: Annotated[float, Field(ge=0, le=30 * 86400)] = 600.0
    """A job that was paused so runs at least so long before it is paused so again."""
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
    max_log_followers: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Connections that follow logs, printed ones too, at a time, of one process; others are refused."""
    max_export_downloads: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Exports that are sent at a time, of one process; others are refused."""
    max_streams_per_principal: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Connections that follow events or logs or are sent an export, at a time, of one principal and of one process;
    with `access=keys`."""
    event_stream_seconds: Annotated[float, Field(gt=0, le=86400)] = 3600.0
    """A connection that follows events is closed after so long; whoever follows comes again with `Last-Event-ID`."""
    ready_without_ray: bool = False
    """Whether `/readyz` says ready while Ray does not answer. Jobs are taken all the same, and wait."""
    source_roots: tuple[str, ...] | None = None
    """Local paths and URIs below which a spec may read files, as a JSON list: `["/data", "s3://corpora/{project}"]`;
    `{project}` is the job's. When absent: with `access=open` all that this process may read, with `keys` nothing but
    the web. Never the storage or the home, but for folders of jobs of the same project."""
    web_source_hosts: tuple[str, ...] = ()
    """Hosts inside the own network that `http(s)://` sources may name nevertheless, where sources are restricted."""

    rate_limit_per_minute: Annotated[float, Field(gt=0, le=1e6)] = 600.0
    """Requests of a principal; with `access=keys`, and of each replica of the service."""
    failed_logins_per_minute: Annotated[float, Field(gt=0, le=1e6)] = 30.0
    """Failed authentications of an address that are answered, and recorded, one by one. A right key is never kept out
    by another's failures."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose `X-Forwarded-For` is believed; none unless named."""

    oidc_issuer: str | None = None
    """Takes tokens of this OpenID Connect issuer besides keys; exactly as its tokens have it in `iss`."""
    oidc_audience: Annotated[str, Field(min_length=1)] | None = None
    """Must stand in `aud` of a token; needed where there is an issuer."""
    oidc_algorithms: Annotated[tuple[SignatureAlgorithm, ...], Field(min_length=1)] = ("RS256", "ES256")
    """Signatures that are taken."""
    oidc_user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that becomes the owner's name. It must never pass to another person, as mail addresses do."""
    oidc_groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    """The claim with the groups."""
    oidc_grants: dict[str, str] = Field(default_factory=dict)
    """Group to roles, as a JSON object: `{"nlp": "clinical:member", "ops": "*:admin"}`; several, divided by commas. A
    token of no such group may do nothing."""
    oidc_leeway_seconds: Annotated[int, Field(ge=0, le=300)] = 30
    """By how much clocks may differ."""

    webhook_key: SecretStr | None = None
    """What the secrets of webhooks are derived from: 32 characters or more, the same on all replicas. Without it they
    are derived from the file of `webhook_key_path`, or with `access=open` from one in the home, made at first use."""
    webhook_key_path: Path | None = None
    """File that holds the key, when `webhook_key` is not given."""
    webhook_hosts: tuple[str, ...] = ()
    """Hosts that webhooks may have although they are inside the own network, over http too."""
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Longest wait for a receiver, from the first step to its answer."""
    webhook_retry_seconds: Annotated[float, Field(gt=0, le=30 * 86400)] = 3 * 86400.0
    """A message that has not arrived after so long is given up; after 16 attempts it is too."""
    webhook_disable_seconds: Annotated[float, Field(gt=0, le=90 * 86400)] = 5 * 86400.0
    """A webhook that has failed for so long without a success is disabled."""

    log_json: bool | None = None
    """Log lines as JSON; when absent, JSON unless standard error is a terminal."""

    @field_validator("home", mode="after")
    @classmethod
    def _home_is_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("access")
    @classmethod
    def _others_need_keys(cls, value: str, info: ValidationInfo) -> str:
        host = info.data.get("host", "")
        if value != "keys" and not is_loopback(host):
            raise ValueError(
                f"must be 'keys' where ELECTRA_HOST is no loopback address such as 127.0.0.1, got {value!r} and "
                f"{host!r}: without keys the service listens to this machine only"
            )
        return value

    @field_validator("tls_upstream")
    @classmethod
    def _keys_need_tls(cls, value: bool, info: ValidationInfo) -> bool:
        host = info.data.get("host", "")
        if not value and not is_loopback(host):
            raise ValueError(
                f"must be true where ELECTRA_HOST is no loopback address, got false and {host!r}: put a proxy that "
                "speaks TLS before the service, and say so with it"
            )
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _others_need_a_name(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        host = info.data.get("host", "")
        if not value and not is_loopback(host):
            raise ValueError(
                f"must name the service as requests do where ELECTRA_HOST is no loopback address, got none and {host!r}"
            )
        return value

    @field_validator("webhook_key")
    @classmethod
    def _keys_cannot_be_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_WEBHOOK_KEY_CHARACTERS:
            raise ValueError(
                f"must have at least {MIN_WEBHOOK_KEY_CHARACTERS} characters, such as openssl rand -hex 32"
            )
        return value

    @field_validator("source_roots")
    @classmethod
    def _roots_are_places(cls, value: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        for root in value or ():
            check_root(root, (str(info.data.get("home", "")), str(info.data.get("storage_uri", ""))))
        return value

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer_is_safe(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
                raise ValueError(f"must start with https:// unless it is on this machine, got {value!r}")
        return value

    @field_validator("oidc_audience")
    @classmethod
    def _issuers_need_an_audience(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("oidc_issuer") is not None:
            raise ValueError("must be given where ELECTRA_OIDC_ISSUER is: other services' tokens are not for this one")
        return value

    @field_validator("oidc_grants")
    @classmethod
    def _grants_can_be_read(cls, value: dict[str, str]) -> dict[str, str]:
        for grants in value.values():
            for grant in grants.split(","):
                read_grant(grant.strip())
        return value

    @property
    def restricts_sources(self) -> bool:
        """Whether specs may read some places only."""
        return self.access == "keys" or self.source_roots is not None

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

    def read_webhook_key(self) -> str | None:
        """What the secrets of webhooks are derived from; None where there is none, or a file too short for one.

        Raises:
            OSError: the file cannot be read or made.
        """
        if self.webhook_key is not None:
            return self.webhook_key.get_secret_value()
        if self.webhook_key_path is not None:
            key = self.webhook_key_path.expanduser().read_text(encoding="utf-8").strip()
            return key if len(key) >= MIN_WEBHOOK_KEY_CHARACTERS else None
        return own_secret(self.home / "webhook-key") if self.access == "open" else None

    def job_uri(self, job_id: str) -> str:
        """Folder of a job."""
        return f"{self.storage_uri}/jobs/{job_id}"

    def prediction_uri(self, prediction_id: str) -> str:
        """Folder of a prediction."""
        return f"{self.storage_uri}/predictions/{prediction_id}"
