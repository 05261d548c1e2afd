"""Where a spec may read from: below the roots of the settings, the public web, its own project's job folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from pipelines.storage import FoundFile
from pipelines.storage.web_guard import RefusedAddressError, check_host, setting
from service.access.places import PROJECT_FIELD, WEB, canonical, is_within, own_place, scheme_of, static_part
from service.errors import Fault, SourceNotAllowedError
from service.jobs.references import Reference
from service.settings import Settings

_JOB_FOLDER = re.compile(r"jobs/([a-z0-9][a-z0-9-]{0,62})(?:/|$)")


_BESIDE_SQLITE = ("", "-wal", "-shm", "-journal")


def _own_files(settings: Settings) -> list[str]:
    """What the service keeps to itself, wherever it was put: a root of sources may lie around it."""
    files = [] if settings.ray_token_path is None else [str(settings.ray_token_path.expanduser())]
    scheme, _, path = settings.database_url.partition(":///")
    path = path.partition("?")[0]
    if scheme.startswith("sqlite") and path and path != ":memory:":
        files += [f"{path}{ending}" for ending in _BESIDE_SQLITE]
    return files


class SourcePolicy:
    """Holds places to the settings, each in the one form in which it can be compared."""

    def __init__(self, settings: Settings, project_of_job: Callable[[str], str | None]) -> None:
        """`project_of_job`: None of a job that is not there."""
        self._roots = settings.source_roots
        self._is_on = settings.restricts_sources
        self._web_hosts = setting(settings.web_source_hosts)
        self._storage = own_place(settings.storage_uri)
        self._own = (own_place(str(settings.home)), self._storage, *map(own_place, _own_files(settings)))
        self._project_of_job = project_of_job

    @property
    def is_on(self) -> bool:
        """Whether anything is refused at all."""
        return self._is_on

    def check(self, references: Sequence[Reference], project: str) -> None:
        """Refuse a spec that names a place its project may not read.

        Raises:
            SourceNotAllowedError: with a fault for each.
        """
        if not self._is_on:
            return
        faults = []
        for one in references:
            rule = self._refusal(one.uri, project)
            if rule is not None:
                faults.append(Fault(f"/spec{one.pointer}", rule, one.uri[:500]))
        if faults:
            raise SourceNotAllowedError(f"{faults[0].value!r}: {faults[0].rule}.", faults)

    def refusal_of_file(self, named: str, file: FoundFile, project: str) -> str | None:
        """Why a file that a pattern, a folder or a link led to may not be read; None where it may."""
        if not self._is_on or scheme_of(named) in WEB:
            return None
        rule = self._refusal(file.uri, project)
        return None if rule is None else f"leads to a file outside: {rule}"

    def _refusal(self, uri: str, project: str) -> str | None:
        try:
            place = canonical(uri)
            start = canonical(static_part(uri))
            if scheme_of(uri) in WEB:
                return self._refusal_on_the_web(uri)
        except (ValueError, RefusedAddressError) as error:
            return str(error)
        for own in self._own:
            if is_within(start, own) or is_within(own, start):
                return self._refusal_in_storage(place, start, project)
        if self._roots is None:
            return "must be below ELECTRA_SOURCE_ROOTS, which names no place"
        roots = [canonical(root.replace(PROJECT_FIELD, project)) for root in self._roots]
        if any(is_within(start, root) for root in roots):
            return None
        return "must be below one of ELECTRA_SOURCE_ROOTS"

    def _refusal_on_the_web(self, uri: str) -> str | None:
        host = urlsplit(uri).hostname
        if not host or "\\" in uri:
            return "must name a host"
        if host.lower() in self._web_hosts.split(","):
            return None
        check_host(host, self._web_hosts)
        name = host.rstrip(".").lower()
        if name == "localhost" or name.endswith((".localhost", ".local", ".internal")):
            return f"the host must be public, got {host}"
        return None

    def _refusal_in_storage(self, place: str, start: str, project: str) -> str | None:
        """A folder of the project's own jobs may be read, and nothing else of the storage."""
        rule = "must not lie in the service's own storage, but for folders of jobs of the same project"
        if not is_within(start, self._storage):
            return rule
        found = _JOB_FOLDER.match(start[len(self._storage.rstrip("/")) + 1 :])
        if found is None or self._project_of_job(found[1]) != project:
            return rule  # the same whether there is such a job or not
        return None
