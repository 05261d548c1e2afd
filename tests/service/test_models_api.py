"""Registered models over REST: lists, aliases, exports."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import httpx
import pytest
from service_doubles import MemoryFolders, make_job
from service_shelf import MemoryRegistry, export_files, made_by
from sqlalchemy import text

from service.ledger.locks import SqlLocks
from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.shelf.tar_stream import ChangedWhileReadError, Member, stream_tar, tar_size

pytestmark = pytest.mark.anyio


async def test_pages_join_to_the_whole_list(client: httpx.AsyncClient, registry: MemoryRegistry) -> None:
    for number in range(7):
        registry.add(f"m{number}", aliases={"newest": 1})
    registry.add("no such path")
    names, cursor = [], ""
    while True:
        page = (await client.get(f"/v1/models?limit=3{cursor}")).json()
        names += [item["name"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert names == [f"m{number}" for number in range(7)]


async def test_versions_are_listed_and_found_by_number_and_alias(
    client: httpx.AsyncClient, registry: MemoryRegistry
) -> None:
    for version in (1, 2, 3):
        registry.add("m", version, aliases={"newest": 3, "champion": 2}, tags={"electra.network": "discriminator"})
    page = (await client.get("/v1/models/m/versions?limit=2")).json()
    assert [item["version"] for item in page["items"]] == [3, 2]
    rest = (await client.get(f"/v1/models/m/versions?cursor={page['next_cursor']}")).json()
    assert [item["version"] for item in rest["items"]] == [1]
    for wanted in ("2", "champion"):
        found = (await client.get(f"/v1/models/m/versions/{wanted}")).json()
        assert (found["version"], found["aliases"], found["network"]) == (2, ["champion"], "discriminator")


@pytest.mark.parametrize(
    "path", ["other", "m/versions/9", "m/versions/other", "m/versions/9/lineage", "other/versions"]
)
async def test_what_is_not_there_is_said_so(client: httpx.AsyncClient, registry: MemoryRegistry, path: str) -> None:
    registry.add("m")
    answer = await client.get(f"/v1/models/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")


async def test_without_mlflow_the_service_says_so(client: httpx.AsyncClient, registry: MemoryRegistry) -> None:
    registry.is_away = True
    for method, path in (("GET", "/v1/models"), ("GET", "/v1/models/m"), ("DELETE", "/v1/models/m/aliases/a")):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (503, "registry_unavailable")
        assert answer.headers["retry-after"]


@pytest.mark.parametrize("cursor", ["x", "AAAA", "MCBub3Q=", "LTEg"])
async def test_a_cursor_of_ones_own_is_refused(
    client: httpx.AsyncClient, registry: MemoryRegistry, cursor: str
) -> None:
    answer = await client.get("/v1/models", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")


async def test_an_alias_moves_and_the_audit_log_has_both_versions(
    client: httpx.AsyncClient, registry: MemoryRegistry
) -> None:
    registry.add("m", 1)
    registry.add("m", 2)
    path = "/v1/models/m/aliases/champion"
    assert (await client.put(path, json={"version": 1})).json()["before"] is None
    moved = (await client.put(f"{path}?expected_version=1", json={"version": 2})).json()
    assert (moved["before"], moved["after"]) == (1, 2)
    gone = (await client.delete(f"{path}?expected_version=2")).json()
    assert (gone["before"], gone["after"]) == (2, None)
    log = (await client.get("/v1/audit?object=m@champion")).json()["items"]
    assert [(item["action"], item["outcome"]) for item in log] == [
        ("model.delete_alias", "done: 2 -> nothing"),
        ("model.promote", "done: 1 -> 2"),
        ("model.promote", "done: nothing -> 1"),
    ]


@pytest.mark.parametrize(("query", "status", "code"), [
    ("?expected_version=2", 409, "alias_moved"),
    ("?expected_version=0", 409, "alias_moved"),
    ("?expected_version=-1", 422, "invalid_request"),
])  # fmt: skip
async def test_an_alias_that_has_moved_is_left_alone(
    client: httpx.AsyncClient, registry: MemoryRegistry, query: str, status: int, code: str
) -> None:
    registry.add("m", 1)
    registry.add("m", 2, aliases={"champion": 1})
    answer = await client.put(f"/v1/models/m/aliases/champion{query}", json={"version": 2})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert registry.models["m"].aliases == {"champion": 1}


@pytest.mark.parametrize("alias", ["latest", "v1", "V12", "1a", "a%2Fb", "a b"])
async def test_reserved_and_malformed_aliases_are_refused(
    client: httpx.AsyncClient, registry: MemoryRegistry, alias: str
) -> None:
    registry.add("m")
    answer = await client.put(f"/v1/models/m/aliases/{alias}", json={"version": 1})
    assert answer.status_code in (404, 422)
    assert registry.models["m"].aliases == {}


async def test_one_moves_an_alias_at_a_time(
    client: httpx.AsyncClient, registry: MemoryRegistry, store: SqlJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.shelf.models.LOCK_PATIENCE_SECONDS", 0.0)
    registry.add("m")
    with SqlLocks(store._engine).holding("alias:m", 0.0) as is_held:
        assert is_held
        answer = await client.put("/v1/models/m/aliases/a", json={"version": 1})
    assert (answer.status_code, answer.json()["code"]) == (409, "alias_moved")
    assert (await client.put("/v1/models/m/aliases/a", json={"version": 1})).status_code == 200


@pytest.fixture
def exported(settings: Settings, store: SqlJobStore, folders: MemoryFolders, registry: MemoryRegistry) -> Path:
    """The export of `m` version 1."""
    job = make_job()
    store.insert(job)
    registry.add("m", aliases={"newest": 1}, tags={"electra.job_id": job.job_id}, run_id="r")
    folders.results[job.job_id] = made_by(settings, job.job_id, "m", 1)
    return export_files(settings, job.job_id)


async def test_an_export_comes_as_one_archive(client: httpx.AsyncClient, exported: Path) -> None:
    answer = await client.get("/v1/models/m/versions/newest/export")
    assert answer.headers["content-disposition"] == 'attachment; filename="m-1.tar"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        files = {name: tar.extractfile(name) for name in tar.getnames()}
        assert {name: file.read() for name, file in files.items() if file} == {
            f"m-1/{path.name}": path.read_bytes() for path in exported.iterdir()
        }


async def test_links_in_an_export_are_left_out(client: httpx.AsyncClient, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("hunter2")
    (exported / "link").symlink_to(tmp_path / "secret" / "key")
    (exported / "folder").symlink_to(tmp_path / "secret")
    answer = await client.get("/v1/models/m/versions/1/export")
    assert answer.status_code == 200
    assert b"hunter2" not in answer.content


@pytest.mark.parametrize(
    "uri", ["{home}", "{storage}/jobs", "{job}", "{job}/exports", "{job}/exports/../spec", "{job}-2/exports/a"]
)
async def test_nothing_outside_the_exports_of_the_job_is_served(
    client: httpx.AsyncClient, settings: Settings, folders: MemoryFolders, exported: Path, uri: str
) -> None:
    """Whatever a result says: it lies in a storage that jobs write."""
    job = exported.parent.parent
    (result,) = folders.results.values()
    place = uri.format(home=settings.home, storage=settings.storage_uri, job=job)
    models = (result.models[0].model_copy(update={"export_uri": place}),)
    folders.results[job.name] = result.model_copy(update={"models": models})
    answer = await client.get("/v1/models/m/versions/1/export")
    assert (answer.status_code, answer.json()["code"]) == (404, "export_not_found")


async def test_an_export_that_is_a_link_elsewhere_is_not_served(
    client: httpx.AsyncClient, exported: Path, tmp_path: Path
) -> None:
    moved = exported.rename(tmp_path / "elsewhere")
    exported.symlink_to(moved)
    assert (await client.get("/v1/models/m/versions/1/export")).status_code == 404


async def test_a_model_that_no_job_made_has_no_export(client: httpx.AsyncClient, registry: MemoryRegistry) -> None:
    registry.add("m", tags={"electra.job_id": "pt-nowhere"})
    answer = await client.get("/v1/models/m/versions/1/export")
    assert (answer.status_code, answer.json()["code"]) == (404, "export_not_found")


def member(size: int, content: bytes) -> Member:
    return Member("m/" + "a" * 150, size, lambda: io.BytesIO(content))


@pytest.mark.parametrize("size", [0, 1, 512, 513, 3_000_000])
def test_an_archive_is_as_long_as_was_said_and_comes_in_small_pieces(size: int) -> None:
    one = member(size, bytes(size))
    pieces = list(stream_tar([one, one]))
    assert sum(map(len, pieces)) == tar_size([one, one])
    assert max(map(len, pieces)) <= 1 << 20
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
        assert [info.size for info in tar] == [size, size]


@pytest.mark.parametrize("size", [3, 5])
def test_a_file_that_changes_while_it_is_read_breaks_the_archive_off(size: int) -> None:
    with pytest.raises(ChangedWhileReadError):
        list(stream_tar([member(size, b"four")]))


async def test_a_model_that_is_not_there_leaves_no_lock(client: httpx.AsyncClient, store: SqlJobStore) -> None:
    """A lock is a row for good."""

    def num_rows() -> int:
        with store._engine.connect() as connection:
            return int(connection.scalar(text("SELECT count(*) FROM leases")) or 0)

    before = num_rows()
    for number in range(3):
        answer = await client.put(f"/v1/models/nobody-{number}/aliases/best", json={"version": 1})
        assert answer.status_code == 404
    assert num_rows() == before
