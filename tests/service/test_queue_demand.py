"""What a job of each kind holds, from its resolved spec."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.specs.parsing import dump_spec, resolve_spec
from service.queueing.demand import Demand
from service.queueing.reckoning import demand_of, demand_of_json

TINY = {"kind": "pretrain", "preset": "tiny"}
SEARCH = {
    "kind": "search",
    "preset": "lambda",
    "base": {"preset": "tiny", "corpus": {"sources": [{"type": "python_docs"}]}, "compute": {"num_workers": 2}},
    "objective": {"type": "fixed_corruption"},
    "budget": {"flops": 4.0e12},
}


def of(document: dict[str, Any], *overrides: str) -> Demand:
    return demand_of(resolve_spec(document, overrides))


def test_of_pretraining_all_workers() -> None:
    demand = of({**TINY, "compute": {"num_workers": 4, "cpus_per_worker": 2, "gpus_per_worker": 1}})
    assert (demand.num_cpus, demand.num_gpus, demand.group_workers) == (8, 4, 4)


def test_of_a_search_as_many_trials_as_run_side_by_side() -> None:
    demand = of(SEARCH, "compute.max_concurrent_trials=4", "num_trials=8")
    assert (demand.num_workers, demand.group_workers) == (8, 2)


def test_of_a_stored_spec_the_same() -> None:
    spec = resolve_spec(TINY)
    assert demand_of_json(dump_spec(spec)) == demand_of(spec)


def test_a_spec_that_is_no_longer_understood_is_one_cpu() -> None:
    assert demand_of_json('{"kind": "gone"}') == Demand()


@pytest.mark.parametrize(("slots", "workers"), [(8, 8), (9, 8), (7, 6), (2, 2), (1, None)])
def test_a_search_takes_whole_trials_of_what_there_is(slots: int, workers: int | None) -> None:
    fitted = Demand(num_workers=8, group_workers=2).within(slots)
    assert (fitted and fitted.num_workers) == workers
