"""The processor time of an app."""

import pytest

from clarion.catalog.sandbox.budget import ProcessorBudget
from clarion.errors import TooManyRequests


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_used_comes_back_within_a_minute() -> None:
    time = Time()
    budget = ProcessorBudget(6.0, time)
    budget.charge("a", 5.9)
    budget.check("a")
    budget.charge("a", 3.1)
    with pytest.raises(TooManyRequests, match="6 seconds of processor time") as caught:
        budget.check("a")
    assert caught.value.retry_after_s == 31
    budget.check("b")
    time.now += 31
    budget.check("a")


def test_apps_that_used_nothing_lately_are_forgotten() -> None:
    time = Time()
    budget = ProcessorBudget(6.0, time)
    for number in range(10_001):
        budget.charge(str(number), 0.01)
    time.now += 60
    budget.charge("a", 1.0)
    assert len(budget._used) == 1
