"""One writer at a time: waiting, finishing, taking over, giving up."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipelines import storage
from pipelines.errors import CorpusError, ResourceError
from pipelines.storage.lease import lease


@pytest.fixture(params=["local", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "leases" / "x.json")
    bucket: str = request.getfixturevalue("bucket")
    return f"{bucket}/leases/{tmp_path.name}.json"


def never() -> bool:
    return False


def test_the_lease_is_there_for_the_block_and_gone_after_it(uri: str) -> None:
    with lease(uri, "me", never) as is_ours:
        assert is_ours
        assert storage.read_json(uri)["owner"] == "me"
    assert not storage.exists(uri)


def test_it_is_gone_after_a_fault_too(uri: str) -> None:
    with pytest.raises(ZeroDivisionError), lease(uri, "me", never):
        _ = 1 // 0
    assert not storage.exists(uri)


def test_nothing_is_held_of_what_is_complete(uri: str) -> None:
    with lease(uri, "me", lambda: True) as is_ours:
        assert not is_ours
        assert not storage.exists(uri)


def test_a_stale_lease_is_taken_over(uri: str) -> None:
    storage.write_json(uri, {"owner": "gone", "token": "x", "heartbeat_at": time.time() - 61})
    with lease(uri, "me", never) as is_ours:
        assert is_ours


def test_a_clock_that_runs_ahead_does_not_keep_a_lease_alive(uri: str) -> None:
    storage.write_json(uri, {"owner": "gone", "token": "x", "heartbeat_at": time.time() + 3600})
    with lease(uri, "me", never, stale_seconds=0.3, poll_seconds=0.1) as is_ours:
        assert is_ours


def test_a_damaged_lease_is_taken_over(uri: str) -> None:
    storage.write_bytes(uri, b"{")
    with lease(uri, "me", never, stale_seconds=0.3, poll_seconds=0.1) as is_ours:
        assert is_ours


def test_a_restarted_owner_does_not_wait_for_itself(uri: str) -> None:
    storage.write_json(uri, {"owner": "me", "token": "x", "heartbeat_at": time.time()})
    with lease(uri, "me", never, timeout_seconds=0) as is_ours:
        assert is_ours


def test_a_live_lease_is_waited_for_and_the_wait_ends_with_a_name(uri: str) -> None:
    said: list[str] = []
    with (
        lease(uri, "other", never, stale_seconds=1),
        pytest.raises(ResourceError, match=r"waited 2 s for .*\.json, which other holds"),
        lease(uri, "me", never, report=said.append, stale_seconds=1, timeout_seconds=2, poll_seconds=0.1),
    ):
        pass
    assert said[0] == "waiting for other, which prepares the same"


def test_of_many_one_works_and_the_others_find_it_done(tmp_path: Path) -> None:
    uri, done, worked = str(tmp_path / "lease"), threading.Event(), []

    def work(name: str) -> None:
        with lease(uri, name, done.is_set, poll_seconds=0.01) as is_ours:
            if is_ours:
                worked.append(name)
                time.sleep(0.1)
                done.set()

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worked) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("error", [None, CorpusError("no text")])
def test_a_lease_that_cannot_be_given_back_hides_nothing(
    bucket: str, monkeypatch: pytest.MonkeyPatch, error: CorpusError | None
) -> None:
    with nullcontext() if error is None else pytest.raises(CorpusError), lease(f"{bucket}/l", "me", never):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        if error is not None:
            raise error
