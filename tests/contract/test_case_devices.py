"""The devices that decisions about pushes look at."""

from collections.abc import Collection

import msgspec
import pytest

from clarion.catalog import built_in
from clarion.catalog.entry import build_entry
from clarion.catalog.model import Channel, Priority
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.events.cases import CaseReader, DecisionRequest
from clarion.events.drafts import EventDraft
from clarion.history.model import Content, Delivery, DeliveryStatus, ReasonCode
from clarion.people.model import Preferences
from clarion.people.sql import Users
from clarion.push.model import (
    Device,
    DeviceDetails,
    DevicePreferences,
    InvalidationReason,
    Platform,
)
from clarion.push.sql.devices import Devices
from clarion.store.engine import Engine
from tests.factories import (
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
from tests.sandbox import run_directly

ENTRY = build_entry(built_in.TYPES["POST_LIKE"], (), run_directly)


class CountingDevices(Devices):
    """The `Devices` port; counts the reads of the devices of users."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.reads: list[set[str]] = []

    async def valid_of_users(
        self, app_id: str, user_ids: Collection[str], limit: int
    ) -> dict[str, tuple[Device, ...]]:
        self.reads.append(set(user_ids))
        return await super().valid_of_users(app_id, user_ids, limit)


@pytest.fixture
def app_id() -> str:
    return new_app_id()


@pytest.fixture
def devices(engine: Engine) -> CountingDevices:
    return CountingDevices(engine)


@pytest.fixture
async def cases(engine: Engine, devices: CountingDevices, app_id: str) -> CaseReader:
    for name in ("ana", "bo", "eve"):
        await Users(engine).put(make_user(name, app_id=app_id))
    reader = build_pipeline(engine, FixedClock(), {}).explainer.cases
    return replace(reader, ports=replace(reader.ports, devices=devices))


def request(app_id: str, user_id: str, *channels: Channel) -> DecisionRequest:
    return DecisionRequest(
        app_id=app_id,
        user_id=user_id,
        entry=ENTRY,
        priority=Priority.MEDIUM,
        content=Content(),
        channels=channels,
        expires_at=None,
        now=NOW,
    )


async def test_the_devices_of_a_whole_batch_are_read_at_once(
    cases: CaseReader, devices: CountingDevices, app_id: str
) -> None:
    off = DevicePreferences(enabled=False)
    of_ana, of_bo, gone, foreign = (
        make_device(app_id, details=DeviceDetails(user_id=user_id), **changes)
        for user_id, changes in (
            ("ana", {"preferences": off}),
            ("bo", {}),
            ("bo", {}),
            ("bo", {"address": b"sealed", "platform": Platform.IOS}),
        )
    )
    for device in (of_ana, of_bo, gone, foreign):
        await devices.add(device)
    await devices.invalidate(app_id, gone.id, InvalidationReason.REVOKED, NOW)
    prepared = await cases.read(
        [
            request(app_id, "ana", Channel.IN_APP, Channel.PUSH),
            request(app_id, "bo", Channel.PUSH),
            request(app_id, "eve", Channel.PUSH),
            request(app_id, "bo", Channel.IN_APP),
        ]
    )
    assert devices.reads == [{"ana", "bo", "eve"}]
    found = [each.case.devices for each in prepared]
    assert found[:3] == [(of_ana,), (of_bo,), ()]


async def test_without_a_push_no_devices_are_read(
    cases: CaseReader, devices: CountingDevices, app_id: str
) -> None:
    requests = [request(app_id, name, Channel.IN_APP, Channel.EMAIL) for name in ("ana", "bo")]
    prepared = await cases.read(requests)
    assert [each.case.devices for each in prepared] == [(), ()]
    assert devices.reads == []


async def test_a_push_that_a_quiet_device_held_is_sent_when_it_is_no_longer_quiet(
    engine: Engine, devices: CountingDevices, app_id: str
) -> None:
    user = make_user("ana", app_id=app_id, attributes={"stub": "delivered"})
    await Users(engine).put(replace(user, preferences=Preferences(quiet_hours=(False,) * 24)))
    quiet = DevicePreferences(quiet_hours=(True,) * 24)
    device = make_device(app_id, details=DeviceDetails(user_id="ana"), preferences=quiet)
    await devices.add(device)
    await SqlTypes(engine).put(app_id, make_type("SHIPPED", default_channels=(Channel.PUSH,)), NOW)
    await SqlTemplates(engine).put(
        app_id, make_template("SHIPPED", channel=Channel.PUSH, body="x", subject=None, variables=())
    )
    pipeline = build_pipeline(engine, FixedClock(), {})
    draft = msgspec.convert({"type": "SHIPPED", "recipient": {"user_id": "ana"}}, EventDraft)
    event = await pipeline.intake.prepare(app_id, draft)
    await pipeline.intake.accept([event])

    async def delivery() -> Delivery:
        await drain(pipeline)
        ports = pipeline.explainer.cases.ports
        page = await ports.notifications.list_of_event(app_id, event.id, after=None, limit=1)
        notification_id = page.items[0].id
        (found,) = (await ports.deliveries.find_many(app_id, [notification_id]))[notification_id]
        return found

    held = await delivery()
    assert (held.status, held.reason, held.until) == (
        DeliveryStatus.HELD,
        ReasonCode.QUIET_HOURS,
        None,
    )
    await devices.set_preferences(app_id, device.id, lambda _: DevicePreferences())
    await pipeline.replan(app_id, "ana")
    assert (await delivery()).status is DeliveryStatus.SENT
