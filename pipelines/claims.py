"""Who has a job's folder: the process that claimed it last, for the latest attempt.

Attempts overlap when one is thought lost that lives: its Ray head is gone, or cannot be reached, or was restored from
an older state. Even the same attempt can be started twice, where Ray took it and forgot. So each process claims the
folder under a token of its own. Whoever had it reads that at its next look, every `REPORT_INTERVAL_SECONDS`, and ends
itself; a checkpoint or a figure that is about to be written is a look too. The new one waits until the one before has
said that it left, or could not but have looked, before it does anything.

Source: Gray and Cheriton 1989 on leases, Kleppmann 2016 on fencing tokens. A storage that compares tokens by itself
would need no waiting; pyarrow's filesystems do not.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from pydantic import ValidationError

from pipelines import storage
from pipelines.errors import JobSuperseded
from pipelines.specs.documents import ATTEMPT_FILE, TENURES_FOLDER, AttemptNote, Tenure

log = logging.getLogger(__name__)

FENCE_SECONDS = 10.0
"""After so long whoever had the folder has seen that it is another's: five of its looks."""
_POLL_SECONDS = 0.25

Guard: TypeAlias = Callable[[], None]
"""Called before something is written that two attempts must not both write; raises `JobSuperseded`."""


def unguarded() -> None:
    """Of what nobody else writes."""


@dataclass(frozen=True)
class Claim:
    """What a process shows for the folder being its own. Workers get it from their driver."""

    job_uri: str
    attempt: int
    token: str | None = None
    """None stands for whichever process works for the attempt."""

    def check(self) -> None:
        """See that the folder is still this one's.

        Raises:
            JobSuperseded: another process has it.
            StorageError: that cannot be told now.
        """
        self._read_own()

    def guard(self) -> None:
        """`check`, for use before a write: where it cannot be told whose the folder is, the write counts more.

        Raises:
            JobSuperseded: another process has it.
        """
        try:
            self.check()
        except (storage.StorageError, ValueError) as error:
            log.warning("attempt_unreadable", extra={"reason": str(error)[:300]})

    def hold(self) -> None:
        """`check`; where an earlier attempt, which began at the same moment, wrote last, take the folder back.

        Raises:
            JobSuperseded: another process has it.
            StorageError: that cannot be told now.
        """
        note = self._read_own()
        if note is None or note.attempt < self.attempt:
            _write_note(self)

    def _read_own(self) -> AttemptNote | None:
        note = read_note(self.job_uri)
        if note is not None and _is_others(note, self):
            raise JobSuperseded(self.attempt, note.attempt)
        return note


def claim(job_uri: str, attempt: int) -> tuple[Claim, AttemptNote | None]:
    """Take the folder; also whose it was, None where it was nobody's.

    Raises:
        JobSuperseded: a later attempt has it.
    """
    before = read_note(job_uri)
    if before is not None and before.attempt > attempt:
        raise JobSuperseded(attempt, before.attempt)
    mine = Claim(job_uri, attempt, secrets.token_hex(4))
    _write_note(mine)
    return mine, before


def wait_for_leave(
    mine: Claim,
    before: AttemptNote | None,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when whoever had the folder writes there no more: it said that it left, or the deadline is past.

    Args:
        mine: who waits.
        before: whose the folder was.
        deadline: `FENCE_SECONDS` after the claim, by `clock`.
        clock: in seconds.
        sleep: waits for as many seconds.

    Raises:
        JobSuperseded: meanwhile another process took the folder.
    """
    if before is None:
        return
    while clock() < deadline and not _has_left(mine.job_uri, before):
        sleep(min(_POLL_SECONDS, max(0.0, deadline - clock())))
    mine.check()


@contextmanager
def tenure(mine: Claim) -> Iterator[None]:
    """Write down when the work begins, and when it ends: a next attempt need not wait then."""
    assert mine.token is not None
    begun = Tenure(
        attempt=mine.attempt, token=mine.token, host=socket.gethostname(), pid=os.getpid(), began_at=datetime.now(UTC)
    )
    _write_tenure(mine, begun)
    try:
        yield
    finally:
        _write_tenure(mine, begun.model_copy(update={"ended_at": datetime.now(UTC)}))


def read_note(job_uri: str) -> AttemptNote | None:
    """Who has the folder; None before the first attempt."""
    uri = storage.join(job_uri, ATTEMPT_FILE)
    if not storage.exists(uri):
        return None
    return AttemptNote.model_validate(storage.read_json(uri))


def _is_others(note: AttemptNote, mine: Claim) -> bool:
    if note.attempt != mine.attempt or mine.token is None:
        return note.attempt > mine.attempt
    return note.token not in (None, mine.token)


def _write_note(mine: Claim) -> None:
    note = AttemptNote(attempt=mine.attempt, token=mine.token, began_at=datetime.now(UTC))
    storage.write_json(storage.join(mine.job_uri, ATTEMPT_FILE), note.model_dump(mode="json"))


def _tenure_uri(job_uri: str, attempt: int, token: str | None) -> str:
    return storage.join(job_uri, TENURES_FOLDER, f"attempt-{attempt}-{token}.json")


def _write_tenure(mine: Claim, tenure: Tenure) -> None:
    try:
        storage.write_json(_tenure_uri(mine.job_uri, mine.attempt, mine.token), tenure.model_dump(mode="json"))
    except storage.StorageError as error:  # the next attempt will wait, and nothing else
        log.warning("tenure_unwritten", extra={"reason": str(error)[:300]})


def _has_left(job_uri: str, note: AttemptNote) -> bool:
    if note.token is None:  # of a version that does not say
        return False
    uri = _tenure_uri(job_uri, note.attempt, note.token)
    try:
        return storage.exists(uri) and Tenure.model_validate(storage.read_json(uri)).ended_at is not None
    except (storage.StorageError, ValidationError):
        return False
