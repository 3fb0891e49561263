"""How many processors a process may use."""

import os
from pathlib import Path

import pytest

from clarion.system.cores import count_cores

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000\n", ALLOWED),
        ("100000 100000\n", 1),
        ("1000 100000\n", 1),
        ("640000000 100000\n", ALLOWED),
        ("150000 100000\n", min(2, ALLOWED)),
        ("nonsense\n", ALLOWED),
    ],
)
def test_a_container_has_as_many_as_its_quota(tmp_path: Path, quota: str, expected: int) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert count_cores(file) == expected


def test_without_a_quota_it_has_those_it_may_run_on(tmp_path: Path) -> None:
    assert count_cores(tmp_path / "missing") == ALLOWED
