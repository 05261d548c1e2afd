"""Our programs on Ray, over the plain HTTP of its Jobs API: the service needs no Ray of its own."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx

from pipelines.specs.log_lines import DEFAULT_SOURCE_BYTES, SOURCE_BYTES_VARIABLE
from pipelines.storage import web_guard
from service.dispatch.holdings import QUERY, holdings_of, named_by_id
from service.dispatch.usage_reports import UsageReports, rooms_of_summary
from service.interfaces import (
    AttemptState,
    AttemptStatus,
    Capacity,
    LauncherUnavailableError,
    LaunchRejectedError,
    RunningProgram,
)
from service.launches import Launch
from service.queueing.records import Holding, NodeRoom
from service.settings import Settings

_MAX_NODES = 10_000


class RayLauncher:
    """`Launcher` on a Ray cluster's dashboard."""

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        """`transport` stands in for the network in tests.

        Raises:
            OSError: the token's file cannot be read.
        """
        self._settings = settings
        self._reports = UsageReports()
        self._programs: dict[str, str] = {}
        """Submissions by Ray's id of their driver's job, of programs that were last seen alive."""
        token = settings.read_ray_token()
        self._client = httpx.Client(
            base_url=settings.ray_address,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=settings.ray_timeout_seconds,
            transport=transport,
            # HTTP_PROXY and .netrc are for the world outside, not for the cluster; the token must not go there.
            trust_env=False,
        )

    def submit(self, launch: Launch) -> None:
        """Start a program; one that was started before is left alone.

        Raises:
            LaunchRejectedError: Ray will not take it.
            LauncherUnavailableError: Ray may or may not have taken it.
        """
        body = {
            "submission_id": launch.submission_id,
            "entrypoint": entrypoint(self._settings.job_python, launch),
            "metadata": dict(launch.metadata),
            "runtime_env": {"env_vars": self._environment()},
        }
        answer = self._send("POST", "/api/jobs/", json=body)
        # 2.60 answers 500 with a trace to a name it has; what counts is that it has it.
        if answer.is_success or "already exists" in answer.text:
            return
        if answer.status_code in (400, 404, 405, 413, 415, 422):
            raise LaunchRejectedError(_last_line(answer.text))
        raise _unavailable(answer)

    def status(self, submission_id: str) -> AttemptStatus | None:
        """What Ray says of a program; None if it has never heard of it."""
        answer = self._send("GET", _job_path(submission_id))
        if _is_unheard_of(answer):
            self._note_program(submission_id, None)
            return None
        told = _mapping(answer)
        try:
            state = AttemptState(str(told.get("status")))
        except ValueError:
            state = AttemptState.UNKNOWN
        self._note_program(submission_id, None if state.is_terminal else told.get("job_id"))
        return AttemptStatus(state, str(told.get("message") or ""))

    def list_running(self) -> list[RunningProgram]:
        """Programs that wait or run, whoever started them."""
        answer = self._send("GET", "/api/jobs/")
        told = _document(answer)
        if not isinstance(told, list):
            raise LauncherUnavailableError(f"Ray's answer is not an array but {type(told).__name__}")
        return [program for program in map(_running_program, told) if program is not None]

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end a program; one that is over or unknown is left alone."""
        answer = self._send("POST", _job_path(submission_id) + "/stop")
        if not _is_unheard_of(answer) and not answer.is_success:
            raise _unavailable(answer)

    def read_log(self, submission_id: str) -> str | None:
        """All the program has printed; None if Ray has never heard of it."""
        answer = self._send("GET", _job_path(submission_id) + "/logs")
        return None if _is_unheard_of(answer) else str(_mapping(answer).get("logs") or "")

    def capacity(self) -> Capacity | None:
        """What the living nodes have, and what of it is free; None if Ray does not list them all."""
        answer = self._send("GET", "/api/v0/nodes", params={"limit": _MAX_NODES})
        if answer.status_code in (502, 503, 504):
            raise _unavailable(answer)
        try:
            told = _mapping(answer)
            listing = told["data"]["result"]
            nodes = [node for node in listing["result"] if node["state"] == "ALIVE"]
            if listing["num_after_truncation"] < listing["total"] or not nodes:
                return None
            totals = [node["resources_total"] for node in nodes]
            num_cpus = sum(float(total.get("CPU", 0)) for total in totals)
            num_gpus = sum(float(total.get("GPU", 0)) for total in totals)
        except (LauncherUnavailableError, KeyError, TypeError, ValueError, AttributeError):
            return None  # Ray changes what its dashboard says now and then; jobs are then accepted unseen
        rooms = self._rooms()
        if rooms is not None:
            rooms = named_by_id(rooms, nodes)
        if (
            sum(room.num_cpus for room in rooms or ()) > num_cpus
            or sum(room.num_gpus for room in rooms or ()) > num_gpus
        ):
            rooms = None  # a node has gone since its use was written down
        if rooms is None:
            return Capacity(num_cpus, num_gpus)
        return Capacity(num_cpus, num_gpus, rooms, self._reports.number, self._holdings(rooms))

    def _holdings(self, rooms: tuple[NodeRoom, ...]) -> dict[str, tuple[Holding, ...]]:
        """Asked for where there is more than one node to be on."""
        if len(rooms) < 2 or not self._programs:
            return {}
        answer = self._send("GET", "/api/v0/placement_groups", params=QUERY)
        return holdings_of(answer.json(), self._programs) if _is_object(answer) else {}

    def _note_program(self, submission_id: str, ray_job_id: object) -> None:
        for known in [one for one, name in self._programs.items() if name == submission_id and one != ray_job_id]:
            del self._programs[known]
        if isinstance(ray_job_id, str) and ray_job_id:
            self._programs[ray_job_id] = submission_id

    def _rooms(self) -> tuple[NodeRoom, ...] | None:
        """The nodes with what is free of them; None where Ray does not say it now."""
        answer = self._send("GET", "/api/cluster_status")
        rooms = self._reports.read(answer.json()) if _is_object(answer) else None
        if rooms is not None or not self._reports.is_absent:
            return rooms
        # Nothing writes that report where Ray's newer autoscaler runs. It is asked for its nodes instead.
        answer = self._send("GET", "/nodes", params={"view": "summary"})
        self._reports.note_live()
        return rooms_of_summary(answer.json()) if _is_object(answer) else None

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _environment(self) -> dict[str, str]:
        """Shown in Ray's dashboard, so nothing secret is in it."""
        tracking = self._settings.mlflow_tracking_uri or self._settings.mlflow_url
        variables = {"ELECTRA_STORAGE_URI": self._settings.storage_uri}
        if self._settings.job_log_max_bytes != DEFAULT_SOURCE_BYTES:
            variables[SOURCE_BYTES_VARIABLE] = str(self._settings.job_log_max_bytes)
        if self._settings.restricts_sources:
            variables[web_guard.VARIABLE] = web_guard.setting(self._settings.web_source_hosts)
        return variables | ({"MLFLOW_TRACKING_URI": tracking} if tracking else {})

    def _send(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, path, **kwargs)
        except httpx.HTTPError as error:
            message = f"Ray at {self._settings.ray_address} does not answer: {error or type(error).__name__}"
            raise LauncherUnavailableError(message) from error
        if answer.status_code in (401, 403):
            raise LauncherUnavailableError(f"Ray at {self._settings.ray_address} does not accept the token")
        return answer


def entrypoint(python: str, launch: Launch) -> str:
    """The command of a program. Ray runs it in a shell, so there is nothing in it that a user wrote."""
    return shlex.join([python, "-m", launch.module, *launch.arguments])


def _job_path(submission_id: str) -> str:
    return f"/api/jobs/{quote(submission_id, safe='')}"


def _running_program(told: object) -> RunningProgram | None:
    """Of one that was submitted and is not over."""
    if not isinstance(told, dict) or told.get("status") not in (AttemptState.PENDING, AttemptState.RUNNING):
        return None
    name, metadata, began_ms = told.get("submission_id"), told.get("metadata"), told.get("start_time")
    if not isinstance(name, str) or not name:
        return None  # a driver that somebody runs by hand
    said = metadata if isinstance(metadata, dict) else {}
    began_at = datetime.fromtimestamp(began_ms / 1000, UTC) if isinstance(began_ms, int) and began_ms > 0 else None
    return RunningProgram(name, {str(key): str(value) for key, value in said.items()}, began_at)


def _is_unheard_of(answer: httpx.Response) -> bool:
    # Not just any 404: a proxy or a dashboard that is starting says it too, and an attempt thought lost runs twice.
    return answer.status_code == 404 and "does not exist" in answer.text


def _document(answer: httpx.Response) -> object:
    if not answer.is_success:
        raise _unavailable(answer)
    try:
        told: object = answer.json()
    except ValueError as error:
        raise LauncherUnavailableError("Ray's answer is not JSON") from error
    return told


def _mapping(answer: httpx.Response) -> dict[str, Any]:
    told = _document(answer)
    if not isinstance(told, dict):
        raise LauncherUnavailableError(f"Ray's answer is not an object but {type(told).__name__}")
    return told


def _is_object(answer: httpx.Response) -> bool:
    try:
        return answer.is_success and isinstance(answer.json(), dict)
    except ValueError:
        return False


def _unavailable(answer: httpx.Response) -> LauncherUnavailableError:
    return LauncherUnavailableError(f"Ray answered {answer.status_code}: {_last_line(answer.text)}")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if len(line.strip()) > 1]
    return lines[-1].strip()[:500] if lines else ""
