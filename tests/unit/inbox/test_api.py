"""A page of an inbox and its state are from the same moment."""

import pytest

from clarion.events.model import Notification
from clarion.inbox.api import READ_ATTEMPTS, _read_together
from clarion.inbox.model import InboxState
from clarion.pages import Page


class Busy:
    """An inbox that changes while it is read, so many times."""

    def __init__(self, changes: int) -> None:
        self.left = changes
        self.sequence = 0

    async def page(self) -> Page[Notification]:
        # The page is as the inbox is now; the next change comes right after it.
        seen: Page[Notification] = Page((), str(self.sequence))
        if self.left:
            self.left -= 1
            self.sequence += 1
        return seen

    async def state(self) -> InboxState:
        return InboxState(self.sequence, self.sequence)


@pytest.mark.parametrize("changes", range(READ_ATTEMPTS))
async def test_a_page_comes_with_its_own_state(changes: int) -> None:
    busy = Busy(changes)
    page, state = await _read_together(busy.page, busy.state)
    assert page.next == str(state.sequence) == str(changes)


async def test_in_an_inbox_that_changes_all_the_time_the_state_is_not_newer() -> None:
    busy = Busy(99)
    page, state = await _read_together(busy.page, busy.state)
    assert page.next == str(state.sequence) == str(READ_ATTEMPTS - 1)
