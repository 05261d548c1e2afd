"""`/v1/models`: registered models, their aliases, and a model tried on a few texts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.prediction import PredictAnswer, PredictRequest
from pipelines.specs.record import Alias, Name
from service.access.audit import Caller
from service.access.principals import Permission
from service.http.authorisation import CallerDep
from service.http.desk import PredictionsDep, ShelfDep
from service.http.model_schemas import AliasMove, AliasMoved, AliasQuery, ModelPage, ModelPublic, ModelQuery
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute

router = APIRouter(prefix="/v1", tags=["models"], route_class=StrictJsonRoute)

ModelName = Annotated[Name, Path(description="Of the registered model.")]
AliasOrVersion = Annotated[
    str,
    Path(
        pattern=r"^([A-Za-z][A-Za-z0-9_-]{0,99}|[1-9][0-9]{0,8})$",
        description="Alias of a version in MLflow's registry, such as `newest`, or its number.",
    ),
]
AliasName = Annotated[Alias, Path(description="Of a version in MLflow's registry.")]


@router.get("/models", responses=problems())
def list_models(query: Annotated[ModelQuery, Query()], shelf: ShelfDep, caller: CallerDep) -> ModelPage:
    """Registered models of the projects that the principal sees, by name."""
    found, next_cursor = shelf.models.page(_visible(caller, query.project), query.limit, query.cursor)
    return ModelPage(items=tuple(map(ModelPublic.from_model, found)), next_cursor=next_cursor)


@router.get("/models/{name}", responses=problems(404))
def get_model(name: ModelName, shelf: ShelfDep) -> ModelPublic:
    """One registered model, with its aliases."""
    return ModelPublic.from_model(shelf.models.get(name))


@router.put("/models/{name}/aliases/{alias}", responses=problems(404, 409, 415))
def move_alias(
    name: ModelName,
    alias: AliasName,
    request: AliasMove,
    query: Annotated[AliasQuery, Query()],
    shelf: ShelfDep,
    caller: CallerDep,
) -> AliasMoved:
    """Let an alias name a version: so a model is promoted. With `expected_version` only if nobody else was faster."""
    move = shelf.models.move_alias(name, alias, request.version, query.expected_version, caller)
    return AliasMoved(name=name, alias=alias, before=move.before, after=move.after)


@router.delete("/models/{name}/aliases/{alias}", responses=problems(404, 409))
def delete_alias(
    name: ModelName, alias: AliasName, query: Annotated[AliasQuery, Query()], shelf: ShelfDep, caller: CallerDep
) -> AliasMoved:
    """Let an alias name nothing. The version stays."""
    move = shelf.models.move_alias(name, alias, None, query.expected_version, caller)
    return AliasMoved(name=name, alias=alias, before=move.before, after=move.after)


@router.post("/models/{name}/{alias}:predict", responses=problems(404, 415, 503, 504))
def predict(
    name: ModelName, alias: AliasOrVersion, request: PredictRequest, predictions: PredictionsDep
) -> PredictAnswer:
    """What a registered model says to a few texts; on a CPU, and with some seconds of waiting, for a process of its own
    loads it. For many texts take the model where it lies.
    """
    return predictions.predict(_named(name, alias), request)


def _named(name: str, alias: str) -> RegisteredNetwork:
    if alias.isdecimal():
        return RegisteredNetwork(name=name, version=int(alias))
    return RegisteredNetwork(name=name, alias=alias)


def _visible(caller: Caller, project: str | None) -> frozenset[str] | None:
    assert caller.principal is not None
    visible = caller.principal.projects_with(Permission.MODELS_READ)
    if project is None:
        return visible
    return frozenset({project}) if visible is None else visible & {project}
