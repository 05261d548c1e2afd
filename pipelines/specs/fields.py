"""Where fields stand in a spec: from a place that pydantic names to what is written there, and from names to paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

Model = type[BaseModel]
Pattern = tuple[str, ...]
"""A path in which `*` stands for any key of a mapping and any number of a list."""


@dataclass(frozen=True)
class Place:
    """Somewhere in a document."""

    path: tuple[int | str, ...]
    """Keys and indices as the user wrote them: without what pydantic puts between."""
    pattern: Pattern
    models: tuple[Model, ...]
    """What may stand there: a section, or those that its `type` chooses from; empty where it is no section."""
    others: tuple[Model, ...] = ()
    """Sections of other types that might have stood there, where a `type` was chosen."""


def place_of(root: Model, location: Sequence[int | str]) -> Place:
    """The place of a spec that pydantic means.

    Args:
        root: what the whole document should be.
        location: `loc` of an error. Below a union it has the chosen type, or the name of a member, as one part more.
    """
    path: list[int | str] = []
    pattern: list[str] = []
    kinds: tuple[Any, ...] = (root,)
    others: tuple[Model, ...] = ()
    for part in location:
        if part == "[key]":  # how pydantic says that a key of a mapping is wrong, and not its value
            continue
        if len(kinds) > 1:
            chosen = tuple(kind for kind in kinds if _is_model(kind) and part in types_of((kind,)))
            kinds, others = chosen, tuple(kind for kind in kinds if _is_model(kind) and kind not in chosen)
            continue
        name, kinds = _step(kinds, part)
        others = ()
        path.append(part)
        pattern.append(name)
    return Place(tuple(path), tuple(pattern), tuple(filter(_is_model, kinds)), others)


def types_of(models: Sequence[Model]) -> list[str]:
    """What sections have for `type`."""
    return [str(one) for model in models if "type" in model.model_fields for one in _literals(model)]


def paths_to(root: Model, name: str, inner: Mapping[str, Model]) -> list[Pattern]:
    """Where a spec has a field of this name, each path once.

    Args:
        root: what the whole document should be.
        name: of the field.
        inner: sections of the document that are documents themselves, and are checked apart.
    """
    found: dict[Pattern, None] = {}

    def look_into(annotation: Any, path: Pattern) -> None:
        for kind in _kinds(annotation):
            if _is_model(kind):
                for field, info in kind.model_fields.items():
                    if field == name:
                        found[*path, field] = None
                    look_into(inner[field] if not path and field in inner else info.annotation, (*path, field))
            elif (item := _item(kind)) is not None:
                look_into(item, (*path, "*"))

    look_into(root, ())
    return list(found)


def _step(kinds: tuple[Any, ...], part: int | str) -> tuple[str, tuple[Any, ...]]:
    """One part of a path as a pattern has it, and what may stand there; nothing where that is not known."""
    kind = kinds[0] if kinds else Any
    if _is_model(kind):
        field = kind.model_fields.get(str(part))
        return str(part), () if field is None else _kinds(field.annotation)
    item = _item(kind)
    return (str(part), ()) if item is None else ("*", _kinds(item))


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type that is no union; None is passed over."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(kind for member in get_args(annotation) for kind in _kinds(member))
    return () if annotation is NoneType else (annotation,)


def _item(kind: Any) -> Any:
    """Of a mapping the type of its values, of a list that of its members, else None."""
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        return arguments[1]
    return arguments[0] if get_origin(kind) is tuple and arguments else None


def _is_model(kind: Any) -> TypeGuard[Model]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _literals(model: Model) -> tuple[Any, ...]:
    return get_args(model.model_fields["type"].annotation)
