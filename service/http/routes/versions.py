"""`/v1/models/{name}/versions`: versions of a registered model, where they come from, and their exports."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from service.access.principals import Permission
from service.http.authorisation import CallerDep
from service.http.desk import ShelfDep
from service.http.model_schemas import ModelLineage, VersionDetail, VersionPage, VersionPublic, VersionQuery
from service.http.problems import problems
from service.http.routes.models import AliasOrVersion, ModelName
from service.http.streams import StreamGuardDep, TimedStream
from service.shelf.tar_stream import tar_size

router = APIRouter(prefix="/v1", tags=["models"])

_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A tar archive of one folder in the layout of Transformers.",
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"Content-Disposition": {"description": "Its name.", "schema": {"type": "string"}}},
    }
}


@router.get("/models/{name}/versions", responses=problems(404))
def list_versions(name: ModelName, query: Annotated[VersionQuery, Query()], shelf: ShelfDep) -> VersionPage:
    """Versions of a model, newest first."""
    found, next_cursor = shelf.models.versions(name, query.limit, query.cursor)
    return VersionPage(items=tuple(map(VersionPublic.from_version, found)), next_cursor=next_cursor)


@router.get("/models/{name}/versions/{version}", responses=problems(404))
def get_version(name: ModelName, version: AliasOrVersion, shelf: ShelfDep) -> VersionDetail:
    """One version, with its card and the aliases that name it."""
    return VersionDetail.made(*shelf.models.version(name, version))


@router.get("/models/{name}/versions/{version}/lineage", responses=problems(404))
def get_lineage(name: ModelName, version: AliasOrVersion, shelf: ShelfDep, caller: CallerDep) -> ModelLineage:
    """What a version was made of: run, job and attempts, corpus and sources, and the models before it."""
    principal = caller.principal
    assert principal is not None
    found, _ = shelf.models.version(name, version)

    def sees(project: str) -> bool:
        return principal.may(Permission.MODELS_READ, project)

    return ModelLineage.from_lineage(shelf.lineages.of(found, sees))


@router.get(
    "/models/{name}/versions/{version}/export",
    response_class=StreamingResponse,
    responses={**problems(404, 503), **_ARCHIVE},
)
async def get_export(name: ModelName, version: AliasOrVersion, shelf: ShelfDep, guard: StreamGuardDep) -> Response:
    """The export of a version as one tar archive, read from the storage as it is sent.

    So many are sent at a time. One whose key is revoked meanwhile ends early, and is shorter than its `Content-Length`.
    """
    found, _ = await run_in_threadpool(shelf.models.version, name, version)
    export = await run_in_threadpool(shelf.exports.find, found)
    headers = {
        "Content-Disposition": f'attachment; filename="{export.name}.tar"',
        "Content-Length": str(tar_size(export.members)),
    }
    pieces = shelf.exports.archives.sent(export.members)
    # The first is waited for here: a refusal is an answer of its own then.
    await anext(pieces)
    try:
        guarded = await guard.open(pieces)
    except BaseException:
        await pieces.aclose()
        raise
    return TimedStream(guarded, media_type="application/x-tar", headers=headers)
