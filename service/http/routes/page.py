"""`/ui/`: the page. It is a client of `/v1` like any other; nothing here knows of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import RedirectResponse, Response

from service.errors import NotFoundError
from service.http.security_headers import PAGE_POLICY
from service.page.files import INDEX, PageFile, read_page

router = APIRouter(include_in_schema=False)

_PAGE = read_page()
_FOR_GOOD = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
IfNoneMatch = Annotated[str | None, Header()]


@router.get("/")
@router.get("/ui")
async def lead_to_page() -> Response:
    """The page is at `/ui/`."""
    return RedirectResponse("/ui/", status_code=307)


@router.get("/ui/")
async def get_page(if_none_match: IfNoneMatch = None) -> Response:
    """The page itself, which names the version of all else."""
    return _answer(_PAGE.by_name[INDEX], _ASK_AGAIN, if_none_match)


@router.get("/ui/{version}/{name}")
async def get_page_file(version: str, name: str, if_none_match: IfNoneMatch = None) -> Response:
    """A file of the page. Under its own version it never changes; under another one, as while replicas of two versions
    serve, it is today's, and is kept by nobody.
    """
    found = None if name == INDEX else _PAGE.by_name.get(name)
    if found is None:
        raise NotFoundError("The page has no such file. It begins at /ui/.")
    return _answer(found, _FOR_GOOD if version == _PAGE.version else _ASK_AGAIN, if_none_match)


def _answer(file: PageFile, caching: str, if_none_match: str | None) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": caching, "Content-Security-Policy": PAGE_POLICY}
    # A proxy that compresses makes a strong tag a weak one: `W/"…"` is the same file too.
    known = {tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")}
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers={**headers, "Content-Type": file.media_type})
