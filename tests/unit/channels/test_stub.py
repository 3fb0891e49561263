"""The stub returns the outcome that the address names."""

import pytest

from clarion.catalog.model import Channel
from clarion.channels.kinds import find_address
from clarion.channels.model import (
    Address,
    Delivered,
    Gone,
    Outcome,
    OutgoingMessage,
    Rejected,
    Retry,
)
from clarion.channels.stub import StubSender
from tests.factories import make_user
from tests.pipeline import make_event, make_notification


def make_message(address: object, attempt: int = 1) -> OutgoingMessage:
    return OutgoingMessage(
        id="n1/stub",
        notification=make_notification(make_event()),
        user=make_user(attributes={"stub": address}),
        address=Address("", ""),
        subject=None,
        body="text",
        count=1,
        attempt=attempt,
    )


async def deliver(address: object, attempt: int = 1) -> Outcome:
    return await StubSender().send(make_message(address, attempt))


@pytest.mark.parametrize(
    ("address", "outcome"),
    [
        ("delivered", Delivered),
        ("rejected", Rejected),
        ("gone", Gone),
        ("retry", Retry),
        ("retry 1", Retry),
        ("retry often", Rejected),
        ("retry -1", Rejected),
        ("", Rejected),
        ("somewhere else", Rejected),
        (7, Rejected),
    ],
)
async def test_the_address_names_the_outcome(address: object, outcome: type[Outcome]) -> None:
    assert isinstance(await deliver(address), outcome)


@pytest.mark.parametrize(("attempt", "outcome"), [(1, Retry), (2, Retry), (3, Delivered)])
async def test_it_fails_as_often_as_the_address_says(attempt: int, outcome: type[Outcome]) -> None:
    assert isinstance(await deliver("retry 2", attempt), outcome)


async def test_it_can_raise_an_error() -> None:
    with pytest.raises(RuntimeError, match="the address says so"):
        await deliver("broken")


@pytest.mark.parametrize(("attributes", "can"), [({"stub": "x"}, True), ({"stub": 7}, False)])
def test_a_user_with_the_attribute_can_be_reached(
    attributes: dict[str, object], *, can: bool
) -> None:
    assert (find_address(Channel.STUB, make_user(attributes=attributes)) is not None) is can
    assert find_address(Channel.STUB, make_user()) is None
