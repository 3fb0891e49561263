"""Actions on notifications: applied, and sent to the live clients of the user."""

import pytest

from clarion.inbox.actions import InboxActions
from clarion.inbox.live import LiveClients
from clarion.inbox.model import InboxAction
from tests.factories import NOW, FixedClock
from tests.unit.inbox.memory import MemoryInboxes


@pytest.mark.parametrize("action", InboxAction)
async def test_an_action_wakes_the_clients(action: InboxAction) -> None:
    calls: list[str] = []
    inboxes = MemoryInboxes()
    live = LiveClients(inboxes, per_user=2, total=3)
    live.open("app", "ana", wake=lambda: calls.append("wake"), end=calls.append)
    made = inboxes.add()
    actions = InboxActions(inboxes, live, FixedClock())
    changed = await actions.apply(action, "app", "ana", made.id)
    assert changed is not None
    assert changed.read_at == NOW
    assert await actions.apply(action, "app", "ana", "nothing") is None
    assert (await actions.read_all("app", "ana")).unread_count == 0
    assert calls == ["wake"] * 3
