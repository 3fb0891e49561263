"""Take the pictures of the README and the docs: `.venv/bin/python tools/screenshots.py`."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402 - after the path is set

from tests.browser.conftest import FLAGS, find_chromium  # noqa: E402
from tests.e2e.installation import Installation  # noqa: E402

IMAGES = ROOT / "docs" / "images"
ACTS = ("Like Ben’s post", "Comment on Ben’s post", "Sign in to Ben’s account from a new device")


def main() -> None:
    installation = Installation(Path(tempfile.mkdtemp()))
    installation.initialise()
    with installation, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*FLAGS])
        page = browser.new_page(viewport={"width": 1000, "height": 620})
        page.goto(f"http://127.0.0.1:{installation.port}/demo")
        show_bell(page)
        page.screenshot(path=IMAGES / "bell.png")
        browser.close()
    print(f"Wrote {IMAGES / 'bell.png'}")


def show_bell(page: Page) -> None:
    ben = page.get_by_role("region", name="Ben").locator("clarion-inbox")
    for count, act in enumerate(ACTS, start=1):
        page.get_by_role("button", name=act).click()
        expect(ben.locator(".badge")).to_have_text(str(count))
    ben.locator(".bell").click()
    expect(ben.locator("li")).to_have_count(len(ACTS))


if __name__ == "__main__":
    main()
