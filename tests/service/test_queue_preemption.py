"""Who is paused for whom: the plan, case by case."""

from __future__ import annotations

from queue_cases import node, planned, reasons, running, victims, waiting, wants

URGENT = waiting("urgent", wants(4), priority=5)


def test_a_job_of_higher_priority_takes_the_place_of_a_lower() -> None:
    plan = planned([URGENT], [running("r", wants(8))])
    assert (plan.admit, victims(plan), reasons(plan)) == ((), ["r"], {"urgent": "cluster_busy"})
    assert plan.preempt[0].for_job_id == "urgent"


def test_a_place_is_made_room_for_too() -> None:
    assert victims(planned([URGENT], [running("r")], places=1)) == ["r"]


def test_never_for_an_equal_nor_for_a_lower() -> None:
    for priority in (5, 6):
        assert victims(planned([URGENT], [running("r", wants(8), priority=priority)])) == []


def test_the_setting_turns_it_off() -> None:
    assert victims(planned([URGENT], [running("r", wants(8))], preempts=False)) == []


def test_nobody_is_paused_where_that_would_not_make_room() -> None:
    active = [running("low", wants(3)), running("high", wants(5), priority=9)]
    assert victims(planned([URGENT], active)) == []


def test_the_fewest_are_paused() -> None:
    active = [running(f"small{n}", wants(1), priority=-5) for n in range(4)] + [running("one", wants(4))]
    assert victims(planned([URGENT], active)) == ["one"]


def test_of_as_many_the_lowest_and_then_the_last_started() -> None:
    active = [running("first", wants(4), ran=99), running("last", wants(4), ran=9)]
    assert victims(planned([URGENT], active)) == ["last"]
    active = [running("low", wants(4), ran=99, priority=-1), running("last", wants(4), ran=9)]
    assert victims(planned([URGENT], active)) == ["low"]


def test_many_small_ones_make_room_and_none_too_many() -> None:
    active = [running(f"r{n}", wants(1)) for n in range(8)]
    assert len(victims(planned([URGENT], active))) == 4


def test_what_is_protected_stays() -> None:
    assert victims(planned([URGENT], [running("r", wants(8), is_preemptible=False)])) == []


def test_while_one_leaves_no_other_is_paused_and_nobody_takes_its_place() -> None:
    active = [running("leaving", wants(4), is_leaving=True), running("r", wants(2))]
    plan = planned([URGENT, waiting("small")], active)
    assert (plan.admit, victims(plan)) == ((), [])
    assert reasons(plan) == {"urgent": "cluster_busy", "small": "behind"}


def test_what_leaves_for_one_does_not_leave_for_the_next() -> None:
    active = [running("leaving", wants(4), is_leaving=True), running("r", wants(4))]
    jobs = [URGENT, waiting("second", wants(4), priority=4)]
    assert victims(planned(jobs, active)) == ["r"]


def test_two_urgent_jobs_do_not_have_the_same_job_paused_for_both() -> None:
    active = [running("r1", wants(4)), running("r2", wants(4))]
    jobs = [URGENT, waiting("second", wants(4), priority=4), waiting("third", wants(4), priority=3)]
    assert sorted(victims(planned(jobs, active))) == ["r1", "r2"]


def test_while_rays_figures_are_of_jobs_that_have_left_nobody_is_paused() -> None:
    """One of 4 CPUs has just left; Ray still counts it. Its place is kept, and nobody else is paused for it."""
    nodes = [node(8, free=0)]
    jobs = [URGENT, waiting("small")]
    assert victims(planned(jobs, [running("r", wants(4))], nodes, is_settled=False)) == []
    nodes = [node(8, free=2)]
    assert reasons(planned(jobs, [running("r", wants(4))], nodes, is_settled=False))["small"] == "behind"


def test_nobody_is_paused_where_the_sum_is_there_on_too_many_nodes() -> None:
    """Whether the node of a job that is paused is the right one, nobody knows."""
    nodes = [node(6, free=3), node(6, free=3)]
    active = [running("r1", wants(3)), running("r2", wants(3))]
    assert victims(planned([URGENT], active, nodes)) == []


def test_a_job_over_its_quota_has_nobody_paused() -> None:
    from service.queueing.records import Quota, Quotas

    quotas = Quotas(owners={"ada": Quota(max_running_jobs=1)})
    assert victims(planned([URGENT], [running("r", wants(8))], quotas=quotas)) == []
