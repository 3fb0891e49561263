"""T30, T43: the real pipeline on both engines does what a small model says, whatever happens."""

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
from tests.contract.pipeline_model import NIGHT, Item, Model, Person, settled
from tests.contract.pipeline_world import START, TOPIC, TYPES, Store
from tests.faults.sizes import SIZES
from tests.pipeline import LEASE

MINUTE = 60_000
NOBODY = (False,) * 24
ALWAYS = (True,) * 24
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
        self.people = [
            Person("ana", "Europe/Berlin"),
            Person("bo", "America/New_York", stub="retry 1"),
            Person("cy", "Asia/Kathmandu"),
        ]
        self.model = Model(START)
        self.world = store.make_world(self.people)
        self.ids: dict[tuple[str, str], str] = {}
        self.cancelled: set[str] = set()
        self.types = sorted(TYPES)
        self.due: dict[str, int] = {}

    def teardown(self) -> None:
        self.world.forget()

    @initialize(types=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    def choose_types(self, types: list[str]) -> None:
        """A run is about a few types, so that what they do to each other is seen."""
        self.types = types

    # What applications do.

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

    # What people do.

    @rule(place=st.integers(0, 99), verb=st.sampled_from(["read", "unread", "dismiss"]))
    def act(self, place: int, verb: str) -> None:
        items = [item for item in self.model.items if item.is_shown]
        if not items:
            return
        item = items[-1 - place % len(items)]
        self.world.act(verb, item.person, self.ids[item.place])
        if verb == "dismiss" and not item.is_dismissed:
            item.is_dismissed = True
            item.person.changes += 1
        elif not item.is_dismissed and item.is_read is not (verb == "read"):
            item.is_read = verb == "read"
            item.person.changes += 1

    @rule(place=st.integers(0, 2))
    def read_all(self, place: int) -> None:
        person = self.people[place]
        self.world.read_all(person)
        for item in self.model.inbox(person):
            person.changes += item.is_unread
            item.is_read = True

    @rule(place=st.integers(0, 2), quiet=st.sampled_from([NIGHT, NOBODY, ALWAYS, NOON]))
    def change_quiet_hours(self, place: int, quiet: tuple[bool, ...]) -> None:
        self.people[place].quiet = quiet
        self.replan(self.people[place])

    @rule(place=st.integers(0, 2), zone=st.sampled_from(ZONES))
    def travel(self, place: int, zone: str) -> None:
        self.people[place].zone = zone
        self.replan(self.people[place])

    @rule(place=st.integers(0, 2), category=st.sampled_from([Category.SOCIAL, Category.NEWS]))
    def toggle_category(self, place: int, category: Category) -> None:
        self.people[place].categories_off ^= {category}
        self.replan(self.people[place])

    @rule(
        place=st.integers(0, 2),
        name=st.sampled_from(sorted(TYPES)),
        channel=st.sampled_from([Channel.IN_APP, Channel.STUB]),
    )
    def toggle_channel(self, place: int, name: str, channel: Channel) -> None:
        self.people[place].off ^= {(name, channel)}
        self.replan(self.people[place])

    @rule(place=st.integers(0, 2), stub=st.sampled_from(["delivered", "retry 2", "retry", "gone"]))
    def move(self, place: int, stub: str) -> None:
        self.people[place].stub = stub
        self.replan(self.people[place])

    # What time and fate do.

    @rule(minutes=st.sampled_from([1, 7, 30, 60, 125, 600, 1_380]))
    def wait(self, minutes: int) -> None:
        self.advance(minutes * MINUTE)
        self.drain()

    @precondition(lambda self: self.model.next_moment() is not None)
    @rule(early=st.sampled_from([0, 0, MINUTE]))
    def wait_for_the_next(self, early: int) -> None:
        """Look at the very moment at which something is due, or just before."""
        moment = self.model.next_moment()
        assert moment is not None
        self.advance(max(moment - early - self.model.now, MINUTE))
        self.drain()

    @rule(body=bodies(), is_alone=st.booleans())
    def die_with_an_event(self, body: dict[str, Any], is_alone: bool) -> None:  # noqa: FBT001
        """The server dies between the answer and the first look at the event."""
        self.accept(body, due_at=self.model.now)
        self.world.restart()
        if is_alone:
            self.world.take_over()
        else:
            self.advance(LEASE)
        self.drain()

    @rule(body=bodies())
    def come_back_from_the_dead(self, body: dict[str, Any]) -> None:
        """T17: a server sleeps over its leases, and goes on when another has done its work."""
        self.accept(body, due_at=self.model.now)
        self.world.restart()
        self.advance(LEASE)
        self.drain()
        self.world.wake_zombie()

    @rule(minutes=st.sampled_from([1, 60, 600]))
    def die_at_work(self, minutes: int) -> None:
        """The server dies with everything that is due in its hands, and nothing done."""
        self.advance(minutes * MINUTE)
        self.world.claim()
        self.world.restart()
        self.drain_nothing()
        self.advance(LEASE)
        self.drain()

    # How it is done, in the world and in the model.

    def accept(self, body: dict[str, Any], due_at: int) -> None:
        body = body | {"type": self.types[body["type"] % len(self.types)]}
        event_id = self.world.send({k: v for k, v in body.items() if v is not None})
        self.due[event_id] = due_at
        kind = TYPES[body["type"]]
        channels = tuple(map(Channel, body["channels"] or kind.default_channels))
        expires_at = due_at + body["ttl_s"] * 1000 if body["ttl_s"] else None
        for person in self.audience(body["recipient"]):
            item = Item(
                event_id=event_id,
                person=person,
                type=kind,
                channels=channels,
                is_critical=body["priority"] == "critical",
                key=body["dedupe_key"],
                expires_at=expires_at,
                due_at=due_at,
            )
            self.model.pending.append(item)

    def audience(self, recipient: dict[str, Any]) -> list[Person]:
        if "all" in recipient:
            return self.people
        if "topic" in recipient:
            return self.people[:2]
        names = recipient.get("user_ids") or [recipient["user_id"]]
        return [person for person in self.people if person.id in names]

    def replan(self, person: Person) -> None:
        self.world.change(person)
        self.model.wake(person)
        self.drain()

    def advance(self, milliseconds: int) -> None:
        self.world.clock.advance(milliseconds)
        self.model.now += milliseconds

    def drain(self) -> None:
        self.world.drain()
        rows = list(self.world.notifications())
        self.ids = dict(rows)
        assert len(self.ids) == len(rows), "an event was decided twice for somebody"
        self.model.drain(self.ids, self.world.limited())

    def drain_nothing(self) -> None:
        before = len(self.world.provider.parcels)
        self.world.drain()
        assert len(self.world.provider.parcels) == before, "it took what somebody else had claimed"

    # What holds at every moment.

    @invariant()
    def inboxes_are_as_the_model_says(self) -> None:
        for person in self.people:
            expected = [
                (self.ids[item.place], item.count, f"{item.count}", item.is_read)
                for item in self.model.inbox(person)
            ]
            found = [
                (each.id, each.count, each.body, each.read_at is not None)
                for each in self.world.inbox(person)
            ]
            assert found == sorted(expected, reverse=True)

    @invariant()
    def numbers_are_exact(self) -> None:
        for person in self.people:
            unread = sum(item.is_unread for item in self.model.inbox(person))
            assert self.world.state(person) == (unread, person.changes)
            sequences = self.world.sequences(person)
            assert sequences == sorted(set(sequences))
            assert sequences[-1:] in ([], [person.changes])

    @invariant()
    def each_is_sent_once_and_in_time(self) -> None:
        places = {notification_id: place for place, notification_id in self.ids.items()}
        parcels = self.world.provider.parcels
        sent = [(*places[message.notification_id], at, message.count) for message, at, _ in parcels]
        assert sorted(sent) == sorted(self.model.sent)

    @invariant()
    def nobody_is_woken(self) -> None:
        loud = {self.ids[item.place] for item in self.model.items if item.is_loud}
        parcels = self.world.provider.parcels
        woken = {message.notification_id for message, _, asleep in parcels if asleep}
        assert woken <= loud

    @invariant()
    def nothing_is_lost(self) -> None:
        """Accepted = settled + cancelled + waiting, and every piece of work is one of ours."""
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
        """Return the cancelled events whose time has not come: their work ends then."""
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
    ana = Person("ana", "Europe/Berlin")
    began = round(night.timestamp() * 1000)
    assert ana.is_quiet(began)
    assert ana.wakes_at(began) == began + timedelta(hours=8) // timedelta(milliseconds=1)
