"""A push to two devices, one of which is quiet: it gets its own, whatever becomes of the other."""

import asyncio
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from clarion.access.vault import Vault
from clarion.catalog.model import Channel
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.channels.model import Gone, Outcome, OutgoingMessage, Rejected, Retry, Sent
from clarion.channels.port import Sender
from clarion.events.drafts import EventDraft
from clarion.events.pipeline import Pipeline
from clarion.events.sql.events import SqlEvents
from clarion.history.model import Delivery, DeliveryStatus
from clarion.history.sql import deliveries
from clarion.people.model import Preferences
from clarion.people.sql import Users
from clarion.push.model import (
    Device,
    DeviceDetails,
    DevicePreferences,
    InvalidationReason,
    Message,
    MessageStatus,
    Platform,
    StoredMessage,
)
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlMessages, add_steps
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import (
    MINUTE,
    NOW,
    FixedClock,
    make_device,
    make_template,
    make_type,
    make_user,
    new_app_id,
)
from tests.pipeline import build_pipeline, drain
from tests.replacing import replace

HOUR = 60 * MINUTE
REFUSED = Rejected(error_code="BadPayload", error_message="")
GONE = Gone(error_code="Unregistered", error_message="")
FAILS = Retry(error_code="503", error_message="")
LATER = 3 * HOUR
_OPEN_HOUR = dt.datetime.fromtimestamp((NOW + LATER) / 1000, dt.UTC).hour
QUIET = DevicePreferences(quiet_hours=tuple(hour != _OPEN_HOUR for hour in range(24)))


class Phones:
    """A user with a device that gets pushes now, and one that gets them in some hours."""

    def __init__(self, engine: Engine, senders: Mapping[Channel, Sender] | None = None) -> None:
        self.engine, self.app_id, self.clock = engine, new_app_id(), FixedClock(NOW)
        self.devices, self.messages = Devices(engine), SqlMessages(engine)
        self.loud = self._make_device()
        self.quiet = self._make_device(preferences=QUIET)
        self.pipeline: Pipeline = build_pipeline(engine, self.clock, senders or {})
        self.event_id = ""

    def _make_device(self, **changes: Any) -> Device:
        details = DeviceDetails(user_id="ana", timezone="UTC")
        return make_device(self.app_id, details=details, **changes)

    async def begin(self, *only: Device, **changes: Any) -> None:
        """Send the event, and let all be done that is due now."""
        user = make_user("ana", app_id=self.app_id, timezone="UTC")
        preferences = Preferences(quiet_hours=(False,) * 24)
        await Users(self.engine).put(replace(user, preferences=preferences))
        for device in only or (self.loud, self.quiet):
            await self.devices.add(device)
        type_ = make_type("SHIPPED", default_channels=(Channel.PUSH,))
        await SqlTypes(self.engine).put(self.app_id, type_, NOW)
        template = make_template(
            "SHIPPED", channel=Channel.PUSH, body="x", subject=None, variables=()
        )
        await SqlTemplates(self.engine).put(self.app_id, template)
        body = {"type": "SHIPPED", "recipient": {"user_id": "ana"}, **changes}
        event = await self.pipeline.intake.prepare(self.app_id, msgspec.convert(body, EventDraft))
        self.event_id = event.id
        assert await self.pipeline.intake.accept([event]) is None
        await drain(self.pipeline)

    async def pass_time(self, milliseconds: int = LATER) -> None:
        self.clock.advance(milliseconds)
        await drain(self.pipeline)

    async def waiting(self, device: Device) -> list[Message]:
        return list(await self.messages.waiting(device.id, now=self.clock.now(), limit=9))

    async def status(self) -> DeliveryStatus:
        return (await self.delivery()).status

    async def delivery(self) -> Delivery:
        ports = self.pipeline.explainer.cases.ports
        page = await ports.notifications.list_of_event(
            self.app_id, self.event_id, after=None, limit=1
        )
        id_ = page.items[0].id
        (found,) = (await ports.deliveries.find_many(self.app_id, [id_]))[id_]
        return found


@pytest.fixture
def phones(engine: Engine) -> Phones:
    return Phones(engine)


async def test_a_device_gets_its_push_though_the_other_is_gone_meanwhile(phones: Phones) -> None:
    await phones.begin()
    now = phones.clock.now()
    await phones.devices.invalidate(
        phones.app_id, phones.loud.id, InvalidationReason.UNINSTALLED, now
    )
    assert await phones.status() is DeliveryStatus.SENT
    await phones.pass_time()
    (message,) = await phones.waiting(phones.quiet)
    assert await phones.status() is DeliveryStatus.SENT
    await phones.messages.acknowledge((), phones.clock.now(), [message])
    assert await phones.status() is DeliveryStatus.DELIVERED


async def test_a_push_ends_with_its_device_if_both_are_written_at_once(phones: Phones) -> None:
    """The device is revoked in the commit in which the message to it is stored, as `sent`."""
    await phones.begin(phones.loud)
    (message,), sent = await phones.waiting(phones.loud), await phones.delivery()
    undo = statement("u", "DELETE FROM messages WHERE id = :id").step(id=message.id)
    queued = replace(sent, status=DeliveryStatus.QUEUED)
    await phones.engine.write(Unit("ana", (deliveries.put([queued]), undo), phones.app_id))
    again = Unit(
        "ana",
        (
            undo,  # as the end of the job, which comes first
            deliveries.put([sent]),
            *add_steps([StoredMessage(message, MessageStatus.PENDING, None)]),
        ),
        phones.app_id,
    )
    now, reason = phones.clock.now() + 1, InvalidationReason.REVOKED
    await asyncio.gather(
        phones.engine.write(again),
        phones.devices.invalidate(phones.app_id, phones.loud.id, reason, now),
    )
    assert await phones.waiting(phones.loud) == []
    assert await phones.status() is DeliveryStatus.FAILED


async def test_nothing_is_sent_again_once_the_notification_is_deleted(phones: Phones) -> None:
    """Retention deletes it between two reads of the attempt: who has the message is not known."""
    await phones.begin()
    await phones.messages.acknowledge((), phones.clock.now(), await phones.waiting(phones.loud))
    delete = statement("d", "DELETE FROM attempts WHERE notification_id = :id")
    found = await phones.delivery()
    await phones.engine.write(Unit("ana", (delete.step(id=found.notification_id),)))
    await phones.pass_time()
    assert await phones.waiting(phones.loud) == []
    assert await phones.waiting(phones.quiet) == []
    left = statement("d", "SELECT id FROM jobs WHERE app_id = :app_id")
    assert await phones.engine.fetch(left, app_id=phones.app_id) == []


async def test_nothing_is_left_of_a_cancelled_event_whose_type_was_deleted(phones: Phones) -> None:
    await phones.begin(phones.quiet)
    await SqlTypes(phones.engine).delete(phones.app_id, "SHIPPED")
    await SqlEvents(phones.engine).cancel(phones.app_id, phones.event_id, NOW)
    await phones.pass_time()
    assert await phones.status() is DeliveryStatus.CANCELLED
    dead = statement("d", "SELECT id FROM jobs WHERE app_id = :app_id")
    assert await phones.engine.fetch(dead, app_id=phones.app_id) == []


@dataclass
class Service:
    """The `Sender` port: a push service that answers always the same."""

    outcome: Outcome
    name = "apns"

    async def send(self, _message: OutgoingMessage) -> Outcome:
        return self.outcome

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("outcome", [REFUSED, GONE, FAILS, Sent()])
async def test_a_device_gets_its_push_whatever_the_service_of_the_other_says(
    engine: Engine, outcome: Outcome
) -> None:
    phones = Phones(engine, {Channel.PUSH: Service(outcome)})
    address = Vault(bytes(32)).seal(b"token", phones.loud.address_context)
    phones.loud = replace(phones.loud, platform=Platform.IOS, address=address)
    await phones.begin()
    before = DeliveryStatus.SENT if isinstance(outcome, Sent) else DeliveryStatus.QUEUED
    assert await phones.status() is before
    for _ in range(40):
        await phones.pass_time(LATER // 40)
    (message,) = await phones.waiting(phones.quiet)
    assert await phones.status() is DeliveryStatus.SENT
    await phones.messages.fail(phones.quiet.id, message.id, phones.clock.now())
    last = DeliveryStatus.SENT if isinstance(outcome, Sent) else DeliveryStatus.FAILED
    assert await phones.status() is last


async def test_a_delivery_ends_with_the_last_device(phones: Phones) -> None:
    await phones.begin()
    (message,) = await phones.waiting(phones.loud)
    await phones.messages.fail(phones.loud.id, message.id, phones.clock.now())
    assert await phones.status() is DeliveryStatus.SENT
    await phones.devices.invalidate(
        phones.app_id, phones.quiet.id, InvalidationReason.UNINSTALLED, phones.clock.now()
    )
    await phones.pass_time()
    assert await phones.status() is DeliveryStatus.EXPIRED


async def test_what_one_device_has_acknowledged_does_not_expire(phones: Phones) -> None:
    expires_at = dt.datetime.fromtimestamp((NOW + HOUR) / 1000, dt.UTC)
    await phones.begin(expires_at=expires_at.isoformat())
    (message,) = await phones.waiting(phones.loud)
    await phones.messages.acknowledge((), phones.clock.now(), [message])
    assert await phones.status() is DeliveryStatus.DELIVERED
    await phones.pass_time()
    assert await phones.waiting(phones.quiet) == []
    assert await phones.status() is DeliveryStatus.DELIVERED


async def test_the_rules_hold_for_the_device_that_waits(phones: Phones) -> None:
    await phones.begin()
    await phones.devices.set_preferences(
        phones.app_id, phones.quiet.id, lambda _: DevicePreferences(enabled=False)
    )
    await phones.pass_time()
    assert await phones.waiting(phones.quiet) == []
    assert len(await phones.waiting(phones.loud)) == 1
    assert await phones.status() is DeliveryStatus.SENT
