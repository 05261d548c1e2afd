"""`/v1/clean`: what is no longer used goes, or would go."""

from __future__ import annotations

from fastapi import APIRouter

from service.http.authorisation import CallerDep
from service.http.desk import ShelfDep
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute
from service.http.shelf_schemas import CleanAnswer, CleanRequest

router = APIRouter(prefix="/v1", tags=["corpora"], route_class=StrictJsonRoute)

_BY_DEFAULT = CleanRequest()


@router.post("/clean", responses=problems(409, 415))
def clean(shelf: ShelfDep, caller: CallerDep, request: CleanRequest = _BY_DEFAULT) -> CleanAnswer:
    """Delete corpora, checkpoints and folders that nobody needs, by rules; a dry run unless `dry_run` is false.

    What a job that is not over or a registered model needs stays. The answer comes when all is done.
    """
    return CleanAnswer.from_cleaned(shelf.cleaning.run(request.to_wish(), caller))
