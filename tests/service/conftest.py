from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import structlog
from page_browser import WIDE, Browser, chromium
from postgres_server import fresh_database, postgres_server
from service_doubles import FakeLauncher, MemoryFolders, MemoryPredictionFolders
from service_feeds import feeds
from service_shelf import MemoryRegistry, shelf_of
from sqlalchemy import Engine

from service.access.access import Access
from service.app import create_app
from service.http.desk import Desk
from service.joblogs.kept import KeptLogs
from service.joblogs.printed import JobLogs
from service.jobs.jobs import Jobs
from service.jobs.trials import Trials
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.ledger.queue_store import SqlQueueStore
from service.ledger.store import SqlJobStore
from service.predictions import Predictions
from service.settings import Settings
from service.shelf.alias_versions import AliasVersions

# Through the standard library, where pytest catches it: structlog by itself prints to standard output.
structlog.configure(
    processors=[structlog.contextvars.merge_contextvars, structlog.stdlib.render_to_log_kwargs],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    return Settings(home=tmp_path, mlflow_url="http://127.0.0.1:5000", source_timeout_seconds=5)


@pytest.fixture
def store(settings: Settings) -> Iterator[SqlJobStore]:
    engine = make_engine(settings.database_url)
    upgrade_database(engine)
    store = SqlJobStore(engine)
    yield store
    store.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server, started by the first test that asks for it."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """An empty database on a real PostgreSQL."""
    with fresh_database(postgres) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, settings: Settings) -> str:
    """An empty database of each kind the service runs on."""
    return settings.database_url if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Of a database of each kind, with its tables."""
    engine = make_engine(database_url)
    upgrade_database(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def folders() -> MemoryFolders:
    return MemoryFolders()


@pytest.fixture
def prediction_folders() -> MemoryPredictionFolders:
    return MemoryPredictionFolders()


@pytest.fixture
def predictions(settings: Settings, launcher: FakeLauncher, prediction_folders: MemoryPredictionFolders) -> Predictions:
    return Predictions(launcher, prediction_folders, settings)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def desk(
    settings: Settings,
    store: SqlJobStore,
    launcher: FakeLauncher,
    folders: MemoryFolders,
    predictions: Predictions,
    registry: MemoryRegistry,
) -> Desk:
    """Without a reconciler: what the desk does by itself."""
    return Desk(
        settings=settings,
        jobs=Jobs(store, settings, quotas=SqlQueueStore(store._engine), version_of=AliasVersions(registry)),
        logs=JobLogs(store, launcher, folders),
        kept_logs=KeptLogs(store, settings),
        predictions=predictions,
        trials=Trials(folders),
        access=Access(settings, SqlAccessStore(store._engine)),
        shelf=shelf_of(store._engine, store, folders, settings, registry),
        **feeds(store._engine, store, settings),
    )


@pytest.fixture
async def client(settings: Settings, desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    @contextmanager
    def wire(_: Settings) -> Iterator[Desk]:
        yield desk

    app = create_app(settings, wire)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


@pytest.fixture(scope="module")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for a file of tests: it takes seconds to start."""
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """As wide as a desk has it; whatever the page complained of fails the test."""
    shared_browser.size(WIDE)
    yield shared_browser
    assert shared_browser.complaints() == []
    shared_browser.open("about:blank")
