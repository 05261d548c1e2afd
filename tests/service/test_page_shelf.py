"""Queue, models, corpora and usage on the page, in a real browser; the registry is in memory, the rest is real."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from access_world import ROOT, keys_settings
from page_browser import NARROW, WIDE, Browser
from page_world import PageWorld
from service_shelf import DIGEST, export_files, keep_corpus, made_by

from service.access.principals import Permission, Role
from service.interfaces import AttemptState
from service.settings import Settings
from service.states import JobState

TAGS = {"electra.network": "discriminator"}


@pytest.fixture
def world(settings: Settings) -> Iterator[PageWorld]:
    world = PageWorld(settings.model_copy(update={"max_running_jobs": 1}))
    with world.served():
        yield world
    world.close()


def registered(world: PageWorld) -> str:
    """Two versions of a model, the first with a job, a corpus and an export; the job's id."""
    job_id = world.running(name="maker")
    corpus = {"digest": DIGEST, "num_train_tokens": 50}
    result = made_by(world.settings, job_id, "notes", 1, corpus=corpus, mlflow_run_id="r", mlflow_experiment_id="4")
    world.end(job_id, "SUCCEEDED", AttemptState.SUCCEEDED, **result.model_dump(exclude={"state", "attempt"}))
    keep_corpus(world.settings, job_id)
    export_files(world.settings, job_id)
    tags = {**TAGS, "electra.job_id": job_id}
    world.registry.add("notes", 1, tags=tags, description="# What it is\nA small network.", run_id="r")
    world.registry.add("notes", 2, aliases={"champion": 1, "newest": 2}, tags=TAGS)
    return job_id


def cells(browser: Browser, label: str) -> list[list[str]]:
    return [
        [cell.text for cell in row.find_elements("css selector", "td")]
        for row in browser.all(f"[aria-label='{label}'] tbody tr")
    ]


def test_the_queue_tells_order_reasons_shares_and_what_is_free(browser: Browser, world: PageWorld) -> None:
    world.add(name="first", owner="ada")
    world.rounds()
    world.add(name="low", owner="ada", priority=-3)
    world.add(name="high", owner="ben", priority=3)
    world.rounds(1)
    browser.open(f"{world.url}/ui/#/queue")
    browser.see("1 of at most 1 on the cluster, 2 waiting, 0 paused")
    waiting = cells(browser, "Waiting, in their order")
    assert [row[:4] for row in waiting] == [["1", "high", "ben", "3"], ["2", "low", "ada", "-3"]]
    assert [bool(row[-1]) for row in waiting] == [True, True]
    owners = {row[0]: row[1:] for row in cells(browser, "Owners")}
    assert (owners["ada"][0], owners["ben"][0]) == ("1", "0")
    assert owners["ada"][3] != "0 %" == owners["ben"][3]
    browser.see("2 of 2", ".facts")


def test_the_queue_moves_and_names_whom_somebody_paused(browser: Browser, world: PageWorld) -> None:
    world.add(name="held", state=JobState.PAUSED, attempt=1, pause_requested_at=datetime.now(UTC))
    browser.open(f"{world.url}/ui/#/queue")
    browser.see("held", "[aria-label=Paused]")
    world.running(name="comes")
    browser.see("comes", "[aria-label='On the cluster']")


@pytest.mark.parametrize(
    ("place", "has"),
    [
        ("queue", Permission.MODELS_READ),
        ("corpora", Permission.MODELS_READ),
        ("usage", Permission.MODELS_READ),
        ("models", Permission.JOBS_READ),
    ],
)
def test_who_may_not_see_it_is_told_so_in_the_services_words(
    browser: Browser, tmp_path: Path, place: str, has: Permission
) -> None:
    world = PageWorld(keys_settings(tmp_path))
    fields: dict[str, Any] = {"project": "default", "role": Role.VIEWER, "scopes": frozenset({has})}
    secret = world.access.create_key(ROOT, name="t", owner="ivy", lifetime_days=None, **fields)[1]
    with world.served():
        browser.open(f"{world.url}/ui/#/{place}")
        browser.write("#key", secret)
        browser.click("form .primary")
        browser.see("This takes the permission", ".problem")
        browser.see("Your key may see this, but not do it.", ".problem")
    world.close()


def test_a_model_leads_to_its_versions_their_job_and_what_they_are_made_of(browser: Browser, world: PageWorld) -> None:
    registered(world)
    browser.open(f"{world.url}/ui/#/models")
    browser.see("champion → 1", "[aria-label=Models]")
    browser.wait(lambda: "http://127.0.0.1:5000/#/models" in hrefs(browser))
    browser.press("notes")
    browser.see("Version 2", "[aria-label=Versions]")
    assert [row[1] for row in cells(browser, "Versions")] == ["newest", "champion"]
    browser.press("Version 1")
    browser.see("A small network.", "[aria-label='Model card']")
    browser.see("job maker")
    browser.see(f"corpus {DIGEST[:12]}")
    assert "http://127.0.0.1:5000/#/models/notes/versions/1" in hrefs(browser)
    browser.press("maker")
    browser.see("SUCCEEDED", ".standing")


def hrefs(browser: Browser) -> list[str]:
    return [one.get_attribute("href") for one in browser.all("main a")]


def test_an_export_is_saved_as_it_is(browser: Browser, world: PageWorld, tmp_path: Path) -> None:
    job_id = registered(world)
    browser.downloads(tmp_path / "saved")
    browser.open(f"{world.url}/ui/#/models/notes/versions/champion")
    browser.press("Save as a tar archive")
    browser.see("Saved as notes-1.tar.")
    archive = tmp_path / "saved" / "notes-1.tar"
    browser.wait(archive.exists)
    with tarfile.open(archive) as tar:
        member = tar.extractfile("notes-1/model.safetensors")
        assert member is not None
        kept = export_files(world.settings, job_id) / "model.safetensors"
        assert member.read() == kept.read_bytes()


def test_what_is_too_large_for_a_page_is_left_to_the_command(browser: Browser, world: PageWorld) -> None:
    weights = export_files(world.settings, registered(world)) / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(300_000_000)  # of holes: it takes no room
    browser.open(f"{world.url}/ui/#/models/notes/versions/1")
    browser.press("Save as a tar archive")
    browser.see("300 MB are more than a page should hold. Take the command: electra models download notes@1")


def test_a_registry_that_is_away_is_said_and_asked_again(browser: Browser, world: PageWorld) -> None:
    world.registry.add("notes")
    world.registry.is_away = True
    browser.open(f"{world.url}/ui/#/models")
    browser.see("MLflow does not answer.", ".problem")
    world.registry.is_away = False
    browser.press("Try again")
    browser.see("notes", "[aria-label=Models]")


def test_more_models_come_for_a_button_and_keep_the_focus(browser: Browser, world: PageWorld) -> None:
    for number in range(60):
        world.registry.add(f"m{number:02}")
    browser.open(f"{world.url}/ui/#/models")
    browser.see("50 so far")
    browser.press("More")
    browser.wait(lambda: len(cells(browser, "Models")) == 60)
    assert browser.focused() == "m50"


def test_a_corpus_tells_what_it_weighs_and_who_used_it(browser: Browser, world: PageWorld) -> None:
    job_id = registered(world)
    browser.open(f"{world.url}/ui/#/corpora")
    browser.see(DIGEST[:12], "[aria-label=Corpora]")
    ((_, size, tokens, documents, *_, jobs),) = cells(browser, "Corpora")
    assert (size.split()[1], tokens, documents, job_id in jobs) == ("B", "60", "6", True)


def test_usage_is_told_by_owner_and_of_chosen_days(browser: Browser, world: PageWorld, tmp_path: Path) -> None:
    registered(world)
    browser.open(f"{world.url}/ui/#/usage")
    browser.see("local", "[aria-label=Usage]")
    (row, total) = cells(browser, "Usage")
    assert (row[0], row[5:], total[0], total[5:]) == ("local", ["1", "1"], "All", ["1", "1"])
    browser.choose("#by", "project")
    browser.press("Show")
    browser.see("default", "[aria-label=Usage]")
    browser.downloads(tmp_path)
    browser.press("Save as CSV")
    browser.wait((tmp_path / "usage-by-project.csv").exists)
    assert (tmp_path / "usage-by-project.csv").read_text().startswith("project,cpu_hours,gpu_hours")
    today = datetime.now(UTC).date()
    browser.open(f"{world.url}/ui/#/usage?by=day&from={today}&to={today}")
    browser.see(str(today), "[aria-label=Usage]")
    browser.open(f"{world.url}/ui/#/usage?from=2020-01-01&to=2020-01-31")
    browser.see("Nothing ran in these days.")
    browser.open(f"{world.url}/ui/#/usage?from=2020-01-31&to=2020-01-01")
    browser.see("from must be before to", ".problem")


def test_usage_is_asked_for_by_keyboard_alone(browser: Browser, world: PageWorld) -> None:
    registered(world)
    browser.open(f"{world.url}/ui/#/usage")
    browser.see("local", "[aria-label=Usage]")
    browser.run("document.querySelector('#by').focus()")
    browser.keys("ARROW_DOWN", "TAB")
    while browser.focused() != "Show":
        browser.keys("TAB")
    browser.keys("ENTER")
    browser.see("default", "[aria-label=Usage]")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_list_is_wider_than_the_screen(browser: Browser, world: PageWorld, size: tuple[int, int]) -> None:
    browser.size(size)
    registered(world)
    world.registry.add("n" * 100, aliases={"a" * 100: 1})
    world.running(name="n" * 60, owner="o" * 60)
    world.add(name="w" * 60)
    world.rounds(1)
    for place in ("queue", "models", "models/notes", "models/notes/versions/1", "corpora", "usage"):
        browser.open(f"{world.url}/ui/#/{place}")
        browser.wait(lambda: browser.all("main table, main .facts") and "Loading" not in browser.text())
        assert browser.run("return document.documentElement.scrollWidth") <= size[0], place
