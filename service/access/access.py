"""Who a request is of, and what they may do with keys, projects and the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from service.access.addresses import bucket_of
from service.access.audit import Caller
from service.access.interfaces import AccessStore, Project
from service.access.keys import (
    KEY_PREFIX,
    ApiKey,
    hash_secret,
    is_secret_of,
    new_key_id,
    new_secret,
    parse_key,
    written,
)
from service.access.oidc import InvalidTokenError, TokenVerifier
from service.access.principals import LOCAL, Permission, Principal, Role
from service.access.rate_limit import RateLimit
from service.access.streams import OpenStreams
from service.errors import (
    Fault,
    InvalidRequestError,
    KeyNotFoundError,
    NotAuthenticatedError,
    PermissionDeniedError,
    ProjectExistsError,
    ProjectNotFoundError,
    ServiceError,
    TooManyRequestsError,
)
from service.settings import Settings

log = structlog.get_logger(__name__)

USE_INTERVAL = timedelta(minutes=1)
"""A key's last use is written down no more often."""
MAX_KEYS_SHOWN = 1000
_NEEDED = "Send a key or a token as 'Authorization: Bearer …'."


class Access:
    """Recognises principals, and keeps keys and projects."""

    def __init__(
        self,
        settings: Settings,
        store: AccessStore,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` is held against keys' expiry, `clock` paces: seconds from any start."""
        self.store = store
        self.streams = OpenStreams(settings.max_streams_per_principal)
        self._settings = settings
        self._now = now
        self._requests = RateLimit(settings.rate_limit_per_minute, clock)
        self._failures = RateLimit(settings.failed_logins_per_minute, clock)
        self._tokens = None if settings.oidc_issuer is None else TokenVerifier(settings, clock)

    @property
    def is_open(self) -> bool:
        """Nobody is asked who they are."""
        return self._settings.access == "open"

    def authenticate(self, credentials: Sequence[str]) -> Principal:
        """Who shows these.

        Args:
            credentials: the request's `Authorization` headers.

        Raises:
            NotAuthenticatedError: there are none, or none that are valid.
            TooManyRequestsError: the principal asks too often.
            IdentityProviderUnavailableError: a token cannot be checked now.
        """
        if self.is_open:
            return LOCAL
        principal = self._recognise(credentials)
        wait = self._requests.take(principal.name)
        if wait:
            limit = self._settings.rate_limit_per_minute
            raise TooManyRequestsError(f"ELECTRA_RATE_LIMIT_PER_MINUTE is {limit:g}. Wait a little.", wait)
        return principal

    def is_still(self, principal: Principal, credentials: Sequence[str]) -> bool:
        """Whether credentials that showed a principal once show the same one now, with the same roles. No request."""
        if self.is_open:
            return True
        try:
            return self._recognise(credentials) == principal
        except ServiceError as error:
            log.info("principal_no_longer_recognised", principal=principal.name, code=error.code)
            return False

    def note_failure(self, address: str) -> None:
        """Count a failed authentication.

        Raises:
            TooManyRequestsError: there were too many of this address; this one is not worth a row of the audit log.
        """
        wait = self._failures.take(bucket_of(address))
        if wait:
            raise TooManyRequestsError("Too many requests of this address came without a valid key.", wait)

    def _recognise(self, credentials: Sequence[str]) -> Principal:
        if len(credentials) != 1:
            raise NotAuthenticatedError(_NEEDED)
        kind, _, secret = credentials[0].partition(" ")
        secret = secret.strip()
        if kind.lower() != "bearer" or not secret:
            raise NotAuthenticatedError(_NEEDED)
        if secret.startswith(KEY_PREFIX) or self._tokens is None:
            return self._of_key(secret)
        try:
            return self._tokens.principal(secret)
        except InvalidTokenError as error:
            log.info("token_refused", reason=str(error))
            raise NotAuthenticatedError(f"The token is not valid. {_NEEDED}") from error

    def _of_key(self, text: str) -> Principal:
        parts = parse_key(text)
        key = None if parts is None else self.store.find_key(parts[0])
        if parts is None or not is_secret_of(key, parts[1]):
            raise NotAuthenticatedError(f"The key is not valid. {_NEEDED}")
        assert key is not None
        now = self._now()
        if key.revoked_at is not None:
            raise NotAuthenticatedError(f"The key was revoked on {key.revoked_at:%Y-%m-%d}.")
        if key.expires_at is not None and now >= key.expires_at:
            raise NotAuthenticatedError(f"The key expired on {key.expires_at:%Y-%m-%d}.")
        if key.last_used_at is None or now - key.last_used_at >= USE_INTERVAL:
            self.store.note_use(key.key_id, now, now - USE_INTERVAL)
        return key.principal()

    def create_key(
        self,
        caller: Caller,
        *,
        name: str,
        owner: str,
        project: str | None,
        role: Role,
        scopes: frozenset[Permission],
        lifetime_days: int | None,
    ) -> tuple[ApiKey, str]:
        """A new key, and as text what is shown once.

        Raises:
            PermissionDeniedError: the caller may not give so much.
            ProjectNotFoundError: there is no such project, or none that the caller sees.
        """
        giver = _of(caller)
        if project is not None and not (giver.sees(project) and self.store.has_project(project)):
            raise ProjectNotFoundError(project)
        is_allowed = giver.may(Permission.ADMIN, project) if project else giver.may_everywhere(Permission.ADMIN)
        if not is_allowed:
            where = f"project {project!r}" if project else "all projects"
            raise PermissionDeniedError(f"To make this key takes the permission admin in {where}.")
        if not scopes <= giver.scopes:
            more = ", ".join(sorted(scopes - giver.scopes))
            raise PermissionDeniedError(f"A key must not have scopes that its maker lacks, got {more}.")
        now = self._now()
        secret = new_secret()
        key = ApiKey(
            key_id=new_key_id(),
            secret_sha256=hash_secret(secret),
            name=name,
            owner=owner,
            project=project,
            role=role,
            scopes=scopes,
            created_at=now,
            created_by=giver.name,
            expires_at=None if lifetime_days is None else now + timedelta(days=lifetime_days),
        )
        self.store.insert_key(key, caller.entry("key.create", key.key_id, project))
        caller.has_record = True
        return key, written(key.key_id, secret)

    def keys(self, caller: Caller) -> Sequence[ApiKey]:
        """Keys of the projects that the caller administers, newest first."""
        return self.store.list_keys(_of(caller).projects_with(Permission.ADMIN), MAX_KEYS_SHOWN)

    def revoke_key(self, caller: Caller, key_id: str) -> ApiKey:
        """Make a key worthless, now; saying it again changes nothing. A key may revoke itself.

        Raises:
            KeyNotFoundError: there is no such key, or none that the caller administers.
        """
        asker = _of(caller)
        key = self.store.find_key(key_id)
        if key is None or not (asker.key_id == key_id or self._administers(asker, key)):
            raise KeyNotFoundError(key_id)
        self.store.revoke_key(key_id, self._now(), caller.entry("key.revoke", key_id, key.project))
        caller.has_record = True
        found = self.store.find_key(key_id)
        assert found is not None
        return found

    def projects(self, caller: Caller) -> Sequence[Project]:
        """The projects that the caller sees, by name."""
        return [project for project in self.store.list_projects() if _of(caller).sees(project.name)]

    def create_project(self, caller: Caller, name: str) -> Project:
        """A new project. Raises `ProjectExistsError`."""
        project = Project(name, self._now(), _of(caller).name)
        if not self.store.insert_project(project, caller.entry("project.create", name, name)):
            raise ProjectExistsError(f"There is a project {name!r} already.")
        caller.has_record = True
        return project

    def project_for(self, caller: Caller, named: str | None, permission: Permission) -> str:
        """The project that a request is for: the one it names, else the principal's own.

        Raises:
            InvalidRequestError: it names none, and there is no telling which.
            PermissionDeniedError: something is not allowed there.
            ProjectNotFoundError: there is no such project, or none that the caller sees.
        """
        asker = _of(caller)
        project = named or asker.project
        if project is None:
            rule = "must be given where the principal has several projects"
            raise InvalidRequestError(f"project {rule}.", [Fault("/project", rule)])
        if not asker.sees(project) or not self.store.has_project(project):
            raise ProjectNotFoundError(project)
        caller.project = project
        if not asker.may(permission, project):
            raise PermissionDeniedError(f"This takes the permission {permission} in project {project!r}.")
        return project

    @staticmethod
    def _administers(asker: Principal, key: ApiKey) -> bool:
        if key.project is None:
            return asker.may_everywhere(Permission.ADMIN)
        return asker.may(Permission.ADMIN, key.project)


def _of(caller: Caller) -> Principal:
    assert caller.principal is not None, "public paths ask for nothing"
    return caller.principal
