"""What a spec's names of models mean from the moment its job is taken: aliases become the versions that they name then.

So however long the job waits and however often it starts, it starts from one model. A retry keeps the versions of the
job it tries again; a clone, and whatever of a retry its overrides change, looks aliases up anew. Where the registry
knows no such alias yet, or does not answer, the alias stays: the job looks it up when it first runs, and keeps a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.specs.jobs import JobSpec
from pipelines.specs.model_source import RegisteredNetwork
from service.jobs.references import registered_networks

VersionOf = Callable[[RegisteredNetwork], int | None]
"""The version that a model's alias names now; None where that cannot be told."""
Aliases = Mapping[str, str | None]
"""Pointer into a spec to the alias that was asked for there; None where the spec had left it out."""


def pin_models(
    spec: JobSpec, version_of: VersionOf, may_pin: Callable[[str], bool] = lambda pointer: True
) -> tuple[JobSpec, Aliases]:
    """The spec with versions in place of aliases, and the aliases.

    Args:
        spec: admitted.
        version_of: looks an alias up.
        may_pin: whether the alias at a pointer is to be looked up.
    """
    changes: dict[str, RegisteredNetwork] = {}
    aliases: dict[str, str | None] = {}
    for pointer, model in registered_networks(spec):
        if model.version is not None or not may_pin(pointer):
            continue
        version = version_of(model)
        if version is None:
            continue
        field = pointer.strip("/")
        assert field in type(spec).model_fields, f"{pointer} must be a section of its own"
        changes[field] = type(model).model_validate({**model.model_dump(), "alias": None, "version": version})
        aliases[pointer] = model.alias
    return (spec.model_copy(update=changes) if changes else spec), aliases


def unpinned(document: Mapping[str, Any], aliases: Aliases) -> dict[str, Any]:
    """The document of a spec as it was before these aliases were looked up."""
    changed = dict(document)
    for pointer, alias in aliases.items():
        field = pointer.strip("/")
        section = changed.get(field)
        if isinstance(section, Mapping):
            changed[field] = {**section, "alias": alias, "version": None}
    return changed


def touched(pointer: str, overrides: Sequence[str]) -> bool:
    """Whether an override changes something at a pointer or below it."""
    path = pointer.strip("/").replace("/", ".")
    named = (override.partition("=")[0].strip() for override in overrides)
    return any(name == path or name.startswith(f"{path}.") for name in named)
