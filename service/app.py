"""The application: `uvicorn --factory service.app:create_app`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI

from service import wiring
from service.http import problems
from service.http.desk import Desk
from service.http.middleware import BodyLimit, HostCheck, RequestContext
from service.http.routes import events, health, joblogs, jobs, life, models, presets, trials
from service.logs import configure_logs
from service.settings import Settings

_DESCRIPTION = "Pretrain text encoders with replaced-token detection on your own text."


def create_app(
    settings: Settings | None = None, wire: Callable[[Settings], AbstractContextManager[Desk]] = wiring.running
) -> FastAPI:
    """The application; without `settings`, those of the environment, and the process's log is set up too.

    Raises:
        ValidationError: a setting is malformed, or would open the service to other machines.
    """
    if settings is None:
        settings = Settings()
        configure_logs(settings.log_json)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with wire(settings) as desk:
            app.state.desk = desk
            yield

    app = FastAPI(title="ELECTRA pretraining", version=_version(), description=_DESCRIPTION, lifespan=lifespan)
    problems.register(app)
    for module in (jobs, life, joblogs, events, trials, models, presets, health):
        app.include_router(module.router)
    # The last added is the first to see a request.
    app.add_middleware(BodyLimit, max_bytes=settings.max_spec_bytes)
    app.add_middleware(HostCheck, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(RequestContext)
    return app


def _version() -> str:
    try:
        return version("electra-pretraining")
    except PackageNotFoundError:
        return "0"
