"""Curves, logs, trials and keys on the page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_world import keys_settings
from page_browser import Browser
from page_world import PageWorld

from pipelines.specs.parsing import load_spec, resolve_spec
from pipelines.specs.trial_documents import TrialList, TrialSummary
from service.access.audit import Caller
from service.access.principals import ALL_PROJECTS, ALL_SCOPES, Principal, Role
from service.settings import Settings

ROOT = Principal(owner="root", roles={ALL_PROJECTS: Role.ADMIN}, method="open")
EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").rglob("*.yaml") if path.parent.name != "kubernetes"
)
"""Specs; what is for Kubernetes holds manifests."""


@pytest.fixture
def world(settings: Settings) -> Iterator[PageWorld]:
    world = PageWorld(settings)
    with world.served():
        yield world
    world.close()


def key(world: PageWorld, owner: str, role: Role) -> str:
    fields: dict[str, Any] = {"project": "default", "role": role, "scopes": ALL_SCOPES, "lifetime_days": None}
    return world.access.create_key(Caller(ROOT), name="t", owner=owner, **fields)[1]


def test_curves_are_drawn_read_by_keyboard_and_told_as_a_table(browser: Browser, world: PageWorld) -> None:
    job_id = world.running()
    for step in (10, 20, 30):
        losses = {"generator_loss": 6.0 - step / 10}
        world.report(
            job_id, step=step, num_train_steps=40, tokens=step * 128, tokens_per_second=50.0 + step, losses=losses
        )
    browser.open(f"{world.url}/ui/#/jobs/{job_id}/curves")
    browser.wait(lambda: len(browser.all("polyline")) == 2)
    browser.run("document.querySelector('.chart').focus()")
    browser.keys("HOME")
    browser.see("step 10: generator_loss 5", ".readout")
    browser.keys("ARROW_RIGHT")
    browser.see("step 20: generator_loss 4", ".readout")
    browser.press("Losses as a table")
    browser.see("30 3", "figure table")
    browser.choose("main select", "tokens")
    browser.see("3,840 3", "figure table")


def test_a_log_is_followed_and_searched(browser: Browser, world: PageWorld) -> None:
    job_id = world.running()
    name = f"{job_id}-a1"
    world.launcher.logs[name] = "loading\n<b>step</b> 1\n"
    browser.open(f"{world.url}/ui/#/jobs/{job_id}/logs")
    browser.see("<b>step</b> 1", ".log")
    world.launcher.logs[name] += "step 2\n"
    browser.see("step 2", ".log")
    browser.write("input[name=contains]", "LOAD")
    browser.press("Read")
    browser.gone("step 2", ".log")
    browser.see("loading", ".log")


def test_the_trials_of_a_search_are_a_leaderboard(browser: Browser, world: PageWorld) -> None:
    job_id = world.running(kind="search")
    trials = [
        TrialSummary(number=number, state="COMPLETED", point={"optimizer.learning_rate": 0.001}, seed=1, score=score)
        for number, score in enumerate((0.5, 0.9, 0.7))
    ]
    world.folders.trials[job_id] = TrialList(metric="auc", mode="max", trials=tuple(trials))
    browser.open(f"{world.url}/ui/#/jobs/{job_id}/trials")
    browser.see("3 trials, compared by auc (more is better)")
    scores = [row.text.split()[2] for row in browser.all(".panel tbody tr")]
    assert scores == ["0.9", "0.7", "0.5"]


def test_a_service_that_goes_and_comes_back_is_taken_up_again(browser: Browser, settings: Settings) -> None:
    world = PageWorld(settings)
    with world.served():
        port = int(world.url.rpartition(":")[2])
        job_id = world.running(name="patient")
        browser.open(f"{world.url}/ui/")
        browser.see("RUNNING", ".jobs")
        browser.see("Live", "#connection")
    browser.see("Offline", "#connection")
    world.store.request_cancel(job_id, world[job_id].created_at)
    world.rounds(1)
    with world.served(port):
        browser.see("CANCELLING", ".jobs")
        browser.see("Live", "#connection")
    world.close()


def test_pages_that_were_left_hold_no_connections(browser: Browser, world: PageWorld) -> None:
    """Browsers give a host six connections, and keep pages that were left: the seventh would wait for ever."""
    world.running(name="seventh")
    for _ in range(8):
        browser.open(f"{world.url}/ui/")
        browser.see("seventh", ".jobs")
        browser.see("Live", "#connection")
    browser.driver.back()
    browser.driver.back()
    browser.see("Live", "#connection")


def test_it_is_used_by_keyboard_alone(browser: Browser, world: PageWorld) -> None:
    world.running(name="reachable")
    browser.open(f"{world.url}/ui/")
    browser.see("reachable", ".jobs")
    browser.keys("TAB")
    assert browser.focused() == "Skip to content"
    browser.keys("ENTER", *["TAB"] * 5)
    assert browser.focused() == "reachable"
    browser.keys("ENTER")
    browser.see("RUNNING", ".standing")
    browser.wait(lambda: browser.focused() == "reachable")  # the heading of the job
    while browser.focused() != "Pause":
        browser.keys("TAB")
    browser.keys("ENTER")
    browser.wait(lambda: browser.focused() == "Resume")


def test_a_key_is_asked_for_kept_in_the_tab_and_forgotten(browser: Browser, tmp_path: Path) -> None:
    world = PageWorld(keys_settings(tmp_path))
    with world.served():
        job_id = world.running(name="guarded", owner="ada")
        browser.open(f"{world.url}/ui/#/jobs/{job_id}")
        browser.write("#key", "elk_wrong_key")
        browser.click("form .primary")
        browser.see("Sign in with a key that is valid.")
        browser.write("#key", key(world, "vera", Role.VIEWER))
        browser.click("form .primary")
        browser.see("guarded", "h1")
        browser.press("Pause")
        browser.see("This takes the permission jobs:write in project 'default'.")
        browser.see("Your key may see this, but not do it.")
        assert "elk_" not in browser.run("return location.href + document.cookie + JSON.stringify(localStorage)")
        browser.press("Sign out")
        browser.see("Sign in", "h1")
        assert browser.run("return sessionStorage.getItem('electra.key')") is None
    world.close()


def test_yaml_means_here_what_it_means_to_the_command(browser: Browser, world: PageWorld) -> None:
    browser.open(f"{world.url}/ui/#/submit")
    browser.one("#spec")
    script = """
        const [texts, done] = arguments;
        const at = document.querySelector("script[type=module]").src.replace("main.js", "spec_text.js");
        import(at).then(({ readSpec }) => done(texts.map(readSpec)), (error) => done(String(error)));
    """
    texts = [path.read_text() for path in EXAMPLES]
    bodies = browser.driver.execute_async_script(script, texts)
    assert len(bodies) == len(EXAMPLES) > 10
    for text, body in zip(texts, bodies, strict=True):
        assert resolve_spec(body["spec"], body["overrides"]) == load_spec(text)
