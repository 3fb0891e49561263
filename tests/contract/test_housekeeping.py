"""The table of housekeeping: each task on the real stores, until nothing is left to do."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from clarion.access.vault import Vault
from clarion.app.housekeeping import CHUNK, Task, list_tasks
from clarion.app.installation import Installation
from clarion.app.stores import Stores
from clarion.audit.chain import ChainKeys
from clarion.audit.sql import AuditLog
from clarion.catalog.sandbox.pool import ProcessSandbox
from clarion.errors import StoreUnavailable
from clarion.events.model import EventStatus
from clarion.nodes.bus import NoBus
from clarion.nodes.membership import SoleNode
from clarion.nodes.model import Node
from clarion.nodes.watch import Watch
from clarion.people.erasure.eraser import Eraser
from clarion.people.last_seen import LastSeen
from clarion.push.connections import Connections
from clarion.push.dispatch import Dispatch
from clarion.push.metrics import GatewayMetrics
from clarion.push.model import InvalidationReason
from clarion.settings import load
from clarion.store.engine import Engine
from clarion.system.data_directory import DataDirectory
from clarion.system.supervisor import STABLE_S
from clarion.telemetry.metrics import Metrics
from tests.contract.test_retention import OLD, YOUNG, add_notification, id_at, is_left
from tests.factories import (
    DAY,
    NOW,
    FixedClock,
    make_app,
    make_device,
    make_provider_key,
    make_user,
)
from tests.pipeline import PipelineStore, make_event

SETTINGS = load({"event_days": "30", "notification_days": "90", "device_days": "30"})


@pytest.fixture
def stores(engine: Engine, tmp_path: Path) -> Stores:
    directory = DataDirectory(tmp_path / "data")
    directory.ensure()
    vault = Vault(*directory.ensure_master_keys())
    clock = FixedClock(NOW)
    audit_log = AuditLog(engine, ChainKeys(("00000000", bytes(32))), clock, "node")
    here = Installation("here", "a test")
    return Stores(engine, clock, directory, ProcessSandbox(1), vault, audit_log, here)


@pytest.fixture
def dispatch(stores: Stores) -> Dispatch:
    return Dispatch(
        messages=stores.messages,
        broadcasts=stores.broadcasts,
        connections=Connections(),
        clock=stores.clock,
        metrics=GatewayMetrics(Metrics().registry),
        stored_limit=100,
    )


@pytest.fixture
def last_seen(stores: Stores) -> LastSeen:
    return LastSeen(stores.users, stores.clock, lambda: ())


@pytest.fixture
def tasks(stores: Stores, dispatch: Dispatch, last_seen: LastSeen) -> dict[str, Task]:
    eraser = Eraser(
        deleted=stores.deleted_users,
        erasures=stores.erasures,
        clock=stores.clock,
        scrub=stores.engine.scrub,
        on_deleted=nothing,
        on_erased=nothing,
        kept_days=SETTINGS.deleted_user_days,
    )
    tasks = list_tasks(
        stores,
        SETTINGS,
        dispatch=dispatch,
        eraser=eraser,
        last_seen=last_seen,
        used_keys=set(),
        membership=SoleNode(Node("node", "node", "0", NOW, NOW), stores.clock),
    )
    return {task.name: task for task in tasks}


async def nothing(_app_id: str, _user_id: str) -> None:
    pass


@pytest.fixture
async def store(stores: Stores, engine: Engine) -> PipelineStore:
    app = make_app()
    await stores.apps.create(app, make_provider_key(app))
    return PipelineStore(engine, app.id)


async def test_every_task_runs_on_empty_stores(tasks: dict[str, Task]) -> None:
    for task in tasks.values():
        await task.run_once()
    assert len(tasks) == 28


async def test_a_task_that_fails_each_time_is_reported_as_failing(tasks: dict[str, Task]) -> None:
    """It must not sleep for so long that the supervisor takes it for stable in between."""
    assert max(task.every_s for task in tasks.values()) <= STABLE_S / 2


async def test_each_kind_of_record_has_its_own_period(
    store: PipelineStore, stores: Stores, tasks: dict[str, Task]
) -> None:
    ancient = await add_notification(store, NOW - 91 * DAY)
    old, young = await add_notification(store, OLD), await add_notification(store, YOUNG)
    for task in tasks.values():
        await task.run_once()
    assert [await is_left(store, each) for each in (ancient, old, young)] == [
        {False},
        {True},
        {True},
    ]
    page = await store.events.list(store.app_id, status=None, after=None, limit=9)
    assert [each.id for each in page.items] == [young.event_id]
    assert (await stores.inboxes.state(store.app_id, "ana")).unread_count == 2


async def test_a_task_goes_on_until_nothing_is_left(
    store: PipelineStore, tasks: dict[str, Task]
) -> None:
    over = [
        make_event(store.app_id, id=id_at(OLD), created_at=OLD, status=EventStatus.COMPLETED)
        for _ in range(CHUNK + 1)
    ]
    await store.events.accept(over, [])
    await tasks["prune_events"].run_once()
    page = await store.events.list(store.app_id, status=None, after=None, limit=9)
    assert page.items == ()


async def test_many_devices_are_pruned_in_small_commits(
    store: PipelineStore, stores: Stores, engine: Engine, tasks: dict[str, Task]
) -> None:
    """Each may be subscribed to a thousand topics, so that a commit of all would take seconds."""
    devices = [make_device(app_id=store.app_id) for _ in range(60)]
    await asyncio.gather(*map(stores.devices.add, devices))
    revoked = InvalidationReason.REVOKED
    revoke = partial(stores.devices.invalidate, reason=revoked, now=OLD)
    await asyncio.gather(*(revoke(store.app_id, device.id) for device in devices))
    before = engine.commit.batches
    await tasks["prune_devices"].run_once()
    assert await stores.devices.find_old(NOW, 1) == ()
    assert engine.commit.batches - before >= 6


async def test_apps_beyond_the_first_thousand_are_pruned(
    stores: Stores, tasks: dict[str, Task], engine: Engine
) -> None:
    apps = [make_app() for _ in range(1_001)]
    await asyncio.gather(*(stores.apps.create(app, make_provider_key(app)) for app in apps))
    last = PipelineStore(engine, max(app.id for app in apps))
    old = make_event(last.app_id, id=id_at(OLD), created_at=OLD, status=EventStatus.COMPLETED)
    await last.events.accept([old], [])
    await tasks["prune_events"].run_once()
    assert await last.events.get(last.app_id, old.id) is None


async def test_devices_that_were_seen_are_recorded(
    store: PipelineStore, stores: Stores, dispatch: Dispatch, tasks: dict[str, Task]
) -> None:
    device = make_device(app_id=store.app_id, last_seen_at=OLD)
    await stores.devices.add(device)
    dispatch.seen[device.id] = NOW - 1
    await tasks["record_seen_devices"].run_once()
    found = await stores.devices.get(store.app_id, device.id)
    assert found is not None
    assert (found.last_seen_at, found.connected_at) == (NOW, NOW - 1)
    assert dispatch.seen == {}


async def test_of_devices_that_cannot_be_recorded_the_newest_connections_are_kept(
    stores: Stores, dispatch: Dispatch, tasks: dict[str, Task]
) -> None:
    async def fail(_seen: Mapping[str, int], _now: int) -> None:
        dispatch.seen["a"] = NOW + 1
        raise StoreUnavailable

    stores.devices.touch = fail  # type: ignore[assignment, method-assign]
    dispatch.seen |= {"a": NOW, "b": NOW}
    with pytest.raises(StoreUnavailable):
        await tasks["record_seen_devices"].run_once()
    assert dispatch.seen == {"a": NOW + 1, "b": NOW}


async def test_a_task_that_watches_the_bus_is_due_soon_while_it_is_not_heard(
    stores: Stores,
) -> None:
    done = asyncio.Event()

    async def step(_now: int) -> int:
        done.set()
        return 0

    watch = Watch(NoBus(is_alone=False), disconnected_s=0.001, connected_s=1_000)
    running = asyncio.create_task(Task("task", 1_000, step, stores.clock, watch=watch).run())
    await asyncio.wait_for(done.wait(), 30)
    running.cancel()


async def test_users_who_were_seen_are_recorded(
    stores: Stores, tasks: dict[str, Task], last_seen: LastSeen
) -> None:
    ids = [f"user-{number}" for number in range(CHUNK + 1)]
    for user_id in ids:
        await stores.users.put(make_user(user_id))
        last_seen.note("app", user_id)
    await tasks["record_seen_users"].run_once()
    found = await stores.users.find_many("app", ids)
    assert {user.last_seen_at for user in found.values()} == {NOW}


async def test_devices_that_were_seen_are_recorded_in_parts(
    tasks: dict[str, Task], dispatch: Dispatch
) -> None:
    dispatch.seen |= {f"device-{number}": NOW for number in range(CHUNK + 1)}
    step = tasks["record_seen_devices"].step
    assert [await step(NOW) for _ in range(3)] == [CHUNK, 1, 0]


async def test_invalid_devices_their_feedback_and_deleted_topics_are_pruned(
    store: PipelineStore, stores: Stores, tasks: dict[str, Task]
) -> None:
    old, young = make_device(app_id=store.app_id), make_device(app_id=store.app_id)
    for device, invalidated_at in ((old, OLD), (young, YOUNG)):
        await stores.devices.add(device)
        await stores.devices.invalidate(
            store.app_id, device.id, InvalidationReason.REVOKED, invalidated_at
        )
        await stores.broadcasts.subscribe(store.app_id, device.id, device.id, OLD)
        await stores.topics.delete(store.app_id, device.id, invalidated_at)
    for name in ("prune_devices", "prune_feedback", "prune_topics"):
        await tasks[name].run_once()
    assert await stores.devices.get(store.app_id, old.id) is None
    assert await stores.devices.get(store.app_id, young.id) is not None
    page = await stores.feedback.list(store.app_id, since=0, after=None, limit=9)
    assert [entry.token_hash for entry in page.items] == [young.token_hash]
    # A topic that is gone can be used again; one that was deleted lately cannot.
    again = await stores.broadcasts.subscribe(store.app_id, young.id, old.id, NOW)
    assert again is not None
    assert await stores.broadcasts.subscribe(store.app_id, young.id, young.id, NOW) is None
