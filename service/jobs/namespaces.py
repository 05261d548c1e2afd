"""How registered models and experiments belong to projects: by their names. Pure.

In a project other than `default` the name `x` of a spec means `project--x`, wherever it stands: the model a job
registers, the model it starts from, its experiment. A name that has its own project before it stays as it is. So there
is no way to write another project's: `law--x` in project `clinical` is `clinical--law--x`. Names of `default` have
nothing before them, and must not look as if they had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pipelines.specs.evaluate import EvaluateSpec
from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import JobSpec
from pipelines.specs.task import TaskSuite
from service.access.principals import DEFAULT_PROJECT
from service.errors import Fault, InvalidSpecError
from service.jobs.references import registered_networks

SEPARATOR = "--"
_QUALIFIED = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)--")
_Model = TypeVar("_Model", bound=BaseModel)


def project_of(model_name: str) -> str:
    """The project a registered model belongs to."""
    found = _QUALIFIED.match(model_name)
    return DEFAULT_PROJECT if found is None else found[1]


def qualified(name: str, project: str) -> str:
    """What a name of a spec means in a project."""
    prefix = f"{project}{SEPARATOR}"
    return name if project == DEFAULT_PROJECT or name.startswith(prefix) else prefix + name


def in_project(spec: JobSpec, project: str) -> JobSpec:
    """The spec with every name as it counts for all.

    Raises:
        InvalidSpecError: a name of `default` looks like another project's, or a name grows too long.
    """
    if project == DEFAULT_PROJECT:
        _check_default(spec)
        return spec
    changes: dict[str, Any] = {}
    record: dict[str, Any] = {"experiment": qualified(spec.record.experiment, project)}
    if not isinstance(spec, EvaluateSpec):
        record["model_name"] = qualified(spec.record.model_name or spec.name, project)
        changes["record"] = _changed(spec.record, record, "/spec/record")
    else:
        changes["record"] = _changed(spec.record, record, "/spec/record")
    for pointer, model in registered_networks(spec):
        field = pointer.strip("/")
        assert field in type(spec).model_fields, f"{pointer} must be a section of its own"
        changes[field] = _changed(model, {"name": qualified(model.name, project)}, f"/spec{pointer}")
    return spec.model_copy(update=changes)


def without_own_model_name(document: Mapping[str, Any], project: str) -> dict[str, Any]:
    """The document of a job's spec without the name of its model, where `in_project` has made that of the job's name: a
    job that is made from it under another name registers a model of that name.
    """
    record = document.get("record")
    made = qualified(str(document.get("name")), project)
    if project == DEFAULT_PROJECT or not isinstance(record, Mapping) or record.get("model_name") != made:
        return dict(document)
    return {**document, "record": {**record, "model_name": None}}


def _changed(section: _Model, changes: Mapping[str, Any], pointer: str) -> _Model:
    try:
        return type(section).model_validate({**section.model_dump(), **changes})
    except ValidationError as error:
        faults = [
            Fault(
                f"{pointer}/{'/'.join(map(str, item['loc']))}",
                f"with its project {item['msg']}",
                str(item["input"])[:200],
            )
            for item in error.errors()
        ]
        raise InvalidSpecError(f"{faults[0].pointer}: {faults[0].rule}, got {faults[0].value!r}.", faults) from error


def _check_default(spec: JobSpec) -> None:
    """What is registered has dashes of its own between name, task and network: none may meet another."""
    names = {"/spec/name": spec.name, "/spec/record/experiment": spec.record.experiment}
    model_name = getattr(spec.record, "model_name", None)
    if model_name is not None:
        names["/spec/record/model_name"] = model_name
    names |= {f"/spec{pointer}/name": model.name for pointer, model in registered_networks(spec)}
    if isinstance(spec, FinetuneSpec) and isinstance(spec.suite, TaskSuite):
        names |= {f"/spec/suite/tasks/{name}": name for name in spec.suite.tasks}
    rule = (
        f"must neither hold '{SEPARATOR}' nor end in '-' in project {DEFAULT_PROJECT}: so begin other projects' names"
    )
    faults = [
        Fault(pointer, rule, name[:200]) for pointer, name in names.items() if SEPARATOR in name or name[-1:] == "-"
    ]
    if faults:
        raise InvalidSpecError(f"{faults[0].pointer}: {rule}, got {faults[0].value!r}.", faults)
