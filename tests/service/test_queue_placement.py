"""On which nodes workers come to lie, held to what Ray 2.60 did on a real cluster of 8, 8 and 4 CPUs."""

from __future__ import annotations

import pytest
from queue_cases import wants

from service.queueing.amounts import Amount
from service.queueing.demand import Demand
from service.queueing.placement import gather, pack, take


def test_groups_come_to_lie_where_ray_put_them() -> None:
    """One after the other; of equal nodes Ray took either."""
    free = [Amount(8), Amount(8), Amount(4)]
    groups = [wants(1), wants(1), wants(2, workers=3), wants(1, workers=5), wants(1), wants(1)]
    seen = [[1, 0, 0], [0, 1, 0], [0, 3, 0], [5, 0, 0], [0, 0, 1], [0, 0, 1]]
    for number, (group, nodes) in enumerate(zip(groups, seen, strict=True)):
        placed = pack(group, free)
        assert placed is not None
        # The third group found two nodes with 7 CPUs.
        assert placed == nodes or (number == 2 and sorted(placed) == sorted(nodes))
        take(free, group, nodes)
    assert free == [Amount(2), Amount(1), Amount(2)]


def test_a_group_that_no_node_holds_whole_is_spread_over_as_few_as_ray_takes() -> None:
    assert pack(wants(2, workers=5), [Amount(3), Amount(8), Amount(4)]) == [0, 4, 1]


@pytest.mark.parametrize("free", [[Amount(3), Amount(3)], [Amount(8, 0)], []])
def test_a_worker_is_never_cut_in_two(free: list[Amount]) -> None:
    assert pack(wants(4, 1, workers=1), free) is None


def test_gpus_count_as_much_as_cpus() -> None:
    """Of the CPUs more stays free on the first node, of both together on the second."""
    assert pack(wants(1, 1), [Amount(10, 1), Amount(4, 8)]) == [0, 1]


def test_what_is_gathered_comes_first_from_where_most_is_there_already() -> None:
    demand = Demand(num_workers=3, cpus_per_worker=4, group_workers=3)
    assert gather(demand, [Amount(1), Amount(7), Amount(0)], [Amount(8), Amount(8), Amount(8)]) == [1, 2, 0]
