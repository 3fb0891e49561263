"""A page in every look that it can have: light and dark, on a phone and on a desk."""

from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Page

from tests.browser.dashboard import find_faults

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (390, 1280)
HEIGHT = 800


def find_faults_in_all_looks(page: Page, packages: Path) -> list[Any]:
    """Return the faults of a page in each look, without loading it again."""
    faults: list[Any] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            faults += [(scheme, width, fault) for fault in find_faults(page, packages)]
    return faults
