"""File descriptors: how many there are, and who may have them."""

import resource

import pytest

from clarion.system import descriptors


@pytest.mark.parametrize("limit", [256, 1_024, 20_000, 65_536, 1_048_576])
def test_listeners_leave_a_reserve(limit: int) -> None:
    shares = descriptors.share(limit)
    assert shares.http > 0
    assert shares.gateway >= shares.http
    if limit > 1_000:
        assert shares.http + shares.gateway <= limit - descriptors.RESERVE - descriptors.HELD


def test_the_limit_is_raised_to_what_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_024), hard))
    try:
        assert descriptors.get_limit() == 1_024
        raised = descriptors.raise_limit()
        assert raised == descriptors.get_limit() > 1_024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
