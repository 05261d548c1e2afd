"""The application: `uvicorn --factory service.app:create_app`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from anyio import to_thread
from fastapi import Depends, FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html

from service import wiring
from service.http import problems
from service.http.authentication import Authentication
from service.http.authorisation import authorise
from service.http.desk import Desk
from service.http.middleware import BodyLimit, HostCheck, RequestContext
from service.http.routes import (
    audit,
    clean,
    corpora,
    events,
    health,
    joblogs,
    jobs,
    keys,
    life,
    models,
    page,
    presets,
    projects,
    queue,
    trials,
    usage,
    versions,
    webhooks,
)
from service.http.security_headers import SecurityHeaders, policy_of_page, security_headers
from service.logs import configure_logs
from service.settings import Settings
from service.tracing.setup import flush, trace_requests

_DESCRIPTION = "Pretrain text encoders with replaced-token detection on your own text."


def create_app(
    settings: Settings | None = None, wire: Callable[[Settings], AbstractContextManager[Desk]] = wiring.running
) -> FastAPI:
    """The application; without `settings`, those of the environment, and the process's log is set up too.

    Raises:
        ValidationError: a setting is malformed, or would open the service to other machines.
        TracingNotInstalledError: the environment asks for traces, and the packages for them are not there.
    """
    if settings is None:
        settings = Settings()
        configure_logs(settings.log_json)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with wire(settings) as desk:
            app.state.desk = desk
            yield
        await to_thread.run_sync(flush)

    app = FastAPI(
        title="ELECTRA pretraining",
        version=_version(),
        description=_DESCRIPTION,
        lifespan=lifespan,
        dependencies=[Depends(authorise)],
    )
    problems.register(app, wiring.DATABASE_AWAY)
    work = (jobs, life, joblogs, events, trials, presets, queue)
    shelf = (models, versions, corpora, clean, usage)
    for module in (*work, *shelf, projects, keys, audit, webhooks, health, page):
        app.include_router(module.router)
    # The last added is the first to see a request.
    app.add_middleware(BodyLimit, max_bytes=settings.max_spec_bytes)
    app.add_middleware(Authentication)
    is_guarded = settings.access == "keys" and settings.tls_upstream
    app.add_middleware(HostCheck, allowed_hosts=settings.allowed_hosts, serves_others=is_guarded)
    app.state.headers = security_headers(settings.tls_upstream)
    app.add_middleware(SecurityHeaders, headers=app.state.headers, pages=_policies_of_pages(app))
    app.add_middleware(RequestContext)
    trace_requests(app)
    return app


def _policies_of_pages(app: FastAPI) -> dict[str, str]:
    """Of the pages that show the interface, as FastAPI writes them."""
    assert app.openapi_url is not None
    docs = get_swagger_ui_html(
        openapi_url=app.openapi_url,
        title=f"{app.title} - Swagger UI",
        oauth2_redirect_url=app.swagger_ui_oauth2_redirect_url,
    )
    redoc = get_redoc_html(openapi_url=app.openapi_url, title=f"{app.title} - ReDoc")
    return {path: policy_of_page(bytes(page.body).decode()) for path, page in (("/docs", docs), ("/redoc", redoc))}


def _version() -> str:
    try:
        return version("electra-pretraining")
    except PackageNotFoundError:
        return "0"
