"""The client's calls for registered models, prepared corpora, cleaning and usage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import IO, Any

import httpx

from service.client.connection import Connection, segment
from service.client.errors import UnexpectedAnswerError
from service.http.model_schemas import (
    AliasMoved,
    ModelLineage,
    ModelPage,
    ModelPublic,
    VersionDetail,
    VersionPage,
)
from service.http.shelf_schemas import CleanAnswer, CorpusPage, CorpusPublic, UsageReport

CLEAN_TIMEOUT_SECONDS = 3600.0
"""A cleaning answers when all is done."""


class ShelfCalls(Connection):
    """Part of `ElectraClient`."""

    def models(self, *, project: str | None = None, limit: int = 50, cursor: str | None = None) -> ModelPage:
        """One page of registered models, by name."""
        return self._read(ModelPage, self._look("/v1/models", project=project, limit=limit, cursor=cursor))

    def iter_models(self, *, project: str | None = None) -> Iterator[ModelPublic]:
        """All registered models, by name, page by page."""
        cursor = None
        while True:
            page = self.models(project=project, limit=200, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def model(self, name: str) -> ModelPublic:
        """One registered model, with its aliases."""
        return self._read(ModelPublic, self._look(f"/v1/models/{segment(name)}"))

    def versions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> VersionPage:
        """One page of a model's versions, newest first."""
        return self._read(VersionPage, self._look(f"/v1/models/{segment(name)}/versions", limit=limit, cursor=cursor))

    def version(self, name: str, version: str) -> VersionDetail:
        """One version, by its number or an alias."""
        return self._read(VersionDetail, self._look(_version_path(name, version)))

    def move_alias(self, name: str, alias: str, version: int, *, expected_version: int | None = None) -> AliasMoved:
        """Let an alias name a version.

        Args:
            name: of the model.
            alias: made where there is none.
            version: that it names from now on.
            expected_version: that it must name until now, 0 for none; any where absent.
        """
        params = _given(expected_version=expected_version)
        path = f"/v1/models/{segment(name)}/aliases/{segment(alias)}"
        # To repeat what was expected would be refused once it is done.
        is_safe = expected_version is None
        return self._read(
            AliasMoved, self._call("PUT", path, is_safe=is_safe, json={"version": version}, params=params)
        )

    def delete_alias(self, name: str, alias: str, *, expected_version: int | None = None) -> AliasMoved:
        """Let an alias name nothing."""
        params = _given(expected_version=expected_version)
        path = f"/v1/models/{segment(name)}/aliases/{segment(alias)}"
        return self._read(AliasMoved, self._call("DELETE", path, is_safe=False, params=params))

    def lineage(self, name: str, version: str) -> ModelLineage:
        """What a version, by its number or an alias, was made of."""
        return self._read(ModelLineage, self._look(f"{_version_path(name, version)}/lineage"))

    def download_export(
        self, name: str, version: str, file: IO[bytes], told: Callable[[int], None] = lambda size: None
    ) -> int:
        """Write the export of a version, a tar archive, into a file.

        Args:
            name: of the model.
            version: its number or an alias.
            file: open for writing.
            told: called with the bytes that came, as they come.

        Returns:
            Bytes in all.

        Raises:
            UnexpectedAnswerError: the archive ended early.
        """
        size = 0
        with self._stream_bytes(f"{_version_path(name, version)}/export") as answer:
            for chunk in answer.iter_bytes(1 << 20):
                file.write(chunk)
                size += len(chunk)
                told(size)
            expected = answer.headers.get("content-length")
        if expected is not None and int(expected) != size:
            raise UnexpectedAnswerError(f"the archive ended after {size} of {expected} bytes")
        return size

    def corpora(self, *, project: str | None = None, limit: int = 50, cursor: str | None = None) -> CorpusPage:
        """One page of prepared corpora, by digest."""
        return self._read(CorpusPage, self._look("/v1/corpora", project=project, limit=limit, cursor=cursor))

    def corpus(self, digest: str) -> CorpusPublic:
        """One prepared corpus."""
        return self._read(CorpusPublic, self._look(f"/v1/corpora/{segment(digest)}"))

    def clean(self, wish: Mapping[str, Any] | None = None) -> CleanAnswer:
        """Delete what nobody needs, or say what would be: fields as of `POST /v1/clean`, where a dry run is usual."""
        timeout = httpx.Timeout(CLEAN_TIMEOUT_SECONDS, connect=10.0)
        return self._read(
            CleanAnswer, self._call("POST", "/v1/clean", is_safe=False, json=dict(wish or {}), timeout=timeout)
        )

    def usage(
        self,
        *,
        start: datetime | date | None = None,
        end: datetime | date | None = None,
        group_by: Sequence[str] = (),
        project: str | None = None,
    ) -> UsageReport:
        """What jobs took of the cluster; arguments as of `GET /v1/usage`, where `start` is `from`."""
        return self._read(UsageReport, self._usage(start, end, group_by, project, "json"))

    def usage_csv(
        self,
        *,
        start: datetime | date | None = None,
        end: datetime | date | None = None,
        group_by: Sequence[str] = (),
        project: str | None = None,
    ) -> str:
        """The same as CSV."""
        return self._usage(start, end, group_by, project, "csv").text

    def _usage(
        self,
        start: datetime | date | None,
        end: datetime | date | None,
        group_by: Sequence[str],
        project: str | None,
        format_: str,
    ) -> httpx.Response:
        window = _given(to=end and end.isoformat(), project=project) | ({"from": start.isoformat()} if start else {})
        params = {**window, "group_by": list(group_by), "format": format_}
        return self._call("GET", "/v1/usage", is_safe=True, params=params)

    def _look(self, path: str, **params: Any) -> httpx.Response:
        return self._call("GET", path, is_safe=True, params=_given(**params))


def _version_path(name: str, version: str) -> str:
    return f"/v1/models/{segment(name)}/versions/{segment(version)}"


def _given(**params: Any) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value is not None}
