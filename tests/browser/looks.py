"""A page in every look that it can have: light and dark, on a phone and on a desk."""

from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Page

from tests.lanes import is_core

# `make test` passes over each page in one of them.
IS_SHORT = is_core()
SCHEMES: tuple[Literal["light", "dark"], ...] = ("dark",) if IS_SHORT else ("light", "dark")
WIDTHS = (390,) if IS_SHORT else (390, 1280)
HEIGHT = 800
# The frame with an email is of another origin, and its content is not ours.
RUN_AXE = """() => axe.run("html", {resultTypes: ["violations"], iframes: false})
    .then(({violations}) => violations.filter(({impact}) => /serious|critical/.test(impact))
        .map(({id, nodes}) => [id, nodes.map(({target, failureSummary}) =>
            [target.join(" "), failureSummary])]))"""


def find_faults_in_all_looks(page: Page, packages: Path) -> list[Any]:
    """Return what axe finds in each look, and whether the page is wider than its window."""
    faults: list[Any] = []
    page.evaluate((packages / "node_modules" / "axe-core" / "axe.min.js").read_text())
    # Colours that are still changing would be taken for those of the page.
    page.emulate_media(reduced_motion="reduce")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            faults += [(scheme, width, fault) for fault in page.evaluate(RUN_AXE)]
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            faults += [(scheme, width, f"{wide} px too wide")] if wide > 0 else []
    return faults


def check_harmless(page: Page, url: str) -> None:
    """Open a page with hostile texts: nothing of them runs, and it is as wide as its window."""
    page.goto(url)
    assert page.evaluate("window.harmed") is None, url
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, url
    assert page.get_by_role("heading", level=1).is_visible(), url
