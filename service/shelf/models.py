"""What can be asked of registered models: lists, one version, and aliases that move one at a time."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pydantic import TypeAdapter, ValidationError

from pipelines.specs.record import Name
from service.access.audit import AuditEntry, Caller
from service.access.principals import DEFAULT_PROJECT
from service.errors import AliasMovedError, Fault, InvalidCursorError, InvalidRequestError, ModelNotFoundError
from service.jobs.namespaces import SEPARATOR, project_of
from service.records import Job
from service.shelf.registry import Locks, RegisteredModel, RegisteredVersion, Registry

log = structlog.get_logger(__name__)

LOCK_PATIENCE_SECONDS = 10.0
_PAGE = 100
"""Models asked for at a time, of which those of other projects are left out."""
_MAX_PAGES = 20
"""Asked for one request; a page that is short for it still has a cursor."""
_NAMES: TypeAdapter[str] = TypeAdapter(Name)
_CURSOR = re.compile(r"([0-9]{1,6}) ([A-Za-z0-9+/=_-]{0,400})")
_RESERVED = re.compile(r"latest|[vV][0-9]+", re.IGNORECASE)


@dataclass(frozen=True)
class AliasMove:
    """What became of an alias."""

    before: int | None
    after: int | None


class Models:
    """Registered models of the projects that a principal sees."""

    def __init__(self, registry: Registry, locks: Locks, record: Callable[[AuditEntry], None]) -> None:
        """`record` adds a row to the audit log."""
        self._registry = registry
        self._locks = locks
        self._record = record

    def page(
        self, visible: frozenset[str] | None, limit: int, cursor: str | None
    ) -> tuple[list[RegisteredModel], str | None]:
        """Models by name, and the cursor of those after them.

        Args:
            visible: projects; None for all.
            limit: models at most.
            cursor: of the page before.

        Raises:
            InvalidCursorError: it was not made here.
            RegistryUnavailableError: MLflow does not answer.
        """
        token, skip = _read_cursor(cursor)
        if visible == frozenset():
            return [], None
        prefix = _only_prefix(visible)
        found: list[RegisteredModel] = []
        for _ in range(_MAX_PAGES):
            items, after = self._registry.search_models(prefix, token, _PAGE)
            for place in range(skip, len(items)):
                if len(found) == limit:
                    return found, _write_cursor(token, place)
                if _can_be_asked_for(items[place].name) and _is_visible(items[place].name, visible):
                    found.append(items[place])
            token, skip = after, 0
            if token is None:
                return found, None
        return found, _write_cursor(token, 0)

    def get(self, name: str) -> RegisteredModel:
        """One model. Raises `ModelNotFoundError`, `RegistryUnavailableError`."""
        found = self._registry.model(name)
        if found is None:
            raise ModelNotFoundError(f"There is no model {name!r}.")
        return found

    def versions(self, name: str, limit: int, cursor: str | None) -> tuple[list[RegisteredVersion], str | None]:
        """Versions of a model, the newest first, and the cursor of those after them.

        Raises:
            ModelNotFoundError: there is no such model.
            InvalidCursorError: the cursor was not made here.
            RegistryUnavailableError: MLflow does not answer.
        """
        self.get(name)
        token, _ = _read_cursor(cursor)
        items, after = self._registry.search_versions(name, token, limit)
        return items, None if after is None else _write_cursor(after, 0)

    def version(self, name: str, wanted: str) -> tuple[RegisteredVersion, tuple[str, ...]]:
        """A version by number or alias, and all its aliases. Raises as `get`."""
        model = self.get(name)
        number = int(wanted) if wanted.isdecimal() else model.aliases.get(wanted)
        found = None if number is None else self._registry.version(name, number)
        if found is None:
            raise ModelNotFoundError(f"Model {name!r} has no version {wanted!r}.")
        return found, tuple(sorted(alias for alias, version in model.aliases.items() if version == number))

    def made_by(self, job: Job) -> RegisteredVersion | None:
        """A version that a job has made and that is still registered, by its own word or by MLflow's.

        Raises:
            RegistryUnavailableError: MLflow does not answer.
        """
        for made in () if job.result is None else job.result.models:
            if made.version.isdecimal() and (found := self._registry.version(made.name, int(made.version))) is not None:
                return found
        return self._registry.version_of_job(job.job_id)

    def move_alias(self, name: str, alias: str, version: int | None, expected: int | None, caller: Caller) -> AliasMove:
        """Let an alias name a version or, with None, nothing.

        Args:
            name: of the model.
            alias: it is made where there is none.
            version: which must be there.
            expected: the version it must name now, 0 for none; None for any.
            caller: who asks.

        Raises:
            ModelNotFoundError: there is no such model, version or, to delete, alias.
            InvalidRequestError: the alias is reserved.
            AliasMovedError: it names another version than was expected, or is being moved.
            RegistryUnavailableError: MLflow does not answer.
        """
        if _RESERVED.fullmatch(alias):
            rule = "must not be 'latest' or a version such as 'v1'"
            raise InvalidRequestError(f"alias {rule}, got {alias!r}.", [Fault("/path/alias", rule, alias)])
        self.get(name)  # a lock is a row for good: none is made of a name that is nobody's
        with self._locks.holding(f"alias:{name}", LOCK_PATIENCE_SECONDS) as is_held:
            if not is_held:
                raise AliasMovedError(f"Somebody else is moving aliases of {name!r}. Look again.")
            before = self.get(name).aliases.get(alias)
            _check_expected(name, alias, before, expected)
            if version is None and before is None:
                raise ModelNotFoundError(f"Model {name!r} has no alias {alias!r}.")
            if version is not None and self._registry.version(name, version) is None:
                raise ModelNotFoundError(f"Model {name!r} has no version {version}.")
            if version is None:
                self._registry.delete_alias(name, alias)
            else:
                self._registry.set_alias(name, alias, version)
            log.info("alias_moved", model=name, alias=alias, before=before, after=version)
            outcome = f"done: {before or 'nothing'} -> {version or 'nothing'}"
            action = "model.delete_alias" if version is None else "model.promote"
            self._record(caller.entry(action, f"{name}@{alias}", project_of(name), outcome))
            caller.has_record = True
            return AliasMove(before, version)


def _check_expected(name: str, alias: str, before: int | None, expected: int | None) -> None:
    if expected is not None and expected != (before or 0):
        is_at = f"names version {before}" if before else "is not there"
        rule = "must be the version that the alias names now, or 0 where there is no such alias"
        raise AliasMovedError(
            f"{name}@{alias} {is_at}, and not at {expected or 'nothing'}. Look again, and decide anew.",
            [Fault("/query/expected_version", rule, str(expected))],
        )


def _only_prefix(visible: frozenset[str] | None) -> str:
    """How all names begin, where one project alone is meant that has its name before them."""
    if visible is None or len(visible) != 1 or visible == {DEFAULT_PROJECT}:
        return ""
    return min(visible) + SEPARATOR


def _is_visible(name: str, visible: frozenset[str] | None) -> bool:
    return visible is None or project_of(name) in visible


def _can_be_asked_for(name: str) -> bool:
    """MLflow takes names that our paths do not."""
    try:
        _NAMES.validate_python(name)
    except ValidationError:
        return False
    return True


def _write_cursor(token: str | None, place: int) -> str:
    return base64.urlsafe_b64encode(f"{place} {token or ''}".encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[str | None, int]:
    if cursor is None:
        return None, 0
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii")
    except ValueError:
        text = ""
    found = _CURSOR.fullmatch(text)
    if found is None:
        rule = "cursor must be the next_cursor of an earlier page"
        raise InvalidCursorError(f"{rule}.", [Fault("/query/cursor", rule, cursor[:200])])
    return found[2] or None, int(found[1])
