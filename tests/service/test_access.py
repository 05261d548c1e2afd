"""Keys, rate limits, settings, headers and what a spec names: without a network."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from access_world import TINY, AccessWorld, keys_settings
from pydantic import BaseModel, ValidationError

from pipelines.specs.jobs import SPECS
from pipelines.specs.model_source import RegisteredNetwork
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.space import SEARCHABLE
from pipelines.storage.web_guard import is_public, written_address
from service.access.keys import ApiKey, hash_secret, is_secret_of, new_key_id, new_secret, parse_key, written
from service.access.principals import Role
from service.access.rate_limit import RateLimit
from service.client import ClientError, ElectraClient
from service.errors import InvalidSpecError, NotAuthenticatedError, SourceNotAllowedError, TooManyRequestsError
from service.jobs.namespaces import in_project, project_of
from service.jobs.references import PLACE_FIELDS, Reference
from service.jobs.source_policy import SourcePolicy
from service.settings import Settings

HARMLESS = frozenset(
    {
        # names of columns, labels and words of the spec's own
        *("text", "text_pair", "label", "labels", "tokens", "tags", "question", "context", "answers", "identifier"),
        *("choices", "text_field", "sentence_good", "sentence_bad", "phenomenon", "class_weights", "values", "when"),
        # names of installed packages: looked up among those that are there
        "packages",
        # names in the record: put into their project by `service.jobs.namespaces`
        *("name", "model_name", "experiment", "alias", "license"),
    }
)
"""Fields of text that name no place."""


def text_fields(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[tuple[type[BaseModel], str]]:
    """Every field of a schema in which a text of one's own choice may stand, at any depth."""
    if model in seen:
        return
    seen.add(model)
    for name, info in model.model_fields.items():
        for kind in kinds(info.annotation):
            if kind is str or kind is Any:
                yield model, name
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from text_fields(kind, seen)


def kinds(annotation: Any) -> Iterator[Any]:
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return
    if origin is typing.Annotated:
        yield from kinds(typing.get_args(annotation)[0])
    elif origin is dict:  # keys are names, and are never opened
        yield from kinds(typing.get_args(annotation)[1])
    elif origin in (typing.Union, types.UnionType, tuple, list, set, frozenset):
        for one in typing.get_args(annotation):
            yield from kinds(one)
    else:
        yield annotation


@pytest.mark.parametrize("kind", SPECS)
def test_every_text_of_a_spec_is_a_place_or_known_to_be_none(kind: str) -> None:
    """A new field that may name a file must be added to `PLACE_FIELDS`; one that names nothing, to `HARMLESS`."""
    found = {(model.__name__, name) for model, name in text_fields(SPECS[kind], set())}
    unknown = {one for one in found if one[1] not in PLACE_FIELDS | HARMLESS}
    # The base of a search is a pretraining spec, and is walked as one.
    assert unknown - {("SearchSpec", "base")} == set()
    assert any(name in PLACE_FIELDS for _, name in found)


def test_no_searchable_section_names_a_place() -> None:
    for section in SEARCHABLE:
        for kind in kinds(PretrainSpec.model_fields[section].annotation):
            assert not [name for _, name in text_fields(kind, set()) if name in PLACE_FIELDS]


def test_registered_models_stand_in_sections_of_their_own() -> None:
    """`namespaces` puts them back there: at the first level of a spec."""
    for spec in SPECS.values():
        first = {kind for info in spec.model_fields.values() for kind in kinds(info.annotation)}
        models = {one for one, _ in text_fields(spec, set()) if issubclass(one, RegisteredNetwork)}
        assert models <= first


def finetune(**sections: Any) -> Any:
    task = {"type": "classification", "data": {"train": "/a.csv"}}
    return resolve_spec({"kind": "finetune", "model": {"type": "registered", "name": "m"}, "task": task, **sections})


@pytest.mark.parametrize(
    ("given", "meant"), [("m", "clinical--m"), ("clinical--m", "clinical--m"), ("law--m", "clinical--law--m")]
)
def test_a_name_means_one_of_its_project(given: str, meant: str) -> None:
    spec = in_project(finetune(model={"type": "registered", "name": given}, record={"model_name": given}), "clinical")
    assert (spec.model.name, spec.record.model_name, spec.record.experiment) == (meant, meant, "clinical--finetuning")
    assert project_of(meant) == "clinical"
    assert in_project(spec, "clinical") == spec


@pytest.mark.parametrize("name", ["law--m", "law-"])
def test_names_of_the_default_project_look_like_no_others(name: str) -> None:
    for sections in ({"name": name}, {"record": {"model_name": name}}, {"model": {"type": "registered", "name": name}}):
        with pytest.raises(InvalidSpecError, match="default"):
            in_project(finetune(**sections), "default")
    assert in_project(finetune(), "default") == finetune()


def test_a_name_that_grows_too_long_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="with its project"):
        in_project(finetune(name="x" * 99), "clinical")


def test_a_key_is_known_by_its_secret_alone(tmp_path: Path) -> None:
    secret, key_id = new_secret(), new_key_id()
    assert parse_key(written(key_id, secret)) == (key_id, secret)
    world = AccessWorld(keys_settings(tmp_path))
    kept = world.access.store.find_key(world.keys["ada"].split("_")[1])
    assert isinstance(kept, ApiKey)
    right = world.keys["ada"].split("_", 2)[2]
    assert kept.secret_sha256 == hash_secret(right)
    assert is_secret_of(kept, right)
    assert not is_secret_of(kept, secret)
    assert not is_secret_of(None, "")
    world.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AccessWorld]:
    world = AccessWorld(keys_settings(tmp_path, rate_limit_per_minute=2))
    yield world
    world.close()


@pytest.mark.parametrize(
    "credentials", [[], ["Basic x"], ["Bearer"], ["Bearer  "], ["Bearer a", "Bearer b"], ["elk_1"]]
)
def test_what_is_no_single_key_is_nobody(world: AccessWorld, credentials: list[str]) -> None:
    with pytest.raises(NotAuthenticatedError):
        world.access.authenticate(credentials)


def test_a_key_counts_until_it_expires(world: AccessWorld) -> None:
    text = world.key("ada", "clinical", Role.MEMBER, lifetime_days=1)
    assert world.access.authenticate([f"bearer {text}"]).owner == "ada"
    world.now += timedelta(days=1)
    with pytest.raises(NotAuthenticatedError, match="expired"):
        world.access.authenticate([f"Bearer {text}"])


def test_a_principal_waits_when_it_asks_too_often(world: AccessWorld) -> None:
    credentials = [f"Bearer {world.keys['ada']}"]
    for _ in range(2):
        world.access.authenticate(credentials)
    with pytest.raises(TooManyRequestsError) as refused:
        world.access.authenticate(credentials)
    assert refused.value.headers == {"Retry-After": "30"}
    world.access.authenticate([f"Bearer {world.keys['ben']}"])
    world.clock = 30.0
    world.access.authenticate(credentials)


def test_buckets_are_forgotten_and_not_gathered() -> None:
    limit = RateLimit(60, lambda: 0.0, max_buckets=3)
    for number in range(1000):
        limit.take(str(number))
    assert len(limit) == 3


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"host": "0.0.0.0"}, "access"),
        ({"host": "0.0.0.0", "access": "keys"}, "tls_upstream"),
        ({"host": "::", "access": "keys", "tls_upstream": True}, "allowed_hosts"),
        ({"source_roots": ["relative"]}, "source_roots"),
        ({"source_roots": ["/data/*"]}, "source_roots"),
        ({"source_roots": ["https://example.org"]}, "source_roots"),
        ({"oidc_issuer": "http://example.org", "oidc_audience": "a"}, "oidc_issuer"),
        ({"oidc_issuer": "https://example.org"}, "oidc_audience"),
        ({"oidc_algorithms": ["HS256"]}, "oidc_algorithms"),
        ({"oidc_algorithms": ["none"]}, "oidc_algorithms"),
        ({"oidc_grants": {"a": "clinical:emperor"}}, "oidc_grants"),
    ],
)
def test_a_setting_that_would_open_the_service_stops_the_start(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(wrong)
    assert field in {str(item["loc"][0]) for item in refused.value.errors()}


def test_the_storage_is_no_source(tmp_path: Path) -> None:
    for root in (f"{tmp_path}/storage/jobs", str(tmp_path)):
        with pytest.raises(ValidationError, match="must not lie in"):
            Settings.model_validate({"home": tmp_path, "source_roots": [root]})


def test_the_database_is_no_source_wherever_it_lies(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = keys_settings(
        tmp_path / "home",
        source_roots=[str(data)],
        database_url=f"sqlite:///{data}/service.sqlite",
        ray_token_path=str(data / "token"),
    )
    policy = SourcePolicy(settings, lambda _: None)
    for name in ("service.sqlite", "service.sqlite-wal", "token", "*", "**/x"):
        with pytest.raises(SourceNotAllowedError):
            policy.check([Reference("/corpus", f"{data}/{name}")], "clinical")
    policy.check([Reference("/corpus", f"{data}/corpus/*.txt")], "clinical")


def test_a_service_for_others_has_keys_tls_and_a_name() -> None:
    wanted = {"host": "0.0.0.0", "access": "keys", "tls_upstream": True, "allowed_hosts": ["electra.example.org"]}
    assert Settings.model_validate(wanted).host == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, False) for host in ("127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "[::1]")],
        *[
            (host, False)
            for host in ("10.0.0.1", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "fe80::1%eth0")
        ],
        *[(host, False) for host in ("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "224.0.0.1", "fd00::1")],
        # Which Python calls global: of the form that was given up, of sites, of nobody, of Azure's own machines.
        *[(host, False) for host in ("::127.0.0.1", "::a00:1", "fec0::1", "4000::1", "168.63.129.16")],
        *[(host, True) for host in ("1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101")],
    ],
)
def test_addresses_are_known_in_every_writing(host: str, expected: bool) -> None:
    address = written_address(host)
    assert address is not None
    assert is_public(address) is expected


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/healthz", "/docs", "/v1/jobs", "/v1/jobs/pt-1", "/nowhere"])
async def test_every_answer_carries_the_headers(world: AccessWorld, path: str) -> None:
    async with world.client() as client:
        for headers in ({}, world.bearer("ada")):
            answer = await client.get(path, headers=headers)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "strict-transport-security" not in answer.headers


@pytest.mark.anyio
async def test_a_surprise_carries_them_too(world: AccessWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.store, "page", lambda wanted: 1 // 0)
    async with world.client() as client:
        answer = await client.get("/v1/jobs", headers=world.bearer("ada"))
    assert (answer.status_code, answer.headers["x-content-type-options"]) == (500, "nosniff")


@pytest.mark.anyio
async def test_behind_tls_browsers_are_told_to_stay_there(tmp_path: Path) -> None:
    world = AccessWorld(keys_settings(tmp_path, tls_upstream=True))
    async with world.client() as client:
        assert "max-age=" in (await client.get("/healthz")).headers["strict-transport-security"]
    world.close()


def key_of_request(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str | None:
    """What the client sends to the address it was given, which redirects it to another."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"Location": "https://evil.example/"})

    for name in ("ELECTRA_API_KEY", "ELECTRA_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with ElectraClient("https://electra.example", transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(ClientError) as refused:
            client.me()
        assert "elk_1" not in f"{refused.value}{client!r}"
    assert [request.url.host for request in seen] == ["electra.example"]
    return seen[0].headers.get("authorization")


def test_the_client_sends_its_key_to_its_service_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert key_of_request(monkeypatch) is None
    assert key_of_request(monkeypatch, ELECTRA_API_KEY="elk_1") == "Bearer elk_1"
    file = tmp_path / "key"
    file.write_text("elk_1\n")
    file.chmod(0o600)
    assert key_of_request(monkeypatch, ELECTRA_API_KEY_FILE=str(file)) == "Bearer elk_1"


def test_a_key_that_others_can_read_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("elk_1")
    file.chmod(0o640)
    monkeypatch.delenv("ELECTRA_API_KEY", raising=False)
    monkeypatch.setenv("ELECTRA_API_KEY_FILE", str(file))
    with pytest.raises(ClientError, match="chmod 600"):
        ElectraClient("https://electra.example")


@pytest.mark.anyio
async def test_without_keys_all_is_the_single_users(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/jobs", json=TINY)).json()
    assert (made["project"], made["owner"]) == ("default", "local")
    assert (await client.get("/v1/me")).json()["method"] == "open"
