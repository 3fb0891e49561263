"""A page in every look that it can have: light and dark, on a phone and on a desk."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.browser.dashboard import LOOKS, find_faults

HEIGHT = 800


def find_faults_in_all_looks(page: Page, packages: Path) -> list[Any]:
    """Return the faults of a page in each look, without loading it again."""
    faults: list[Any] = []
    for look in LOOKS:
        page.set_viewport_size({"width": look["width"], "height": HEIGHT})
        page.emulate_media(color_scheme=look["color_scheme"])
        faults += [(look, fault) for fault in find_faults(page, packages)]
    return faults
