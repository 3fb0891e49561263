"""T30: long walks through everything that can happen to the pipeline, each by its seed.

Hypothesis finds short sequences; walks reach states in which much waits.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from clarion.catalog.model import Category, Channel
from clarion.store.opening import migrate
from tests.contract.pipeline_model import NEVER_QUIET, NIGHT
from tests.contract.pipeline_world import TYPES, Store
from tests.contract.test_pipeline_model import (
    ALWAYS_QUIET,
    MINUTE,
    NOON,
    ODDS,
    TARGETS,
    ZONES,
    PipelineMachine,
    recipient_of,
)
from tests.faults.sizes import SIZES

pytestmark = pytest.mark.timeout(SIZES.timeout_s)
STEPS = 40


class Walk:
    """Steps by chance."""

    def __init__(self, machine: PipelineMachine, chance: random.Random) -> None:
        self.machine = machine
        self.pick: Callable[[Any], Any] = chance.choice
        machine.choose_types(types=chance.sample(sorted(TYPES), 2))
        # Sending and waiting happen often, the rest now and then.
        self.steps: list[Callable[[], None]] = [
            *[self.send, self.burst, self.wait, self.wait_for_the_next] * 4,
            *[self.act, self.schedule] * 2,
            *[self.change, self.toggle, self.die, self.cancel, self.read_all],
        ]

    def step(self) -> None:
        self.pick(self.steps)()
        self.machine.inboxes_are_as_the_model_says()
        self.machine.numbers_are_exact()
        self.machine.each_is_sent_once_and_in_time()
        self.machine.quiet_hours_are_kept()
        self.machine.nothing_is_lost()

    def body(self) -> dict[str, Any]:
        return {
            "type": self.pick(range(6)),
            "recipient": recipient_of(self.pick(TARGETS)),
            "priority": self.pick([*ODDS, *ODDS, "low", "critical"]),
            "dedupe_key": self.pick("ab"),
            "channels": self.pick([*ODDS, ["in_app"], ["stub"]]),
            "ttl_s": self.pick([*ODDS, *ODDS, 1_800, 36_000]),
        }

    def send(self) -> None:
        self.machine.send(body=self.body())

    def burst(self) -> None:
        self.machine.send_a_burst(body=self.body())

    def schedule(self) -> None:
        self.machine.schedule(body=self.body(), minutes=self.pick([1, 30, 600]))

    def cancel(self) -> None:
        if self.machine.model.items or self.machine.model.pending:
            self.machine.cancel(place=self.pick(range(5)))

    def act(self) -> None:
        self.machine.act(place=self.pick(range(9)), verb=self.pick(["read", "unread", "dismiss"]))

    def read_all(self) -> None:
        self.machine.read_all(place=self.pick(range(3)))

    def change(self) -> None:
        place = self.pick(range(3))
        change = self.pick(["quiet", "zone", "stub"])
        if change == "quiet":
            quiet = self.pick([NIGHT, NIGHT, NEVER_QUIET, ALWAYS_QUIET, NOON])
            self.machine.change_quiet_hours(place=place, quiet=quiet)
        elif change == "zone":
            self.machine.travel(place=place, zone=self.pick(ZONES))
        else:
            stub = self.pick(["delivered", "delivered", "retry 2", "retry", "gone"])
            self.machine.move(place=place, stub=stub)

    def toggle(self) -> None:
        place = self.pick(range(3))
        if self.pick([True, False]):
            category = self.pick([Category.SOCIAL, Category.NEWS])
            self.machine.toggle_category(place=place, category=category)
        else:
            channel = self.pick([Channel.IN_APP, Channel.STUB])
            name = self.pick(self.machine.types)
            self.machine.toggle_channel(place=place, name=name, channel=channel)

    def wait(self) -> None:
        self.machine.wait(minutes=self.pick([1, 7, 30, 60, 125, 600]))

    def wait_for_the_next(self) -> None:
        if self.machine.model.next_moment() is not None:
            self.machine.wait_for_the_next(early=self.pick([0, 0, MINUTE]))

    def die(self) -> None:
        match self.pick(["with an event", "at work", "not quite"]):
            case "with an event":
                self.machine.die_with_an_event(body=self.body(), is_alone=self.pick([True, False]))
            case "at work":
                self.machine.die_with_claimed_jobs(minutes=self.pick([1, 60, 600]))
            case _:
                self.machine.resume_after_leases_expired(body=self.body())


def test_on_long_walks_the_pipeline_does_what_the_model_says(database_url: str) -> None:
    asyncio.run(migrate(database_url))
    store = Store(database_url)
    try:
        for seed in range(SIZES.pipeline_walks):
            machine = PipelineMachine(store)
            walk = Walk(machine, random.Random(seed))
            for step in range(STEPS):
                try:
                    walk.step()
                except AssertionError as error:
                    error.add_note(f"walk {seed}, step {step}")
                    raise
            machine.teardown()
    finally:
        store.close()
