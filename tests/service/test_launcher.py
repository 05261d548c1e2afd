"""The launcher against answers that Ray 2.60 gave on a real cluster, and against worse ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from service.dispatch.launcher import RayLauncher, entrypoint
from service.interfaces import AttemptState, Capacity, LauncherUnavailableError, LaunchRejectedError
from service.launches import attempt_launch, prediction_launch
from service.settings import Settings

Handler = Callable[[httpx.Request], httpx.Response]
LAUNCH = attempt_launch("/jobs/x", "x", 1)
TWICE = "RuntimeError: …\nValueError: Job with submission_id x-a1 already exists. Please use a different one.\n.\n"


def launcher(handler: Handler, **settings: object) -> RayLauncher:
    return RayLauncher(Settings.model_validate({"ray_token": "secret", **settings}), httpx.MockTransport(handler))


def answering(status: int, body: object = "") -> RayLauncher:
    content = body if isinstance(body, str) else json.dumps(body)
    return launcher(lambda _: httpx.Response(status, text=content))


def node(state: str = "ALIVE", **resources: float) -> dict[str, object]:
    return {"state": state, "resources_total": resources}


def listing(*nodes: object, total: int | None = None) -> dict[str, object]:
    result = {"total": total or len(nodes), "num_after_truncation": len(nodes), "result": list(nodes)}
    return {"data": {"result": result}}


def test_what_is_sent_to_start_an_attempt() -> None:
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"submission_id": "x-a2"})

    ray = launcher(
        handler, storage_uri="s3://bucket/path", mlflow_url="http://mlflow:5000/", job_python="/v/bin/python"
    )
    ray.submit(attempt_launch("s3://bucket/path/jobs/x", "x", 2))
    assert requests[0].headers["authorization"] == "Bearer secret"
    assert json.loads(requests[0].content) == {
        "submission_id": "x-a2",
        "entrypoint": "/v/bin/python -m pipelines.main --job-uri s3://bucket/path/jobs/x --attempt 2",
        "metadata": {
            "electra.job_id": "x",
            "electra.attempt": "2",
            "electra.job_uri": "s3://bucket/path/jobs/x",
            "electra.project": "default",
            "electra.owner": "local",
        },
        "runtime_env": {
            "env_vars": {"ELECTRA_STORAGE_URI": "s3://bucket/path", "MLFLOW_TRACKING_URI": "http://mlflow:5000"}
        },
    }


def test_nothing_in_the_entrypoint_reaches_the_shell() -> None:
    uri = "/tmp/a b;$(reboot)'/x"
    for launch in (attempt_launch(uri, "x", 1), prediction_launch(uri, "x")):
        assert shlex.split(entrypoint("python", launch)) == ["python", "-m", launch.module, *launch.arguments]
        assert uri in launch.arguments


@pytest.mark.parametrize("status", [400, 500])
def test_an_attempt_that_was_started_before_is_left_alone(status: int) -> None:
    answering(status, TWICE).submit(LAUNCH)


def test_a_refusal_is_told_from_a_fault() -> None:
    with pytest.raises(LaunchRejectedError, match="bad env"):
        answering(400, "Traceback\n  File\nValueError: bad env\n.").submit(LAUNCH)
    with pytest.raises(LauncherUnavailableError, match="No available agent"):
        answering(500, "No available agent to submit job").submit(LAUNCH)


def test_states() -> None:
    for state in AttemptState:
        told = answering(200, {"status": state.value, "message": "m"}).status("x-a1")
        assert told is not None
        assert (told.state, told.message) == (state, "m")
    odd = answering(200, {"status": "PAUSED"}).status("x-a1")
    assert odd is not None
    assert odd.state is AttemptState.UNKNOWN


def test_an_attempt_ray_has_never_heard_of() -> None:
    ray = answering(404, "Job x-a1 does not exist")
    assert ray.status("x-a1") is None
    assert ray.read_log("x-a1") is None
    ray.stop("x-a1")


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, "404: Not Found"), (401, "Unauthorized"), (502, ""), (503, "no"), (500, "x"), (200, "<html>"), (200, [])],
)
def test_any_other_answer_is_no_answer(status: int, body: object) -> None:
    """A proxy's 404 is no word on the job."""
    with pytest.raises(LauncherUnavailableError):
        answering(status, body).status("x-a1")
    with pytest.raises(LauncherUnavailableError):
        answering(status, body).read_log("x-a1")


def test_time_outs_and_refused_connections_are_no_answer() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow", request=request)

    ray = launcher(handler)
    for ask in (lambda: ray.status("x"), lambda: ray.stop("x"), lambda: ray.submit(LAUNCH), ray.capacity):
        with pytest.raises(LauncherUnavailableError, match="slow"):
            ask()


def test_capacity_is_that_of_living_nodes() -> None:
    nodes = listing(node(CPU=2.0), node(CPU=6.5, GPU=1.0), node("DEAD", CPU=99.0))
    assert answering(200, nodes).capacity() == Capacity(8.5, 1.0)


@pytest.mark.parametrize(
    "told", [listing(), listing(node(CPU=1.0), total=9), {}, {"data": None}, listing({"a": 1}), []]
)
def test_capacity_that_cannot_be_told_is_unknown(told: object) -> None:
    assert answering(200, told).capacity() is None


def test_the_token_comes_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert Settings(ray_token_path=tmp_path / "token").read_ray_token() == "abc"
    assert Settings().read_ray_token() is None
    with pytest.raises(OSError, match="nothing"):
        Settings(ray_token_path=tmp_path / "nothing").read_ray_token()
