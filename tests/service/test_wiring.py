"""The service as it is put together: what begins and ends with it."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from pipelines import storage
from service import wiring
from service.dispatch.reconciler import Reconciler
from service.ledger.lease import SqlLease
from service.predictions import Predictions
from service.settings import Settings
from service.wiring import running


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "start", lambda self: None)


def test_predictions_are_let_go_before_the_reconciler_is_waited_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(Predictions, "close", lambda self: ended.append("predictions"))
    monkeypatch.setattr(Reconciler, "stop", lambda self: ended.append("reconciler"))
    with running(settings):
        assert ended == []
    assert ended[:2] == ["predictions", "reconciler"]


def test_what_was_left_behind_is_deleted_at_the_start(settings: Settings) -> None:
    prediction_id = f"pr-{1_700_000_000_000:012x}{'0' * 10}"
    uri = f"{settings.prediction_uri(prediction_id)}/request.json"
    storage.write_bytes(uri, b"{}")
    with running(settings):
        deadline = time.monotonic() + 30
        while storage.exists(uri):
            assert time.monotonic() < deadline, "it was not deleted within 30 s"
            time.sleep(0.01)


def test_a_storage_that_cannot_be_listed_does_not_stop_the_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(uri: str) -> list[str]:
        raise storage.StorageError(uri, "access is denied")

    monkeypatch.setattr(storage, "list_directory", refuse)
    with running(settings) as desk:
        assert desk.settings is settings


def test_the_lease_is_held_on_connections_of_its_own(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many requests wait for one of the others."""
    leases: list[SqlLease] = []
    make = wiring.SqlLease
    monkeypatch.setattr(wiring, "SqlLease", lambda *given: leases.append(make(*given)) or leases[0])
    with running(settings) as desk, ExitStack() as held:
        engine = desk.events._store._engine
        for _ in range(engine.pool.size() + engine.pool._max_overflow):
            held.enter_context(engine.connect())
        assert leases[0].try_hold()
