"""What each route takes: the whole table. A route that does not stand in it serves nobody, and fails a test. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from service.access.principals import Permission


class On(Enum):
    """What the permission is needed on."""

    NOTHING = "public"
    """Anybody may, without a key."""
    ANYTHING = "recognised"
    """Whoever is recognised may."""
    SOME_PROJECT = "some project"
    """In one project at least; the route itself looks at which."""
    ALL_PROJECTS = "all projects"
    JOB = "job"
    """In the project of the job of the path, which must be the principal's own unless they are an administrator, where
    the permission is to write. To whom its project is hidden, the job is not there."""
    JOB_OF_ANYBODY = "anybody's job"
    """In the project of the job of the path, whoever it is of: for what leaves it as it is."""
    MODEL = "model"
    """In the project of the registered model of the path."""


@dataclass(frozen=True)
class Rule:
    """What one route takes."""

    on: On
    permission: Permission | None = None
    action: str | None = None
    """Name in the audit log of what the route changes; None where it changes nothing."""


_READ, _WRITE, _ADMIN = Permission.JOBS_READ, Permission.JOBS_WRITE, Permission.ADMIN
_SEE_MODELS, _MOVE_ALIASES = Permission.MODELS_READ, Permission.MODELS_WRITE
RULES: Mapping[tuple[str, str], Rule] = {
    ("GET", "/healthz"): Rule(On.NOTHING),
    ("GET", "/readyz"): Rule(On.NOTHING),
    # The page is no secret: what it shows, it asks of `/v1` with the reader's own key.
    ("GET", "/"): Rule(On.NOTHING),
    ("GET", "/ui"): Rule(On.NOTHING),
    ("GET", "/ui/"): Rule(On.NOTHING),
    ("GET", "/ui/{version}/{name}"): Rule(On.NOTHING),
    # Of all projects together, and of the routes that are asked for.
    ("GET", "/metrics"): Rule(On.ALL_PROJECTS, Permission.METRICS_READ),
    ("GET", "/v1/presets"): Rule(On.ANYTHING),
    ("GET", "/v1/presets/{name}"): Rule(On.ANYTHING),
    ("GET", "/v1/me"): Rule(On.ANYTHING),
    ("GET", "/v1/jobs"): Rule(On.SOME_PROJECT, _READ),
    ("POST", "/v1/jobs"): Rule(On.SOME_PROJECT, _WRITE, "job.create"),
    ("POST", "/v1/jobs:plan"): Rule(On.SOME_PROJECT, _WRITE),
    ("GET", "/v1/jobs/{job_id}"): Rule(On.JOB, _READ),
    ("GET", "/v1/jobs/{job_id}/logs"): Rule(On.JOB, _READ),
    ("GET", "/v1/jobs/{job_id}/logs/sources"): Rule(On.JOB, _READ),
    ("GET", "/v1/jobs/{job_id}/trials"): Rule(On.JOB, _READ),
    # The route itself leaves out what happens to jobs of other projects.
    ("GET", "/v1/events"): Rule(On.SOME_PROJECT, _READ),
    ("GET", "/v1/jobs/{job_id}/events"): Rule(On.JOB, _READ),
    ("PATCH", "/v1/jobs/{job_id}"): Rule(On.JOB, _WRITE, "job.edit"),
    ("POST", "/v1/jobs/{job_id}/cancel"): Rule(On.JOB, _WRITE, "job.cancel"),
    ("POST", "/v1/jobs/{job_id}/kill"): Rule(On.JOB, _WRITE, "job.kill"),
    ("POST", "/v1/jobs/{job_id}/pause"): Rule(On.JOB, _WRITE, "job.pause"),
    ("POST", "/v1/jobs/{job_id}/resume"): Rule(On.JOB, _WRITE, "job.resume"),
    ("POST", "/v1/jobs/{job_id}/archive"): Rule(On.JOB, _WRITE, "job.archive"),
    ("POST", "/v1/jobs/{job_id}/unarchive"): Rule(On.JOB, _WRITE, "job.unarchive"),
    ("POST", "/v1/jobs/{job_id}/retry"): Rule(On.JOB_OF_ANYBODY, _WRITE, "job.retry"),
    ("POST", "/v1/jobs/{job_id}/clone"): Rule(On.JOB_OF_ANYBODY, _WRITE, "job.clone"),
    ("POST", "/v1/models/{name}/{alias}:predict"): Rule(On.MODEL, Permission.MODELS_READ),
    # The routes themselves leave out models, corpora and attempts of projects that are hidden.
    ("GET", "/v1/models"): Rule(On.SOME_PROJECT, _SEE_MODELS),
    ("GET", "/v1/models/{name}"): Rule(On.MODEL, _SEE_MODELS),
    ("PUT", "/v1/models/{name}/aliases/{alias}"): Rule(On.MODEL, _MOVE_ALIASES, "model.promote"),
    ("DELETE", "/v1/models/{name}/aliases/{alias}"): Rule(On.MODEL, _MOVE_ALIASES, "model.delete_alias"),
    ("GET", "/v1/models/{name}/versions"): Rule(On.MODEL, _SEE_MODELS),
    ("GET", "/v1/models/{name}/versions/{version}"): Rule(On.MODEL, _SEE_MODELS),
    ("GET", "/v1/models/{name}/versions/{version}/lineage"): Rule(On.MODEL, _SEE_MODELS),
    ("GET", "/v1/models/{name}/versions/{version}/export"): Rule(On.MODEL, _SEE_MODELS),
    ("GET", "/v1/corpora"): Rule(On.SOME_PROJECT, _READ),
    ("GET", "/v1/corpora/{digest}"): Rule(On.SOME_PROJECT, _READ),
    ("GET", "/v1/usage"): Rule(On.SOME_PROJECT, _READ),
    ("POST", "/v1/clean"): Rule(On.ALL_PROJECTS, _ADMIN, "clean"),
    ("GET", "/v1/projects"): Rule(On.ANYTHING),
    ("POST", "/v1/projects"): Rule(On.ALL_PROJECTS, _ADMIN, "project.create"),
    ("GET", "/v1/keys"): Rule(On.SOME_PROJECT, _ADMIN),
    ("POST", "/v1/keys"): Rule(On.SOME_PROJECT, _ADMIN, "key.create"),
    # Whoever holds a key may revoke it: of others' the route itself says that they are not there.
    ("POST", "/v1/keys/{key_id}/revoke"): Rule(On.ANYTHING, action="key.revoke"),
    # Of webhooks of other projects the routes say that they are not there.
    ("GET", "/v1/webhooks"): Rule(On.SOME_PROJECT, _ADMIN),
    ("POST", "/v1/webhooks"): Rule(On.SOME_PROJECT, _ADMIN, "webhook.create"),
    ("GET", "/v1/webhooks/{webhook_id}"): Rule(On.SOME_PROJECT, _ADMIN),
    ("DELETE", "/v1/webhooks/{webhook_id}"): Rule(On.SOME_PROJECT, _ADMIN, "webhook.delete"),
    ("POST", "/v1/webhooks/{webhook_id}/enable"): Rule(On.SOME_PROJECT, _ADMIN, "webhook.enable"),
    ("POST", "/v1/webhooks/{webhook_id}/test"): Rule(On.SOME_PROJECT, _ADMIN, "webhook.test"),
    ("GET", "/v1/webhooks/{webhook_id}/deliveries"): Rule(On.SOME_PROJECT, _ADMIN),
    ("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver"): Rule(
        On.SOME_PROJECT, _ADMIN, "webhook.redeliver"
    ),
    # The route itself leaves out jobs of other projects.
    ("GET", "/v1/queue"): Rule(On.SOME_PROJECT, _READ),
    ("GET", "/v1/quotas"): Rule(On.ALL_PROJECTS, _ADMIN),
    ("GET", "/v1/quotas/{scope}/{name}"): Rule(On.ALL_PROJECTS, _ADMIN),
    ("PUT", "/v1/quotas/{scope}/{name}"): Rule(On.ALL_PROJECTS, _ADMIN, "quota.set"),
    ("DELETE", "/v1/quotas/{scope}/{name}"): Rule(On.ALL_PROJECTS, _ADMIN, "quota.remove"),
    ("GET", "/v1/audit"): Rule(On.SOME_PROJECT, _ADMIN),
}
"""By method and path, as the routes have them."""

_OF_SUPERVISORS = ("/healthz", "/readyz")
_OF_THE_PAGE = ("/", "/ui", "/ui/", "/ui/{version}/{name}")
_OF_THE_INTERFACE = ("/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
PUBLIC_PATHS = frozenset({*_OF_SUPERVISORS, *_OF_THE_PAGE, *_OF_THE_INTERFACE})
"""Served without a key, as the routes have them: the interface is no secret, and supervisors have none."""

_PAGE_FILE = re.compile(r"/ui/[0-9a-f]{1,64}/[a-z_]{1,60}\.[a-z]{1,8}")


def is_public(path: str) -> bool:
    """Whether a path, as it was asked for, is served without a key."""
    return path in PUBLIC_PATHS or _PAGE_FILE.fullmatch(path) is not None
