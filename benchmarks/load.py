"""What the service answers under load, beside a bare FastAPI with an insert and selects on the same database.

Both run as processes of their own on one PostgreSQL, with 10 000 jobs in the list. The service runs twice: open to this
machine, and asking for a key with each request. They take turns, each with the same requests over four connections:
submit, the first page of the list, a deep one, one that is filtered, and one job. The largest table is that of the
events, with 1 000 000 rows: each job writes hundreds of them, while what processes log lies in files. No Ray: none of
these requests needs one.

Then 200 followers hold streams of one job open, first of its events and then of its log, while another process writes.
From write to arrival it is counted, and the run fails if one follower misses one of them, or gets one twice.

    python benchmarks/load.py [--quick] [--json PATH]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import load_writers
from common import in_turn, option_parser, report
from load_clients import Follower, Request, Round, follow, send_all
from load_rows import FOLLOWED_ID, SPEC, fill
from memory import resident_bytes
from own_postgres import OwnPostgres
from service_process import server, service
from sqlalchemy import text

from service.access.access import Access
from service.access.audit import Caller
from service.access.principals import ALL_PROJECTS, ALL_SCOPES, Principal, Role
from service.ledger.access_store import SqlAccessStore
from service.ledger.database import make_engine, upgrade_database
from service.settings import Settings

SETTINGS = {
    "event_retention_count": 10**7,
    "max_event_followers": 1000,
    "max_log_followers": 1000,
    "rate_limit_per_minute": 1e6,
}
BARE = [
    sys.executable,
    "-c",
    "import os, uvicorn; uvicorn.run('contenders.bare_api:app', host='127.0.0.1', port=int(os.environ['PORT']),"
    " log_config=None, access_log=False)",
]
REQUESTS = {"submit": 60, "list": 40, "list_deep": 40, "list_filtered": 40, "get": 120}
"""Of each kind in a round."""
PAGE = 50
LOG_LINES_A_SECOND = 20.0
EVENTS_A_SECOND = 5.0


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    jobs: int = 10_000
    events: int = 1_000_000
    rounds: int = 5
    share_of_requests: float = 1.0
    followers: int = 200
    seconds: float = 40.0


QUICK = Size(jobs=300, events=3000, rounds=1, share_of_requests=0.1, followers=20, seconds=4.0)


@dataclass(frozen=True)
class Contender:
    """One that is asked."""

    url: str
    pid: int
    headers: dict[str, str]
    deep_cursor: str


def requests_of(kind: str, contender: Contender, size: Size) -> Iterator[Request]:
    """A round's requests of one kind."""
    count = max(4, round(REQUESTS[kind] * size.share_of_requests))
    for number in range(count):
        if kind == "submit":
            spec = {"name": f"load-{number}", **SPEC}
            # The one with keys for all projects has to be told which.
            body = {"spec": spec} | ({"project": "default"} if contender.headers else {})
            yield Request("/v1/jobs", "POST", body)
        elif kind == "get":
            yield Request(f"/v1/jobs/pt-load-succeeded-{number * 7919 % round(size.jobs * 0.9):07}")
        else:
            more = {"list": "", "list_deep": f"&cursor={contender.deep_cursor}", "list_filtered": "&state=FAILED"}
            yield Request(f"/v1/jobs?limit={PAGE}{more[kind]}")


def measure(contenders: dict[str, Contender], size: Size) -> dict[tuple[str, str], Round]:
    """All kinds of requests to all contenders in turn, round by round."""
    found: dict[tuple[str, str], Round] = defaultdict(Round)
    for kind in REQUESTS:
        for contender in contenders.values():
            send_all(contender.url, contender.pid, list(requests_of(kind, contender, QUICK))[:8], contender.headers)
        for _, name in in_turn(contenders, size.rounds):
            one = contenders[name]
            found[kind, name].add(send_all(one.url, one.pid, list(requests_of(kind, one, size)), one.headers))
    return found


def followed(
    contender: Contender,
    path: str,
    size: Size,
    number_of: Callable[[str], int | None],
    write: Callable[[], list[float]],
) -> tuple[list[float], float]:
    """Seconds from each write to each arrival, and the most memory meanwhile. Nothing may be missing or come twice."""
    written: list[float] = []
    rate = LOG_LINES_A_SECOND if "logs" in path else EVENTS_A_SECOND
    count = round(rate * size.seconds)
    with peak_of(contender.pid) as peak:
        following = follow(contender.url, path, size.followers, number_of, count - 1, lambda: written.extend(write()))
        followers: list[Follower] = asyncio.run(following)
    check_nothing_is_lost(followers, count)
    delays = [
        max(0.0, arrived - at)  # it can arrive before the writer has looked at its clock
        for follower in followers
        for at, arrived in zip(written, follower.arrived_at, strict=True)
    ]
    return delays, peak[0]


def check_nothing_is_lost(followers: Sequence[Follower], count: int) -> None:
    """Every follower got every number once, in order."""
    for follower in followers:
        if follower.numbers != list(range(count)):
            raise AssertionError(f"a follower got {len(follower.numbers)} of {count}: {follower.numbers[:50]} …")


@contextmanager
def peak_of(pid: int) -> Iterator[list[float]]:
    """The most resident memory of a process while the block runs, in bytes, as the only item."""
    most, is_over = [float(resident_bytes(pid))], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.2):
            most[0] = max(most[0], resident_bytes(pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()


def deep_cursor(url: str, headers: dict[str, str], size: Size) -> str:
    """The cursor of a page that nine tenths of all jobs stand before."""
    cursor = None
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        for _ in range(max(1, round(size.jobs * 0.9 / 200))):
            query = {"limit": 200} | ({} if cursor is None else {"cursor": cursor})
            cursor = client.get("/v1/jobs", params=query).raise_for_status().json()["next_cursor"]
    assert isinstance(cursor, str)
    return str(httpx.QueryParams({"cursor": cursor})).partition("=")[2]


def key_for(database_url: str, home: Path) -> str:
    """A key that may do everything."""
    engine = make_engine(database_url)
    root = Principal(owner="bench", roles={ALL_PROJECTS: Role.ADMIN}, method="open")
    access = Access(Settings(home=home), SqlAccessStore(engine))
    asked: dict[str, Any] = {"owner": "bench", "project": None, "role": Role.ADMIN, "scopes": ALL_SCOPES}
    made = access.create_key(Caller(root), name="bench", lifetime_days=None, **asked)[1]
    engine.dispose()
    return made


def quantile(values: list[float], share: float) -> float:
    """The smallest value that such a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run(size: Size) -> tuple[dict[str, float], dict[str, Any]]:
    """Everything, from an empty database server."""
    with ExitStack() as held:
        home = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="electra-load-")))
        database_url = held.enter_context(OwnPostgres()).url
        engine = make_engine(database_url)
        upgrade_database(engine)
        began = time.monotonic()
        fill(engine, size.jobs, size.events)
        with engine.connect() as connection:
            counts = {table: connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in ("jobs", "events")}
        engine.dispose()
        print(f"{counts['jobs']} jobs, {counts['events']} events, made in {time.monotonic() - began:.0f} s", flush=True)
        environment = {"BARE_DATABASE_URL": database_url}
        contenders: dict[str, Contender] = {}

        def add(name: str, url: str, pid: int | None, headers: dict[str, str]) -> None:
            assert pid is not None
            contenders[name] = Contender(url, pid, headers, deep_cursor(url, headers, size))

        url, process = held.enter_context(server("bare", BARE, environment, home / "bare", "PORT", "/readyz"))
        add("bare", url, process.pid, {})
        url, process = held.enter_context(service(home / "open", database_url, **SETTINGS))
        add("open", url, process.pid, {})
        url, process = held.enter_context(service(home / "keys", database_url, access="keys", **SETTINGS))
        add("keys", url, process.pid, {"Authorization": f"Bearer {key_for(database_url, home)}"})
        memory = {"open_start": resident_bytes(contenders["open"].pid)}
        rounds = measure(contenders, size)
        memory |= {f"{name}_after_requests": resident_bytes(one.pid) for name, one in contenders.items()}

        events_path = f"/v1/jobs/{FOLLOWED_ID}/events"
        logs_path = f"/v1/jobs/{FOLLOWED_ID}/logs?follow=true&source=train-0"
        streams: dict[str, list[float]] = {}
        streams["events"], memory["open_events_peak"] = followed(
            contenders["open"],
            events_path,
            size,
            load_writers.step_of,
            lambda: load_writers.events(database_url, round(EVENTS_A_SECOND * size.seconds), EVENTS_A_SECOND, home),
        )
        storage = home / "open" / "storage"
        streams["log"], memory["open_log_peak"] = followed(
            contenders["open"],
            logs_path,
            size,
            load_writers.line_number,
            lambda: load_writers.log_lines(storage, round(LOG_LINES_A_SECOND * size.seconds), LOG_LINES_A_SECOND, home),
        )
        time.sleep(2.0)
        memory["open_end"] = resident_bytes(contenders["open"].pid)
    return told(rounds, streams, memory, size, counts)


def told(
    rounds: dict[tuple[str, str], Round],
    streams: dict[str, list[float]],
    memory: dict[str, float],
    size: Size,
    counts: dict[str, Any],
) -> tuple[dict[str, float], dict[str, Any]]:
    """Print tables; figures and details."""
    figures: dict[str, float] = {}
    details: dict[str, Any] = {"rows": counts, "followers": size.followers, "connections": 4, "rounds": size.rounds}
    print(f"\n{'':14} {'':6} {'p50 ms':>8} {'p99 ms':>8} {'per s':>8} {'CPU ms':>8}")
    for (kind, name), one in rounds.items():
        p50, p99 = (1000 * quantile(one.latencies, share) for share in (0.5, 0.99))
        count = len(one.latencies)
        per_second, cpu = count / one.seconds, 1000 * one.cpu_seconds / count
        print(f"{kind:14} {name:6} {p50:8.1f} {p99:8.1f} {per_second:8.1f} {cpu:8.2f}")
        told_of = {"p50_ms": p50, "p99_ms": p99, "per_second": per_second, "cpu_ms": cpu, "count": count}
        details[f"{kind}_{name}"] = told_of
    for kind in REQUESTS:
        ours, with_keys, bare = (details[f"{kind}_{name}"] for name in ("open", "keys", "bare"))
        figures[f"load_{kind}_p50"] = ours["p50_ms"] / bare["p50_ms"]
        figures[f"load_{kind}_cpu"] = ours["cpu_ms"] / bare["cpu_ms"]
        details[f"{kind}_keys_p50_vs_open"] = with_keys["p50_ms"] / ours["p50_ms"]
    print(f"\n{'followers of':14} {'p50 s':>8} {'p99 s':>8} {'most s':>8} {'arrivals':>9}")
    for name, delays in streams.items():
        p50, p99 = (quantile(delays, share) for share in (0.5, 0.99))
        print(f"{name:14} {p50:8.2f} {p99:8.2f} {max(delays):8.2f} {len(delays):9}")
        details[f"follow_{name}"] = {"p50_s": p50, "p99_s": p99, "most_s": max(delays), "arrivals": len(delays)}
        figures[f"load_follow_{name}_p50_seconds"] = statistics.median(delays)
        figures[f"load_follow_{name}_p99_seconds"] = p99
    print()
    for name, size_bytes in memory.items():
        print(f"{name:24} {size_bytes / 1e6:8.0f} MB")
        details[f"memory_{name}_mb"] = size_bytes / 1e6
    print()
    return figures, details


def main() -> None:
    options = option_parser(__doc__, "300 jobs, 3000 events, 20 followers for 4 seconds, one round").parse_args()
    report(*run(QUICK if options.quick else Size()), options.json)


if __name__ == "__main__":
    main()
