"""`/v1/corpora`: prepared corpora, their size and their users."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from service.access.principals import Permission
from service.http.authorisation import CallerDep
from service.http.desk import ShelfDep
from service.http.problems import problems
from service.http.shelf_schemas import CorpusPage, CorpusPublic, CorpusQuery

router = APIRouter(prefix="/v1", tags=["corpora"])

Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="Of what made the corpus.")]


@router.get("/corpora", responses=problems())
def list_corpora(query: Annotated[CorpusQuery, Query()], shelf: ShelfDep, caller: CallerDep) -> CorpusPage:
    """Prepared corpora that jobs of the principal's projects use or have used; to administrators of all, every one."""
    assert caller.principal is not None
    visible = caller.principal.projects_with(Permission.JOBS_READ)
    if query.project is not None:
        visible = frozenset({query.project}) if visible is None else visible & {query.project}
    found, next_cursor = shelf.corpora.page(visible, query.limit, query.cursor)
    return CorpusPage(items=tuple(map(CorpusPublic.from_corpus, found)), next_cursor=next_cursor)


@router.get("/corpora/{digest}", responses=problems(404))
def get_corpus(digest: Digest, shelf: ShelfDep, caller: CallerDep) -> CorpusPublic:
    """One prepared corpus."""
    assert caller.principal is not None
    return CorpusPublic.from_corpus(shelf.corpora.get(digest, caller.principal.projects_with(Permission.JOBS_READ)))
