from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_doubles import make_job

from pipelines.joblogs.lines import encode_line
from pipelines.joblogs.parts import PartWriter
from pipelines.specs.log_lines import PartKey
from service.http.desk import Desk
from service.joblogs import kept, merging
from service.joblogs.cursors import LogCursor, Position
from service.joblogs.kept import FollowedLine, LogWish
from service.joblogs.lines import KeptLine, parse_line, render_line
from service.ledger.store import SqlJobStore
from service.records import Job
from service.settings import Settings
from service.states import JobState

sys.path.append(str(Path(__file__).parents[1] / "pipelines"))
from log_processes import chatter

pytestmark = pytest.mark.anyio
START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "POLL_INTERVAL_SECONDS", 0.02)


@pytest.fixture
def job(store: SqlJobStore) -> Job:
    job = make_job(state=JobState.RUNNING, attempt=2)
    store.insert(job)
    return job


@pytest.fixture
def logs(job: Job, settings: Settings) -> Logs:
    return Logs(Path(settings.job_uri(job.job_id)) / "logs")


class Logs:
    """A job's folder of logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, source: str, *lines: Any, attempt: int = 2, number: int = 1, start: int = 0) -> Path:
        """A part: of numbers, which are seconds and messages, of (second, level, message), or of bytes as they are."""
        content = b""
        for line in lines:
            second, level, message = line if isinstance(line, tuple) else (line, "info", f"{source} at {line}")
            content += line if isinstance(line, bytes) else self.line(source, second, level, message)
        token = f"{int((START.timestamp() + start) * 1000):013d}-abcdef"
        path = self.folder / f"attempt-{attempt}" / source / PartKey(number, token).file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    @staticmethod
    def line(source: str, second: float, level: str, message: str, **fields: Any) -> bytes:
        return encode_line(
            time=START.timestamp() + second,
            level=level,
            logger="l",
            source=source,
            message=message,
            fields=fields,
            redact=str,
        )


async def page(client: httpx.AsyncClient, job: Job, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs", params={"format": "json", **params})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def messages(client: httpx.AsyncClient, job: Job, **params: Any) -> list[str]:
    """Of all pages."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        told = await page(client, job, **params, **cursor)
        found += [item["message"] for item in told["items"]]
        if "next_cursor" not in told or told["next_cursor"] is None:
            return found
        cursor = {"cursor": told["next_cursor"]}


def over(store: SqlJobStore, job: Job) -> None:
    store.update(job, state=JobState.SUCCEEDED, finished_at=datetime.now(UTC), is_log_saved=True)


def events(text: str) -> list[dict[str, str]]:
    blocks = text.replace("\r\n", "\n").split("\n\n")
    found = [dict(line.split(": ", 1) for line in block.split("\n") if ": " in line[1:]) for block in blocks]
    return [event for event in found if "data" in event]


async def test_what_processes_write_is_read_through_the_interface(
    client: httpx.AsyncClient, job: Job, settings: Settings
) -> None:
    """Three real processes, of which the job's first attempt was made."""
    spawn = multiprocessing.get_context("spawn")
    started = [
        spawn.Process(target=chatter, args=(settings.job_uri(job.job_id), f"rank-{rank}", 500)) for rank in range(3)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    read = await messages(client, job, attempt=1, limit=77)
    assert sorted(read) == sorted(f"rank-{rank} says {n}" for rank in range(3) for n in range(500))
    for rank in range(3):
        assert [text for text in read if f"rank-{rank}" in text] == [f"rank-{rank} says {n}" for n in range(500)]
    found = await messages(client, job, attempt=1, source="rank-1", level="warning", contains="SAYS 49")
    assert found == ["rank-1 says 490"]
    sources = (await client.get(f"/v1/jobs/{job.job_id}/logs/sources", params={"attempt": 1})).json()
    assert [one["source"] for one in sources["items"]] == ["rank-0", "rank-1", "rank-2"]
    assert all(one["size_bytes"] > 50_000 for one in sources["items"])


@pytest.mark.parametrize("limit", [1, 2, 1000])
async def test_lines_of_sources_are_merged_by_time_and_paged(
    client: httpx.AsyncClient, job: Job, logs: Logs, limit: int
) -> None:
    logs.write("rank-0", 1, 4)
    logs.write("rank-0", 5, 9, number=2, start=5)
    logs.write("rank-1", 2, 3, 8)
    logs.write("driver", 0, 7)
    logs.write("driver", 6, attempt=1)
    assert await messages(client, job, limit=limit) == [
        "driver at 0",
        "rank-0 at 1",
        "rank-1 at 2",
        "rank-1 at 3",
        "rank-0 at 4",
        "rank-0 at 5",
        "driver at 7",
        "rank-1 at 8",
        "rank-0 at 9",
    ]
    assert await messages(client, job, limit=limit, attempt=1) == ["driver at 6"]
    assert await messages(client, job, limit=limit, source=["rank-1", "dri*"], contains="at 2") == ["rank-1 at 2"]
    assert await messages(client, job, limit=limit, source="nobody") == []
    since, until = (START + timedelta(seconds=seconds) for seconds in (4, 7))
    found = await messages(client, job, limit=limit, since=since.isoformat(), until=until.isoformat())
    assert found == ["rank-0 at 4", "rank-0 at 5", "driver at 7"]


async def test_parts_in_any_order_and_a_clock_set_back_keep_the_order_of_a_source(
    client: httpx.AsyncClient, job: Job, logs: Logs
) -> None:
    logs.write("rank-0", 50, 60, number=10, start=50)
    logs.write("rank-0", 3, 4, number=11, start=3)  # another machine, whose clock is behind
    logs.write("rank-0", 1, 40, number=2, start=1)
    logs.write("rank-1", 45)
    assert await messages(client, job, limit=2) == [
        "rank-0 at 1",
        "rank-0 at 40",
        "rank-1 at 45",
        "rank-0 at 50",
        "rank-0 at 60",
        "rank-0 at 3",
        "rank-0 at 4",
    ]


async def test_what_was_deleted_in_the_middle_is_said_once_and_in_its_place(
    client: httpx.AsyncClient, job: Job, logs: Logs
) -> None:
    writer = PartWriter(str(logs.folder / "attempt-2" / "rank-0"), 8000)
    writer.open()
    writer.write(deque(Logs.line("rank-0", n, "info", f"{n}") for n in range(500)))
    read = await messages(client, job, limit=3)
    (place,) = (place for place, text in enumerate(read) if "deleted" in text)
    assert read[:place] == [str(n) for n in range(place)]
    num_after = len(read) - place - 1
    assert read[place + 1 :] == [str(n) for n in range(500 - num_after, 500)]
    assert read[place].startswith(f"{500 - place - num_after} lines were deleted here")


async def test_a_reader_whose_place_was_deleted_goes_on_behind_it(
    client: httpx.AsyncClient, job: Job, logs: Logs
) -> None:
    writer = PartWriter(str(logs.folder / "attempt-2" / "rank-0"), 8000)
    writer.open()
    writer.write(deque(Logs.line("rank-0", n, "info", f"{n}") for n in range(70)))
    first = await page(client, job, limit=50)
    writer.write(deque(Logs.line("rank-0", n, "info", f"{n}") for n in range(70, 500)))
    rest = await messages(client, job, cursor=first["next_cursor"])
    assert "deleted" in rest[0]
    assert rest[-1] == "499"
    assert len(set(rest)) == len(rest)


async def test_an_answer_reads_so_much_and_no_more_and_the_next_goes_on(
    client: httpx.AsyncClient, job: Job, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 21):
        logs.write("rank-0", *range(number * 10, number * 10 + 10), number=number, start=number * 10)
    monkeypatch.setattr(merging, "MAX_READ_BYTES", 5000)
    told = await page(client, job, contains="at 205")
    assert (told["items"], told["truncated"]) == ([], True)
    assert await messages(client, job, contains="at 205") == ["rank-0 at 205"]


async def test_many_sources_are_read_some_at_a_time(
    client: httpx.AsyncClient, job: Job, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trial in range(10):
        logs.write(f"trial-{trial}", 10 - trial, 20 + trial)
    monkeypatch.setattr(kept, "MAX_MERGED_SOURCES", 3)
    for limit in (1, 7, 1000):
        read = await messages(client, job, limit=limit)
        assert len(set(read)) == len(read) == 20
        assert read[:6] == [f"trial-{t} at {s}" for t, s in ((2, 8), (1, 9), (0, 10), (0, 20), (1, 21), (2, 22))]


HOSTILE = [
    b"\xff\xfe not text\n",
    b'{"time": "now", "level": "error"}\n',
    b'{"time": 3, "level": [], "logger": {}, "message": null}\n',
    b"[" * 60_000 + b"\n",
    b"[1, 2\n",
    b"9" * 10_000 + b"\n",
    b"\n",
    b'{"time":"2026-11-01T00:00:00+00:00","level":"up","logger":"\\ud800","message":"\\ud800\\u001b[2J\\r","fields":'
    b'{"a":NaN,"b":1e999,"\\udfff":["\\ud800"]}}\n',
    b'{"time":"9999-12-31T23:59:59-23:00","level":"info","logger":"l","message":"late"}\n',
    b"x" * 300_000 + b"\n",
    b'{"time":"2026-11-01T00:00:00+00:00","level":"info","logger":"l","message":"m","fields":{"a":'
    + b"9" * 4000
    + b"}}\n",
    b"no end",
]


@pytest.mark.parametrize("form", ["json", "jsonl", "text"])
async def test_hostile_lines_are_shown_without_harm(client: httpx.AsyncClient, job: Job, logs: Logs, form: str) -> None:
    logs.write("rank-0", *HOSTILE)
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs", params={"source": "*", "format": form})
    assert answer.status_code == 200
    items = answer.json()["items"] if form == "json" else answer.text.removesuffix("\n").split("\n")
    num_shown = sum(bool(line.strip()) for line in HOSTILE)
    assert len(items) == num_shown
    if form == "text":
        assert not set(answer.text) & set("\x1b\r\x00")
    if form == "jsonl":
        assert [json.loads(item)["source"] for item in items] == ["rank-0"] * num_shown


async def test_only_parts_of_sources_are_read(client: httpx.AsyncClient, job: Job, logs: Logs) -> None:
    logs.write("rank-0", 1)
    for place in (
        "rank-0/other.jsonl",
        "rank-0/deep/part-000001-1764000000123-abcdef.jsonl",
        "UPPER/part-000001-x.jsonl",
    ):
        path = logs.folder / "attempt-2" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Logs.line("x", 1, "error", "not to be seen"))
    assert await messages(client, job) == ["rank-0 at 1"]


def test_a_message_cannot_pass_for_another_line() -> None:
    forged = "fine\n2026-11-01T00:00:00.000Z ERROR    driver  l: forged\x1b[1A\u202e"
    shown = render_line(KeptLine(START, "info", "rank-0", "l", forged, {"a": "b\nc", "n": 1}))
    first, *others = shown.split("\n")
    assert first == "2026-11-01T00:00:00.000Z INFO     rank-0  l: fine"
    assert others[0].startswith("    2026")
    assert "\\x1b[1A\\u202e" in shown
    assert not set("\x1b\u202e") & set(shown)


def test_a_line_is_of_the_source_in_whose_part_it_stands() -> None:
    line = parse_line(Logs.line("driver", 1, "info", "x").rstrip(), "rank-1", START)
    assert (line.source, line.message, line.time) == ("rank-1", "x", START + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("source=../../etc", "/query/source/0"),
        ("source=A", "/query/source/0"),
        ("source=driver-output&level=info", "/query/source"),
        ("source=driver-output&source=rank-0", "/query/source"),
        ("tail=3&level=info", "/query/tail"),
        ("level=loud", "/query/level"),
        ("limit=1001", "/query/limit"),
        ("contains=", "/query/contains"),
        ("since=yesterday", "/query/since"),
        ("since=0001-01-01T00:00:00Z", "/query/since"),
        ("until=9999-12-31T23:59:59Z", "/query/until"),
        ("cursor=abc", "/query/cursor"),
        ("cursor=WzEsIi4uIix7fV0", "/query/cursor"),  # [1,"..",{}]
        ("cursor=WzEsIiIseyJhIjpbMSwieCIsMV19XQ", "/query/cursor"),  # [1,"",{"a":[1,"x",1]}]
        ("cursor=Ww", "/query/cursor"),
    ],
)
async def test_what_cannot_be_asked_is_refused(client: httpx.AsyncClient, job: Job, query: str, pointer: str) -> None:
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_cursors_come_back_as_they_went() -> None:
    cursor = LogCursor(3, "a", {"rank-0": Position(PartKey(2, "1764000000123-abcdef"), 17)})
    assert LogCursor.decode(cursor.encode()) == cursor


async def test_an_attempt_that_was_not_or_kept_nothing_and_a_storage_that_is_away(
    client: httpx.AsyncClient, job: Job, logs: Logs
) -> None:
    path = f"/v1/jobs/{job.job_id}/logs"
    none = await client.get(path, params={"source": "*", "attempt": 3})
    assert (none.status_code, none.json()["code"]) == (404, "attempt_not_found")
    assert (await page(client, job))["items"] == []
    logs.folder.mkdir(parents=True)
    (logs.folder / "attempt-2").symlink_to("attempt-2")  # goes round in a circle
    away = await client.get(path, params={"source": "*"})
    assert (away.status_code, away.json()["code"]) == (503, "logs_unavailable")


async def test_driver_output_is_what_it_was(client: httpx.AsyncClient, job: Job, folders: Any, logs: Logs) -> None:
    logs.write("rank-0", 1)
    folders.logs[job.job_id, 1] = "printed\n"
    path = f"/v1/jobs/{job.job_id}/logs"
    for params in ({"attempt": 1}, {"attempt": 1, "source": "driver-output"}):
        assert (await client.get(path, params=params)).text == "printed\n"


async def test_following_tells_each_line_of_each_attempt_once_to_the_end(
    client: httpx.AsyncClient, job: Job, store: SqlJobStore, logs: Logs
) -> None:
    logs.write("driver", 1, 2, attempt=1)
    logs.write("rank-0", 3)
    logs.write("rank-0", 3, 4)
    logs.write("rank-1", (2, "warning", "two\nlines"))
    over(store, job)
    path = f"/v1/jobs/{job.job_id}/logs"
    whole = events((await client.get(path, params={"follow": "true", "source": "*", "format": "jsonl"})).text)
    told = [json.loads(event["data"])["message"] for event in whole[:-1]]
    assert told == ["driver at 1", "driver at 2", "two\nlines", "rank-0 at 3", "rank-0 at 4"]
    assert (whole[-1]["event"], whole[-1]["data"]) == ("end", "SUCCEEDED")
    for place in range(5):
        headers = {"Last-Event-ID": whole[place]["id"]}
        rest = await client.get(path, params={"follow": "true", "source": "*", "format": "jsonl"}, headers=headers)
        assert [json.loads(event["data"])["message"] for event in events(rest.text)[:-1]] == told[place + 1 :]


async def test_following_sees_what_is_written_meanwhile(desk: Desk, job: Job, store: SqlJobStore, logs: Logs) -> None:
    following = desk.kept_logs.follow(job.job_id, LogWish(2, ["rank-*"]), None)

    async def next_message() -> str:
        item = await anext(following)
        return item.line.message if isinstance(item, FollowedLine) else item.job.state.value

    logs.write("rank-0", 1)
    assert await next_message() == "rank-0 at 1"
    logs.write("rank-0", 1, 2)  # the same part, grown
    assert await next_message() == "rank-0 at 2"
    logs.write("rank-1", 0)  # late: its process wrote it seconds after
    assert await next_message() == "rank-1 at 0"
    logs.write("rank-0", 3, number=2)
    assert await next_message() == "rank-0 at 3"
    over(store, job)
    assert await next_message() == "SUCCEEDED"


async def test_followers_are_bounded_and_their_places_come_free(
    client: httpx.AsyncClient, desk: Desk, job: Job, store: SqlJobStore, logs: Logs
) -> None:
    logs.write("rank-0", 1)
    over(store, job)
    path, query = f"/v1/jobs/{job.job_id}/logs", {"follow": "true", "source": "*"}
    places = [desk.kept_logs.followed(job.job_id, LogWish(), None) for _ in range(100)]
    for place in places:
        await anext(place)
    refused = await client.get(path, params=query)
    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_followers")
    for place in places:
        await place.aclose()
    assert (await client.get(path, params=query)).status_code == 200
    assert desk.kept_logs.num_followers == 0


class CountingStore:
    """Counts how often a job's row is read."""

    def __init__(self, store: SqlJobStore) -> None:
        self.store = store
        self.num_reads = 0

    def get(self, job_id: str) -> Job | None:
        self.num_reads += 1
        return self.store.get(job_id)


async def test_followers_of_one_job_share_a_look_and_each_gets_all(
    settings: Settings, job: Job, store: SqlJobStore, logs: Logs
) -> None:
    logs.write("rank-0", 1, 2, 3)
    over(store, job)
    counting, now = CountingStore(store), 0.0
    shared = kept.KeptLogs(counting, settings, lambda: now)

    async def messages() -> list[str]:
        items = [item async for item in shared.follow(job.job_id, LogWish(2), None)]
        return [item.line.message for item in items if isinstance(item, FollowedLine)]

    for _ in range(20):
        assert await messages() == ["rank-0 at 1", "rank-0 at 2", "rank-0 at 3"]
    assert counting.num_reads == 1
    logs.write("rank-0", 4, number=2)
    now = kept.LOOK_SECONDS
    assert (await messages())[-1] == "rank-0 at 4"
    assert counting.num_reads == 2


async def test_looks_are_kept_of_a_bounded_number_of_attempts(
    settings: Settings, store: SqlJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_KEPT_LOOKS", 3)
    shared = kept.KeptLogs(store, settings)
    for number in range(10):
        store.insert(make_job(job_id=f"pt-{number}"))
        shared._look(f"pt-{number}", 1)
    assert [job_id for job_id, _ in shared._looks] == ["pt-7", "pt-8", "pt-9"]


@pytest.mark.parametrize("link", ["part", "source", "attempt"])
async def test_links_out_of_a_jobs_folder_are_not_followed(
    client: httpx.AsyncClient, job: Job, logs: Logs, tmp_path: Path, link: str
) -> None:
    """The job writes its folder: a link there must not make the service read another's files."""
    own = logs.write("rank-0", 1)
    secret = Logs(tmp_path / "elsewhere").write("rank-1", (1, "info", "secret"))
    at = {"part": own, "source": own.parents[0], "attempt": own.parents[1]}[link]
    to = {"part": secret, "source": secret.parents[0], "attempt": secret.parents[1]}[link]
    at.rename(at.with_name("moved"))
    at.symlink_to(to)
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs", params={"source": "*", "format": "jsonl"})
    assert answer.status_code == 200
    assert "secret" not in answer.text


async def test_a_part_that_is_no_file_holds_nobody_up(client: httpx.AsyncClient, job: Job, logs: Logs) -> None:
    part = logs.write("rank-0", 1)
    part.unlink()
    os.mkfifo(part)
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs", params={"source": "*", "format": "jsonl"})
    assert (answer.status_code, answer.text) == (200, "")


async def test_empty_lines_of_a_part_are_no_lines(client: httpx.AsyncClient, job: Job, logs: Logs) -> None:
    logs.write("rank-0", 1, b"\n", b"  \n", 2, b"\n")
    answer = await client.get(f"/v1/jobs/{job.job_id}/logs", params={"source": "*", "format": "jsonl"})
    assert [json.loads(line)["message"] for line in answer.text.splitlines()] == ["rank-0 at 1", "rank-0 at 2"]
