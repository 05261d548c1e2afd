"""Who starts, who makes room and why the others wait: the plan, case by case."""

from __future__ import annotations

import pytest
from queue_cases import node, on, planned, reasons, running, waiting, wants

from service.queueing.records import Quota, Quotas

BUSY = running("r", wants(6))


def test_the_highest_priority_goes_first_and_of_equals_the_oldest() -> None:
    jobs = [waiting("young", age=1), waiting("old", age=9), waiting("urgent", priority=1)]
    assert planned(jobs).admit == ("urgent", "old", "young")
    assert planned(jobs, places=1).admit == ("urgent",)


def test_of_equal_priority_who_holds_less_goes_first() -> None:
    jobs = [waiting("a1", age=9), waiting("a2", age=8), waiting("b1", owner="ben")]
    assert planned(jobs, places=2).admit == ("a1", "b1")
    assert planned(jobs, [running("r")], places=2).admit == ("b1",)


def test_who_has_used_much_of_late_comes_later() -> None:
    jobs = [waiting("a1", age=9), waiting("b1", owner="ben")]
    assert planned(jobs, places=1, recent={"ada": 0.1}).admit == ("b1",)


def test_a_share_is_that_of_the_resource_of_which_one_holds_most() -> None:
    """Ada holds 1 of 16 CPUs and 1 of 2 GPUs, Ben 4 of 16 CPUs."""
    active = [running("r1", wants(1, 1)), running("r2", wants(4), owner="ben")]
    jobs = [waiting("a1", age=9), waiting("b1", owner="ben")]
    assert planned(jobs, active, [node(16, 2, free=11, free_gpus=1)], places=3).admit == ("b1",)


def test_a_job_starts_whole_or_not_at_all() -> None:
    gang = waiting("gang", wants(1, workers=4))
    assert reasons(planned([gang], [BUSY])) == {"gang": "cluster_busy"}
    assert planned([gang], [running("r", wants(4))]).admit == ("gang",)


def test_workers_must_fit_on_nodes() -> None:
    """Two nodes with 2 CPUs free each have no room for a worker of 3."""
    assert reasons(planned([waiting("x", wants(3))], nodes=[node(4, free=2), node(4, free=2)])) == {"x": "cluster_busy"}
    assert planned([waiting("x", wants(2, workers=2))], nodes=[node(4, free=2), node(4, free=2)]).admit == ("x",)


def test_what_starts_and_is_not_seen_yet_is_held_already() -> None:
    starting = running("r", wants(6), is_seen=False)
    assert reasons(planned([waiting("x", wants(4))], [starting], [node(8)])) == {"x": "cluster_busy"}


def test_a_job_between_two_stages_keeps_its_place() -> None:
    """Ray sees all free; the job that runs will want its 6 CPUs back."""
    assert reasons(planned([waiting("x", wants(4))], [BUSY], [node(8, free=8)])) == {"x": "cluster_busy"}


def test_what_others_hold_on_the_cluster_is_not_free() -> None:
    assert reasons(planned([waiting("x", wants(4))], nodes=[node(8, free=3)])) == {"x": "cluster_busy"}


def test_two_jobs_of_one_plan_do_not_get_the_same_room() -> None:
    plan = planned([waiting("x", wants(5), age=2), waiting("y", wants(5))])
    assert (plan.admit, reasons(plan)) == (("x",), {"y": "cluster_busy"})


def test_what_can_never_fit_says_so_and_holds_up_nobody() -> None:
    plan = planned([waiting("huge", wants(9), age=10**6), waiting("small")])
    assert (plan.admit, reasons(plan)) == (("small",), {"huge": "cluster_too_small"})


def test_a_search_makes_do_with_fewer_trials_side_by_side() -> None:
    search = waiting("s", wants(2, workers=8, group=2))
    assert planned([search]).admit == ("s",)
    assert reasons(planned([search, waiting("x")])) == {"x": "cluster_busy"}
    assert reasons(planned([waiting("s", wants(5, workers=8, group=2))])) == {"s": "cluster_too_small"}


def test_nothing_is_admitted_to_a_cluster_of_which_nothing_is_known() -> None:
    assert reasons(planned([waiting("x")], nodes=[])) == {"x": "cluster_unknown"}
    assert planned([waiting("x")], nodes=[], checks_room=False).admit == ("x",)


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        (Quota(max_running_jobs=1), "quota_running_jobs"),
        (Quota(max_cpus=7), "quota_cpus"),
        (Quota(max_gpus=1), "quota_gpus"),
    ],
)
@pytest.mark.parametrize("scope", ["owners", "projects"])
def test_quotas_hold_for_owners_and_for_projects(quota: Quota, reason: str, scope: str) -> None:
    quotas = Quotas(**{scope: {"ada" if scope == "owners" else "p": quota}})
    jobs = [waiting("mine", wants(2, 1)), waiting("other", wants(2, 1), owner="ben", project="q")]
    plan = planned(jobs, [running("r", wants(6, 1))], [node(99, 9, free=93, free_gpus=8)], quotas=quotas)
    assert (plan.admit, reasons(plan)) == (("other",), {"mine": reason})


def test_an_exception_stands_in_place_of_the_default() -> None:
    quotas = Quotas(of_owners=Quota(max_running_jobs=0), owners={"ada": Quota()})
    plan = planned([waiting("mine"), waiting("other", owner="ben")], quotas=quotas)
    assert (plan.admit, reasons(plan)) == (("mine",), {"other": "quota_running_jobs"})


def test_a_quota_of_gpus_is_no_matter_for_jobs_without() -> None:
    quotas = Quotas(of_owners=Quota(max_gpus=0))
    assert planned([waiting("x")], quotas=quotas).admit == ("x",)


def test_small_jobs_go_past_a_large_one_until_it_has_waited_long() -> None:
    jobs = [waiting("large", wants(8), age=599), waiting("small")]
    assert planned(jobs, [BUSY]).admit == ("small",)
    jobs = [waiting("large", wants(8), age=600), waiting("small")]
    assert reasons(planned(jobs, [BUSY])) == {"large": "cluster_busy", "small": "behind"}


def test_only_what_it_wants_is_kept_for_it() -> None:
    """The large job waits for GPUs and wants 4 of the 10 CPUs that are free."""
    nodes = [node(16, 4, free=10, free_gpus=2)]
    jobs = [
        waiting("large", wants(1, 1, workers=4), age=10**4),
        waiting("gpu", wants(1, 1), age=3),
        waiting("fits", wants(6), age=2),
        waiting("cpu", wants(1), age=1),
    ]
    plan = planned(jobs, [running("r", wants(6, 2))], nodes)
    assert (plan.admit, reasons(plan)) == (("fits",), {"large": "cluster_busy", "gpu": "behind", "cpu": "behind"})


def test_a_place_is_kept_too() -> None:
    jobs = [waiting("large", wants(6, 1), age=10**4), waiting("small")]
    active, nodes = [running("r", wants(1, 1))], [node(8, 1, free=7, free_gpus=0)]
    assert reasons(planned(jobs, active, nodes, places=2)) == {"large": "cluster_busy", "small": "behind"}


def test_only_one_job_has_room_kept_for_waiting_long() -> None:
    """The first waits for GPUs, the second for CPUs, of which small jobs still take some."""
    jobs = [waiting("a", wants(1, 2), age=10**5), waiting("b", wants(12), age=10**4), waiting("small")]
    plan = planned(jobs, [running("r", wants(6, 1))], [node(16, 2, free=10, free_gpus=1)])
    assert plan.admit == ("small",)


def test_a_job_that_failed_to_start_is_passed_over() -> None:
    plan = planned([waiting("x", priority=9, is_backed_off=True), waiting("y")], places=1)
    assert (plan.admit, reasons(plan)) == (("y",), {"x": "backoff"})


def test_all_places_taken() -> None:
    assert reasons(planned([waiting("x")], [running("r")], places=1)) == {"x": "max_running_jobs"}


def test_positions_count_in_the_order_of_the_queue() -> None:
    plan = planned(
        [waiting("c", age=1), waiting("b", age=2), waiting("a", priority=1)], [running("r")], places=1, preempts=False
    )
    assert [(wait.job_id, wait.position) for wait in plan.waits] == [("a", 1), ("b", 2), ("c", 3)]


def test_what_no_job_of_ours_frees_by_ending_is_kept_for_nobody() -> None:
    """Somebody else's program holds 1 of 8 CPUs for good: the large one waits alone."""
    large, small = waiting("large", wants(8), age=3600, priority=1), waiting("small", wants(2))
    plan = planned([large, small], nodes=[node(8, free=7)], places=1)
    assert (plan.admit, reasons(plan)) == (("small",), {"large": "cluster_busy"})


def test_what_jobs_of_ours_free_by_ending_is_kept() -> None:
    large, small = waiting("large", wants(8), age=3600), waiting("small", wants(2))
    assert planned([large, small], [BUSY]).admit == ()


def test_what_is_kept_is_kept_on_the_node_that_can_hold_it() -> None:
    """Only the first node holds a worker of 8 CPUs. By the sum, there would be enough beside it for the small one."""
    nodes = [node(8, free=4, name="big"), node(4, name="b"), node(4, name="c")]
    large = waiting("large", wants(8), age=700)
    plan = planned([large, waiting("small", wants(4))], [running("r", wants(4), held=on(big=4))], nodes)
    assert (plan.admit, reasons(plan)) == ((), {"large": "cluster_busy", "small": "behind"})


def test_a_job_that_ray_puts_on_another_node_goes_past() -> None:
    """Of 2 CPUs the larger part stays free on the empty nodes, so that is where Ray puts it."""
    nodes = [node(8, free=3, name="big"), node(4, name="b"), node(4, name="c")]
    large = waiting("large", wants(8), age=700)
    plan = planned([large, waiting("small", wants(2))], [running("r", wants(5), held=on(big=5))], nodes)
    assert (plan.admit, reasons(plan)) == (("small",), {"large": "cluster_busy"})


def test_what_a_job_was_promised_is_its_own_on_its_nodes() -> None:
    """Between two stages it holds nothing. By the sum, 6 of 16 CPUs would be left; no node has them beside it."""
    job = running("r", wants(5, workers=2))
    assert reasons(planned([waiting("x", wants(6))], [job], [node(8), node(8)])) == {"x": "cluster_busy"}
    assert planned([waiting("x", wants(3, workers=2))], [job], [node(8), node(8)]).admit == ("x",)


def test_a_job_that_lacks_nodes_and_not_the_sum_says_so() -> None:
    plan = planned([waiting("x", wants(3))], nodes=[node(4, free=2), node(4, free=2)])
    assert plan.waits[0].message == (
        "It wants 3 CPUs at once, and 4 CPUs are free, but not on nodes that have room for each of its workers."
    )


def test_of_a_search_the_trials_that_have_room_are_its_owners_share() -> None:
    """A hundred are asked for, and eight run: Ada holds the whole cluster, and not twelve of it."""
    search = running("s", wants(1, workers=100, group=1))
    plan = planned([waiting("a", age=9), waiting("b", owner="ben")], [search], recent={"ben": 2.0})
    assert [wait.job_id for wait in plan.waits] == ["a", "b"]


def test_the_job_that_room_is_kept_for_is_named_in_its_own_project_alone() -> None:
    jobs = [waiting("large", wants(8), age=700), waiting("mine"), waiting("theirs", project="other")]
    said = {wait.job_id: wait.message for wait in planned(jobs, [BUSY]).waits}
    assert said["mine"] == "There is room, which is kept for large."
    assert said["theirs"] == "There is room, which is kept for a job of another project."


def test_a_quota_says_nothing_of_what_its_owner_holds_elsewhere() -> None:
    quotas = Quotas(owners={"ada": Quota(max_cpus=7)})
    plan = planned([waiting("x", wants(2))], [running("r", wants(6), project="secret")], quotas=quotas)
    assert plan.waits[0].message == "The quota of owner ada is 7 CPUs at a time, and with this it would be more."
