"""How the client asks: addresses, keys, repetitions, streams and refusals. What it asks for is in the other modules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from service.client.credentials import CredentialsError, read_api_key
from service.client.errors import ApiError, ClientError, UnexpectedAnswerError, UnreachableError
from service.http.schemas import Problem
from service.http.server_events import ServerEvent, parse_events, stream_lines

STREAM_RETRY_SECONDS = 1.0
_RETRY_DELAYS_SECONDS = (0.2, 0.5, 1.0, 2.0)
# Between two signs of life on a stream; the service sends one every 15 s.
_STREAM_SILENCE_SECONDS = 60.0
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Model = TypeVar("Model", bound=BaseModel)
Checked = TypeVar("Checked")


class Connection:
    """The service at one address. Groups of calls are subclasses, and `ElectraClient` is all of them."""

    def __init__(
        self,
        base_url: str,
        *,
        timeout_seconds: float = 30.0,
        stream_patience_seconds: float = 120.0,
        transport: httpx.BaseTransport | None = None,
        api_key: str | None = None,
        num_repeats: int = len(_RETRY_DELAYS_SECONDS),
    ) -> None:
        """Make a client; it connects when it is used.

        Args:
            base_url: address of the service.
            timeout_seconds: longest wait for an answer.
            stream_patience_seconds: how long following a log outlives the service, which may be being restarted.
            transport: stands in for the network.
            api_key: sent with each request, and to no other address: redirects are not followed. That of
                `ELECTRA_API_KEY` or `ELECTRA_API_KEY_FILE` when absent.
            num_repeats: how often at most a call is repeated that may be.

        Raises:
            ClientError: the address or the key cannot be used.
        """
        self._stream_patience_seconds = stream_patience_seconds
        self._num_repeats = num_repeats
        self.base_url = base_url.rstrip("/")
        # A proxy of the environment has no way to our loopback address.
        address = urlsplit(self.base_url)
        is_local = address.hostname in _LOOPBACK_NAMES
        if address.scheme not in ("http", "https"):
            raise ClientError(f"the address of the service must start with http:// or https://, got {base_url!r}")
        try:
            key = api_key or read_api_key()
        except CredentialsError as error:
            raise ClientError(str(error)) from error
        headers = {"User-Agent": "electra-client"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self.is_key_in_the_clear = key is not None and not is_local and address.scheme == "http"
        """Whether whoever stands between here and the service reads the key."""
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
        delays = iter(_RETRY_DELAYS_SECONDS[: self._num_repeats])
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


def segment(name: str) -> str:
    """A job's id or a model's name as part of a path: whatever it holds, it names nothing else.

    Raises:
        ClientError: it is what paths are shortened by on their way.
    """
    if name in (".", ".."):
        raise ClientError(f"a job or a model cannot be called {name!r}")
    return quote(name, safe="")
