"""Everything in one run: the clock, the disk, a node at a time, the users and what they do."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import msgspec

from clarion.access.model import App
from clarion.access.sql import Apps
from clarion.catalog.catalog import CACHED_MS
from clarion.catalog.model import (
    Category,
    Channel,
    Dedupe,
    DedupeMode,
    Digest,
    NotificationType,
    Overflow,
    Priority,
    RateLimit,
)
from clarion.catalog.sql import Templates, Types
from clarion.channels.model import Delivered, Outcome, OutgoingMessage, Rejected, Retry
from clarion.errors import ClarionError, NotFound, ServiceError
from clarion.events.drafts import EventDraft
from clarion.events.leases import LEASE_MS
from clarion.events.model import NEVER
from clarion.inbox.model import InboxAction
from clarion.people.model import Preferences, User
from clarion.people.sql import Users
from clarion.push.model import (
    DeviceDetails,
    DevicePreferences,
    InvalidationReason,
    Message,
    MessageContent,
    Platform,
    PushPriority,
    StoragePolicy,
)
from tests.factories import (
    make_app,
    make_once,
    make_provider_key,
    make_template,
    make_type,
    make_user,
)
from tests.replacing import replace
from tests.simulation.disk import Disk, SimulatedEngine
from tests.simulation.faults import Faults
from tests.simulation.loop import SeededLoop
from tests.simulation.node import Node, Site
from tests.simulation.redis import SimulatedRedis
from tests.simulation.wire import SimulatedDevice

# 2026-03-28T20:30Z: Berlin's clocks are put forward five hours later, at its night.
START = 1_774_729_800_000
HOUR = 3_600_000
DAY_MS = 24 * HOUR
APP = "0190f000-0000-7000-9000-000000000001"
PEOPLE = ("ana", "bo", "cy", "di")
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata")
NIGHT = tuple(hour >= 22 or hour < 7 for hour in range(24))
DAY = tuple(not each for each in NIGHT)
QUIET = (NIGHT, DAY, (True,) * 24, (False,) * 24)
TOPIC = "news"
TEXT, BROKEN = "{{ count }}", "{{ count | divided_by: 0 }}"
# In a round, at most.
ACTS = 20
# How long a round takes in seconds. The longer one is longer than nodes wait for one that is gone.
PACE_S, SLOW_S = 6, 200
BOTH = (Channel.IN_APP, Channel.STUB)
ALL = (*BOTH, Channel.PUSH)


def _type(name: str, **changes: Any) -> NotificationType:
    return make_type(name, **{"category": Category.SOCIAL, "default_channels": ALL} | changes)


TYPES = {
    each.type: each
    for each in (
        _type("PLAIN"),
        _type("ALARM", category=Category.SAFETY),
        _type("ONCE", dedupe=Dedupe(window_s=3_600)),
        _type("LIKES", dedupe=Dedupe(window_s=21_600, mode=DedupeMode.AGGREGATE)),
        _type("FEW", rate_limit=RateLimit(per_user_per_hour=2)),
        _type("QUEUE", rate_limit=RateLimit(per_user_per_hour=1, overflow=Overflow.WAIT)),
        _type("HEAP", rate_limit=RateLimit(per_user_per_hour=1, overflow=Overflow.DIGEST)),
        _type("SELDOM", dedupe=Dedupe(window_s=30 * 86_400)),
        _type("LETTER", digest=Digest(window_s=7_200), category=Category.NEWS),
    )
}


# What needs some time, though no job is due: messages that devices which are there have not
# acknowledged, and erasures that go on.
_WAITING = """SELECT device_id FROM messages JOIN devices ON devices.id = messages.device_id
WHERE messages.status IN ('pending', 'queued') AND devices.invalidated_at IS NULL
UNION SELECT '' FROM erasures WHERE status = 'running'"""


_QUIET = """SELECT notification_id, user_id FROM deliveries
WHERE status = 'held' AND reason = 'quiet_hours' AND channel = 'stub'
AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = notification_id || '/held' AND lane < 0)"""
_DEAD_DIGESTS = """SELECT user_id, subject FROM jobs
WHERE lane < 0 AND kind = 'digest' AND subject NOT LIKE 'push/%' ORDER BY id"""
_COLLECTED = """SELECT 1 FROM deliveries JOIN notifications
ON notifications.id = deliveries.notification_id
WHERE notifications.user_id = ? AND channel = ? AND type = ? AND deliveries.status = 'collected'"""
_UNFINISHED = """SELECT notification_id FROM deliveries
WHERE channel = 'stub' AND status IN ('queued', 'held', 'collected')"""
_SENDING = """SELECT substr(subject, length('stub/') + 1) FROM jobs
WHERE kind = 'deliver' AND pool = 'stub'"""
# What troubles a node itself, or its way to the store.
_OF_A_NODE = ("node_pause", "store_cut")


class Unknown(Exception):
    """Nobody answered: it was done or not."""


class WorldClock:
    """The `Clock` port: the time of the loop, and what an operator or a jump added to it."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self._ahead = self._stepped = self._ids = 0

    def now(self) -> int:
        return START + self.monotonic() + self._stepped

    def monotonic(self) -> int:
        return int(self._loop.time() * 1000) + self._ahead

    def new_id(self) -> str:
        self._ids += 1
        moment = max(START + self.monotonic(), 0)
        return f"{moment >> 16:08x}-{moment & 0xFFFF:04x}-7000-8000-{self._ids:012x}"

    def jump(self, milliseconds: int) -> None:
        """Let time pass in which nothing runs."""
        self._ahead += max(0, milliseconds)

    def step(self, milliseconds: int) -> None:
        """Set the time of day."""
        self._stepped += milliseconds


@dataclass
class Provider:
    """The provider of the channel `stub`: takes messages, and what it does with them."""

    world: "World"
    # What it was given, and whether it said that it has delivered it.
    sent: list[tuple[OutgoingMessage, int, bool]] = field(default_factory=list)

    async def send(self, message: OutgoingMessage) -> Outcome:
        world, faults = self.world, self.world.faults
        world.note(f"send {message.notification.id[-12:]} to {message.user.id}")
        entry = len(self.sent)
        self.sent.append((message, world.clock.monotonic(), False))
        await asyncio.sleep(faults.delay_s("provider"))
        if faults.happens("provider_hangs"):
            await asyncio.sleep(faults.chance.random() * 60)
        if faults.happens("provider_raises"):
            raise RuntimeError
        if faults.happens("provider_retries"):
            return Retry(error_code="try_later", error_message="not now")
        if faults.happens("provider_rejects"):
            return Rejected(error_code="rejected", error_message="no")
        self.sent[entry] = (message, self.sent[entry][1], True)
        return Delivered(response="taken")

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """One run: what was done in it, and what was promised."""

    def __init__(
        self,
        loop: SeededLoop,
        chance: random.Random,
        *,
        without: Collection[str] = (),
        most: int | None = None,
    ) -> None:
        self.loop, self.chance, self._most = loop, chance, most
        self._places = ["a", "b", "c"][: chance.choice([1] * 7 + [2, 2, 3])]
        self.faults = Faults.choose(chance, without, is_shared=self.is_shared)
        self.clock = WorldClock(loop)
        self.disk = Disk(_furnished())
        self.provider = Provider(self)
        # By place: the node that is there, or was there last. One alone is on SQLite.
        self.nodes: dict[str, Node] = {}
        self.redis = SimulatedRedis(loop, self.faults) if self.is_shared else None
        loop.connect = self.redis.connect if self.redis else None
        # In some runs, notifications are kept for a day, and days pass.
        self.kept_ms = chance.choice([1, 1_000, 1_000]) * DAY_MS
        self._favourite = self._choose_favourite()
        self._site = Site(
            loop, self.disk, self.faults, self.clock, self.provider, self.kept_ms, self.redis
        )
        self._started = 0
        # How long a round takes.
        self._pace_s = chance.choice([PACE_S] * 3 + [SLOW_S]) if self.is_shared else PACE_S
        # Until when something was wrong with a node itself, or with its way to the store.
        self.troubled: dict[int, float] = {}
        self.devices: dict[str, tuple[SimulatedDevice, Any]] = {}
        self.accepted: dict[str, list[str]] = {}  # events, and who is to have them
        self.errors: list[str] = []  # what the program has logged as such
        self.unknown: set[str] = set()
        self.once: dict[str, tuple[list[str], str]] = {}  # keys: the ids tried, and the answer
        # Messages, their devices, and when they were accepted.
        self.pushed: dict[str, tuple[str, float]] = {}
        self.revoked: dict[str, float] = {}  # devices, and when that was answered
        self.born: dict[str, str] = {}  # devices, and an id that was made later
        self.broken: set[str] = set()  # types that could not be rendered at some time
        self.subscribed: set[str] = set()  # devices
        self.published: dict[str, set[str]] = {}  # messages, and who was subscribed before
        # Users; how many messages were sent before the answer, and the time of it.
        self.erased: dict[str, tuple[int, int]] = {}
        self.erasing: set[str] = set()  # the answer may be lost
        # Notifications that were being sent when time passed: their leases have ended.
        self.overslept: set[str] = set()
        self.lines: list[str] = []

    def _choose_favourite(self) -> str:
        """Choose a type that is sent more often: one counted for long, one with limits, or any."""
        rare = "SELDOM" if self.kept_ms == DAY_MS else "HEAP"
        return self.chance.choice([*sorted(TYPES), rare, rare, rare])

    def note(self, line: str) -> None:
        """Add a line to the story."""
        self.lines.append(f"{self.clock.now() - START:>10} {line}")

    @property
    def trace(self) -> str:
        """What happened, in short."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]

    # The nodes.

    @property
    def is_shared(self) -> bool:
        """Whether there are several nodes."""
        return len(self._places) > 1

    async def keep_up(self, place: str) -> None:
        """Start a node whenever there is none in a place."""
        while True:
            self._started += 1
            node = self.nodes[place] = Node(self._started, place, self._site)
            starting = node.run(node.start())
            await asyncio.wait({starting, node.ended}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and starting.exception() is not None:
                if not isinstance(starting.exception(), ServiceError):
                    self.errors.append(f"a node does not start: {starting.exception()!r}")
                node.crash()
            self.note(f"node {node.number} {'serves' if node.is_ready else 'did not start'}")
            await node.ended
            self.note(f"node {node.number} is gone")
            if self.redis:
                self.redis.drop(node.number)
            await asyncio.sleep(self.chance.random() * 5)

    def find_ready(self) -> Node | None:
        """Return a node that serves, if there is one."""
        ready = [each for each in self.nodes.values() if each.is_ready]
        return self.chance.choice(ready) if ready else None

    async def find_node(self) -> Node:
        """Return a node that serves, as soon as there is one."""
        while (node := self.find_ready()) is None:  # noqa: ASYNC110 - simulated
            await asyncio.sleep(0.1)
        return node

    async def ask(self, what: str, work: Callable[[Node], Coroutine[Any, Any, Any]]) -> Any:
        """Have the node do something; `Unknown` if no answer came."""
        node = await self.find_node()
        task = node.run(work(node))
        if self.faults.happens("cancel"):
            self.loop.call_apart(self.chance.random() * 0.05, task.cancel)
        await asyncio.wait({task, node.ended}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            self.note(f"{what}: nobody answered")
            raise Unknown
        if (error := task.exception()) is not None:
            self.note(f"{what}: {type(error).__name__}")
            raise error
        self.note(what)
        return task.result()

    async def insist(self, what: str, work: Callable[[Node], Coroutine[Any, Any, Any]]) -> Any:
        """Have the node do something that may be repeated, until it has."""
        while True:
            try:
                return await self.ask(what, work)
            except (Unknown, ServiceError):
                await asyncio.sleep(0.5)

    # What users and applications do.

    async def send(self) -> None:
        name = self.chance.choice([*sorted(TYPES), *[self._favourite] * 3])
        body: dict[str, Any] = {"type": name, "recipient": self._choose_recipient()}
        if self.chance.random() < (0.1 if TYPES[name].dedupe is None else 0.7):
            body["dedupe_key"] = "same"
        if self.chance.random() < 0.1:
            body["ttl_s"] = self.chance.choice([60, 7_200])

        async def accept(node: Node) -> str:
            intake = node.pipeline.intake
            event = await intake.prepare(APP, msgspec.convert(body, EventDraft))
            self.unknown.add(event.id)
            await intake.accept([event])
            return event.id

        event_id = await self.ask(f"send {name} to {body['recipient']}", accept)
        self.unknown.discard(event_id)
        self.accepted[event_id] = self._list_people(body["recipient"])

    async def send_once(self, user_id: str = "", name: str = "PLAIN") -> None:
        """Send with a key, again and again until an answer comes."""
        user_id = user_id or self.chance.choice(PEOPLE)
        key = f"key-{self.chance.getrandbits(32)}"
        body = {"type": name, "recipient": {"user_id": user_id}}
        tried: list[str] = []

        async def accept(node: Node) -> str:
            intake, now = node.pipeline.intake, self.clock.now()
            event = await intake.prepare(APP, msgspec.convert(body, EventDraft))
            tried.append(event.id)
            answer, ends = event.id.encode(), now + 24 * HOUR
            once = make_once(APP, key=key, answer=answer, now=now, expires_at=ends)
            stored = await intake.accept([event], once)
            return event.id if stored is None else stored.answer.decode()

        event_id = await self.insist(f"send to {user_id} with {key}", accept)
        self.once[key] = tried, event_id
        self.accepted[event_id] = [user_id]

    def _choose_recipient(self) -> dict[str, Any]:
        match self.chance.randrange(6):
            case 0:
                return {"user_ids": self.chance.sample(PEOPLE, 2)}
            case 1:
                return {"topic": TOPIC}
            case _:
                return {"user_id": self.chance.choice(PEOPLE)}

    def _list_people(self, recipient: dict[str, Any]) -> list[str]:
        if "user_id" in recipient:
            return [recipient["user_id"]]
        return list(recipient.get("user_ids", PEOPLE))

    async def change(self, *, is_open: bool = False, user_id: str | None = None) -> None:
        user_id = user_id or self.chance.choice(PEOPLE)
        quiet = QUIET[-1] if is_open else self.chance.choice(QUIET)
        off = not is_open and self.chance.random() < 0.2

        def edit(user: User) -> User:
            types = {"PLAIN": {Channel.STUB: False}} if off else {}
            return replace(user, preferences=Preferences(quiet_hours=quiet, types=types))

        async def patch(node: Node) -> None:
            if await node.users.patch(APP, user_id, edit) is not None:
                await node.change_user(APP, user_id)

        asking = self.insist if is_open else self.ask
        await asking(f"{user_id} changes quiet hours, {sum(quiet)} of them", patch)

    async def read(self) -> None:
        user_id = self.chance.choice(PEOPLE)
        rows = self.disk.read(
            "SELECT id FROM notifications WHERE user_id = ? AND is_shown ORDER BY id", (user_id,)
        )
        verb = InboxAction(self.chance.choice(["read", "unread", "dismiss", "click"]))
        if not rows or self.chance.random() < 0.1:
            await self.ask(f"{user_id} reads all", lambda n: n.inbox.read_all(APP, user_id))
            return
        ((found,),) = [self.chance.choice(rows)]
        await self.ask(
            f"{user_id}: {verb} {found[-12:]}", lambda n: n.inbox.apply(verb, APP, user_id, found)
        )

    async def register(self) -> None:
        user_id = self.chance.choice(PEOPLE)
        token = f"{self.chance.getrandbits(256):064x}"

        async def add(node: Node) -> tuple[Any, str] | None:
            details = DeviceDetails(user_id=user_id)
            device, secret = node.registry.propose(
                app_id=APP, token=token, platform=Platform.CLARION, details=details
            )
            return (device, secret) if await node.registry.add(device) else None

        device, secret = await self.ask(f"{user_id} registers a device", add)
        client = SimulatedDevice(
            self.loop, self.faults, self.find_ready, device.id, token, secret, self.note
        )
        self.devices[device.id] = client, device
        client.connect()
        if self.chance.random() < 0.4:
            wanted = DevicePreferences(quiet_hours=self.chance.choice([NIGHT, DAY]))
            await self.insist(
                f"{device.id[-4:]} has quiet hours",
                lambda n: n.devices.set_preferences(APP, device.id, lambda _: wanted),
            )
        self.born[device.id] = self.clock.new_id()
        if self.chance.random() < 0.5:
            await self.insist(
                f"subscribe {device.id[-4:]}", lambda n: n.dispatch.topics.subscribe(device, TOPIC)
            )
            self.subscribed.add(device.id)

    async def publish(self) -> None:
        """Send a message to the devices of a topic."""
        now, subscribed = self.clock.now(), set(self.subscribed)
        message = Message(
            id=self.clock.new_id(),
            app_id=APP,
            payload=b'{"n":1}',
            priority=self.chance.choice(list(PushPriority)),
            is_stored=True,
            created_at=now,
            expires_at=now + 10_000 * HOUR,
            topic=TOPIC,
        )
        await self.ask(
            f"publish {message.id[-12:]}",
            lambda n: n.dispatch.topics.publish(message, StoragePolicy.ALL),
        )
        self.published[message.id] = subscribed

    async def leave(self) -> None:
        """Let a device be away for some time."""
        if self.devices:
            device_id = self.chance.choice(sorted(self.devices))
            self.note(f"{device_id[-4:]} is away")
            self.devices[device_id][0].leave()

    async def revoke(self) -> None:
        if self.devices:
            device_id = self.chance.choice(sorted(self.devices))
            reason = InvalidationReason.REVOKED
            await self.ask(
                f"revoke {device_id[-4:]}", lambda n: n.registry.invalidate(APP, device_id, reason)
            )
            self.revoked.setdefault(device_id, self.loop.awake())

    async def push(self) -> None:
        if not self.devices:
            return
        _, device = self.devices[self.chance.choice(sorted(self.devices))]
        message_id = self.clock.new_id()
        content = MessageContent(
            priority=self.chance.choice([PushPriority.IMMEDIATE, PushPriority.CONSIDERATE]),
            collapse_id=self.chance.choice([None, None, "same"]),
            is_stored=True,
            expires_at=self.clock.now() + HOUR * 10_000,
            payload=b'{"n":1}',
        )

        async def accept(node: Node) -> bool:
            known = await node.registry.find(APP, device.token_hash)
            if known is None or not known.is_valid:
                raise NotFound
            await node.dispatch.accept(known, content, message_id)
            return True

        # A provider that gets no answer, or 503, sends it again with the same id.
        await self.insist(f"push {message_id[-12:]} to {device.id[-4:]}", accept)
        self.pushed[message_id] = device.id, self.loop.awake()

    async def cancel(self) -> None:
        if self.accepted:
            found = self.chance.choice(sorted(self.accepted))
            await self.ask(
                f"cancel {found[-12:]}",
                lambda n: n.events.cancel(APP, found, self.clock.now()),
            )

    async def erase(self) -> None:
        user_id = self.chance.choice(PEOPLE[-2:])
        if user_id in self.erasing:
            return
        self.erasing.add(user_id)
        await self.insist(f"erase {user_id}", lambda n: n.eraser.erase(APP, user_id))
        self.erased[user_id] = len(self.provider.sent), self.clock.monotonic()

    async def edit(self) -> None:
        """Change a text to one that cannot be rendered, or back."""
        name = self.chance.choice([*sorted(TYPES), *[self._favourite] * 3])
        await self._write(name, self.chance.choice([BROKEN, BROKEN, TEXT]))

    async def _write(self, name: str, body: str) -> None:
        self.broken.add(name)
        await self.ask(f"the text of {name} is {body}", lambda n: put_text(n, name, body))

    async def remove(self) -> None:
        """Remove a type; it is there again in the end."""
        name = self._favourite
        self.broken.add(name)
        await self.ask(f"{name} is removed", partial(remove_type, name=name))

    async def replay(self) -> None:
        """Replay whatever has failed."""
        rows = self.disk.read("SELECT DISTINCT event_id FROM jobs WHERE lane < 0 ORDER BY 1")
        for (event_id,) in rows:
            await self.insist(f"replay {event_id[-12:]}", partial(self._replay_one, event_id))

    async def _replay_one(self, event_id: str, node: Node) -> None:
        now = self.clock.now()
        await node.events.replay(APP, event_id, Priority.MEDIUM, now)
        node.pipeline.wake(APP)

    async def disturb(self) -> None:
        """Let something happen to a whole node, in a run that has this."""
        node = self.find_ready()
        if node is None:
            return
        if self.faults.happens("node_crash"):
            self.note(f"node {node.number} crashes")
            node.crash()
        elif self.faults.happens("node_stop"):
            self.note(f"node {node.number} is stopped")
            await asyncio.wait({node.run(node.stop()), node.ended}, return_when="FIRST_COMPLETED")
        elif self.redis:
            await self._disturb_shared(node.number, self.redis)
        elif self.faults.happens("clock_step"):
            by = self.chance.choice([-HOUR, -10_000, 10_000, HOUR])
            self.note(f"the clock is set by {by} ms")
            self.clock.step(by)

    async def _disturb_shared(self, node: int, redis: SimulatedRedis) -> None:
        """Let something happen between nodes, for some time."""
        loop, cut = self.loop, self.disk.cut
        spells: dict[str, tuple[str, Callable[[], object], Callable[[], object]]] = {
            "node_pause": ("paused", partial(loop.pause, node), partial(loop.go_on, node)),
            "store_cut": (
                "cut off from the store",
                partial(cut.add, node),
                partial(cut.discard, node),
            ),
            "redis_cut": (
                "cut off from Redis",
                partial(redis.cut.add, node),
                partial(redis.heal, node),
            ),
            "redis_stop": ("there while Redis is down", redis.stop, redis.begin),
            "redis_flush": ("there while Redis is flushed", redis.flush, redis.flush),
        }
        for kind, (what, begin, end) in spells.items():
            if self.faults.happens(kind):
                await self._last(kind, node, f"node {node} is {what}", begin, end)
                return

    async def _last(
        self,
        kind: str,
        node: int,
        what: str,
        begin: Callable[[], object],
        end: Callable[[], object],
    ) -> None:
        lasts_s = self._pace_s * self.chance.choice([0.3, 1]) * self.chance.random()
        if kind in _OF_A_NODE:
            self.troubled[node] = self.loop.awake() + lasts_s
        self.note(f"{what} for {lasts_s:.1f} s")
        begin()
        until = self.loop.time() + lasts_s
        while self.loop.time() < until and not self.faults.is_over:  # noqa: ASYNC110 - simulated
            await asyncio.sleep(min(lasts_s, 2))
        end()
        self.note(f"{what} no more")

    async def act(self, number: int) -> None:
        """Do one thing, at some time; mostly a push where nodes are cut off for long."""
        await asyncio.sleep(self.chance.random() * self._pace_s)
        acts: list[Callable[[], Awaitable[None]]] = [
            *[self.send] * 12,
            *[self.send_once] * 3,
            *[self.push] * (4 if self._pace_s < SLOW_S else 20),
            *[self.publish] * 2,
            *[self.read] * 4,
            *[self.change] * 3,
            *[self.register] * 4,
            *[self.leave] * 2,
            *[self.erase] * 2,
            self.remove,
            self.revoke,
            self.cancel,
            *[self.edit] * 2,
            self.replay,
        ]
        with suppress(Unknown, ClarionError):
            await self.chance.choice(acts)()
        if number % 4 == 0:
            await self.disturb()

    async def play(self) -> None:
        """Let all of it happen, then let everything come to rest."""
        keeping = [asyncio.ensure_future(self.keep_up(place)) for place in self._places]
        rounds = self.chance.randint(1, 3)
        for _ in range(rounds):
            count = min(self.chance.randint(5, ACTS), self._most or ACTS)
            await asyncio.gather(*(self.act(each) for each in range(count)))
            if self.chance.random() < 0.5:
                longest = 4 * HOUR if self.kept_ms > DAY_MS else 2 * DAY_MS
                self.jump(self.chance.randint(0, longest))
            if self.chance.random() < 0.25:  # what is planned happens, while things go wrong
                if self.chance.random() < 0.5:
                    with suppress(Unknown, ClarionError):
                        await self._write(self._favourite, BROKEN)
                await self._pass_time(most=40)
        await self.rest()
        for each in keeping:
            each.cancel()

    def jump(self, milliseconds: int) -> None:
        """Let time pass in which nothing runs."""
        unfinished = {row[0] for row in self.disk.read(_UNFINISHED)}
        given = {each.notification.id for each, _, _ in self.provider.sent}
        self.overslept |= unfinished & given | {row[0] for row in self.disk.read(_SENDING)}
        # What was being sent then is sent so much later.
        self.erased = {who: (sent, at + milliseconds) for who, (sent, at) in self.erased.items()}
        if self.is_shared:
            # All that was planned meanwhile happens now: leases end, and so do connections.
            self.faults.counts["sleep"] += 1
            self.troubled |= {each.number: self.loop.awake() for each in self.nodes.values()}
            self.loop.advance(milliseconds / 1_000)
        else:
            self.clock.jump(milliseconds)

    async def rest(self) -> None:
        """End all faults, open what is held, and wait until nothing is left to be done."""
        self.faults.is_over = True
        self.note("faults are over")
        await asyncio.sleep(5)
        await self._open()
        for name in TYPES:
            await self.insist(f"the text of {name} is right", partial(put_text, name=name))
        await asyncio.sleep(CACHED_MS / 1_000)  # another node may have cached that it is broken
        await self._settle()
        await self._revive()
        # What failed is replayed once everything works.
        for _ in range(3):
            await self.replay()
            await self._settle()
        for _ in range(100):
            await asyncio.sleep(2)
            waiting = {row[0] for row in self.disk.read(_WAITING)}
            if not waiting & {"", *self.devices} and not any(self.find_missed()):
                return

    async def _open(self) -> None:
        """End the quiet hours of all users; what waits for these is not to wait any more."""
        for user_id in PEOPLE:
            with suppress(ClarionError):
                await self.change(user_id=user_id)
            await asyncio.sleep(self.chance.random() * 0.05)
            await self.change(is_open=True, user_id=user_id)
        for _ in range(LEASE_MS // 1_000 + 10):
            await self.insist("settle", lambda n: n.pipeline.settle(0.2))
            held = [each for each, user in self.disk.read(_QUIET) if user not in self.erasing]
            if not held:
                return
            await asyncio.sleep(1)
        self.errors += [f"{each} is held by quiet hours that are over" for each in held]

    async def _revive(self) -> None:
        """Send what is collected behind a dead letter once more: it goes with the new one.

        Pushes do not if the user has no device any more.
        """
        dead = self.disk.read(_DEAD_DIGESTS)
        for user_id, subject in dead:
            for _ in range(2):  # the first may be within a limit
                await self.send_once(user_id, subject.rpartition("/")[2])
        await self._settle()
        for user_id, subject in dead:
            channel, _, name = subject.partition("/")
            if self.disk.read(_COLLECTED, (user_id, channel, name)):
                self.errors.append(f"{name} of {user_id} is collected behind a dead letter")

    def find_missed(self) -> Iterator[tuple[str, str]]:
        """Yield messages to the topic, and subscribed devices that are there and lack them."""
        valid = {
            row[0] for row in self.disk.read("SELECT id FROM devices WHERE invalidated_at IS NULL")
        }
        for message_id, subscribed in self.published.items():
            for device_id in sorted(subscribed & valid):
                if message_id not in self.devices[device_id][0].received:
                    yield message_id, device_id

    async def _settle(self) -> None:
        """Let time pass until no job is left that is due at some time."""
        if not await self._pass_time():
            self.errors.append("there is always more to be done")

    async def _pass_time(self, most: int = 200) -> bool:
        """Let time pass from job to job, at most so many times; return whether none is left."""
        for _ in range(most):
            next_at = await self.insist("settle", lambda n: n.pipeline.settle(0.2))
            if next_at >= NEVER:
                return True
            wait_ms = next_at + 1 - self.clock.now()
            if self.is_shared and wait_ms <= LEASE_MS:  # another node may work on it
                await asyncio.sleep(1)
            else:
                self.jump(wait_ms)
        return False


async def remove_type(node: Node, name: str) -> None:
    """Delete a type, as the API does."""
    await node.types.delete(APP, name)
    node.catalog.forget(APP, name)


async def put_text(node: Node, name: str, body: str = TEXT) -> None:
    """Change the text of a type, as the API does; create the type if there is none."""
    await node.types.put(APP, TYPES[name], START)
    for channel in (Channel.IN_APP, Channel.PUSH):
        text = make_template(name, channel=channel, subject=None, body=body, variables=())
        await node.templates.put(APP, text)
    node.catalog.forget(APP, name)


@cache
def _furnished() -> bytes:
    """Return a database with an app, its types and its users."""
    chance = random.Random(0)
    loop = SeededLoop(chance)
    disk, calm = Disk(), Faults(chance, frozenset(), has_slow_reads=False, is_over=True)
    loop.run_until_complete(_furnish(loop, disk, calm))
    loop.close()
    return bytes(disk.connection.serialize("main"))


async def _furnish(loop: SeededLoop, disk: Disk, calm: Faults) -> None:
    engine = await SimulatedEngine.open(loop, disk, calm, print)
    app: App = make_app(id=APP, bundle_id="com.example.simulated")
    await Apps(engine).create(app, make_provider_key(app))
    types, templates, users = Types(engine), Templates(engine), Users(engine)
    for each in TYPES.values():
        await types.put(APP, each, START)
        for channel in (Channel.IN_APP, Channel.PUSH):
            text = make_template(each.type, channel=channel, subject=None, body=TEXT, variables=())
            await templates.put(APP, text)
    for user_id, zone in zip(PEOPLE, ZONES, strict=True):
        attributes: dict[str, object] = {"stub": "delivered"}
        await users.put(make_user(user_id, app_id=APP, timezone=zone, attributes=attributes))
        await users.follow(APP, user_id, TOPIC, START)
    await engine.close()
