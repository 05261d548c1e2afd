"""The words of corpora, cleaning and usage over HTTP."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AwareDatetime, Field

from service.access.principals import ProjectName
from service.http.schemas import Answer, Request
from service.shelf.clean_records import Cleaned, CleanedItem, CleanedKind, CleanWish, Outcome
from service.shelf.usage import Dimension, Usage
from service.states import JobState

if TYPE_CHECKING:
    from service.shelf.corpora import StoredCorpus  # reads storage: a client needs none of it

Days = Annotated[float, Field(ge=0, le=36_600, allow_inf_nan=False)]


class CorpusQuery(Request):
    """Which prepared corpora to list, by digest."""

    project: ProjectName | None = None
    """Used by jobs of this project; of those that the principal sees."""
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    """Corpora a page."""
    cursor: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """`next_cursor` of the page before."""


class CorpusUser(Answer):
    """A job that uses a corpus, or has."""

    job_id: str
    project: str
    owner: str
    state: JobState
    began_at: AwareDatetime
    """When it last took the corpus up."""


class CorpusPublic(Answer):
    """A prepared corpus."""

    digest: str
    size_bytes: int
    """In the storage."""
    num_tokens: int
    """Training and held-out tokens."""
    num_documents: int
    num_text_bytes: int
    """UTF-8 bytes of the text that was kept."""
    vocab_size: int
    created_at: AwareDatetime
    last_used_at: AwareDatetime
    """The latest of: a job took it up, a job that used it ended, it was made."""
    jobs: tuple[CorpusUser, ...]
    """That the principal sees, the newest first."""

    @classmethod
    def from_corpus(cls, stored: StoredCorpus) -> CorpusPublic:
        """The public view."""
        corpus = stored.corpus
        return cls(
            digest=corpus.digest,
            size_bytes=stored.size_bytes,
            num_tokens=corpus.num_train_tokens + corpus.num_validation_tokens,
            num_documents=corpus.num_train_documents + corpus.num_validation_documents,
            num_text_bytes=corpus.num_bytes,
            vocab_size=corpus.vocab_size,
            created_at=stored.created_at,
            last_used_at=stored.last_used_at,
            jobs=tuple(
                CorpusUser(
                    job_id=use.job.job_id,
                    project=use.job.project,
                    owner=use.job.owner,
                    state=use.job.state,
                    began_at=use.began_at,
                )
                for use in stored.uses
            ),
        )


class CorpusPage(Answer):
    """Some corpora, by digest."""

    items: tuple[CorpusPublic, ...]
    next_cursor: str | None = None
    """Give it as `cursor` for the corpora after these; absent at the end."""


class CleanRequest(Request):
    """What to clean. `null` turns a rule off."""

    dry_run: bool = True
    """Say what would be deleted, and delete nothing."""
    unused_corpora_days: Days | None = 30.0
    """Prepared corpora and cleaned texts go that no job used for so long."""
    checkpoints_to_keep: Annotated[int, Field(ge=0, le=1000)] | None = 1
    """Of jobs that are over so many of the newest checkpoints stay. A failed job without any starts over when it is
    retried."""
    archived_jobs_days: Days | None = None
    """Folders of archived jobs go that ended so long ago: with checkpoints, exports and logs."""

    def to_wish(self) -> CleanWish:
        """As the service has it."""
        return CleanWish(**self.model_dump())


class CleanItem(Answer):
    """One thing that a rule was held against."""

    kind: CleanedKind
    path: str
    """Below the storage."""
    size_bytes: int
    outcome: Outcome
    reason: str
    """Why it goes, or why it stays."""

    @classmethod
    def from_item(cls, item: CleanedItem) -> CleanItem:
        """The public view."""
        return cls(**{name: getattr(item, name) for name in cls.model_fields})


class CleanAnswer(Answer):
    """What was, or would be, deleted, and why the rest stays."""

    dry_run: bool
    num_deleted: int
    """Or that would be, in a dry run."""
    deleted_bytes: int
    num_kept: int
    kept_bytes: int
    num_failed: int
    """That the storage would not delete: they are no longer complete, and go another time."""
    items: tuple[CleanItem, ...]

    @classmethod
    def from_cleaned(cls, cleaned: Cleaned) -> CleanAnswer:
        """The public view."""
        return cls(
            dry_run=cleaned.dry_run,
            num_deleted=cleaned.count_of("deleted", "would_delete"),
            deleted_bytes=cleaned.bytes_of("deleted", "would_delete"),
            num_kept=cleaned.count_of("kept"),
            kept_bytes=cleaned.bytes_of("kept"),
            num_failed=cleaned.count_of("failed"),
            items=tuple(CleanItem.from_item(item) for item in cleaned.items),
        )


class UsageQuery(Request):
    """Of when, and by what."""

    from_: Annotated[AwareDatetime | date | None, Field(alias="from")] = None
    """Start, a moment with its zone or a day in UTC; 30 days before the end when absent."""
    to: AwareDatetime | date | None = None
    """End, which is not part of it: of a day its first moment; now when absent."""
    group_by: Annotated[list[Dimension], Field(default_factory=list, max_length=4)]
    """What rows are told apart by; one row for all when absent."""
    project: ProjectName | None = None
    """Of the projects that the principal sees, this one alone."""
    format: Literal["json", "csv"] = "json"


class UsageRow(Answer):
    """Figures of one group."""

    group: dict[str, str]
    """Dimension to value. Days are of UTC."""
    cpu_hours: float
    gpu_hours: float
    flops: float
    tokens: float
    jobs: int
    """Whose first attempt began in the window."""
    attempts: int
    """That began in the window."""

    @classmethod
    def from_usage(cls, usage: Usage) -> UsageRow:
        """The public view."""
        values = {name: getattr(usage, name) for name in cls.model_fields if name != "group"}
        return cls(group=dict(usage.group), **values)


class UsageReport(Answer):
    """What jobs took of the cluster in a window."""

    from_: Annotated[AwareDatetime, Field(alias="from")]
    to: AwareDatetime
    group_by: tuple[Dimension, ...]
    rows: tuple[UsageRow, ...]
    """Groups in which something ran."""
    total: UsageRow
