"""`/v1/models`: registered models, tried on a few texts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.prediction import PredictAnswer, PredictRequest
from pipelines.specs.record import Name
from service.http.desk import PredictionsDep
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
