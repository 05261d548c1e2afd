"""The page's files over HTTP: what they are called, how long they are kept, what they may do, and what they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import httpx
import pytest

from service.http.rules import is_public
from service.page import files
from service.page.files import INDEX, PageFiles, read_page

pytestmark = pytest.mark.anyio
PAGE = read_page()
MODULES = sorted(name for name in PAGE.by_name if name.endswith(".js"))
STYLES = sorted(name for name in PAGE.by_name if name.endswith(".css"))


def address(name: str, page: PageFiles = PAGE) -> str:
    return f"/ui/{page.version}/{name}"


def text_of(name: str) -> str:
    return PAGE.by_name[name].content.decode()


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_service_leads_to_its_page(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


async def test_the_page_itself_is_asked_for_each_time(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ui/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert address("main.js").removeprefix("/ui/") in answer.text


@pytest.mark.parametrize("name", [*MODULES, *STYLES, "icon.svg"])
async def test_its_files_are_kept_for_good_and_are_what_they_are_called(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(address(name))
    kind = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    assert (answer.status_code, answer.content) == (200, PAGE.by_name[name].content)
    assert answer.headers["content-type"] == kind[name.rpartition(".")[2]]
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_what_has_not_changed_is_not_sent_again(client: httpx.AsyncClient) -> None:
    etag = (await client.get("/ui/")).headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        answer = await client.get("/ui/", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert (await client.get("/ui/", headers={"If-None-Match": '"other"'})).status_code == 200


async def test_a_file_of_another_version_is_todays_and_not_kept(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ui/0123456789abcdef/main.js")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize("path", ["/ui/", address("main.js")])
async def test_scripts_and_styles_are_files_of_the_service_alone(client: httpx.AsyncClient, path: str) -> None:
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in (await client.get(path)).headers["content-security-policy"].split(";")
    )
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["connect-src"], policy["require-trusted-types-for"]) == ("'self'", "'script'")
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"


@pytest.mark.parametrize("name", ["nothing.js", INDEX, "..%2ffiles.py", "%2e%2e", "__init__.py"])
async def test_nothing_else_is_handed_out(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(address(name))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_the_interface_has_no_word_of_the_page(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert not [
        path for path in paths if not path.startswith("/v1") and path not in ("/healthz", "/readyz", "/metrics")
    ]


@pytest.mark.parametrize(
    "path", ["/ui/0a/../../v1/jobs", "/ui/0a/main.js/x", "/v1/jobs", "/ui/0a/", "/uix", "/ui/0A/x.js"]
)
def test_no_other_path_is_public_for_looking_like_a_file_of_the_page(path: str) -> None:
    assert not is_public(path)


@pytest.mark.parametrize("name", sorted(PAGE.by_name))
def test_every_file_is_public(name: str) -> None:
    assert name == INDEX or is_public(address(name))


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_imports_is_there(name: str) -> None:
    imported = re.findall(r'^import .*? from "(.+?)";$', text_of(name), re.MULTILINE)
    assert {one.removeprefix("./") for one in imported} <= set(MODULES)
    assert text_of(name).count("\nimport ") + text_of(name).startswith("import ") == len(imported)


@pytest.mark.parametrize("name", sorted(PAGE.by_name))
def test_nothing_is_fetched_from_elsewhere_or_read_as_html(name: str) -> None:
    text = text_of(name).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", text) or not name.endswith(".html")


def test_a_wheel_has_the_page() -> None:
    root = Path(files.__file__).parents[2]
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["service"]
    matched = {path.name for pattern in data for path in (root / "service").glob(pattern)}
    assert set(PAGE.by_name) <= matched


def test_a_file_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="must end in one of"):
        files._page_file("notes.txt", b"")
