"""An inbox in memory: the part of the `Inboxes` port that streams read."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from clarion.catalog.model import Category, Priority
from clarion.errors import StoreUnavailable
from clarion.history.model import Content, Notification
from clarion.inbox.model import InboxAction, InboxState
from clarion.pages import Page
from tests.factories import NOW
from tests.replacing import replace

ALLOWED_ORIGIN = "https://app.example.com"


def make_notification(sequence: int, **changes: object) -> Notification:
    made = Notification(
        app_id="app",
        user_id="ana",
        id=f"n{sequence}",
        event_id="e",
        type="comment",
        category=Category.SOCIAL,
        priority=Priority.HIGH,
        title=None,
        body="said something",
        content=Content(),
        is_shown=True,
        sequence=sequence,
        created_at=NOW,
    )
    return replace(made, **changes)


class OneOrigin:
    """The `Origins` port: every app allows one origin."""

    async def is_allowed(self, _app_id: str, origin: str) -> bool:
        return origin == ALLOWED_ORIGIN


@dataclass
class MemoryInboxes:
    """The inbox of one user; `between` is called between two reads of a feed."""

    items: list[Notification] = field(default_factory=list)
    skipped: int = 0
    is_broken: bool = False
    between: Callable[[], object] = lambda: None

    def add(self, **changes: object) -> Notification:
        self.items.append(make_notification(self.sequence + 1, **changes))
        return self.items[-1]

    @property
    def sequence(self) -> int:
        return max((each.sequence for each in self.items), default=0) + self.skipped

    @property
    def unread_count(self) -> int:
        return sum(each.read_at is each.dismissed_at is None for each in self.items)

    async def state(self, app_id: str, user_id: str) -> InboxState:
        if self.is_broken:
            raise StoreUnavailable
        assert (app_id, user_id) == ("app", "ana")
        return InboxState(self.unread_count, self.sequence)

    async def states(self, app_id: str, user_ids: Collection[str]) -> Mapping[str, InboxState]:
        return {each: await self.state(app_id, each) for each in user_ids if each == "ana"}

    async def changes(
        self, app_id: str, user_id: str, after: int, limit: int
    ) -> tuple[Notification, ...]:
        assert (app_id, user_id) == ("app", "ana")
        found = [each for each in self.items if each.sequence > after]
        self.between()
        return tuple(sorted(found, key=lambda each: each.sequence)[:limit])

    async def get(self, app_id: str, user_id: str, notification_id: str) -> Notification | None:
        if self.is_broken:
            raise StoreUnavailable
        found = [each for each in self.items if each.id == notification_id]
        return found[0] if found and (app_id, user_id) == ("app", "ana") else None

    async def apply(
        self, action: InboxAction, app_id: str, user_id: str, notification_id: str, now: int
    ) -> Notification | None:
        """Mark it read, whatever the action is: streams only see that something changed."""
        assert action in InboxAction
        found = await self.get(app_id, user_id, notification_id)
        if found is not None and found.read_at is None:
            self.items.remove(found)
            self.items.append(replace(found, read_at=now, sequence=self.sequence + 2))
        return await self.get(app_id, user_id, notification_id)

    async def read_all(self, app_id: str, user_id: str, now: int) -> InboxState:
        for each in list(self.items):
            await self.apply(InboxAction.READ, app_id, user_id, each.id, now)
        return await self.state(app_id, user_id)

    async def forget(self, app_id: str, user_id: str, ids: Collection[str]) -> None:
        assert (app_id, user_id) == ("app", "ana")
        self.items = [each for each in self.items if each.id not in ids]

    async def page(self, app_id: str, user_id: str, **options: object) -> Page[Notification]:
        assert (app_id, user_id) == ("app", "ana")
        assert options
        return Page(tuple(self.items), None)
