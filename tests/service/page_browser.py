"""A real browser, as a reader uses it: Debian's Chromium by its own driver, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SECONDS = 30
"""That a test waits for the page; nothing is said of how long it takes."""
WIDE, NARROW = (1280, 900), (390, 844)


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; the test is skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver_program = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """What a reader does and sees."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.size(WIDE)

    def size(self, size: tuple[int, int]) -> None:
        """Of what the page has to itself; a window of Chromium's cannot be as narrow as a telephone."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def downloads(self, folder: Path) -> None:
        """Have what is saved put there."""
        wish = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", wish)

    def open(self, url: str) -> None:
        """Load a page from the beginning, with nothing kept from before."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def wait(self, what: Callable[[], Any]) -> Any:
        """Until `what` gives something; elements that were just replaced count as nothing."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(self.driver, SECONDS, 0.05, ignored_exceptions=[StaleElementReferenceException])
        return waiting.until(lambda _: what(), self.text("body"))

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def one(self, css: str) -> Any:
        """The first element that fits, as soon as it is there."""
        return self.wait(lambda: next(iter(self.all(css)), None))

    def text(self, css: str = "main") -> str:
        found = self.all(css)
        return found[0].text if found else ""

    def see(self, text: str, css: str = "main") -> None:
        """Wait until a text stands there."""
        try:
            self.wait(lambda: text in self.text(css))
        except Exception as error:
            raise AssertionError(f"{text!r} never stood in {css}, but: {self.text(css)[:2000]!r}") from error

    def gone(self, text: str, css: str = "main") -> None:
        """Wait until a text stands there no longer."""
        self.wait(lambda: text not in self.text(css))

    def click(self, css: str) -> None:
        self.wait(lambda: next((one for one in self.all(css) if one.is_displayed() and one.is_enabled()), None)).click()

    def press(self, words: str) -> None:
        """Click the button or the link of these words."""
        self.wait(lambda: self._named(words)).click()

    def choose(self, css: str, value: str) -> None:
        self.click(f"{css} option[value='{value}']")

    def write(self, css: str, text: str) -> None:
        field = self.one(css)
        field.clear()
        field.send_keys(text)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def keys(self, *names: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver import ActionChains, Keys

        for name in names:
            ActionChains(self.driver).send_keys(getattr(Keys, name, name)).perform()

    def focused(self) -> str:
        return str(self.run("return document.activeElement.textContent.trim()"))

    def complaints(self) -> list[str]:
        """What the browser found wrong since it was asked last: scripts that broke, rules that were broken."""
        lines = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        # An answer that is no success is a line too, and the page shows it.
        return [line for line in lines if "Failed to load resource" not in line]

    def _named(self, words: str) -> Any:
        named = [one for one in self.all("button, a, summary") if one.text.strip() == words]
        return next((one for one in named if one.is_displayed() and one.is_enabled()), None)
