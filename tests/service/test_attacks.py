"""Every attack of the table, against a service that asks for keys; and that `docs/security.md` says what each got."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_world import AccessWorld, keys_settings
from attacks import ATTACKS, Attack, Target
from live_service import serve_app
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Route

from pipelines.storage import web_guard
from service.access.principals import Role
from service.interfaces import JobFilter

pytestmark = pytest.mark.anyio
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def inside() -> Iterator[tuple[str, list[str]]]:
    """A web server that only we should reach, and what it was asked."""
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(request.url.path)
        if "redirect" in request.url.path:
            return RedirectResponse(f"http://127.0.0.1:{request.url.port}/secret.txt")
        return PlainTextResponse("secret " * 100)

    with serve_app(Starlette(routes=[Route("/{path:path}", answer)])) as url:
        yield url, asked


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, inside: tuple[str, list[str]]) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("attacked")
    roots = [str(folder / "data"), "s3://corpora/{project}"]
    settings = keys_settings(
        folder / "home",
        source_roots=roots,
        web_source_hosts=("localhost",),
        failed_logins_per_minute=100_000,
        webhook_key="k" * 32,
    )
    world = AccessWorld(settings)
    web_guard.install(settings.web_source_hosts)
    for name in ("revoked", "expired"):
        world.keys[name] = world.key(name, "clinical", Role.MEMBER)
    world.engine.dispose()
    revoke(world, world.keys["revoked"].split("_")[1])
    expire(world, world.keys["expired"].split("_")[1])
    world.keys["mixed"] = "_".join([*world.keys["root"].split("_")[:2], world.keys["ada"].split("_", 2)[2]])
    yield Target(world, folder, int(inside[0].rpartition(":")[2]))
    web_guard.install(None)
    world.close()


def revoke(world: AccessWorld, key_id: str) -> None:
    from access_world import ROOT

    world.access.revoke_key(ROOT, key_id)


def expire(world: AccessWorld, key_id: str) -> None:
    from sqlalchemy import text

    with world.engine.begin() as connection:
        connection.execute(
            text("UPDATE api_keys SET expires_at = '2020-01-01 00:00:00.000000' WHERE key_id = :id"), {"id": key_id}
        )


@pytest.fixture(scope="module")
async def client(target: Target) -> AsyncIterator[httpx.AsyncClient]:
    async with target.world.client() as client:
        yield client


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.title)
async def test_attack(target: Target, client: httpx.AsyncClient, attack: Attack) -> None:
    before = {job.job_id: job.cancel_requested_at for job in target.world.store.page(JobFilter(limit=1000))}
    body = None if attack.body is None else attack.body(target)
    sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    headers = {**target.world.bearer(attack.who), **attack.headers}
    answer = await client.request(attack.method, attack.path(target), headers=headers, **sent)
    assert (answer.status_code, answer.json()["code"]) == (attack.status, attack.code), answer.text
    after = {job.job_id: job.cancel_requested_at for job in target.world.store.page(JobFilter(limit=1000))}
    assert after == before
    assert "hunter2" not in answer.text


async def test_the_server_inside_was_never_asked_for_its_secret(
    target: Target, client: httpx.AsyncClient, inside: tuple[str, list[str]]
) -> None:
    """The redirect was followed as far as the host that is allowed, and no farther."""
    attack = next(one for one in ATTACKS if "redirects" in one.title)
    assert attack.body is not None
    await client.post("/v1/jobs", json=attack.body(target), headers=target.world.bearer("ada"))
    assert "/redirect.txt" in inside[1]
    assert "/secret.txt" not in inside[1]


async def test_what_is_allowed_still_works(target: Target, client: httpx.AsyncClient) -> None:
    """The same requests, honest: without these every attack could be refused for the wrong reason."""
    own = target.world.job().job_id
    folder = Path(target.storage) / "jobs" / own
    folder.mkdir(parents=True)
    (folder / "report.txt").write_text("text " * 50)
    port = target.local_port
    for uri in (
        f"{target.data}/a.txt",
        f"{target.data}/[ab].txt",
        f"file://{target.data}/a.txt",
        f"{folder}/report.txt",
        f"http://localhost:{port}/a.txt",
    ):
        spec = {"kind": "pretrain", "preset": "tiny", "corpus": {"sources": [{"type": "text", "uris": uri}]}}
        answer = await client.post("/v1/jobs", json={"spec": spec}, headers=target.world.bearer("ada"))
        assert answer.status_code == 202, (uri, answer.text)


def test_the_document_has_the_table() -> None:
    """`docs/security.md` shows each attack with what it got: rows that differ are printed."""
    rows = [f"| {attack.title} | {attack.status} `{attack.code}` |" for attack in ATTACKS]
    assert len(rows) >= 30
    missing = [row for row in rows if row not in DOCUMENT.read_text(encoding="utf-8")]
    assert missing == []
