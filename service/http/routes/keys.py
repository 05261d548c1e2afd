"""`/v1/keys` and `/v1/me`: API keys, and who shows one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from service.access.keys import KEY_ID_PATTERN
from service.http.access_schemas import KeyCreate, KeyCreated, KeyList, KeyPublic, Me
from service.http.authorisation import CallerDep
from service.http.desk import AccessDep
from service.http.problems import problems
from service.http.routes.bodies import StrictJsonRoute

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictJsonRoute)


@router.get("/me", responses=problems())
async def get_me(caller: CallerDep) -> Me:
    """Who the request was recognised as."""
    assert caller.principal is not None
    return Me.from_principal(caller.principal)


@router.post("/keys", status_code=201, responses=problems(404, 415))
def create_key(request: KeyCreate, access: AccessDep, caller: CallerDep) -> KeyCreated:
    """Make a key. It is shown in this answer and never again."""
    key, text = access.create_key(
        caller,
        name=request.name,
        owner=request.owner,
        project=request.project,
        role=request.role,
        scopes=request.scopes,
        lifetime_days=request.lifetime_days,
    )
    return KeyCreated.made(key, text)


@router.get("/keys", responses=problems())
def list_keys(access: AccessDep, caller: CallerDep) -> KeyList:
    """Keys of the projects that the principal administers, newest first."""
    return KeyList(items=tuple(KeyPublic.from_key(key) for key in access.keys(caller)))


@router.post("/keys/{key_id}/revoke", responses=problems(404))
def revoke_key(key_id: Annotated[str, Path(pattern=KEY_ID_PATTERN)], access: AccessDep, caller: CallerDep) -> KeyPublic:
    """Make a key worthless, at once. A key may revoke itself."""
    return KeyPublic.from_key(access.revoke_key(caller, key_id))
