"""Whatever is sent to the service, every answer is one that its OpenAPI document names, and none is a fault of its own.

schemathesis makes requests to every operation of a real service over HTTP, on a real PostgreSQL and beside a real
MLflow server, with valid and with invalid values, as six kinds of callers: with no key, with one that nobody made, as
viewer, member and administrator of a project, and as administrator of everything. There are jobs in every state, a
model, webhooks and deliveries for the requests to meet: every second case of a path with an id in it has one that
exists. There is no Ray: what needs one must answer 503 with a problem that says so, and such answers are counted by
themselves.

    python benchmarks/schema_requests.py [--quick] [--json PATH] [--examples N] [--only TEXT]
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
from common import option_parser, report
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as effort
from hypothesis.errors import Unsatisfiable
from own_postgres import OwnPostgres
from schema_world import SPEC, WITHOUT_RAY, World, populate, start_mlflow
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service_process import service

SETTINGS = {
    "access": "keys",
    "rate_limit_per_minute": 1e6,
    "failed_logins_per_minute": 1e6,
    # Streams end by themselves, and nothing is waited for that does not come.
    "event_stream_seconds": 0.05,
    "source_timeout_seconds": 2,
    "predict_timeout_seconds": 1,
    "webhook_hosts": '["127.0.0.1"]',
    "webhook_timeout_seconds": 1,
    "webhook_key": "k" * 40,
}
CONFORMANCE = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
MAX_SHOWN = 20


@dataclass
class Tally:
    """What came of all requests."""

    by_caller: Counter[str] = field(default_factory=Counter)
    by_status: Counter[int] = field(default_factory=Counter)
    without_ray: int = 0
    """503 that say that Ray does not answer."""
    server_errors: int = 0
    """5xx but for those."""
    undocumented: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def num_cases(self) -> int:
        return self.by_status.total()

    def add(self, who: str, case: schemathesis.Case, response: Response) -> None:
        """Count an answer, and hold it to the document."""
        self.by_caller[who] += 1
        self.by_status[response.status_code] += 1
        if response.status_code == 503 and _code(response) in WITHOUT_RAY:
            self.without_ray += 1
        elif response.status_code >= 500:
            self.server_errors += 1
            self._note(who, case, response, "server error")
        try:
            case.validate_response(response, checks=CONFORMANCE, excluded_checks=[not_a_server_error])
        except FailureGroup as group:
            self.undocumented += 1
            self._note(who, case, response, "; ".join(str(error) for error in group.exceptions))

    def _note(self, who: str, case: schemathesis.Case, response: Response, what: str) -> None:
        asked = f"{who}: {response.request.method} {response.request.url} {response.request.body!r}"[:600]
        told = f"{what[:400]}\n  {asked}\n  {response.status_code} {response.text[:400]}"
        self.faults.append(f"{case.operation.label}: {told}")
        if len(self.faults) <= MAX_SHOWN:
            print(self.faults[-1], flush=True)


def ask(world: World, operation: Any, mode: schemathesis.GenerationMode, examples: int, tally: Tally) -> None:
    """Send an operation's cases, each as the next caller; one that takes nothing as every caller."""
    callers, number = list(world.callers), 0
    takes_nothing = not list(operation.iter_parameters()) and not operation.body

    @effort(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        nonlocal number
        number += 1
        if number % 2:
            let_meet(world, case, number)
        for who in callers if takes_nothing else [callers[number // 2 % len(callers)]]:
            response = case.call(headers=world.headers(who), session=world.session, timeout=30, allow_redirects=False)
            tally.add(who, case, response)

    try:
        send()
    except Unsatisfiable:
        return  # takes nothing that could be wrong


def let_meet(world: World, case: schemathesis.Case, number: int) -> None:
    """Let a case be about what is there, where its path or its body names something."""
    path, parameters = case.operation.path, case.path_parameters
    if parameters:
        known = world.known_ids(path, number)
        if case.operation.method == "delete" and "webhook_id" in parameters:
            known["webhook_id"] = world.spare_webhook()
        case.path_parameters = parameters | {key: value for key, value in known.items() if key in parameters}
    if path in ("/v1/jobs", "/v1/jobs:plan") and isinstance(case.body, dict):
        # No spec that was made up is one.
        case.body |= {"spec": SPEC, "project": "default"}
        if number % 4 == 1:
            case.body.pop("overrides", None)


@contextmanager
def running_world() -> Iterator[World]:
    """The service with all that requests may meet."""
    with tempfile.TemporaryDirectory(prefix="electra-schema-") as name, OwnPostgres() as server:
        home, database_url = Path(name), server.url
        with start_mlflow(home / "mlflow") as mlflow_url:
            settings = {**SETTINGS, "mlflow_url": mlflow_url}
            with service(home / "service", database_url, **settings) as (url, component):
                world = populate(url, database_url, mlflow_url, home / "service")
                yield world
                component.check_alive()


def main() -> None:
    parser = option_parser(__doc__, "3 examples for each operation and kind of values instead of 120")
    parser.add_argument("--examples", type=int, help="for each operation and kind of values")
    parser.add_argument("--only", default="", help="operations whose method and path have this in them")
    options = parser.parse_args()
    examples = options.examples or (3 if options.quick else 120)
    tally, began = Tally(), time.monotonic()
    with running_world() as world:
        api = schemathesis.openapi.from_url(f"{world.url}/openapi.json")
        operations = [found.ok() for found in api.get_all_operations()]
        operations = [one for one in operations if options.only.lower() in one.label.lower()]
        for operation in operations:
            for mode in schemathesis.GenerationMode:
                ask(world, operation, mode, examples, tally)
            print(f"{time.monotonic() - began:6.0f} s {tally.num_cases:7} cases, {operation.label}", flush=True)
    print()
    for title, counts in (("caller", tally.by_caller), ("status", tally.by_status)):
        for key, count in sorted(counts.items(), key=str):
            print(f"{title} {key!s:16} {count:8}")
    figures = {
        "schema_cases": tally.num_cases,
        "schema_server_errors": tally.server_errors,
        "schema_undocumented": tally.undocumented,
    }
    details = {
        "operations": len(operations),
        "cases_by_caller": dict(tally.by_caller),
        "answers_by_status": {str(status): count for status, count in sorted(tally.by_status.items())},
        "answers_503_without_ray": tally.without_ray,
        "seconds": time.monotonic() - began,
    }
    report(figures, details, options.json)
    if tally.faults:
        raise SystemExit(f"{len(tally.faults)} answers that must not be")


def _code(response: Response) -> str:
    try:
        return str(response.json().get("code"))
    except (ValueError, AttributeError):
        return ""


if __name__ == "__main__":
    main()
