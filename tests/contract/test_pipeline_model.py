"""T30, T43: the real pipeline on both engines does what a small model says, in any order."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from clarion.catalog.model import Category, Channel
from clarion.store.opening import migrate
from tests.contract.pipeline_model import NEVER_QUIET, NIGHT, Item, Model, ModelUser, settled
from tests.contract.pipeline_world import START, TOPIC, TYPES, Store
from tests.faults.sizes import SIZES
from tests.pipeline import LEASE

MINUTE = 60_000
ALWAYS_QUIET = (True,) * 24
NOON = tuple(hour in {12, 13} for hour in range(24))
# Kathmandu's hours begin at a quarter to; Berlin's clocks change in the first night.
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC")
TARGETS = ("ana", "ana", "ana", "bo", "cy", "two", TOPIC, "all")
ODDS: list[Any] = [None, None, None]


def recipient_of(target: str) -> dict[str, Any]:
    recipients: dict[str, dict[str, Any]] = {
        "two": {"user_ids": ["ana", "cy"]},
        TOPIC: {"topic": TOPIC},
        "all": {"all": True},
    }
    return recipients.get(target, {"user_id": target})


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an event without its times: those depend on the clock."""
    return {
        "type": draw(st.integers(0, 5)),  # one of those that the run is about
        "recipient": recipient_of(draw(st.sampled_from(TARGETS))),
        "priority": draw(st.sampled_from([*ODDS, "low", "critical"])),
        "dedupe_key": draw(st.sampled_from(["a", "b"])),
        "channels": draw(st.sampled_from([*ODDS, ["in_app"], ["stub"]])),
        "ttl_s": draw(st.sampled_from([*ODDS, 1_800, 36_000])),
    }


class PipelineMachine(RuleBasedStateMachine):
    """Everything that can happen, in any order."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.users = [
            ModelUser("ana", "Europe/Berlin"),
            ModelUser("bo", "America/New_York", stub="retry 1"),
            ModelUser("cy", "Asia/Kathmandu"),
        ]
        self.model = Model(START)
        self.world = store.make_world(self.users)
        self.ids: dict[tuple[str, str], str] = {}
        self.cancelled: set[str] = set()
        self.types = sorted(TYPES)
        self.due: dict[str, int] = {}

    def teardown(self) -> None:
        self.world.forget()

    @initialize(types=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    def choose_types(self, types: list[str]) -> None:
        """A run has few types, so that they affect each other."""
        self.types = types

    # Applications.

    @rule(body=bodies())
    def send(self, body: dict[str, Any]) -> None:
        self.accept(body, due_at=self.model.now)
        self.drain()

    @rule(body=bodies(), minutes=st.sampled_from([1, 30, 600]))
    def schedule(self, body: dict[str, Any], minutes: int) -> None:
        due_at = self.model.now + minutes * MINUTE
        moment = datetime.fromtimestamp(due_at / 1000, UTC)
        self.accept(body | {"scheduled_at": moment}, due_at=due_at)

    @rule(body=bodies())
    def send_a_burst(self, body: dict[str, Any]) -> None:
        for _ in range(3):
            self.accept(body, due_at=self.model.now)
        self.drain()

    @precondition(lambda self: self.model.items or self.model.pending)
    @rule(place=st.integers(0, 99))
    def cancel(self, place: int) -> None:
        events = dict.fromkeys(i.event_id for i in (*self.model.items, *self.model.pending))
        event_id = list(events)[-1 - place % len(events)]
        is_possible = self.model.can_cancel(event_id) and event_id not in self.cancelled
        assert self.world.cancel(event_id) is is_possible
        if is_possible:
            self.cancelled.add(event_id)
            self.model.cancel(event_id)
            self.drain()

    # Users.

    @rule(place=st.integers(0, 99), verb=st.sampled_from(["read", "unread", "dismiss"]))
    def act(self, place: int, verb: str) -> None:
        items = [item for item in self.model.items if item.is_shown]
        if not items:
            return
        item = items[-1 - place % len(items)]
        self.world.act(verb, item.user, self.ids[item.place])
        if verb == "dismiss" and not item.is_dismissed:
            item.is_dismissed = True
            item.user.changes += 1
        elif not item.is_dismissed and item.is_read is not (verb == "read"):
            item.is_read = verb == "read"
            item.user.changes += 1

    @rule(place=st.integers(0, 2))
    def read_all(self, place: int) -> None:
        user = self.users[place]
        self.world.read_all(user)
        for item in self.model.inbox(user):
            user.changes += item.is_unread
            item.is_read = True

    @rule(place=st.integers(0, 2), quiet=st.sampled_from([NIGHT, NEVER_QUIET, ALWAYS_QUIET, NOON]))
    def change_quiet_hours(self, place: int, quiet: tuple[bool, ...]) -> None:
        self.users[place].quiet = quiet
        self.replan(self.users[place])

    @rule(place=st.integers(0, 2), zone=st.sampled_from(ZONES))
    def travel(self, place: int, zone: str) -> None:
        self.users[place].zone = zone
        self.replan(self.users[place])

    @rule(place=st.integers(0, 2), category=st.sampled_from([Category.SOCIAL, Category.NEWS]))
    def toggle_category(self, place: int, category: Category) -> None:
        self.users[place].categories_off ^= {category}
        self.replan(self.users[place])

    @rule(
        place=st.integers(0, 2),
        name=st.sampled_from(sorted(TYPES)),
        channel=st.sampled_from([Channel.IN_APP, Channel.STUB]),
    )
    def toggle_channel(self, place: int, name: str, channel: Channel) -> None:
        self.users[place].off ^= {(name, channel)}
        self.replan(self.users[place])

    @rule(place=st.integers(0, 2), stub=st.sampled_from(["delivered", "retry 2", "retry", "gone"]))
    def move(self, place: int, stub: str) -> None:
        self.users[place].stub = stub
        self.replan(self.users[place])

    # Time and crashes.

    @rule(minutes=st.sampled_from([1, 7, 30, 60, 125, 600, 1_380]))
    def wait(self, minutes: int) -> None:
        self.advance(minutes * MINUTE)
        self.drain()

    @precondition(lambda self: self.model.next_moment() is not None)
    @rule(early=st.sampled_from([0, 0, MINUTE]))
    def wait_for_the_next(self, early: int) -> None:
        """Wait until exactly when something is due, or a minute less."""
        moment = self.model.next_moment()
        assert moment is not None
        self.advance(max(moment - early - self.model.now, MINUTE))
        self.drain()

    @rule(body=bodies(), is_alone=st.booleans())
    def die_with_an_event(self, body: dict[str, Any], is_alone: bool) -> None:  # noqa: FBT001
        """The server dies after the response and before it decides the event."""
        self.accept(body, due_at=self.model.now)
        self.world.restart()
        if is_alone:
            self.world.take_over()
        else:
            self.advance(LEASE)
        self.drain()

    @rule(body=bodies())
    def resume_after_leases_expired(self, body: dict[str, Any]) -> None:
        """T17: a server pauses until its leases expire, and goes on after another did its jobs."""
        self.accept(body, due_at=self.model.now)
        self.world.restart()
        self.advance(LEASE)
        self.drain()
        self.world.resume_zombie()

    @rule(minutes=st.sampled_from([1, 60, 600]))
    def die_with_claimed_jobs(self, minutes: int) -> None:
        """The server dies with all due jobs claimed, and none done."""
        self.advance(minutes * MINUTE)
        self.world.claim()
        self.world.restart()
        self.drain_nothing()
        self.advance(LEASE)
        self.drain()

    # Both in the world and in the model.

    def accept(self, body: dict[str, Any], due_at: int) -> None:
        body = body | {"type": self.types[body["type"] % len(self.types)]}
        event_id = self.world.send({k: v for k, v in body.items() if v is not None})
        self.due[event_id] = due_at
        definition = TYPES[body["type"]]
        channels = tuple(map(Channel, body["channels"] or definition.default_channels))
        expires_at = due_at + body["ttl_s"] * 1000 if body["ttl_s"] else None
        for user in self.audience(body["recipient"]):
            item = Item(
                event_id=event_id,
                user=user,
                type=definition,
                channels=channels,
                is_critical=body["priority"] == "critical",
                key=body["dedupe_key"],
                expires_at=expires_at,
                due_at=due_at,
            )
            self.model.pending.append(item)

    def audience(self, recipient: dict[str, Any]) -> list[ModelUser]:
        if "all" in recipient:
            return self.users
        if "topic" in recipient:
            return self.users[:2]
        names = recipient.get("user_ids") or [recipient["user_id"]]
        return [user for user in self.users if user.id in names]

    def replan(self, user: ModelUser) -> None:
        self.world.change(user)
        self.model.wake(user)
        self.drain()

    def advance(self, milliseconds: int) -> None:
        self.world.clock.advance(milliseconds)
        self.model.now += milliseconds

    def drain(self) -> None:
        self.world.drain()
        rows = list(self.world.notifications())
        self.ids = dict(rows)
        assert len(self.ids) == len(rows), "an event was decided twice for a user"
        self.model.drain(self.ids, self.world.limited())

    def drain_nothing(self) -> None:
        before = len(self.world.provider.messages)
        self.world.drain()
        assert len(self.world.provider.messages) == before, "it did jobs that another had claimed"

    # Invariants.

    @invariant()
    def inboxes_are_as_the_model_says(self) -> None:
        for user in self.users:
            expected = [
                (self.ids[item.place], item.count, f"{item.count}", item.is_read)
                for item in self.model.inbox(user)
            ]
            found = [
                (each.id, each.count, each.body, each.read_at is not None)
                for each in self.world.inbox(user)
            ]
            assert found == sorted(expected, reverse=True)

    @invariant()
    def numbers_are_exact(self) -> None:
        for user in self.users:
            unread = sum(item.is_unread for item in self.model.inbox(user))
            assert self.world.state(user) == (unread, user.changes)
            sequences = self.world.sequences(user)
            assert sequences == sorted(set(sequences))
            assert sequences[-1:] in ([], [user.changes])

    @invariant()
    def each_is_sent_once_and_in_time(self) -> None:
        places = {notification_id: place for place, notification_id in self.ids.items()}
        messages = self.world.provider.messages
        sent = [
            (*places[message.notification.id], at, message.count) for message, at, _ in messages
        ]
        assert sorted(sent) == sorted(self.model.sent)

    @invariant()
    def quiet_hours_are_kept(self) -> None:
        mandatory = {self.ids[item.place] for item in self.model.items if item.is_mandatory}
        messages = self.world.provider.messages
        interrupted = {message.notification.id for message, _, asleep in messages if asleep}
        assert interrupted <= mandatory

    @invariant()
    def nothing_is_lost(self) -> None:
        """Accepted = settled + cancelled + waiting, and every job is expected."""
        done = {k: v for k, v in settled(self.model) if k not in self.cancelled}
        waiting = {item.event_id for item in self.model.pending}
        for event_id, status, remaining, count in self.world.events():
            places = [event_id in done, event_id in waiting, event_id in self.cancelled]
            assert sum(places) == 1, (event_id, status)
            assert (status == "cancelled") is (event_id in self.cancelled)
            if event_id in done:
                assert (remaining, count) == (0, done[event_id])
        jobs_of_cancelled = len(self.cancelled & self.unseen())
        waits = self.model.count_waiting() + jobs_of_cancelled
        assert self.world.count_jobs() == (waits, self.model.dead)

    def unseen(self) -> set[str]:
        """Return the cancelled events whose time has not come: their jobs end then."""
        return {each for each in self.cancelled if self.due[each] > self.model.now}


def test_the_pipeline_does_what_the_model_says(database_url: str) -> None:
    asyncio.run(migrate(database_url))
    store = Store(database_url)
    try:
        run_state_machine_as_test(
            lambda: PipelineMachine(store),  # type: ignore[arg-type]
            settings=settings(
                max_examples=SIZES.pipeline_sequences,
                stateful_step_count=SIZES.pipeline_steps,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
            ),
        )
    finally:
        store.close()


def test_the_model_counts_minutes_over_a_change_of_clocks() -> None:
    """Berlin sleeps from 22 to 7: eight hours of nine in the night that has no third hour."""
    night = datetime(2026, 3, 28, 21, tzinfo=UTC)
    ana = ModelUser("ana", "Europe/Berlin")
    began = round(night.timestamp() * 1000)
    assert ana.is_quiet(began)
    assert ana.wakes_at(began) == began + timedelta(hours=8) // timedelta(milliseconds=1)
