"""A typed client of the service, for programs and for the command line."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from pipelines.specs.prediction import PredictAnswer, PredictInput, PredictRequest
from service import client_logs
from service.client_access import AccessCalls
from service.client_errors import ApiError as ApiError
from service.client_errors import ClientError as ClientError
from service.client_errors import SlowAnswerError as SlowAnswerError
from service.client_errors import UnexpectedAnswerError as UnexpectedAnswerError
from service.client_errors import UnreachableError as UnreachableError
from service.client_errors import is_passing
from service.client_life import LifeCalls
from service.client_life import segment as _segment
from service.client_logs import LogCalls
from service.client_logs import LogLine as LogLine
from service.client_shelf import ShelfCalls
from service.credentials import CredentialsError, read_api_key
from service.event_client import EventStream, FollowedEvent, follow_stream
from service.http.schemas import Health, JobDetail, JobPage, JobPublic, Preset, PresetList, Problem, TrialPage
from service.http.server_events import ServerEvent, parse_events, stream_lines
from service.states import JobState

if TYPE_CHECKING:
    from pipelines.specs.plans import Plan

_RETRY_DELAYS_SECONDS = (0.2, 0.5, 1.0, 2.0)
# Between two signs of life on a stream; the service sends one every 15 s.
_STREAM_SILENCE_SECONDS = 60.0
# The service's own limit, two minutes unless set otherwise, with room for what it does before and after.
PREDICT_TIMEOUT_SECONDS = 180.0
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Model = TypeVar("Model", bound=BaseModel)
Checked = TypeVar("Checked")


class ElectraClient(LifeCalls, LogCalls, AccessCalls, ShelfCalls):
    """The service at one address. Calls that change nothing twice are repeated when the connection fails.

    Raises from every method:
        UnreachableError: no answer.
        ApiError: the service refused.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_seconds: float = 30.0,
        stream_patience_seconds: float = 120.0,
        transport: httpx.BaseTransport | None = None,
        api_key: str | None = None,
    ) -> None:
        """Make a client; it connects when it is used.

        Args:
            base_url: address of the service.
            timeout_seconds: longest wait for an answer.
            stream_patience_seconds: how long following a log outlives the service, which may be being restarted.
            transport: stands in for the network.
            api_key: sent with each request, and to no other address: redirects are not followed. That of
                `ELECTRA_API_KEY` or `ELECTRA_API_KEY_FILE` when absent.

        Raises:
            ClientError: the address or the key cannot be used.
        """
        self._stream_patience_seconds = stream_patience_seconds
        self.base_url = base_url.rstrip("/")
        # A proxy of the environment has no way to our loopback address.
        is_local = urlsplit(self.base_url).hostname in _LOOPBACK_NAMES
        if urlsplit(self.base_url).scheme not in ("http", "https"):
            raise ClientError(f"the address of the service must start with http:// or https://, got {base_url!r}")
        try:
            key = api_key or read_api_key()
        except CredentialsError as error:
            raise ClientError(str(error)) from error
        headers = {"User-Agent": "electra-client"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            base_url=self.base_url,
            timeout=httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, 10.0)),
            trust_env=not is_local,
            transport=transport,
            headers=headers,
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def submit(
        self,
        spec: Mapping[str, Any],
        overrides: Sequence[str] = (),
        *,
        idempotency_key: str | None = None,
        fields: Mapping[str, Any] | None = None,
        project: str | None = None,
    ) -> JobPublic:
        """Hand in a job. The key makes repeating safe: one is made up unless given.

        Args:
            spec: as in a file.
            overrides: `section.field=value` each.
            idempotency_key: the caller's name for this request.
            fields: any of `priority`, `labels`, `notes` and `limits`.
            project: what the job belongs to; the key's own when absent.
        """
        body = {**_job_body(spec, overrides, project), **(fields or {})}
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._read(JobPublic, self._call("POST", "/v1/jobs", is_safe=True, json=body, headers=headers))

    def plan(self, spec: Mapping[str, Any], overrides: Sequence[str] = (), *, project: str | None = None) -> Plan:
        """The resolved spec and what it will cost; starts nothing."""
        from pipelines.specs.plans import Plan  # here: no other call needs the reckoning

        body = _job_body(spec, overrides, project)
        answer = self._call("POST", "/v1/jobs:plan", is_safe=True, json=body)
        plans: TypeAdapter[Plan] = TypeAdapter(Plan)
        return self._checked(plans.validate_json, "plan", answer)

    def predict(
        self,
        name: str,
        inputs: Sequence[PredictInput],
        *,
        alias: str = "newest",
        timeout_seconds: float = PREDICT_TIMEOUT_SECONDS,
    ) -> PredictAnswer:
        """What a registered model says to a few texts.

        Args:
            name: of the registered model.
            inputs: 1 to 32.
            alias: of a version in MLflow's registry, or the version's number.
            timeout_seconds: longest silence of the service, which waits for a process on the cluster; no less than its
                own `predict_timeout_seconds`.

        Raises:
            ValidationError: there are no inputs, or too many.
            SlowAnswerError: there was no answer in that time.
        """
        body = PredictRequest(inputs=tuple(inputs)).model_dump(mode="json", exclude_none=True)
        timeout = httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, 10.0))
        # Not repeated when the answer is lost: another prediction beside the first would take its place on the cluster.
        url = f"/v1/models/{_segment(name)}/{_segment(alias)}:predict"
        try:
            answer = self._call("POST", url, is_safe=False, json=body, timeout=timeout)
        except UnreachableError as error:
            if isinstance(error.__cause__, httpx.ReadTimeout):
                raise SlowAnswerError(f"the service took longer than {timeout_seconds:g} s to answer") from error
            raise
        return self._read(PredictAnswer, answer)

    def jobs(
        self,
        states: Sequence[JobState] = (),
        *,
        name: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        labels: Sequence[str] = (),
        archived: bool = False,
        project: str | None = None,
        owner: str | None = None,
    ) -> JobPage:
        """One page of jobs, newest first: those with all labels, `key=value` each, and archived ones only if asked."""
        query: dict[str, Any] = {"limit": limit, "state": [state.value for state in states], "label": list(labels)}
        query |= {"archived": "true"} if archived else {}
        optional = (("name", name), ("cursor", cursor), ("project", project), ("owner", owner))
        query |= {key: value for key, value in optional if value is not None}
        return self._read(JobPage, self._get("/v1/jobs", params=query))

    def iter_jobs(self, states: Sequence[JobState] = (), *, name: str | None = None) -> Iterator[JobPublic]:
        """All jobs, newest first, page by page."""
        cursor = None
        while True:
            page = self.jobs(states, name=name, limit=200, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def job(self, job_id: str) -> JobDetail:
        """One job, with its spec."""
        return self._read(JobDetail, self._get(f"/v1/jobs/{_segment(job_id)}"))

    def cancel(self, job_id: str) -> JobPublic:
        """Ask a job to stop. It stops at its next step, and its state says when it has."""
        return self._wish(job_id, "cancel")

    def trials(
        self,
        job_id: str,
        *,
        sort: str = "number",
        order: str | None = None,
        is_final: bool | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TrialPage:
        """One page of the trials of a search."""
        query: dict[str, Any] = {"sort": sort, "limit": limit}
        optional = (("order", order), ("is_final", is_final), ("cursor", cursor))
        query |= {key: value for key, value in optional if value is not None}
        return self._read(TrialPage, self._get(f"/v1/jobs/{_segment(job_id)}/trials", params=query))

    def follow_events(self, job_id: str | None = None, *, after: int | None = None) -> Iterator[FollowedEvent]:
        """What happens to a job until it is over, or to all jobs for ever; from now on, or after event number `after`.

        Goes on where it was after a broken connection.
        """
        url = "/v1/events" if job_id is None else f"/v1/jobs/{_segment(job_id)}/events"
        stream = EventStream(
            connect=lambda last_event_id: self._events_of(url, {}, last_event_id),
            is_passing=is_passing,
            patience_seconds=self._stream_patience_seconds,
            retry_seconds=client_logs.STREAM_RETRY_SECONDS,
        )
        return follow_stream(stream, after)

    def presets(self) -> tuple[Preset, ...]:
        """Whole specs by name."""
        return self._read(PresetList, self._get("/v1/presets")).items

    def ready(self) -> bool:
        """Whether the service answers and has all it needs. Never raises `UnreachableError`."""
        try:
            answer = self._http.get("/readyz")
        except httpx.HTTPError:
            return False
        return answer.is_success and self._read(Health, answer).status == "ok"

    def _events_of(self, url: str, params: Mapping[str, Any], last_event_id: str | None) -> Iterator[ServerEvent]:
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        timeout = httpx.Timeout(_STREAM_SILENCE_SECONDS, connect=10.0)
        try:
            with self._http.stream("GET", url, params=params, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    self._refuse(answer)
                yield from parse_events(stream_lines(answer.iter_text()))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def _stream_bytes(self, path: str) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    answer.read()
                    self._refuse(answer)
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _get(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        return self._call("GET", path, is_safe=True, params=params)

    def _call(self, method: str, path: str, *, is_safe: bool, **request: Any) -> httpx.Response:
        """One answer of success; calls that are safe to repeat are, when none came or the service says "not now"."""
        delays = iter(_RETRY_DELAYS_SECONDS)
        while True:
            delay = next(delays, None)
            try:
                answer = self._http.request(method, path, **request)
            except httpx.HTTPError as error:
                # A connection that was never made carried no request: any call may be repeated then.
                if delay is None or not (is_safe or isinstance(error, httpx.ConnectError)):
                    raise self._unreachable(error) from error
            else:
                if answer.is_success:
                    return answer
                if delay is None or not is_safe or answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    self._refuse(answer)
            time.sleep(delay or 0.0)

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        why = "took too long to answer" if isinstance(error, httpx.TimeoutException) else f"does not answer ({error})"
        return UnreachableError(f"the service at {self.base_url} {why}")

    def _refuse(self, answer: httpx.Response) -> NoReturn:
        try:
            problem = Problem.model_validate_json(answer.content)
        except ValidationError as error:
            raise UnexpectedAnswerError(
                f"{self.base_url} answered {answer.status_code} without a problem document: is it this service?"
            ) from error
        raise ApiError(problem)

    def _read(self, model: type[Model], answer: httpx.Response) -> Model:
        return self._checked(model.model_validate_json, model.__name__, answer)

    def _checked(self, read: Callable[[bytes], Checked], name: str, answer: httpx.Response | str) -> Checked:
        try:
            return read(answer.encode() if isinstance(answer, str) else answer.content)
        except ValidationError as error:
            raise UnexpectedAnswerError(
                f"{self.base_url} gave an answer that is no {name}: is it this service, in this version?"
            ) from error


def _job_body(spec: Mapping[str, Any], overrides: Sequence[str], project: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"spec": dict(spec), "overrides": list(overrides)}
    return body if project is None else {**body, "project": project}
