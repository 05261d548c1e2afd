"""Everything a spec names that lies outside it: places, registered models, names under which it is recorded. Pure.

Fields are known by their names. A test walks the schema of every kind of spec: a field of text that is neither such a
field nor known to name nothing fails it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from pipelines.specs.jobs import JobSpec
from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.search import SearchSpec
from pipelines.specs.task import GlueTask
from pipelines.specs.trials import base_spec

PLACE_FIELDS = frozenset(
    {"uri", "uris", "tokenizer_uri", "discriminator_uri", "generator_uri", "train", "validation", "test"}
)
"""Fields whose texts are paths, patterns or URIs."""
_DIAGNOSTICS = ("diagnostic", "AX")
"""Folders beside MNLI's that are looked into too."""


@dataclass(frozen=True)
class Reference:
    """A place that a spec names."""

    pointer: str
    """JSON pointer into the spec."""
    uri: str


def places(spec: JobSpec) -> list[Reference]:
    """Every place a job of this spec would read, those besides that follow from it included; each once."""
    found = dict.fromkeys(_places_of_model(spec, ""))
    if isinstance(spec, SearchSpec):
        # As it is filled in, and as it was written: what is left out of the one counts in the other.
        found |= dict.fromkeys(_places_of_model(base_spec(spec), "/base"))
        found |= dict.fromkeys(_places_of_document(spec.base, "/base", ""))
    return list(found)


def registered_networks(spec: BaseModel) -> list[tuple[str, RegisteredNetwork]]:
    """The models of the registry that a spec names: pointer and name."""
    return [(pointer, model) for pointer, _, model in _walk(spec, "", "") if isinstance(model, RegisteredNetwork)]


def _places_of_model(spec: BaseModel, pointer: str) -> Iterator[Reference]:
    for where, field, value in _walk(spec, pointer, ""):
        if isinstance(value, str) and field in PLACE_FIELDS:
            yield Reference(where, value)
        if isinstance(value, GlueTask) and value.name == "MNLI":
            above = value.uri.rstrip("/").rpartition("/")[0]
            yield from (Reference(f"{where}/uri", f"{above}/{folder}") for folder in _DIAGNOSTICS)


def _places_of_document(value: Any, pointer: str, field: str) -> Iterator[Reference]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _places_of_document(item, f"{pointer}/{_escaped(key)}", str(key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _places_of_document(item, f"{pointer}/{number}", field)
    elif isinstance(value, str) and field in PLACE_FIELDS:
        yield Reference(pointer, value)


def _walk(value: Any, pointer: str, field: str) -> Iterator[tuple[str, str, Any]]:
    """Every section and value: its pointer, the field it stands in and itself."""
    if isinstance(value, BaseModel):
        yield pointer, field, value
        for name in type(value).model_fields:
            yield from _walk(getattr(value, name), f"{pointer}/{name}", name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{pointer}/{_escaped(key)}", "")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _walk(item, f"{pointer}/{number}", field)
    else:
        yield pointer, field, value


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
