"""The servers of the end-to-end tests, and a browser."""

from tests.browser.conftest import chromium, packages
from tests.e2e.conftest import constellation, no_stall, server

__all__ = ["chromium", "constellation", "no_stall", "packages", "server"]
