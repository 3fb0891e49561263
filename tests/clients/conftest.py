"""The servers of the end-to-end tests, and a browser."""

from tests.browser.conftest import chromium, packages
from tests.e2e.conftest import constellation, no_stall, pytest_generate_tests, server

__all__ = ["chromium", "constellation", "no_stall", "packages", "pytest_generate_tests", "server"]
