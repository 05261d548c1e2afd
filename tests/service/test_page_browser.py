"""The page in a real browser, over a service with a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from page_browser import NARROW, WIDE, Browser
from page_world import PageWorld

from pipelines.specs.documents import Failure
from service.interfaces import AttemptState
from service.settings import Settings
from service.states import JobState


@pytest.fixture
def world(settings: Settings) -> Iterator[PageWorld]:
    world = PageWorld(settings)
    with world.served():
        yield world
    world.close()


def submit(browser: Browser, world: PageWorld, name: str) -> str:
    """By hand; the job's id."""
    browser.open(f"{world.url}/ui/#/submit")
    browser.write("#spec", f"kind: pretrain\npreset: tiny  # small\nname: {name}\ntraining:\n  seed: 7\n")
    browser.press("Check and price")
    browser.see("trainable parameters")
    browser.press("Submit this job")
    browser.see(name, "h1")
    return str(browser.run("return location.hash")).split("/")[2]


def test_a_job_is_submitted_followed_paused_resumed_and_cancelled(browser: Browser, world: PageWorld) -> None:
    job_id = submit(browser, world, "by-hand")
    assert world[job_id].state is JobState.QUEUED
    assert '"seed": 7' in world[job_id].spec_json
    world.rounds()
    browser.see("RUNNING", ".standing")
    world.report(job_id, step=5, num_train_steps=20, tokens=640, tokens_per_second=99.0, losses={"mlm_loss": 3.5})
    browser.see("step 5 of 20", ".standing")
    browser.press("Pause")
    browser.wait(lambda: world[job_id].pause_requested_at)
    world.rounds(1)
    browser.see("PAUSING", ".standing")
    world.end(job_id, "PAUSED", AttemptState.SUCCEEDED)
    browser.see("PAUSED", ".standing")
    browser.press("Resume")
    browser.wait(lambda: not world[job_id].pause_requested_at)
    del world.folders.results[job_id]
    world.rounds()
    browser.see("RUNNING", ".standing")
    assert world[job_id].attempt == 2
    browser.press("Cancel")
    browser.press("Yes, cancel it")
    browser.see("to be cancelled", ".standing")
    world.rounds(1)
    world.end(job_id, "CANCELLED", AttemptState.SUCCEEDED)
    browser.see("CANCELLED", ".standing")
    browser.see("CANCELLED", ".diary")


def test_nothing_happens_where_one_thinks_again(browser: Browser, world: PageWorld) -> None:
    job_id = world.running()
    browser.open(f"{world.url}/ui/#/jobs/{job_id}")
    browser.press("Kill")
    browser.see("is lost")
    assert browser.focused() == "Leave it"
    browser.keys("ESCAPE")
    browser.gone("is lost")
    assert browser.focused() == "Kill"
    assert world[job_id].kill_requested_at is None


def test_a_job_is_edited_archived_and_cloned(browser: Browser, world: PageWorld) -> None:
    job_id = world.add(state=JobState.SUCCEEDED, attempt=1, name="old", notes="Of May.", labels={"team": "nlp"})
    browser.open(f"{world.url}/ui/#/jobs/{job_id}")
    browser.press("Edit")
    browser.write("#labels", "team=nlp, run=2")
    browser.write("#priority", "101")
    browser.run("document.querySelector('#priority').max = ''")  # a browser that checks nothing
    browser.press("Save")
    browser.see("less than or equal to 100", ".ask")
    browser.write("#priority", "7")
    browser.press("Save")
    browser.see("run=2", ".facts")
    job = world[job_id]
    assert (job.priority, job.labels, job.notes) == (7, {"team": "nlp", "run": "2"}, "Of May.")
    browser.press("Archive")
    browser.see("archived", ".below")
    browser.press("Clone")
    browser.write("#overrides", "training.seed=9\nname=new")
    browser.press("Clone as a new job")
    browser.see("new", "h1")
    browser.see(f"clone of {job_id}", ".below")


def test_the_list_moves_as_jobs_do(browser: Browser, world: PageWorld) -> None:
    browser.open(f"{world.url}/ui/")
    browser.see("No jobs yet")
    job_id = world.running(name="lively")
    browser.see("RUNNING", ".jobs")
    world.report(job_id, step=3, num_train_steps=4)
    browser.see("step 3 of 4", ".jobs")
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=Failure(stage="train", code="data", message="no text"))
    browser.see("data: no text", ".jobs")
    browser.wait(lambda: "lively is FAILED" in browser.run("return document.getElementById('announcer').textContent"))


def test_five_hundred_jobs_are_paged_searched_and_filtered(browser: Browser, world: PageWorld) -> None:
    for number in range(500):
        state = JobState.FAILED if number % 5 == 0 else JobState.SUCCEEDED
        world.add(name=f"job-{number:03}", state=state, labels={"run": f"r{number % 10}"}, owner="ada", attempt=1)
    browser.open(f"{world.url}/ui/")
    browser.see("1 to 50 of")
    assert len(browser.all(".jobs tbody tr")) == 50
    browser.press("Older")
    browser.see("51 to 100 of")
    browser.write("input[name=q]", "run=r7 ada")
    browser.see("1 to 50 of 50 jobs")
    browser.write("input[name=q]", "job-123")
    browser.see("1 to 1 of 1 jobs")
    browser.write("input[name=q]", "nobody")
    browser.see("No job fits")
    browser.press("Show all jobs")
    browser.choose("select[name=state]", "FAILED")
    browser.see("1 to 50 of")
    assert {state.text for state in browser.all(".jobs tbody .state")} == {"✕ FAILED"}
    assert browser.run("return document.activeElement.name") == "state"


def test_faults_of_a_spec_stand_beside_it(browser: Browser, world: PageWorld) -> None:
    browser.open(f"{world.url}/ui/#/submit")
    browser.write("#spec", "preset: tiny\ntraining:\n  num_train_steps: -4\n")
    browser.press("Check and price")
    browser.see("training.num_train_steps", ".answer")
    browser.press("Line 3")
    selected = "const t = document.activeElement; return t.value.slice(t.selectionStart, t.selectionEnd)"
    assert browser.run(selected) == "  num_train_steps: -4"
    browser.write("#spec", "preset: tiny\nnonsense\n")
    browser.press("Check and price")
    browser.see("Line 2: each line at the left edge", ".answer")


def test_a_preset_written_out_is_itself(browser: Browser, world: PageWorld) -> None:
    """What the page writes as YAML, the service reads as the same spec: 1e-06 is a number, and no text."""
    browser.open(f"{world.url}/ui/#/submit")
    browser.see("tiny", "#preset")
    browser.press("Write it out")
    browser.press("Check and price")
    browser.see("trainable parameters", ".answer")
    browser.press("Submit this job")
    browser.see("QUEUED", ".standing")
    job_id = str(browser.run("return location.hash")).split("/")[2]
    assert world[job_id].spec_sha256 == world[world.add()].spec_sha256


HOSTILE = "<img src=x onerror=\"window.hurt='yes'\"><script>window.hurt='yes'</script>"


def test_names_are_never_read_as_html(browser: Browser, world: PageWorld) -> None:
    job_id = world.running(name=HOSTILE, notes=HOSTILE, owner=HOSTILE[:60], labels={"k": HOSTILE})
    world.launcher.logs[f"{job_id}-a1"] = f"{HOSTILE}\n"
    world.report(job_id, message=HOSTILE, losses={HOSTILE: 1.0}, step=1)
    world.end(job_id, "FAILED", AttemptState.FAILED, failure=Failure(stage="train", code="data", message=HOSTILE))
    places = (
        "",
        "#/queue",
        "#/models",
        *(f"#/jobs/{job_id}/{tab}" for tab in ("", "curves", "logs", "result", "spec")),
    )
    for place in places:
        browser.open(f"{world.url}/ui/{place}")
        browser.one("h1")
        if place.startswith(("#/jobs/",)):
            browser.see(HOSTILE, "h1")
    browser.open(f"{world.url}/ui/#/jobs/{job_id}/logs")
    browser.see(HOSTILE, ".log")
    assert browser.run("return window.hurt ?? document.querySelectorAll('main img, main script').length") == 0


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_view_is_wider_than_the_screen(browser: Browser, world: PageWorld, size: tuple[int, int]) -> None:
    browser.size(size)
    job_id = world.running(name="n" * 60, labels={"a-long-name-of-a-label": "and-its-value-which-is-long-too"})
    world.report(job_id, step=1, num_train_steps=2, losses={"generator_loss": 1.0}, evaluation={"a_long_figure": 0.5})
    tabs = [f"#/jobs/{job_id}/{tab}" for tab in ("overview", "curves", "logs", "result", "spec")]
    for place in ("#/jobs", "#/queue", "#/models", "#/submit", *tabs):
        browser.open(f"{world.url}/ui/{place}")
        browser.wait(lambda: browser.all("h1") and not browser.all("[aria-busy=true]"))
        assert browser.run("return document.documentElement.scrollWidth") <= size[0], place
