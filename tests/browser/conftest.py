"""A real Chromium: the one on the PATH, else the one that comes by npm."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.e2e.conftest import no_stall
from tests.e2e.own_server import server
from tests.node import find_node, install

__all__ = ["no_stall", "server"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
SOURCE = Path(__file__).parent / "node"
# As root, Chromium runs only without its sandbox.
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage")
# Of a machine without a language, Chromium makes a name that its own `Intl` refuses.
LANGUAGE: dict[str, str | float | bool] = {"LANG": "en_US.UTF-8", "LC_ALL": "en_US.UTF-8"}
HANGING_MS = 60_000
expect.set_options(timeout=HANGING_MS)
UNPACK = """
import chromium from "@sparticuz/chromium";
console.log(await chromium.executablePath());
"""


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder with the packages of npm."""
    return install(find_node(), SOURCE)


@pytest.fixture(scope="module")
def chromium(packages: Path) -> Iterator[Browser]:
    """A browser, not for longer: while it is there, the thread has a running event loop."""
    with sync_playwright() as playwright:
        path = find_chromium(packages)
        browser = playwright.chromium.launch(
            executable_path=path, args=[*FLAGS], env={**os.environ, **LANGUAGE}
        )
        yield browser
        browser.close()


def find_chromium(packages: Path | None = None) -> str:
    """Return the program: of this machine, or else of the packages."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or _unpack(packages or install(find_node(), SOURCE))


def _unpack(packages: Path) -> str:
    # One worker after the other: a program that another one still writes cannot be started.
    with Path(tempfile.gettempdir(), "clarion-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [find_node().node, "--input-type=module", "--eval", UNPACK],
            cwd=packages,
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.strip()


@dataclass
class Window:
    """A page, and what went wrong in it."""

    page: Page
    faults: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(message.text)


@pytest.fixture
def open_window(chromium: Browser) -> Iterator["OpenWindow"]:
    """Opens pages, each in a context of its own; the test fails if one logs an error."""
    opener = OpenWindow(chromium)
    yield opener
    faults = [fault for window in opener.windows for fault in window.faults]
    for window in opener.windows:
        window.page.context.close()
    assert faults == []


class OpenWindow:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.windows: list[Window] = []

    def __call__(self, url: str, *, width: int = 1000, height: int = 800, **context: str) -> Window:
        viewport = {"width": width, "height": height}
        page = self._browser.new_context(viewport=viewport, **context).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(HANGING_MS)
        window = Window(page)
        window.watch()
        self.windows.append(window)
        page.goto(url)
        return window
