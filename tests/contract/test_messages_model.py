"""The `Messages` port against a model: a plain list, one act after the other."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.push.messages import History, Messages
from clarion.push.model import Message, MessageReason, MessageStatus, PushPriority
from tests.factories import DAY, NOW, make_message, new_app_id
from tests.replacing import replace

State = tuple[MessageStatus, MessageReason | None]
QUEUED: State = (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)
PENDING: State = (MessageStatus.PENDING, None)
WAITS = (MessageStatus.QUEUED, MessageStatus.PENDING)
NAMES = [f"m{n}" for n in range(6)]


@dataclass
class Model:
    """What the store should hold for one device."""

    device_id: str
    now: int = NOW
    entries: dict[str, tuple[Message, State]] = field(default_factory=dict)

    def waits(self, name: str) -> bool:
        return name in self.entries and self.entries[name][1][0] in WAITS

    def end(self, name: str, status: MessageStatus, reason: MessageReason) -> bool:
        if not self.waits(name):
            return False
        self.entries[name] = (self.entries[name][0], (status, reason))
        return True

    def waiting(self, least: PushPriority = PushPriority.LOW) -> list[Message]:
        found = [self.entries[name][0] for name in self.entries if self.waits(name)]
        found = [m for m in found if m.is_stored and m.expires_at > self.now]
        found = [m for m in found if m.priority >= least]
        return sorted(found, key=lambda m: (-m.priority, m.sequence))


@dataclass(frozen=True)
class Add:
    """A push comes in."""

    name: str
    priority: PushPriority
    collapse_id: str | None
    life_ms: int
    is_stored: bool
    state: State

    async def run(self, messages: Messages, model: Model) -> None:
        message = make_message(
            model.device_id,
            id=self.name,
            priority=self.priority,
            collapse_id=self.collapse_id,
            is_stored=self.is_stored,
            created_at=model.now,
            expires_at=model.now + self.life_ms,
        )
        assert await messages.add(message, *self.state) is self.add_to(model, message)

    def add_to(self, model: Model, message: Message) -> bool:
        known = model.entries.get(self.name)
        if known and known[0].created_at > model.now - DAY:
            return False
        model.entries[self.name] = (message, self.state)
        for name, (other, _) in model.entries.items():
            if name != self.name and self.collapse_id and other.collapse_id == self.collapse_id:
                model.end(name, MessageStatus.EXPIRED, MessageReason.COLLAPSED)
        return True


@dataclass(frozen=True)
class Acknowledge:
    """The device acknowledges some."""

    names: list[str]

    async def run(self, messages: Messages, model: Model) -> None:
        await messages.acknowledge([(model.device_id, name) for name in self.names], model.now)
        for name in self.names:
            model.end(name, MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)


@dataclass(frozen=True)
class Fail:
    """Some are failed."""

    names: list[str]

    async def run(self, messages: Messages, model: Model) -> None:
        for name in self.names:
            await messages.fail(model.device_id, name, model.now)
            model.end(name, MessageStatus.FAILED, MessageReason.UNREGISTERED)


@dataclass(frozen=True)
class Trim:
    """There is room for so many."""

    keep: int

    async def run(self, messages: Messages, model: Model) -> None:
        kept = [e[0] for n, e in model.entries.items() if model.waits(n) and e[0].is_stored]
        kept.sort(key=lambda m: (-m.priority, -m.sequence))
        ends = kept[self.keep :]
        for message in ends:
            model.end(message.id, MessageStatus.EXPIRED, MessageReason.OVERFLOW)
        assert await messages.trim(model.device_id, self.keep, model.now) == len(ends)


@dataclass(frozen=True)
class Expire:
    """Time passes, and expired messages are marked."""

    ms: int

    async def run(self, messages: Messages, model: Model) -> None:
        model.now += self.ms
        late = [n for n, (m, _) in model.entries.items() if m.expires_at <= model.now]
        for name in late:
            is_stored = model.entries[name][0].is_stored
            reason = MessageReason.TTL_PASSED if is_stored else MessageReason.NOT_STORED
            model.end(name, MessageStatus.EXPIRED, reason)
        # Other examples left messages of other devices in the same table.
        while await messages.expire(model.now, limit=100) == 100:
            pass


@dataclass(frozen=True)
class Read:
    """A connection reads what waits."""

    least: PushPriority
    skip: frozenset[str]
    limit: int
    ms: int

    async def run(self, messages: Messages, model: Model) -> None:
        model.now += self.ms
        expected = [m for m in model.waiting(self.least) if m.id not in self.skip]
        found = await messages.waiting(
            model.device_id, now=model.now, limit=self.limit, least=self.least, skip=self.skip
        )
        assert list(found) == expected[: self.limit]


Act = Add | Acknowledge | Fail | Trim | Expire | Read
LIVES = st.sampled_from([1, 60_000, DAY, 30 * DAY])
PASSING = st.sampled_from([0, 1, 60_000, DAY - 1, DAY])
SOME_NAMES = st.lists(st.sampled_from(NAMES), max_size=4)
ACTS: st.SearchStrategy[Act] = st.one_of(
    st.builds(
        Add,
        name=st.sampled_from(NAMES),
        priority=st.sampled_from(PushPriority),
        collapse_id=st.sampled_from([None, None, "c", "d"]),
        life_ms=LIVES,
        is_stored=st.sampled_from([True, True, False]),
        state=st.sampled_from([QUEUED, PENDING]),
    ),
    st.builds(Acknowledge, SOME_NAMES),
    st.builds(Fail, SOME_NAMES),
    st.builds(Trim, st.integers(0, 4)),
    st.builds(Expire, PASSING),
    st.builds(
        Read,
        least=st.sampled_from(PushPriority),
        skip=st.frozensets(st.sampled_from(NAMES), max_size=3),
        limit=st.integers(1, 6),
        ms=PASSING,
    ),
)


# One database serves all examples: each has a device of its own.
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(ACTS, max_size=25))
async def test_the_store_does_what_a_plain_list_does(
    messages: Messages, history: History, acts: list[Act]
) -> None:
    model = Model(new_app_id())
    for act in acts:
        await act.run(messages, model)
        assert list(await messages.waiting(model.device_id, now=model.now, limit=9)) == (
            model.waiting()
        )
    await compare_records(history, model)


async def compare_records(history: History, model: Model) -> None:
    page = await history.list("app", device_id=model.device_id, after=None, limit=100)
    newest_first = sorted(model.entries.values(), key=lambda entry: -entry[0].sequence)
    assert [(record.id, (record.status, record.reason)) for record in page.items] == [
        (message.id, state) for message, state in newest_first
    ]


def test_the_model_itself_replaces_and_orders() -> None:
    model = Model("device")
    first, second = (make_message(collapse_id="c") for _ in range(2))
    add = Add("a", PushPriority.LOW, "c", 1, is_stored=True, state=QUEUED)
    assert add.add_to(model, first._replace(id="a"))
    assert not add.add_to(model, first._replace(id="a"))
    assert replace(add, name="b").add_to(model, second._replace(id="b"))
    assert [message.id for message in model.waiting()] == ["b"]
