"""The house with its ports filled: what the server and the command line work with."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.access.vault import AesVault
from clarion.catalog.kinds import Catalog
from clarion.clock import SystemClock
from clarion.serving.files import DataFolder
from clarion.store.opening import migrate, open_engine
from clarion.store.sql.access.administrators import SqlAdministrators
from clarion.store.sql.access.apps import SqlApps
from clarion.store.sql.access.keys import SqlKeys
from clarion.store.sql.gateway.devices import SqlDevices, SqlFeedback
from clarion.store.sql.gateway.messages import SqlHistory, SqlMessages
from clarion.store.sql.gateway.statistics import SqlStatistics
from clarion.store.sql.gateway.topics import SqlBroadcasts, SqlDeviceTopics
from clarion.store.sql.notifications.deliveries import SqlDeliveries
from clarion.store.sql.notifications.events import SqlEvents
from clarion.store.sql.notifications.facts import SqlFacts
from clarion.store.sql.notifications.inboxes import SqlInboxes
from clarion.store.sql.notifications.jobs import SqlQueue
from clarion.store.sql.notifications.ledger import SqlLedger
from clarion.store.sql.notifications.retention import SqlRetention
from clarion.store.sql.people.templates import SqlTemplates
from clarion.store.sql.people.types import SqlTypes
from clarion.store.sql.people.users import SqlUsers
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from clarion.ports import (
        Administrators,
        Apps,
        Broadcasts,
        Clock,
        Deliveries,
        Devices,
        DeviceTopics,
        Events,
        Facts,
        FeedbackList,
        History,
        Inboxes,
        Keys,
        Ledger,
        Messages,
        Queue,
        Retention,
        Statistics,
        Templates,
        Types,
        Users,
        Vault,
    )
    from clarion.settings import Settings
    from clarion.store.engine import Engine


@dataclass(frozen=True, kw_only=True)
class House:
    """The ports, filled: what the server and the command line work with."""

    engine: Engine
    apps: Apps
    keys: Keys
    administrators: Administrators
    devices: Devices
    feedback: FeedbackList
    messages: Messages
    history: History
    topics: DeviceTopics
    broadcasts: Broadcasts
    statistics: Statistics
    inboxes: Inboxes
    users: Users
    types: Types
    templates: Templates
    catalog: Catalog
    events: Events
    queue: Queue
    facts: Facts
    ledger: Ledger
    deliveries: Deliveries
    retention: Retention
    vault: Vault
    clock: Clock
    folder: DataFolder


@contextlib.asynccontextmanager
async def open_house(
    settings: Settings, on_broken: Callable[[str], None] = lambda _message: None
) -> AsyncIterator[House]:
    """Open the store, up to date, and everything that stands on it alone."""
    folder = DataFolder(settings.data)
    folder.ensure()
    vault = AesVault(folder.master_key())
    applied = await migrate(settings.database_url)
    if applied:
        get_logger().info("migrated", migrations=applied)
    engine = await open_engine(
        settings.database_url,
        waiting_limit=settings.write_waiting,
        batch_limit=settings.write_batch,
        on_broken=on_broken,
    )
    clock = SystemClock()
    types, templates = SqlTypes(engine), SqlTemplates(engine)
    try:
        yield House(
            engine=engine,
            apps=SqlApps(engine),
            keys=SqlKeys(engine),
            administrators=SqlAdministrators(engine),
            devices=SqlDevices(engine),
            feedback=SqlFeedback(engine),
            messages=SqlMessages(engine),
            history=SqlHistory(engine),
            topics=SqlDeviceTopics(engine),
            broadcasts=SqlBroadcasts(engine),
            statistics=SqlStatistics(engine),
            inboxes=SqlInboxes(engine),
            users=SqlUsers(engine),
            types=types,
            templates=templates,
            catalog=Catalog(types, templates, clock),
            events=SqlEvents(engine),
            queue=SqlQueue(engine),
            facts=SqlFacts(engine),
            ledger=SqlLedger(engine),
            deliveries=SqlDeliveries(engine),
            retention=SqlRetention(engine),
            vault=vault,
            clock=clock,
            folder=folder,
        )
    finally:
        await engine.close()
