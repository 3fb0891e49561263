"""A page of an inbox and its numbers are of one moment."""

import pytest

from clarion.events.model import Notification
from clarion.inbox.api import LOOKS, _read_together
from clarion.inbox.model import InboxState
from clarion.pages import Page


class Busy:
    """An inbox that changes while it is read, so many times."""

    def __init__(self, changes: int) -> None:
        self.left = changes
        self.sequence = 0

    async def page(self) -> Page[Notification]:
        # The page is as the inbox is now; what comes, comes right behind it.
        seen: Page[Notification] = Page((), str(self.sequence))
        if self.left:
            self.left -= 1
            self.sequence += 1
        return seen

    async def state(self) -> InboxState:
        return InboxState(self.sequence, self.sequence)


@pytest.mark.parametrize("changes", range(LOOKS))
async def test_a_page_comes_with_its_own_numbers(changes: int) -> None:
    busy = Busy(changes)
    page, state = await _read_together(busy.page, busy.state)
    assert page.next == str(state.sequence) == str(changes)


async def test_in_an_inbox_that_never_rests_the_numbers_are_not_newer() -> None:
    busy = Busy(99)
    page, state = await _read_together(busy.page, busy.state)
    assert page.next == str(state.sequence) == str(LOOKS - 1)
