"""What lies in a job's directory beside its spec: how the job, the service and people tell each other things.

`{storage_uri}/jobs/{job_id}/` holds
    spec.json      the resolved spec, written once before the job is submitted
    control.json   a `Control`, written by the service: what the job should do
    origin.json    an `Origin`, written by the service where the job goes on with another one's work
    corpus.json    a `CorpusPin`, written by the job once its corpus is prepared; later attempts and retries go by it
    taken_over.json  a `TakenOver`, written by the job before the checkpoint of another job is its own
    attempt.json   an `AttemptNote`, written by an attempt as its first act: an earlier one that reads it leaves
    progress.json  a `Progress`, written by the job every few seconds
    result.json    a `JobResult`, written by the job as its last act; it outranks what Ray says
    tenures/       a `Tenure` of each process that worked for an attempt
    checkpoints/, exports/, report/, logs/

`{storage_uri}/announced/{job_id}.json` is an `Announcement`, written by a job that came past the service; a service
over that storage takes the job into its list, and then deletes the file.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from pipelines.specs.document import Document
from pipelines.specs.trial_documents import SearchOutcome, TrialSummary

SPEC_FILE = "spec.json"
CONTROL_FILE = "control.json"
ORIGIN_FILE = "origin.json"
ATTEMPT_FILE = "attempt.json"
TAKEN_OVER_FILE = "taken_over.json"
CORPUS_FILE = "corpus.json"
TENURES_FOLDER = "tenures"
ANNOUNCED_FOLDER = "announced"
PROGRESS_FILE = "progress.json"
RESULT_FILE = "result.json"

Stage = Literal["start", "prepare", "train", "evaluate", "record"]


StopAction = Literal["pause", "cancel"]


class Control(Document):
    """The service's wish."""

    action: Literal["run", "cancel"] = "run"
    """`cancel` asks for a checkpoint and an end. Jobs of earlier versions know these two words and no other."""
    then: Literal["end", "pause"] = "end"
    """After `pause` the job goes on some day."""
    attempt: int | None = None
    """Whom it is for; a later attempt passes it over. None is every attempt."""


JobId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class Origin(Document):
    """Whose work a job goes on with."""

    job_id: JobId
    """Its folder lies beside this one's."""


class CorpusPin(Document):
    """Which prepared corpus a job trains on, whatever becomes of its sources."""

    words: str
    """Digest of what the spec says of corpus and vocabulary, and of how this version prepares them."""
    texts: str
    """Digests, under which the artifacts lie."""
    tokenizer: str
    corpus: str


class TakenOver(Document):
    """The checkpoint with which a retry began."""

    job_id: str
    """That wrote it."""
    step: int


class AttemptNote(Document):
    """The attempt that the folder belongs to."""

    attempt: int
    token: str | None = None
    """Of the process that claimed the folder: one attempt can be started twice, too. None before there were any."""
    began_at: AwareDatetime


class Announcement(Document):
    """A job that was sent to Ray past the service, so that a service can list it and see to it."""

    job_id: JobId
    attempt: Annotated[int, Field(ge=1)]
    submission_id: Annotated[str, Field(min_length=1, max_length=200)]
    """Ray's name for the attempt."""
    began_at: AwareDatetime


class Tenure(Document):
    """From when until when a process worked for an attempt, by its own clock."""

    attempt: int
    token: str
    host: str
    pid: int
    began_at: AwareDatetime
    """Whoever had the folder before writes there no more."""
    ended_at: AwareDatetime | None = None
    """None while it works, and for ever of one that was killed."""


class Progress(Document):
    """Where the job is."""

    attempt: int = 1
    stage: Stage = "start"
    message: str = ""
    """One line for people: what is being done now."""
    fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of this stage that is done."""
    step: int | None = None
    num_train_steps: int | None = None
    taken_over_step: int | None = None
    """Of a retry: the step of the checkpoint that it took over. It has computed what comes after."""
    tokens: int | None = None
    """Tokens trained on so far, those of what was taken over included."""
    tokens_per_second: float | None = None
    """Over all workers, since the last report."""
    eta_seconds: float | None = None
    """Until the last step."""
    losses: dict[str, float] = Field(default_factory=dict)
    """Latest training figures by name, such as `generator_loss`."""
    evaluation: dict[str, float] = Field(default_factory=dict)
    """Latest held-out figures by name, such as `discriminator_auc`."""
    leaderboard: tuple[TrialSummary, ...] = ()
    """Of a search: the best trials so far, the best first, without their rungs."""
    mlflow_run_id: str | None = None
    mlflow_experiment_id: str | None = None
    heartbeat_at: AwareDatetime
    """When this was written."""


class Failure(Document):
    """Why a job failed."""

    stage: Stage
    code: Literal["spec", "data", "non_finite_loss", "out_of_memory", "resources", "checkpoint", "record", "internal"]
    message: str
    """One or more sentences for the user."""
    step: int | None = None
    details: tuple[str, ...] = ()
    """Lines of a report, such as bad records by file and line."""
    can_retry: bool = False
    """Another attempt could end otherwise: the fault was of the machine, not of the spec or the data."""


class TaskScores(Document):
    """How well an encoder does on one task, over all seeds."""

    task: str
    metric: str
    """What `median`, `spread` and `by_seed` are of."""
    median: float | None
    """On the first validation split; None where it is undefined, as a correlation with a constant."""
    spread: dict[str, float] = Field(default_factory=dict)
    """`mean`, `min`, `max` and `std` (of a sample) over the seeds."""
    by_seed: dict[str, float] = Field(default_factory=dict)
    best_seed: int
    figures: dict[str, float] = Field(default_factory=dict)
    """The median of each figure of the first validation split."""
    other_splits: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Medians on other validation splits and on test splits with labels."""
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)
    """`majority` and `tfidf`, as far as the task has them."""
    num_train_examples: int
    """That are learned from."""
    num_validation_examples: int
    num_also_in_training: int = 0
    """Validation examples that ask what a training example asks."""
    num_bad_rows: int = 0
    """Malformed rows of all splits that were left out; the first are in `report`."""
    report: tuple[str, ...] = ()
    """What must be known to read the scores; then malformed rows by file and line and examples that a training example
    asks too, by file and line or a question's id, as many of one split as of another; 20 lines in all at most."""
    examples_per_second: float
    """Of training, in one seed's process."""


class ProbePoint(Document):
    """What the encoder was worth after so much pretraining."""

    step: int
    tokens: int
    """Trained on by then."""
    flops: float
    """Spent on training by then, all networks."""
    mean: float
    """Of the tasks' main figures, percent."""
    tasks: tuple[TaskScores, ...]


class MinimalPairScores(Document):
    """How often a network prefers the better of two sentences."""

    network: Literal["discriminator", "generator"]
    accuracy: float
    """Mean over the files; 0.5 is chance."""
    by_file: dict[str, float] = Field(default_factory=dict)
    by_phenomenon: dict[str, float] = Field(default_factory=dict)
    """Over the pairs of all files."""
    num_pairs: int
    num_alike: int = 0
    """Pairs whose sentences are the same tokens to the network. They count as wrong, as every tie."""
    num_bad_rows: int = 0
    report: tuple[str, ...] = ()
    """The first malformed lines, by file and line."""


class UnseenTextScores(Document):
    """Both networks on one source of text."""

    source: str
    figures: dict[str, float]
    """As of held-out text while pretraining, with `generator_perplexity`."""
    num_rows: int
    num_tokens: int
    num_documents: int
    """That were read until there were rows enough."""
    num_bad_records: int = 0
    report: tuple[str, ...] = ()
    """The first malformed records, by file and line."""


class ModelVersion(Document):
    """A model the job registered."""

    network: Literal["discriminator", "encoder", "generator", "finetuned"]
    """`encoder` is the main network of an objective that detects nothing, such as `mlm`."""
    task: str | None = None
    """Of a finetuned network."""
    name: str
    version: str
    alias: str
    export_uri: str
    """Folder in the Transformers layout."""


class ExampleToken(Document):
    """One token of the marked sentence."""

    token: str
    """As the discriminator saw it."""
    original: str
    replaced_probability: float


class JobResult(Document):
    """The job's last word."""

    state: Literal["SUCCEEDED", "FAILED", "CANCELLED", "PAUSED"]
    attempt: int = 1
    failure: Failure | None = None
    step: int | None = None
    taken_over_step: int | None = None
    """As in `Progress`."""
    evaluation: dict[str, float] = Field(default_factory=dict)
    """Final held-out figures."""
    baselines: dict[str, float] = Field(default_factory=dict)
    """What no learning would score, under the same names."""
    corpus: dict[str, int | float | str] = Field(default_factory=dict)
    """Size and digest of what was trained on, and whether it was prepared now or found."""
    tasks: tuple[TaskScores, ...] = ()
    """Of a finetuning job, in the order of its spec."""
    probe: tuple[ProbePoint, ...] = ()
    """Of a pretraining job whose spec has one, by step."""
    minimal_pairs: tuple[MinimalPairScores, ...] = ()
    """Of an evaluation job, by network."""
    unseen_text: tuple[UnseenTextScores, ...] = ()
    """Of an evaluation job, by the source's name."""
    search: SearchOutcome | None = None
    """Of a search."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Tasks of a suite that were not run, or probes that failed, and why."""
    models: tuple[ModelVersion, ...] = ()
    example: tuple[ExampleToken, ...] = ()
    """A held-out passage as the discriminator sees it: of a few dozen, the one it does best on. Empty without one."""
    mlflow_run_id: str | None = None
    mlflow_experiment_id: str | None = None
    finished_at: datetime | None = None
