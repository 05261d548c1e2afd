"""What a job may claim of the queue and the cluster, which all projects share: whoever is no administrator of all of
them is held to the settings. Pure.
"""

from __future__ import annotations

from service.access.principals import Permission, Principal
from service.errors import Fault, PermissionDeniedError
from service.records import JobLimits
from service.settings import Settings

_SETTINGS = {
    "starting_seconds": "starting_timeout_seconds",
    "running_seconds": "running_timeout_seconds",
    "silence_seconds": "heartbeat_timeout_seconds",
}
"""By limit of a job, the service's own."""


class Bounds:
    """Holds priorities and limits to the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_priority(self, principal: Principal, priority: int) -> None:
        """Raises `PermissionDeniedError`: it is more than the principal may give."""
        most = self._settings.max_member_priority
        if priority > most and not _is_free(principal):
            rule = f"must be at most {most} (ELECTRA_MAX_MEMBER_PRIORITY)"
            raise _denied("priority", rule, priority)

    def check_limits(self, principal: Principal, limits: JobLimits) -> None:
        """Raises `PermissionDeniedError`: one is longer than the service's."""
        for name, setting in _SETTINGS.items():
            own, most = getattr(limits, name), getattr(self._settings, setting)
            if own is not None and most is not None and own > most and not _is_free(principal):
                raise _denied(f"limits/{name}", f"must be at most {most:g} (ELECTRA_{setting.upper()})", own)

    def priority_within(self, principal: Principal, priority: int) -> int:
        """An inherited priority, as far as the principal may give it."""
        return priority if _is_free(principal) else min(priority, self._settings.max_member_priority)

    def limits_within(self, principal: Principal, limits: JobLimits) -> JobLimits:
        """Inherited limits; those that the principal may not give are the service's."""
        if _is_free(principal):
            return limits
        own = limits.model_dump()
        for name, setting in _SETTINGS.items():
            most = getattr(self._settings, setting)
            if own[name] is not None and most is not None and own[name] > most:
                own[name] = None
        return JobLimits(**own)


def _is_free(principal: Principal) -> bool:
    return principal.may_everywhere(Permission.ADMIN)


def _denied(field: str, rule: str, value: float) -> PermissionDeniedError:
    detail = f"{field.replace('/', '.')} {rule}, got {value:g}: more takes the permission admin in all projects."
    return PermissionDeniedError(detail, [Fault(f"/{field}", rule, f"{value:g}")])
