"""Whether a name exists cannot be told by the time of the answer."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.administrators import Browser, make_administrator
from tests.e2e.installation import Installation

ROUNDS = 60
# Failures are counted by address; each is used for a few.
PER_ADDRESS = 4


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path)
    installation.initialise()
    with installation:
        yield installation


@pytest.mark.timing
def test_an_unknown_name_takes_as_long_as_a_wrong_password(installation: Installation) -> None:
    """The medians of answers that take turns differ by less than a tenth, in one of three rounds.

    They take turns, so that whatever else the machine does slows down both alike.
    """
    ratios = []
    for series in range(3):
        known, unknown = make_administrator(installation).username, f"nobody-{series}"
        times: dict[str, list[float]] = {known: [], unknown: []}
        for number in range(ROUNDS):
            browser = Browser(
                installation.port, address=f"127.2.{series}.{number // PER_ADDRESS + 1}"
            )
            for name, taken in times.items():
                started = time.perf_counter()
                assert browser.sign_in(name, "wrong password").status == 401
                taken.append(time.perf_counter() - started)
        ratios.append(statistics.median(times[known]) / statistics.median(times[unknown]))
        if 0.9 < ratios[-1] < 1.1:
            return
    pytest.fail(f"a wrong password takes {ratios} times as long as an unknown name")
