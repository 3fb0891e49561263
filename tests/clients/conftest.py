"""The servers of the end-to-end tests."""

from tests.e2e.conftest import constellation, no_stall, server

__all__ = ["constellation", "no_stall", "server"]
