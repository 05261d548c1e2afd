"""What this machine speaks with: the service, Ray, MLflow, the database and the storage."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from service.doctor.findings import Finding, Status
from service.doctor.installed import PACKAGE

_TIMEOUT_SECONDS = 5.0
_CLOCKS_APART_SECONDS = 5.0
_FEW_BYTES, _TOO_FEW_BYTES = 20 * 2**30, 2 * 2**30


@dataclass(frozen=True)
class Places:
    """What is to be looked at; None where nothing is named."""

    service_url: str | None
    ray_url: str | None
    mlflow_url: str | None
    storage_uri: str
    database_url: str | None
    ray_token: str | None = None


def check_service(places: Places) -> Iterator[Finding]:
    """The service, its version, its parts and its clock."""
    url = places.service_url
    if url is None:
        advice = "Start one here with:  electra up    or name another with --url or ELECTRA_URL."
        yield Finding("service", Status.WARN, "none is named and none runs here", advice)
        return
    asked_at = time.time()
    answer = _ask(f"{url}/openapi.json")
    answered_at = time.time()
    if isinstance(answer, str):
        yield Finding("service", Status.FAIL, f"{url}: {answer}", "Is it running, and is the address right?")
        return
    try:
        theirs = str(answer.json()["info"]["version"])
    except (ValueError, KeyError, TypeError):
        yield Finding("service", Status.FAIL, f"{url} is another program", "Is the address right?")
        return
    ours = metadata.version(PACKAGE)
    advice = "" if theirs == ours else f"Use the same version here and there: pip install {PACKAGE}=={theirs}"
    yield Finding("service", Status.OK if theirs == ours else Status.WARN, f"{url}: {theirs}, here {ours}", advice)
    yield _parts(url)
    yield _clock(answer, asked_at, answered_at)


def _parts(url: str) -> Finding:
    answer = _ask(f"{url}/readyz", is_refusal_an_answer=True)
    if isinstance(answer, str):
        return Finding("service parts", Status.FAIL, answer, "Look at the service's log.")
    if answer.is_success:
        return Finding("service parts", Status.OK, "ready")
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"status {answer.status_code}"
    return Finding("service parts", Status.FAIL, detail, "Mend the part that is named; the service's log tells more.")


def _clock(answer: httpx.Response, asked_at: float, answered_at: float) -> Finding:
    try:
        theirs = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return Finding("clock", Status.WARN, "the service does not say what time it is", "")
    # To the second, and from some moment between question and answer.
    apart = max(0.0, asked_at - (theirs + 1), theirs - answered_at)
    if apart > _CLOCKS_APART_SECONDS:
        advice = "Let both machines take their time from NTP: tokens and signatures hang on it."
        return Finding("clock", Status.WARN, f"{apart:.0f} s apart from the service's", advice)
    return Finding("clock", Status.OK, "as the service's")


def check_ray(places: Places) -> Iterator[Finding]:
    """Ray's dashboard, and its version beside the one here."""
    headers = {"Authorization": f"Bearer {places.ray_token}"} if places.ray_token else {}
    yield _server("ray", places.ray_url, "/api/version", headers, lambda answer: str(answer.json()["ray_version"]))


def check_mlflow(places: Places) -> Iterator[Finding]:
    """MLflow, and its version beside the one here."""
    yield _server("mlflow", places.mlflow_url, "/version", {}, lambda answer: answer.text.strip())


def _server(name: str, url: str | None, path: str, headers: dict[str, str], version_of: object) -> Finding:
    if url is None:
        return Finding(name, Status.OK, "none is named; `electra up` brings its own")
    answer = _ask(f"{url.rstrip('/')}{path}", headers)
    # What is shown ends up in reports of faults: without a password.
    url = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    if isinstance(answer, str):
        return Finding(name, Status.FAIL, f"{url}: {answer}", "Is it running, and are address and token right?")
    try:
        assert callable(version_of)
        theirs = str(version_of(answer))[:50]
    except (ValueError, KeyError, TypeError):
        return Finding(name, Status.FAIL, f"{url} is another program", "Is the address right?")
    try:
        ours = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, Status.OK, f"{url}: {theirs}")
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        advice = f"Jobs are written for the version here: let {name} be the same there."
        return Finding(name, Status.WARN, f"{url}: {theirs}, here {ours}", advice)
    return Finding(name, Status.OK, f"{url}: {theirs}")


def check_storage(places: Places) -> Iterator[Finding]:
    """Whether the storage takes a file, gives it back and has room."""
    from pipelines import storage

    uri = storage.join(places.storage_uri, f"doctor-{uuid.uuid4().hex}")
    try:
        storage.write_bytes(uri, b"electra doctor")
        is_whole = storage.read_bytes(uri) == b"electra doctor"
        storage.delete_tree(uri)
    except Exception as error:  # noqa: BLE001 - whatever a file system or a store says
        advice = "Give this user the right to write there, or name another with ELECTRA_STORAGE_URI."
        yield Finding("storage", Status.FAIL, f"{places.storage_uri}: {error}"[:400], advice)
        return
    if not is_whole:
        yield Finding("storage", Status.FAIL, f"{places.storage_uri} gives back something else", "Do not use it.")
        return
    yield Finding("storage", Status.OK, f"{places.storage_uri}: written, read and deleted")
    path = storage.local_path(places.storage_uri)
    if path is not None:
        yield _room(path)


def _room(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    detail = f"{free / 2**30:.1f} GiB free at {path}"
    if free < _TOO_FEW_BYTES:
        return Finding("disk", Status.FAIL, detail, "Make room: a job writes corpora and checkpoints there.")
    if free < _FEW_BYTES:
        return Finding("disk", Status.WARN, detail, "Make room before large corpora: tokens and checkpoints add up.")
    return Finding("disk", Status.OK, detail)


def check_database(places: Places) -> Iterator[Finding]:
    """Whether the service's database answers, and has the form of this version."""
    import importlib.util

    if places.database_url is None:
        yield Finding("database", Status.OK, "none is named; `electra up` brings its own")
        return
    if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("alembic") is None:
        yield Finding("database", Status.WARN, "cannot be asked without the service's packages", "")
        return
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError

    url = make_url(places.database_url)
    where = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        yield Finding("database", Status.OK, f"{where}: not there yet; it is made at the first start")
        return
    from service.ledger.database import make_engine
    from service.ledger.versions import database_revision, is_newer, newest_revision

    try:
        engine = make_engine(places.database_url)
        revision, newest = database_revision(engine), newest_revision()
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        # By its kind alone: the words can hold a password.
        advice = "Does it run, and are address, user and password right?"
        yield Finding("database", Status.FAIL, f"{where}: {type(error).__name__}", advice)
        return
    if is_newer(revision):
        advice = "Use the later version of the service here too."
        yield Finding("database", Status.WARN, f"{where} is of a later version ({revision})", advice)
    elif revision != newest:
        detail = f"{where} is at {revision or 'nothing'}, this version needs {newest}"
        yield Finding("database", Status.WARN, detail, "It is brought up at the next start, or by:  electra migrate")
    else:
        yield Finding("database", Status.OK, f"{where} is at {revision}")


def _ask(
    url: str, headers: dict[str, str] | None = None, *, is_refusal_an_answer: bool = False
) -> httpx.Response | str:
    """An answer, or in words why there is none."""
    is_local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    try:
        with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=not is_local) as http:
            answer = http.get(url, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"no answer ({error})"
    if answer.is_success or is_refusal_an_answer:
        return answer
    return f"status {answer.status_code}"
