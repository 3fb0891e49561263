"""Facts for a whole batch, each kind in one read, and the cases made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clarion.catalog.model import Channel, Overflow
from clarion.events.decide.case import Case, Limit, Person
from clarion.people.model import UserStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clarion.catalog.model import Priority
    from clarion.catalog.port import CatalogEntry
    from clarion.channels.port import ChannelProvider
    from clarion.events.model import Content, Earlier
    from clarion.events.port import Facts
    from clarion.people.model import User
    from clarion.people.port import Users

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is to be decided: a kind of news for one person, over some channels."""

    app_id: str
    user_id: str
    kind: CatalogEntry
    priority: Priority
    content: Content
    channels: tuple[Channel, ...]
    expires_at: int | None
    dedupe_key: str | None = None
    counts: bool = True  # whether the limits count it
    now: int

    @property
    def dedupe_id(self) -> str | None:
        """What tells a repeat from news, for this person; None: nothing is a repeat."""
        if self.dedupe_key is None or self.kind.type.dedupe is None:
            return None
        return f"{self.user_id}\n{self.kind.type.type}\n{self.dedupe_key}"

    def digest_id(self, channel: Channel) -> str:
        """Return the id of the job that tells what is collected."""
        return f"digest/{self.app_id}/{self.user_id}/{channel}/{self.kind.type.type}"


class Caps(NamedTuple):
    """How many of a category, and in all, a person gets in an hour; 0: as many as there are."""

    per_category: int = 0
    per_user: int = 0

    def limits_of(self, ask: Ask) -> tuple[Limit, ...]:
        """Return the limits that count for a person and a type at this hour, none used yet."""
        of_type = ask.kind.type.rate_limit
        if not ask.counts or (of_type is None and not any(self)):
            return ()
        kind, hour = ask.kind.type, ask.now // HOUR_MS
        limits = []
        if of_type is not None:
            per_hour, overflow = of_type.per_user_per_hour, of_type.overflow
            limits.append(Limit(f"{ask.user_id}\n{kind.type}\n{hour}", per_hour, overflow, 0))
        if self.per_category:
            key = f"{ask.user_id}\n\n{kind.category}\n{hour}"
            limits.append(Limit(key, self.per_category, Overflow.WAIT, 0))
        if self.per_user:
            limits.append(Limit(f"{ask.user_id}\n\n{hour}", self.per_user, Overflow.WAIT, 0))
        return tuple(limits)


@dataclass(frozen=True, slots=True)
class Brief:
    """A case with what is needed to carry its verdicts out."""

    ask: Ask
    user: User | None
    case: Case
    earlier: Earlier | None


class Gathering:
    """Reads what the rules need to know, for many at once."""

    def __init__(
        self,
        *,
        users: Users,
        facts: Facts,
        providers: Mapping[Channel, ChannelProvider],
        caps: Caps,
    ) -> None:
        self._caps = caps
        self._users = users
        self._facts = facts
        self._couriers = providers
        self._available = frozenset({Channel.IN_APP, *providers})

    async def gather(self, asks: Sequence[Ask]) -> list[Brief]:
        """Return a brief for each ask, in order. All are of one app."""
        if not asks:
            return []
        app_id, now = asks[0].app_id, asks[0].now
        users = await self._users.find_many(app_id, {ask.user_id for ask in asks})
        earlier = await self._read_earlier(app_id, asks, now)
        used = await self._read_used(app_id, asks)
        return [
            self._brief(
                ask,
                users.get(ask.user_id),
                earlier.get(ask.dedupe_id or ""),
                used,
            )
            for ask in asks
        ]

    async def _read_earlier(
        self, app_id: str, asks: Iterable[Ask], now: int
    ) -> Mapping[str, Earlier]:
        ids = {ask.dedupe_id for ask in asks} - {None}
        return await self._facts.earlier(app_id, ids, now) if ids else {}  # type: ignore[arg-type]

    async def _read_used(self, app_id: str, asks: Iterable[Ask]) -> Mapping[str, int]:
        ids = {limit.id for ask in asks for limit in self._caps.limits_of(ask)}
        return await self._facts.used(app_id, ids) if ids else {}

    def _brief(
        self,
        ask: Ask,
        user: User | None,
        earlier: Earlier | None,
        used: Mapping[str, int],
    ) -> Brief:
        case = Case(
            now=ask.now,
            type=ask.kind.type,
            priority=ask.priority,
            channels=ask.channels,
            templates=_spoken(ask.kind),
            available=self._available,
            expires_at=ask.expires_at,
            person=self._person(user) if user else None,
            earlier=earlier,
            limits=tuple(
                Limit(each.id, each.per_hour, each.overflow, used.get(each.id, 0))
                for each in self._caps.limits_of(ask)
            ),
            next_hour_at=(ask.now // HOUR_MS + 1) * HOUR_MS,
        )
        return Brief(ask, user, case, earlier)

    def _person(self, user: User) -> Person:
        reached = (c for c, provider in self._couriers.items() if provider.can_reach(user))
        return Person(
            id=user.id,
            is_active=user.status is UserStatus.ACTIVE,
            timezone=user.timezone,
            preferences=user.preferences,
            addresses=frozenset({Channel.IN_APP, *reached}),
        )


def _spoken(kind: CatalogEntry) -> frozenset[Channel]:
    # The stub says what the inbox says.
    if Channel.IN_APP in kind.channels:
        return kind.channels | {Channel.STUB}
    return kind.channels
