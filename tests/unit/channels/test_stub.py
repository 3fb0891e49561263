"""The stub answers what the address says."""

import pytest

from clarion.catalog.model import Priority
from clarion.channels.model import Delivered, Gone, Outcome, OutgoingMessage, Rejected, Retry
from clarion.channels.stub import StubProvider
from clarion.events.model import Content
from tests.factories import make_user


def make_parcel(address: object, attempt: int = 1) -> OutgoingMessage:
    return OutgoingMessage(
        id="n1/stub",
        notification_id="n1",
        user=make_user(attributes={"stub": address}),
        type="ORDER",
        priority=Priority.MEDIUM,
        subject=None,
        body="words",
        content=Content(),
        count=1,
        expires_at=None,
        attempt=attempt,
    )


async def deliver(address: object, attempt: int = 1) -> Outcome:
    return await StubProvider().deliver(make_parcel(address, attempt))


@pytest.mark.parametrize(
    ("address", "kind"),
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
async def test_the_address_is_the_answer(address: object, kind: type[Outcome]) -> None:
    assert isinstance(await deliver(address), kind)


@pytest.mark.parametrize(("attempt", "kind"), [(1, Retry), (2, Retry), (3, Delivered)])
async def test_it_fails_as_often_as_the_address_says(attempt: int, kind: type[Outcome]) -> None:
    assert isinstance(await deliver("retry 2", attempt), kind)


async def test_it_can_break() -> None:
    with pytest.raises(RuntimeError, match="the address says so"):
        await deliver("broken")


@pytest.mark.parametrize(("attributes", "can"), [({"stub": "x"}, True), ({"stub": 7}, False)])
def test_who_has_the_attribute_can_be_reached(attributes: dict[str, object], *, can: bool) -> None:
    assert StubProvider().can_reach(make_user(attributes=attributes)) is can
    assert not StubProvider().can_reach(make_user())
