"""Which provider is tried, when another is, and when none."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from clarion.catalog.model import Channel
from clarion.channels.breaker import OPEN_MS, BreakerState
from clarion.channels.http_clients import HttpClients
from clarion.channels.kinds import NO_ANSWERS, ProviderKind
from clarion.channels.metrics import ChannelMetrics
from clarion.channels.model import (
    Address,
    Delivered,
    Misconfigured,
    NotTried,
    Outcome,
    OutgoingMessage,
    Provider,
    Rejected,
    Retry,
    Unknown,
)
from clarion.channels.port import SenderContext
from clarion.channels.routing import FRESH_MS, Routing
from clarion.channels.targets import Targets, sending_app
from clarion.telemetry.metrics import Metrics
from tests.factories import FixedClock, make_user
from tests.pipeline import make_event, make_notification
from tests.recorded_bus import RecordedHub
from tests.replacing import replace

RETRY = Retry(error_code="503", error_message="not now")
UNKNOWN = Unknown(error_code="no_answer", error_message="no answer")
REJECTED = Rejected(error_code="400", error_message="no")
MISCONFIGURED = Misconfigured(error_code="401", error_message="wrong password")


class ScriptedSettings(msgspec.Struct):
    """As those of a webhook."""

    types: list[str] | None = None


@dataclass
class ScriptedSender:
    """The `Sender` port: returns outcomes in turn, then `Delivered`."""

    outcomes: list[Outcome | Exception] = field(default_factory=list)
    messages: list[OutgoingMessage] = field(default_factory=list)
    apps: list[str] = field(default_factory=list)
    hangs: asyncio.Event | None = None
    closed: int = 0

    async def send(self, message: OutgoingMessage) -> Outcome:
        self.messages.append(message)
        self.apps.append(sending_app.get())
        if self.hangs:
            await self.hangs.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else Delivered()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        self.closed += 1


@dataclass
class MemoryProviders:
    """The `Providers` port in memory."""

    stored: list[Provider] = field(default_factory=list)
    used: int = 0
    reads: int = 0

    async def list(self, app_id: str) -> tuple[Provider, ...]:
        self.reads += 1
        return tuple(each for each in self.stored if each.app_id == app_id)

    async def take_daily(self, *_key: object, cap: int, now: int) -> bool:
        del now
        self.used += 1
        return self.used <= cap

    async def disable(
        self, app_id: str, channel: Channel, name: str, reason: str, now: int
    ) -> bool:
        for n, each in enumerate(self.stored):
            if (each.app_id, each.channel, each.name) == (app_id, channel, name):
                self.stored[n] = replace(
                    each, is_active=False, disabled_reason=reason, updated_at=now
                )
                return True
        return False


class World:
    """An app with providers of a scripted kind."""

    def __init__(self, *names: str, channel: Channel = Channel.EMAIL, **changes: Any) -> None:
        self.clock = FixedClock()
        self.channel = channel
        self.senders = {name: ScriptedSender() for name in names}
        self.providers = MemoryProviders([make_provider(n, channel, **changes) for n in names])
        kind = ProviderKind(
            name="scripted",
            channels=frozenset(Channel),
            open=lambda configuration, _context: self.senders[configuration.name],
            answers=NO_ANSWERS,
            settings=ScriptedSettings,
            find_circuit=lambda address: address.platform,
            takes=lambda settings, name: settings.types is None or name in settings.types,
        )
        context = SenderContext(
            clock=self.clock, http=HttpClients(Targets()), public_url="https://clarion.example"
        )
        metrics = ChannelMetrics(Metrics().registry)
        providers: Any = self.providers
        self.routing = Routing(providers, {"scripted": kind}, context, metrics)

    async def send(self, *, only: str | None = None, address: str = "") -> list[tuple[str, Any]]:
        app = await self.routing.find("app")
        tries = await app.send(self.channel, make_message(address), only)
        return [(each.provider, type(each.outcome)) for each in tries]

    def script(self, name: str, *outcomes: Outcome | Exception) -> None:
        self.senders[name].outcomes += outcomes


def make_provider(name: str, channel: Channel, **changes: Any) -> Provider:
    provider = Provider(
        app_id="app", channel=channel, name=name, kind="scripted", created_at=1, updated_at=1
    )
    return replace(provider, **changes)


def make_message(address: str = "") -> OutgoingMessage:
    return OutgoingMessage(
        id="n1/email",
        notification=make_notification(make_event()),
        user=make_user(),
        address=Address(address, "ana@example.com"),
        subject=None,
        body="text",
        count=1,
        attempt=1,
    )


async def test_the_first_provider_that_takes_it_is_the_last_one_tried() -> None:
    world = World("first", "second")
    assert await world.send() == [("first", Delivered)]
    world.script("first", RETRY, MISCONFIGURED, REJECTED)
    assert await world.send() == [("first", Retry), ("second", Delivered)]
    assert await world.send() == [("first", Misconfigured), ("second", Delivered)]


async def test_names_are_resolved_on_account_of_the_app_of_the_provider() -> None:
    world = World("first")
    sending_app.set("another")
    await world.send()
    assert world.senders["first"].apps == ["app"]


@pytest.mark.parametrize("outcome", [REJECTED, UNKNOWN])
async def test_what_was_refused_or_may_have_been_taken_goes_to_no_other(outcome: Outcome) -> None:
    world = World("first", "second")
    world.script("first", outcome)
    assert await world.send() == [("first", type(outcome))]
    assert not world.senders["second"].messages


async def test_only_the_provider_that_may_have_taken_it_is_tried_again() -> None:
    world = World("first", "second")
    world.script("second", RETRY)
    assert await world.send(only="second") == [("second", Retry)]
    assert await world.send(only="deleted since") == [("first", Delivered)]


async def test_an_error_or_a_time_out_of_a_sender_is_unknown() -> None:
    world = World("first", timeout_s=0.01)
    world.script("first", RuntimeError("broken"))
    assert await world.send() == [("first", Unknown)]
    world.senders["first"].hangs = asyncio.Event()
    assert await world.send() == [("first", Unknown)]


async def test_a_provider_that_fails_is_left_alone_for_a_while() -> None:
    world = World("first", "second")
    world.script("first", *[RETRY] * 5)
    for _ in range(5):
        assert await world.send() == [("first", Retry), ("second", Delivered)]
    assert await world.send() == [("first", NotTried), ("second", Delivered)]
    assert len(world.senders["first"].messages) == 5
    world.clock.advance(OPEN_MS[1])
    assert await world.send() == [("first", Delivered)]
    assert world.routing.count_open() == {("email", "scripted"): 0}


async def test_the_log_has_one_line_when_it_is_left_alone_and_one_when_it_takes_messages() -> None:
    world = World("first")
    world.script("first", *[RETRY] * 7)
    with capture_logs() as logs:
        for _ in range(5):
            await world.send()
        for _ in range(3):  # each time the one attempt fails, or at last succeeds
            assert [await world.send() for _ in range(2)] == [[("first", NotTried)]] * 2
            world.clock.advance(OPEN_MS[1])
            await world.send()
    first, last = [each for each in logs if each["log_level"] != "debug"]
    about = {"app_id": "app", "channel": "email", "provider": "first", "kind": "scripted"}
    assert first == about | {
        "event": "provider_circuit_open",
        "log_level": "warning",
        "code": RETRY.error_code,
        "cause": "Attempts fail.",
    }
    assert last == about | {
        "event": "provider_circuit_closed",
        "log_level": "warning",
        "waited": 6,
        "failures": 3,
        "duration_s": 3 * OPEN_MS[1] / 1000,
    }


async def test_what_fails_for_some_addresses_does_not_stop_the_others() -> None:
    world = World("first")
    app = await world.routing.find("app")
    world.script("first", *[RETRY] * 5)
    message = make_message()
    bad = replace(message, address=Address("", "a", "one"))
    for _ in range(5):
        await app.send(Channel.EMAIL, bad)
    tries = [(await app.send(Channel.EMAIL, each))[0].outcome for each in (bad, message)]
    assert [type(each) for each in tries] == [NotTried, Delivered]


async def test_a_misconfigured_provider_is_left_alone_at_once() -> None:
    world = World("first")
    world.script("first", MISCONFIGURED)
    assert await world.send() == [("first", Misconfigured)]
    assert await world.send() == [("first", NotTried)]
    app = await world.routing.find("app")
    assert app.routes[Channel.EMAIL][0].circuit is BreakerState.OPEN
    assert app.routes[Channel.EMAIL][0].health.error_code == "401"


async def test_a_daily_cap_is_kept_and_the_next_provider_takes_over() -> None:
    world = World("first", daily_cap=2)
    assert [await world.send() for _ in range(3)] == [
        [("first", Delivered)],
        [("first", Delivered)],
        [("first", NotTried)],
    ]


async def test_a_provider_has_so_many_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clarion.channels.route.SLOT_WAIT_S", 0.01)
    world = World("first", "second", concurrency=1)
    first = world.senders["first"]
    first.hangs = asyncio.Event()
    running = asyncio.create_task(world.send())
    await asyncio.sleep(0)
    assert await world.send() == [("first", NotTried), ("second", Delivered)]
    first.hangs.set()
    assert await running == [("first", Delivered)]
    assert await world.send() == [("first", Delivered)]


async def test_a_sender_without_room_says_nothing_of_the_provider() -> None:
    world = World("first", "second")
    full = NotTried(error_code="busy", error_message="no process is free", after_s=1.0)
    world.script("first", *[full] * 20)
    for _ in range(20):
        assert await world.send() == [("first", NotTried), ("second", Delivered)]
        world.clock.advance(1_000)
    assert await world.send() == [("first", Delivered)]


async def test_a_cancelled_attempt_gives_its_slot_back() -> None:
    world = World("first", concurrency=1)
    world.senders["first"].hangs = asyncio.Event()
    running = asyncio.create_task(world.send())
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    world.senders["first"].hangs = None
    assert await world.send() == [("first", Delivered)]


async def test_a_sandbox_sends_nothing() -> None:
    world = World("first", is_sandbox=True, daily_cap=0)
    app = await world.routing.find("app")
    (tried,) = await app.send(Channel.EMAIL, make_message())
    assert tried.outcome == Delivered(response="sandbox: not sent")
    assert not world.senders["first"].messages


async def test_without_a_provider_the_channel_is_not_available() -> None:
    world = World("first", is_active=False)
    app = await world.routing.find("app")
    assert app.available == {Channel.IN_APP, Channel.PUSH}
    assert await world.send() == [("", Rejected)]


async def test_each_webhook_that_wants_the_type_is_an_address() -> None:
    world = World("all", "some", channel=Channel.WEBHOOK)
    world.providers.stored[1] = replace(
        world.providers.stored[1], settings={"types": ["LIKE", "FOLLOW"]}
    )
    app = await world.routing.find("app")
    names = [
        [each.id for each in app.find_addresses(Channel.WEBHOOK, kind, make_user())]
        for kind in ("LIKE", "OTHER")
    ]
    assert names == [["all", "some"], ["all"]]
    assert await world.send(address="some") == [("some", Delivered)]


async def test_changes_are_seen_after_some_seconds_and_close_what_was_open() -> None:
    world = World("first")
    await world.send()
    old = world.senders["first"]
    world.providers.stored[0] = replace(world.providers.stored[0], updated_at=2)
    world.senders["first"] = ScriptedSender()
    await world.send()
    assert (len(old.messages), old.closed) == (2, 0)
    world.clock.advance(FRESH_MS)
    await world.send()
    assert (len(old.messages), old.closed) == (2, 1)
    assert len(world.senders["first"].messages) == 1


async def test_nothing_is_kept_of_a_deleted_app() -> None:
    world = World("first")
    await world.send()
    await world.routing.drop_app("app")
    assert world.senders["first"].closed == 1
    assert (world.routing._apps, world.routing._loading) == ({}, {})
    await world.routing.drop_app("app")  # it is dropped until nothing of it is left


async def test_a_change_on_this_node_is_seen_at_once() -> None:
    world = World("first")
    await world.send()
    await world.routing.disable("app", Channel.EMAIL, "first", "it is gone")
    assert await world.send() == [("", Rejected)]
    assert world.providers.stored[0].disabled_reason == "it is gone"


async def test_many_at_once_read_the_providers_once() -> None:
    world = World("first")
    await asyncio.gather(*(world.send() for _ in range(50)))
    assert world.providers.reads == 1


async def test_a_message_waits_as_long_as_the_provider_asked_for_it() -> None:
    """Although it is due again sooner, because of another address or another provider."""
    world = World("first", "second")
    world.script("first", Retry(error_code="429", error_message="not now", after_s=60))
    assert await world.send() == [("first", Retry), ("second", Delivered)]
    assert await world.send() == [("first", NotTried), ("second", Delivered)]
    world.clock.advance(59_999)
    assert await world.send() == [("first", NotTried), ("second", Delivered)]
    world.clock.advance(1)
    assert await world.send() == [("first", Delivered)]


async def test_what_is_known_of_messages_that_wait_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clarion.channels.route.WAITING_LIMIT", 2)
    world = World("first")
    app = await world.routing.find("app")
    later = Retry(error_code="429", error_message="not now", after_s=60)
    world.script("first", later, later, later)
    for id_ in "abc":
        await app.send(Channel.EMAIL, replace(make_message(), id=id_))
    assert set(app.routes[Channel.EMAIL][0].waits) == {"b", "c"}


@pytest.mark.parametrize(
    ("retry_after_s", "open_ms"), [(2.0, 2_000), (200.0, 200_000), (900.0, 30_000)]
)
async def test_a_provider_is_left_alone_as_long_as_it_asks_for(
    retry_after_s: float, open_ms: int
) -> None:
    world = World("first")
    app = await world.routing.find("app")
    later = Retry(error_code="503", error_message="not now", after_s=retry_after_s)
    world.script("first", *[later] * 5)
    for id_ in "abcde":
        await app.send(Channel.EMAIL, replace(make_message(), id=id_))
    assert await world.send() == [("first", NotTried)]
    world.clock.advance(open_ms)
    assert await world.send() == [("first", Delivered)]


async def test_a_provider_that_took_a_message_meanwhile_is_not_disabled() -> None:
    world = World("first")
    before = world.clock.now()
    await world.send()
    await world.routing.disable("app", Channel.EMAIL, "first", "never answered", before)
    assert world.providers.stored[0].disabled_reason is None
    world.clock.advance(1)
    await world.routing.disable("app", Channel.EMAIL, "first", "never answered", before + 1)
    assert world.providers.stored[0].disabled_reason == "never answered"


async def test_the_other_nodes_read_changed_providers_when_they_are_told() -> None:
    here, there = World("one"), World("one", "two")
    hub = RecordedHub()
    bus = hub.join()
    here.routing.forget.join(hub.join())
    there.routing.forget.join(bus)
    for tell in (partial(here.routing.forget, "app"), bus.miss):
        await there.routing.find("app")
        reads = there.providers.reads
        await there.routing.find("app")
        assert there.providers.reads == reads
        tell()
        await asyncio.sleep(0)
        await there.routing.find("app")
        assert there.providers.reads == reads + 1


async def test_providers_that_are_changed_while_they_are_read_are_read_again() -> None:
    world = World("one")
    listed = world.providers.list

    async def list_and_change(app_id: str) -> tuple[Provider, ...]:
        found = await listed(app_id)
        if world.providers.reads == 1:
            world.routing.forget("app")
        return found

    world.providers.list = list_and_change  # type: ignore[method-assign]
    for _ in range(3):
        await world.routing.find("app")
    assert world.providers.reads == 2
