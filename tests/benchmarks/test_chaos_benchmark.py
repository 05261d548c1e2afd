"""The chaos benchmark's plan and verdict; that it breaks things and mends them only a run shows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.specs.documents import Tenure

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def write_tenure(folder: Path, token: str, pid: int, began: float, ended: float | None) -> None:
    tenure = Tenure(
        attempt=1,
        token=token,
        host="here",
        pid=pid,
        began_at=datetime.fromtimestamp(began, UTC),
        ended_at=None if ended is None else datetime.fromtimestamp(ended, UTC),
    )
    path = folder / "tenures" / f"attempt-1-{token}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tenure.model_dump_json())


@pytest.mark.parametrize("number", [7, 23, 60])
def test_a_seed_decides_the_faults_and_each_kind_comes(number: int):
    from chaos_faults import FAULTS, planned

    kinds = planned(number, random.Random(3))
    assert kinds == planned(number, random.Random(3))
    assert len(kinds) == number
    assert set(kinds) == set(FAULTS)


def test_sixty_faults_kill_the_head_five_times():
    from chaos_faults import SHARES, planned

    assert Counter(planned(60, random.Random(0))) == SHARES


def test_a_killed_process_worked_until_it_was_seen_last(tmp_path: Path):
    from chaos_verdict import is_at_once, working_intervals
    from chaos_world import Driver, Lifetime

    folder = tmp_path / "pt-1"
    write_tenure(folder, "a", 10, 1000.0, None)
    write_tenure(folder, "b", 11, 1050.0, 1060.0)
    seen = [Lifetime(Driver(10, 1, "pt-1", 1), 990.0, 1040.0), Lifetime(Driver(11, 2, "pt-1", 2), 1045.0, 1061.0)]
    assert working_intervals(folder, seen) == [(1000.0, 1040.0), (1050.0, 1060.0)]
    assert not is_at_once(working_intervals(folder, seen))
    seen[0].last_seen = 1051.0
    assert is_at_once(working_intervals(folder, seen))


def test_a_process_that_nobody_saw_end_is_held_against_the_next(tmp_path: Path):
    from chaos_verdict import is_at_once, working_intervals

    folder = tmp_path / "pt-1"
    write_tenure(folder, "a", 10, 1000.0, None)
    assert not is_at_once(working_intervals(folder, []))
    write_tenure(folder, "b", 11, 9000.0, 9001.0)
    assert is_at_once(working_intervals(folder, []))
