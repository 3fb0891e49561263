"""What the pipeline should do, written a second time: plain lists, one user at a time.

It knows nothing of jobs, leases or batches. The one thing it takes from the pipeline is the order
in which events that were due at the same moment were decided, and which of them a limit refused.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from clarion.catalog.model import Category, Channel, DedupeMode, NotificationType, Overflow

HOUR = 3_600_000
MINUTE = 60_000
NEVER = 1 << 62
TRIES = 5
NEVER_QUIET = (False,) * 24
NIGHT = tuple(hour >= 22 or hour < 7 for hour in range(24))


@dataclass
class ModelUser:
    """A user and their settings."""

    id: str
    zone: str
    quiet: tuple[bool, ...] = NIGHT
    categories_off: set[Category] = field(default_factory=set)
    off: set[tuple[str, Channel]] = field(default_factory=set)
    stub: str = "delivered"
    changes: int = 0

    def is_quiet(self, now: int) -> bool:
        return self.quiet[dt.datetime.fromtimestamp(now / 1000, ZoneInfo(self.zone)).hour]

    def wakes_at(self, now: int) -> int:
        """Return the first minute that is not quiet, found by looking at each."""
        first = now - now % MINUTE
        later = (first + n * MINUTE for n in range(1, 26 * 60))
        return next((moment for moment in later if not self.is_quiet(moment)), NEVER)


@dataclass(eq=False)
class Item:
    """One event for one user. `states` has its state on each channel."""

    event_id: str
    user: ModelUser
    type: NotificationType
    channels: tuple[Channel, ...]
    is_critical: bool
    key: str
    expires_at: int | None
    due_at: int
    states: dict[Channel, str] = field(default_factory=dict)
    until: dict[Channel, int] = field(default_factory=dict)
    order: int = 0
    count: int = 1
    is_shown: bool = False
    is_read: bool = False
    is_dismissed: bool = False
    stub_count: int = 1
    was_collected: bool = False
    is_cancelled: bool = False
    attempts: int = 0
    tries: int = 0
    tried_at: int = -1
    # Until when it may be collected, whatever wakes it meanwhile.
    collected: dict[Channel, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str]:
        return self.event_id, self.user.id

    @property
    def is_unread(self) -> bool:
        return self.is_shown and not self.is_read and not self.is_dismissed

    @property
    def is_mandatory(self) -> bool:
        """Whether it ignores quiet hours and limits."""
        return self.is_critical or self.type.category is Category.SAFETY

    def is_unwanted(self, channel: Channel, now: int) -> bool:
        if self.is_cancelled:
            return True
        if self.expires_at is not None and self.expires_at <= now:
            return True
        if self.type.category is Category.SAFETY:
            return False
        if self.needs_no_more(channel):
            return True
        user = self.user
        is_off = (self.type.type, channel) in user.off
        return is_off or self.type.category in user.categories_off

    def needs_no_more(self, channel: Channel) -> bool:
        """Whether it waited for this channel, and was read in the inbox meanwhile."""
        has_waited = self.states.get(channel) != "queued" or self.attempts > 0
        return channel is not Channel.IN_APP and has_waited and self.is_shown and not self.is_unread

    def wanted(self, now: int, channels: tuple[Channel, ...]) -> list[Channel]:
        """Return the channels that it may go to; on the others it is dropped."""
        for channel in channels:
            if self.is_unwanted(channel, now):
                self.states[channel] = "dropped"
        return [channel for channel in channels if self.states.get(channel) != "dropped"]

    def in_state(self, state: str) -> tuple[Channel, ...]:
        return tuple(channel for channel in self.channels if self.states.get(channel) == state)


Digest = tuple[str, Channel, str]


@dataclass
class Model:
    """The state of the whole pipeline."""

    now: int
    pending: list[Item] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    keys: dict[tuple[str, str, str], tuple[int, Item]] = field(default_factory=dict)
    used: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    digests: dict[Digest, int] = field(default_factory=dict)
    sent: list[tuple[str, str, int, int]] = field(default_factory=list)
    dead: int = 0

    # Due jobs.

    def drain(self, ids: Mapping[tuple[str, str], str], limited: set[tuple[str, str]]) -> None:
        """Do what is due, in the order of the ids; `limited` are those that a limit refused."""
        self.release_held()
        self.release_limited(limited)
        for digest in [each for each, due in self.digests.items() if due <= self.now]:
            self.send_digest(digest)
        due = [item for item in self.pending if item.due_at <= self.now]
        for item in sorted(due, key=lambda item: ids[item.place]):
            self.pending.remove(item)
            item.order = len(self.items)
            self.items.append(item)
            self.decide(item)
        for item in self.in_state("queued"):
            if item.tried_at < self.now:
                self.send(item)

    def in_state(self, state: str) -> list[Item]:
        return [item for item in self.items if item.in_state(state)]

    def wake(self, user: ModelUser) -> None:
        """Make everything due that waits for a user."""
        for item in self.items:
            if item.user is user:
                item.until = dict.fromkeys(item.until, self.now)
        for digest in self.digests:
            if digest[0] == user.id:
                self.digests[digest] = self.now

    def can_cancel(self, event_id: str) -> bool:
        """Whether some of an event is still to be decided or waits, and nothing of it is dead."""
        mine = [item for item in (*self.pending, *self.items) if item.event_id == event_id]
        if any(item.in_state("dead") for item in mine):
            return False
        waits = ("held", "limited", "collected")
        return any(i in self.pending or any(i.in_state(state) for state in waits) for i in mine)

    def cancel(self, event_id: str) -> None:
        """Cancel an event: what is held is due at once, and dropped."""
        self.pending = [item for item in self.pending if item.event_id != event_id]
        for item in self.items:
            if item.event_id == event_id:
                item.is_cancelled = True
                item.until = dict.fromkeys(item.until, self.now)

    # A new event.

    def decide(self, item: Item) -> None:
        wanted = item.wanted(self.now, item.channels)
        if not wanted or self.is_repeat(item):
            return
        if self.is_over_limit(item):
            self.overflow(item, wanted)
            return
        self.take_use(item)
        if item.type.dedupe is not None:
            expires_at = self.now + item.type.dedupe.window_s * 1000
            self.keys[item.user.id, item.type.type, item.key] = (expires_at, item)
        for channel in wanted:
            self.go(item, channel)

    def is_repeat(self, item: Item) -> bool:
        expires_at, earlier = self.keys.get((item.user.id, item.type.type, item.key), (0, item))
        if item.type.dedupe is None or expires_at <= self.now:
            return False
        if item.type.dedupe.mode is DedupeMode.DROP:
            return True
        if not earlier.is_unread:
            return False
        earlier.count += 1
        item.user.changes += 1
        return True

    def is_over_limit(self, item: Item) -> bool:
        limit = item.type.rate_limit
        if limit is None or item.is_mandatory:
            return False
        return self.used[self.hour_of(item)] >= limit.per_user_per_hour

    def take_use(self, item: Item) -> None:
        if item.type.rate_limit is not None and not item.is_mandatory:
            self.used[self.hour_of(item)] += 1

    def hour_of(self, item: Item) -> tuple[str, str, int]:
        return item.user.id, item.type.type, self.now // HOUR

    def overflow(self, item: Item, wanted: list[Channel]) -> None:
        assert item.type.rate_limit is not None
        next_hour = (self.now // HOUR + 1) * HOUR
        for channel in wanted:
            match item.type.rate_limit.overflow:
                case Overflow.DROP:
                    item.states[channel] = "dropped"
                case Overflow.WAIT:
                    item.states[channel], item.until[channel] = "limited", next_hour
                case Overflow.DIGEST:
                    self.collect(item, channel, next_hour)

    def go(self, item: Item, channel: Channel) -> None:
        """Send it, unless it is a quiet hour or the type has a digest."""
        is_quiet = item.user.is_quiet(self.now) and not item.is_mandatory
        if channel is Channel.IN_APP:
            self.show(item, item.count)
        elif is_quiet:
            item.states[channel] = "held"
            item.until[channel] = item.user.wakes_at(self.now)
        elif item.type.digest is not None and not item.is_mandatory and not item.was_collected:
            self.collect(item, channel, self.now + (item.type.digest.window_s or 0) * 1000)
        else:
            item.states[channel], item.tries = "queued", 0

    def show(self, item: Item, count: int) -> None:
        item.states[Channel.IN_APP] = "done"
        item.is_shown, item.count = True, count
        item.user.changes += 1

    # Waiting.

    def release_held(self) -> None:
        for item in self.in_state("held"):
            if item.until[Channel.STUB] <= self.now and item.wanted(self.now, (Channel.STUB,)):
                self.go(item, Channel.STUB)

    def release_limited(self, limited: set[tuple[str, str]]) -> None:
        groups: dict[tuple[str, str, int], list[Item]] = {}
        for item in self.in_state("limited"):
            if min(item.until[each] for each in item.in_state("limited")) <= self.now:
                groups.setdefault(self.hour_of(item), []).append(item)
        for hour, group in groups.items():
            self.let_through(hour, group, limited)

    def let_through(
        self, hour: tuple[str, str, int], group: list[Item], limited: set[tuple[str, str]]
    ) -> None:
        limit = group[0].type.rate_limit
        assert limit is not None
        free = limit.per_user_per_hour - self.used[hour]
        able = [
            i for i in group if not all(i.is_unwanted(c, self.now) for c in i.in_state("limited"))
        ]
        chosen = able if len(able) <= free else [item for item in able if item.place not in limited]
        assert len(chosen) == min(max(free, 0), len(able)), "not as many as the limit allows"
        for item in group:
            self.leave_limit(item, is_chosen=item in chosen)

    def leave_limit(self, item: Item, *, is_chosen: bool) -> None:
        wanted = item.wanted(self.now, item.in_state("limited"))
        if is_chosen:
            self.take_use(item)
        for channel in wanted:
            if is_chosen:
                self.go(item, channel)
            else:
                item.until[channel] = (self.now // HOUR + 1) * HOUR

    # Digests.

    def collect(self, item: Item, channel: Channel, until: int) -> None:
        item.states[channel], item.collected[channel] = "collected", until
        digest = (item.user.id, channel, item.type.type)
        self.digests[digest] = min(self.digests.get(digest, NEVER), until)

    def parts_of(self, digest: Digest) -> list[Item]:
        user_id, channel, name = digest
        return [
            item
            for item in self.items
            if (item.user.id, item.type.type) == (user_id, name)
            and channel in item.in_state("collected")
        ]

    def send_digest(self, digest: Digest) -> None:
        channel = digest[1]
        parts = self.parts_of(digest)
        first = min((item.collected[channel] for item in parts), default=self.now)
        if first > self.now:
            self.digests[digest] = first
            return
        left = [item for item in parts if item.wanted(self.now, (channel,))]
        if left and channel is Channel.STUB and left[-1].user.is_quiet(self.now):
            self.digests[digest] = left[-1].user.wakes_at(self.now)
            return
        del self.digests[digest]
        for item in left[:-1]:
            item.states[channel] = "folded"
        for lead in left[-1:]:
            self.lead(lead, channel, len(left))

    def lead(self, item: Item, channel: Channel, count: int) -> None:
        if channel is Channel.IN_APP:
            self.show(item, count)
        else:
            item.states[channel], item.tries = "queued", 0
            item.stub_count, item.was_collected = count, True

    # Sending.

    def send(self, item: Item) -> None:
        if not item.wanted(self.now, (Channel.STUB,)):
            return
        if item.user.is_quiet(self.now) and not item.is_mandatory:
            item.states[Channel.STUB] = "held"
            item.until[Channel.STUB] = item.user.wakes_at(self.now)
            return
        self.sent.append((*item.place, self.now, item.stub_count))
        item.attempts, item.tries, item.tried_at = item.attempts + 1, item.tries + 1, self.now
        word, _, times = item.user.stub.partition(" ")
        if word != "retry" or (times and item.attempts > int(times)):
            item.states[Channel.STUB] = "done"
        elif item.tries == TRIES:
            item.states[Channel.STUB] = "dead"
            self.dead += 1

    # What can be observed.

    def inbox(self, user: ModelUser) -> list[Item]:
        return [i for i in self.items if i.user is user and i.is_shown and not i.is_dismissed]

    def next_moment(self) -> int | None:
        """Return when the next thing is due, or None."""
        held = [until for item in self.items for until in item.until.values()]
        moments = [*held, *self.digests.values(), *(item.due_at for item in self.pending)]
        return min((each for each in moments if self.now < each < NEVER), default=None)

    def count_waiting(self) -> int:
        """Return how much work waits: what is held of a notification counts once."""
        held = [i for i in self.items if i.in_state("held") or i.in_state("limited")]
        events = {item.event_id for item in self.pending}
        return len(events) + len(held) + len(self.digests) + len(self.in_state("queued"))


def settled(model: Model) -> Iterator[tuple[str, int]]:
    """Yield each event that is decided, and for how many users."""
    yield from Counter(item.event_id for item in model.items).items()
