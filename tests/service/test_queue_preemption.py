"""Who is paused for whom: the plan, case by case."""

from __future__ import annotations

from queue_cases import node, on, planned, reasons, running, victims, waiting, wants

from service.queueing.records import Departed, Quota, Quotas

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


def test_while_rays_figures_are_of_a_job_that_has_left_nobody_is_paused() -> None:
    """One of 4 CPUs has just left; Ray still counts it. Its place is kept, and nobody else is paused for it."""
    gone = [Departed("gone", demand=wants(4))]
    jobs = [URGENT, waiting("small")]
    assert victims(planned(jobs, [running("r", wants(4))], [node(8, free=0)], departed=gone)) == []
    plan = planned(jobs, [running("r", wants(4))], [node(8, free=2)], departed=gone)
    assert reasons(plan) == {"urgent": "cluster_busy", "small": "behind"}


def test_who_needs_more_than_what_has_left_does_not_wait_for_the_figures() -> None:
    gone = [Departed("gone", demand=wants(2))]
    assert victims(planned([URGENT], [running("r", wants(6))], [node(8, free=0)], departed=gone)) == ["r"]


def test_only_on_the_nodes_of_a_job_that_has_left_is_room_waited_for() -> None:
    """It was on a node that is too small for the urgent one."""
    nodes = [node(8, free=0, name="a"), node(2, free=0, name="b")]
    low = running("r", wants(8), held=on(a=8))
    gone = [Departed("gone", on(b=2), wants(2))]
    assert victims(planned([URGENT], [low], nodes, departed=gone)) == ["r"]
    gone = [Departed("gone", on(a=4), wants(4))]
    low = running("r", wants(4), held=on(a=4))
    assert victims(planned([URGENT], [low], nodes, departed=gone)) == []


def test_after_a_takeover_somebody_may_have_left() -> None:
    """Nothing is known of who: as long as that could be it, nobody is paused."""
    anybody = [Departed("")]
    active = [running("r", wants(4))]
    assert victims(planned([URGENT], active, [node(8, free=0)], departed=anybody)) == []
    assert victims(planned([URGENT], [running("r", wants(8))], [node(8, free=0)], departed=anybody)) == ["r"]


def test_nobody_is_paused_where_the_sum_is_there_on_too_many_nodes() -> None:
    """Whether the node of a job that is paused is the right one, nobody knows."""
    nodes = [node(6, free=3), node(6, free=3)]
    active = [running("r1", wants(3)), running("r2", wants(3))]
    assert victims(planned([URGENT], active, nodes)) == []


def test_where_it_is_known_who_is_on_which_node_the_right_one_is_paused() -> None:
    """The sum of what is free would do; no node has it. The lowest and last started is on the wrong one."""
    nodes = [node(6, free=3, name="a"), node(3, free=2, name="b")]
    active = [running("r1", wants(3), held=on(a=3)), running("r2", wants(1), held=on(b=1), priority=-3, ran=1)]
    assert victims(planned([URGENT], active, nodes)) == ["r1"]


def test_nobody_is_paused_on_nodes_that_stay_too_small() -> None:
    """Two nodes of 3 CPUs hold no worker of 4, whoever leaves them; a stranger holds the third."""
    nodes = [node(3, free=0, name="a"), node(3, free=0, name="b"), node(4, free=0, name="c")]
    active = [running("r1", wants(3), held=on(a=3)), running("r2", wants(3), held=on(b=3))]
    assert victims(planned([URGENT], active, nodes)) == []


def test_a_gang_has_those_paused_whose_going_gives_each_worker_a_node() -> None:
    """Two workers of 4 CPUs want nodes a and b; c is large enough for neither."""
    nodes = [node(4, free=0, name="a"), node(4, free=1, name="b"), node(3, free=0, name="c")]
    active = [
        running("ra", wants(4), held=on(a=4)),
        running("rb", wants(3), held=on(b=3)),
        running("rc", wants(3), held=on(c=3), priority=-9),
    ]
    gang = waiting("gang", wants(4, workers=2), priority=5)
    assert sorted(victims(planned([gang], active, nodes))) == ["ra", "rb"]


def test_a_job_without_a_known_node_is_paused_where_its_going_is_enough_wherever_it_is() -> None:
    nodes = [node(4, free=0, name="a"), node(4, free=0, name="b")]
    plan = planned([URGENT], [running("r", wants(4, workers=2))], nodes)
    assert victims(plan) == ["r"]


def test_jobs_of_other_projects_are_not_named() -> None:
    active = [running("r", wants(8), project="secret")]
    plan = planned([URGENT], active)
    assert (plan.waits[0].message, plan.preempt[0].is_same_project) == (
        "It wants 4 CPUs at once, and 0 CPUs are free. A job of another project makes room for it.",
        False,
    )
    plan = planned([URGENT, waiting("small", project="secret")], [running("r", wants(4), is_leaving=True)], [node(8)])
    assert all("urgent" not in wait.message for wait in plan.waits)


def test_a_job_over_its_quota_has_nobody_paused() -> None:
    quotas = Quotas(owners={"ada": Quota(max_running_jobs=1)})
    assert victims(planned([URGENT], [running("r", wants(8))], quotas=quotas)) == []
