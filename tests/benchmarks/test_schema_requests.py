"""The benchmark of made-up requests counts what must not be."""

from __future__ import annotations

from pathlib import Path

import pytest
import schemathesis
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tally(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from schema_requests import Tally

    return Tally()


def answer(tally, respond):
    """Count what an application answers, whose document promises a number with 200, and 500 and 503."""
    app = FastAPI()
    app.get("/x", response_model=int, responses={500: {}, 503: {}})(respond)
    operation = schemathesis.openapi.from_asgi("/openapi.json", app)["/x"]["get"]
    case = operation.Case()
    tally.add("somebody", case, case.call())


def test_what_keeps_to_the_document_is_counted_and_no_fault(tally):
    answer(tally, lambda: 1)
    assert (tally.num_cases, tally.by_caller["somebody"], tally.server_errors, tally.undocumented) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("status", "body", "counted"),
    [
        (500, {"code": "internal"}, (1, 0, 0)),
        (503, {"code": "registry_unavailable"}, (1, 0, 0)),
        (503, {"code": "logs_unavailable"}, (0, 1, 0)),
        (418, {}, (0, 0, 1)),
        (200, "no number", (0, 0, 1)),
    ],
)
def test_what_must_not_be_is_told_apart(tally, status, body, counted):
    answer(tally, lambda: JSONResponse(body, status))
    assert (tally.server_errors, tally.without_ray, tally.undocumented) == counted
    assert len(tally.faults) == counted[0] + counted[2]


def test_an_error_of_the_framework_is_undocumented_too(tally):
    def respond():
        raise HTTPException(404)

    answer(tally, respond)
    assert tally.undocumented == 1
