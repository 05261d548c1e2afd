from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_service import serve_desk
from service_doubles import FakeLauncher, MemoryPredictionFolders, make_job

from pipelines.specs.plans import FinetunePlan
from pipelines.specs.prediction import PredictInput
from pipelines.specs.presets import PRESETS
from service.client import (
    ApiError,
    ClientError,
    ElectraClient,
    SlowAnswerError,
    UnexpectedAnswerError,
    UnreachableError,
    connection,
)
from service.http.desk import Desk
from service.http.server_events import parse_events, stream_lines
from service.launches import attempt_launch
from service.ledger.store import SqlJobStore
from service.settings import Settings
from service.states import JobState

TINY = {"kind": "pretrain", "preset": "tiny"}
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def electra(settings: Settings, desk: Desk) -> Iterator[ElectraClient]:
    """A client of a real service."""
    with serve_desk(settings, desk) as url, ElectraClient(url) as client:
        yield client


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_RETRY_DELAYS_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(connection, "STREAM_RETRY_SECONDS", 0.0)


def client_of(handler: Handler, stream_patience_seconds: float = 5.0) -> ElectraClient:
    transport = httpx.MockTransport(handler)
    return ElectraClient("http://electra", transport=transport, stream_patience_seconds=stream_patience_seconds)


def test_a_submitted_job_is_read_back_with_its_resolved_spec(electra: ElectraClient) -> None:
    job = electra.submit(TINY, ["training.seed=7"])
    assert job.state is JobState.QUEUED
    assert electra.job(job.job_id).spec["training"]["seed"] == 7


def test_one_key_makes_one_job_and_another_body_is_refused(electra: ElectraClient) -> None:
    first = electra.submit(TINY, idempotency_key="k")
    assert electra.submit(TINY, idempotency_key="k").job_id == first.job_id
    with pytest.raises(ApiError) as caught:
        electra.submit(TINY, ["training.seed=7"], idempotency_key="k")
    assert (caught.value.status, caught.value.code) == (409, "idempotency_conflict")


def test_without_a_key_each_submission_is_a_job(electra: ElectraClient) -> None:
    assert electra.submit(TINY).job_id != electra.submit(TINY).job_id


def test_a_refusal_carries_the_fields(electra: ElectraClient) -> None:
    with pytest.raises(ApiError) as caught:
        electra.submit({**TINY, "training": {"seed": "x"}})
    assert [item.pointer for item in caught.value.problem.errors] == ["/spec/training/seed"]


def test_jobs_are_listed_page_by_page(electra: ElectraClient) -> None:
    made = [electra.submit(TINY).job_id for _ in range(3)]
    first = electra.jobs(limit=2)
    assert len(first.items) == 2
    assert first.next_cursor is not None
    assert [job.job_id for job in electra.iter_jobs([JobState.QUEUED])] == made[::-1]
    assert list(electra.iter_jobs([JobState.FAILED])) == []


def test_a_queued_job_is_cancelled(electra: ElectraClient) -> None:
    assert electra.cancel(electra.submit(TINY).job_id).cancel_requested


def test_presets_are_whole_specs(electra: ElectraClient) -> None:
    assert {preset.name for preset in electra.presets()} >= {"tiny", "small", "base", "large"}


def test_a_plan_starts_nothing(electra: ElectraClient) -> None:
    assert electra.plan(TINY).tokens_per_step == PRESETS["tiny"]().tokens_per_step
    assert electra.jobs().items == ()


def test_a_plan_is_that_of_the_kind_of_job(electra: ElectraClient) -> None:
    task = {"type": "classification", "data": {"train": "/nowhere/train.csv"}}
    plan = electra.plan({"kind": "finetune", "model": {"type": "registered", "name": "m"}, "task": task})
    assert isinstance(plan, FinetunePlan)
    assert plan.num_runs == len(plan.spec["training"]["seeds"])


def test_a_model_is_asked_by_alias_or_version(
    electra: ElectraClient, prediction_folders: MemoryPredictionFolders
) -> None:
    inputs = [PredictInput(text="one"), PredictInput(text="two", text_pair="three")]
    assert [one.label for one in electra.predict("m", inputs).predictions] == ["good", "good"]
    assert electra.predict("m", inputs, alias="3").version == "3"
    asked = list(prediction_folders.asked.values())
    assert [job.model.uri for job in asked] == ["models:/m@newest", "models:/m/3"]
    assert asked[0].inputs == tuple(inputs)


def test_asking_a_model_is_not_repeated_once_it_may_have_arrived() -> None:
    calls: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request.url.path)
        raise httpx.ReadError("cut")

    with client_of(handler) as client, pytest.raises(UnreachableError):
        client.predict("m", [PredictInput(text="one")], alias="best")
    assert calls == ["/v1/models/m/best:predict"]


def test_a_service_that_takes_its_time_to_predict_is_not_out_of_reach() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out")

    with client_of(handler) as client, pytest.raises(SlowAnswerError, match=r"took longer than 1\.5 s to answer"):
        client.predict("m", [PredictInput(text="one")], timeout_seconds=1.5)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_does_not_shorten_the_path(name: str) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request.url)

    with client_of(handler) as client:
        for ask in (
            lambda: client.predict(name, [PredictInput(text="one")]),
            lambda: client.predict("m", [PredictInput(text="one")], alias=name),
            lambda: client.job(name),
        ):
            with pytest.raises(ClientError, match="cannot be called"):
                ask()


def test_logs_are_read_and_followed_to_the_end(
    electra: ElectraClient, store: SqlJobStore, launcher: FakeLauncher
) -> None:
    job = make_job()
    store.insert(job)
    store.update(job, state=JobState.STARTING, attempt=1)
    launcher.submit(attempt_launch("/jobs", job.job_id, 1))
    launcher.logs[f"{job.job_id}-a1"] = "one\n\ntwo\u2028half\n"
    started = store.get(job.job_id)
    assert started is not None
    assert electra.logs(job.job_id) == "one\n\ntwo\u2028half\n"
    followed = electra.follow_logs(job.job_id)
    assert [next(followed).text for _ in range(3)] == ["one", "", "two\u2028half"]
    followed.close()


def test_a_path_never_names_anything_but_a_job(electra: ElectraClient) -> None:
    with pytest.raises(ApiError):
        electra.job("../presets")


def test_nobody_listening_is_unreachable() -> None:
    with ElectraClient("http://127.0.0.1:9") as client, pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
        client.jobs()


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ClientError, match="http://"):
        ElectraClient("localhost:8080")


def test_another_programs_answer_is_told_apart() -> None:
    with client_of(lambda request: httpx.Response(200, text="<html>")) as client, pytest.raises(UnexpectedAnswerError):
        client.jobs()
    with client_of(lambda request: httpx.Response(404, text="<html>")) as client, pytest.raises(UnexpectedAnswerError):
        client.jobs()


def test_reading_is_repeated_when_the_connection_breaks_or_the_service_is_busy() -> None:
    answers: list[httpx.Response | Exception] = [
        httpx.ReadError("cut"),
        httpx.Response(503, text="busy"),
        httpx.Response(200, json={"items": []}),
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with client_of(handler) as client:
        assert client.jobs().items == ()


def test_submitting_is_repeated_under_the_same_key() -> None:
    keys: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        raise httpx.ReadError("cut")

    with client_of(handler) as client, pytest.raises(UnreachableError):
        client.submit(TINY)
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_cancelling_is_not_repeated_once_it_may_have_arrived() -> None:
    calls: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request.url.path)
        raise httpx.ReadError("cut")

    with client_of(handler) as client, pytest.raises(UnreachableError):
        client.cancel("j")
    assert calls == ["/v1/jobs/j/cancel"]


def test_following_goes_on_after_the_last_line_seen() -> None:
    asked: list[str | None] = []
    streams = ["id: 1:1\ndata: one\n\nid: 1:2\ndata: cut o", "id: 1:2\ndata: two\n\nevent: end\ndata: SUCCEEDED\n\n"]

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Last-Event-ID"))
        if len(asked) == 2:
            raise httpx.ConnectError("being restarted")
        return httpx.Response(200, text=streams.pop(0), headers={"Content-Type": "text/event-stream"})

    with client_of(handler) as client:
        assert [line.text for line in client.follow_logs("j")] == ["one", "two"]
    assert asked == [None, "1:1", "1:1"]


def test_following_gives_up_when_the_service_stays_away() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("gone")

    with client_of(handler, stream_patience_seconds=0.0) as client, pytest.raises(UnreachableError):
        list(client.follow_logs("j"))


def test_ready_is_false_without_an_answer() -> None:
    with ElectraClient("http://127.0.0.1:9") as client:
        assert not client.ready()


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\0")), min_size=1), st.integers(1, 9), st.data())
def test_events_do_not_depend_on_how_the_stream_is_cut(lines: list[str], size: int, data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    stream = "".join(f"id: {n}{end}data: {line}{end}{end}" for n, line in enumerate(lines)) + f": alive{end}{end}"
    chunks = (stream[start : start + size] for start in range(0, len(stream), size))
    assert [(event.event_id, event.data) for event in parse_events(stream_lines(chunks))] == [
        (str(n), line) for n, line in enumerate(lines)
    ]
