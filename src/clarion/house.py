"""The house with its ports filled: what the server and the command line work with."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.access.sql import SqlAdministrators, SqlApps, SqlKeys
from clarion.access.vault import AesVault
from clarion.catalog.catalog import CachedCatalog
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.clock import SystemClock
from clarion.data_directory import DataDirectory
from clarion.events.sql.deliveries import SqlDeliveries
from clarion.events.sql.events import SqlEvents
from clarion.events.sql.jobs import SqlQueue
from clarion.events.sql.notifications import SqlNotificationReader
from clarion.events.sql.outcomes import SqlOutcomes
from clarion.events.sql.retention import SqlRetention
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.sql import SqlUsers
from clarion.push.sql.devices import SqlDevices
from clarion.push.sql.feedback import SqlFeedback
from clarion.push.sql.messages import SqlHistory, SqlMessages
from clarion.push.sql.statistics import SqlStatistics
from clarion.push.sql.topics import SqlBroadcasts, SqlDeviceTopics
from clarion.store.opening import migrate, open_engine
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from clarion.access.port import Administrators, Apps, Keys, Vault
    from clarion.catalog.port import Templates, Types
    from clarion.clock import Clock
    from clarion.events.port import (
        Deliveries,
        Events,
        NotificationReader,
        Outcomes,
        Queue,
        Retention,
    )
    from clarion.inbox.port import Inboxes
    from clarion.people.port import Users
    from clarion.push.port import (
        Broadcasts,
        Devices,
        DeviceTopics,
        FeedbackList,
        History,
        Messages,
        Statistics,
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
    catalog: CachedCatalog
    events: Events
    queue: Queue
    notifications: NotificationReader
    outcomes: Outcomes
    deliveries: Deliveries
    retention: Retention
    vault: Vault
    clock: Clock
    folder: DataDirectory


@contextlib.asynccontextmanager
async def open_house(
    settings: Settings, on_broken: Callable[[str], None] = lambda _message: None
) -> AsyncIterator[House]:
    """Open the store, up to date, and everything that stands on it alone."""
    folder = DataDirectory(settings.data)
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
            catalog=CachedCatalog(types, templates, clock),
            events=SqlEvents(engine),
            queue=SqlQueue(engine),
            notifications=SqlNotificationReader(engine),
            outcomes=SqlOutcomes(engine),
            deliveries=SqlDeliveries(engine),
            retention=SqlRetention(engine),
            vault=vault,
            clock=clock,
            folder=folder,
        )
    finally:
        await engine.close()
