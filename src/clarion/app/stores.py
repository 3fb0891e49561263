"""Every port of the store with its adapter, one line each: for the server and the command line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clarion.access.administrators.sql.stores import make_admin_stores
from clarion.access.keyring import Keyring
from clarion.access.known_apps import KnownApps
from clarion.access.sql import Apps, Keys, Tickets, open_provider_keys, open_user_keys
from clarion.access.vault import Vault, key_id_of
from clarion.analytics.sql.aggregates import Analytics, RollupCounts
from clarion.app.installation import Installation, find_key_of, identify, refuse_new_key
from clarion.app.key_rotation import refuse_retired_key
from clarion.app.tables import PERSONAL
from clarion.audit.chain import ChainKeys, Key, derive_key
from clarion.audit.commands import record_command
from clarion.audit.sql import AuditLog, load_retired_keys
from clarion.catalog.catalog import Catalog
from clarion.catalog.sandbox.pool import ProcessSandbox
from clarion.catalog.sql import Categories, Templates, Types
from clarion.channels.sql import SqlProviders
from clarion.clock import Clock, MovableClock, SystemClock
from clarion.events.sql.claims import SqlClaims
from clarion.events.sql.events import SqlEvents
from clarion.events.sql.jobs import SqlQueue
from clarion.events.sql.ledger import SqlLedger
from clarion.events.sql.outcomes import SqlOutcomes
from clarion.events.sql.retention import SqlRetention
from clarion.history.sql.deliveries import SqlDeliveries, SqlDeliveryReports
from clarion.history.sql.notifications import SqlNotificationReader
from clarion.idempotency.sql import IdempotencyKeys
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.inbox.sql.pages import SqlInboxPages
from clarion.nodes.sql import NodeRecords
from clarion.people.erasure.sql.deleted_users import DeletedUsers
from clarion.people.erasure.sql.erasures import Erasures
from clarion.people.erasure.sql.exports import Exports
from clarion.people.segments.sql.segments import Segments
from clarion.people.sql import Users
from clarion.push.sql.devices import Devices
from clarion.push.sql.feedback import FeedbackList
from clarion.push.sql.messages import SqlHistory, SqlMessages
from clarion.push.sql.statistics import Statistics
from clarion.push.sql.topics import Broadcasts, Topics
from clarion.push.webpush.sql import PushEndpoints
from clarion.settings import Settings
from clarion.store.engine import Engine
from clarion.store.migrations.plan import find_newest, find_oldest
from clarion.store.opening import fetch_once, migrate, open_engine, sqlite_path
from clarion.store.postgres.clock import DatabaseClock
from clarion.store.postgres.key_locks import hold_key
from clarion.store.postgres.release_locks import hold_release
from clarion.system.child_process import Child
from clarion.system.data_directory import DataDirectory, list_database_files, make_private
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncpg

    from clarion.store.postgres.engine import OnConnect

# It is in the row of every job: the random part of a UUID is enough.
NODE_ID_LENGTH = 12


class Stores:
    """The adapters on one engine. Handlers get them by the names of these attributes."""

    # API keys in the data directory that are for other databases, and the names of these.
    foreign_keys: Mapping[str, str] = MappingProxyType({})

    def __init__(  # noqa: PLR0915 - a line a port
        self,
        engine: Engine,
        clock: Clock,
        directory: DataDirectory,
        sandbox: ProcessSandbox,
        vault: Vault,
        audit_log: AuditLog,
        installation: Installation,
    ) -> None:
        self.engine = engine
        self.installation = installation
        self.clock = clock
        self.directory = directory
        self.vault = vault
        self.audit_log = audit_log
        self.apps = Apps(engine)
        self.keys = Keys(engine)
        self.user_keys = open_user_keys(engine)
        self.provider_keys = open_provider_keys(engine)
        self.tickets = Tickets(engine)
        self.known_apps = KnownApps(self.apps, self.user_keys, vault)
        self.keyring = self._make_keyring()
        self.admins = make_admin_stores(engine)
        self.idempotency_keys = IdempotencyKeys(engine)
        self.users = Users(engine)
        self.segments = Segments(engine)
        self.deleted_users = DeletedUsers(engine)
        self.erasures = Erasures(engine, vault, clock, PERSONAL)
        self.exports = Exports(engine, PERSONAL)
        self._open_catalog(engine, sandbox)
        self.devices = Devices(engine)
        self.feedback = FeedbackList(engine)
        self.messages = SqlMessages(engine, pause_s=engine.shared_read_pause_s)
        self.history = SqlHistory(engine)
        self.topics = Topics(engine)
        self.broadcasts = Broadcasts(engine, pause_s=engine.shared_read_pause_s)
        self.push_endpoints = PushEndpoints(engine)
        self._open_statistics(engine)
        self.events = SqlEvents(engine)
        self._open_queue(engine, clock)
        self.notifications = SqlNotificationReader(engine)
        self.claims = SqlClaims(engine)
        self.outcomes = SqlOutcomes(engine)
        self.deliveries = SqlDeliveries(engine)
        self.delivery_reports = SqlDeliveryReports(engine)
        self.retention = SqlRetention(engine)
        self.inboxes = SqlInboxes(engine)
        self.inbox_pages = SqlInboxPages(engine)
        self.providers = SqlProviders(engine, self.vault)

    def _open_catalog(self, engine: Engine, sandbox: ProcessSandbox) -> None:
        self.types = Types(engine)
        self.templates = Templates(engine)
        self.sandbox = sandbox
        self.categories = Categories(engine)
        self.catalog = Catalog(self.types, self.categories, self.templates, self.clock, sandbox)

    def _open_statistics(self, engine: Engine) -> None:
        self.statistics = Statistics(engine)
        self.ledger = SqlLedger(engine)
        self.tally = RollupCounts(engine)
        self.analytics = Analytics(engine)

    def _open_queue(self, engine: Engine, clock: Clock) -> None:
        # Of this process among the nodes on PostgreSQL; with SQLite there is one node.
        self.node_id = clock.new_id()[-NODE_ID_LENGTH:] if isinstance(clock, DatabaseClock) else ""
        self.nodes = NodeRecords(engine)
        self.queue = SqlQueue(engine, self.node_id)

    def _make_keyring(self) -> Keyring:
        return Keyring(
            apps=self.apps,
            user_keys=self.user_keys,
            provider_keys=self.provider_keys,
            known_apps=self.known_apps,
            vault=self.vault,
            clock=self.clock,
            audit_log=self.audit_log,
        )


@contextlib.asynccontextmanager
async def open_stores(
    settings: Settings,
    on_broken: Callable[[str], None] = lambda _message: None,
    writer: Child | None = None,
) -> AsyncIterator[Stores]:
    """Bring the database up to date, open it with all adapters, and close it behind the caller.

    `on_broken` is called if the database can no longer be written to; `writer` is the process for
    SQLite, if one was started before.
    """
    directory = DataDirectory(settings.data)
    directory.ensure()
    # On PostgreSQL, nodes hold their keys in the database: see `hold_key`.
    is_sqlite = sqlite_path(settings.database_url) is not None
    with directory.use_keys() if is_sqlite else contextlib.nullcontext():
        await prepare_database(settings)
        vault = Vault(
            *await _ensure_keys(directory, settings.database_url),
            reread=directory.read_master_keys,
        )
        audit_keys = open_audit_keys(directory)
        on_connect = partial(_hold_key_and_release, vault.key_id)
        async with _open(settings, on_broken, on_connect, writer) as engine:
            clock = await open_clock(engine)
            await refuse_retired_key(engine, vault.key_id)
            installation = await identify(engine, vault, clock, directory, settings.database_url)
            await load_retired_keys(engine.fetch, audit_keys, vault)
            if settings.clock == "test":
                clock = MovableClock(clock)
            audit_log = AuditLog(engine, audit_keys, clock, settings.server_id)
            sandbox = ProcessSandbox(settings.app_template_cpu_s)
            try:
                async with record_command(audit_log):
                    yield Stores(engine, clock, directory, sandbox, vault, audit_log, installation)
            finally:
                await sandbox.close()


async def open_clock(engine: Engine) -> Clock:
    """Return the clock for all stored times: that of the database, if it has one.

    Tokens are checked with it, too: a token that is valid on one node is valid on all, and a
    machine with a wrong clock refuses no valid token.
    """
    if await engine.read_time() is None:
        return SystemClock()
    clock = DatabaseClock(engine.read_time)
    await clock.measure()
    return clock


def open_audit_keys(directory: DataDirectory) -> ChainKeys:
    """Return the keys of the audit log that belong to the master keys."""

    def derive() -> list[Key]:
        keys = directory.read_master_keys()
        return [(key_id_of(each).hex(), derive_key(each)) for each in keys]

    return ChainKeys(*derive(), reread=derive)


async def prepare_database(settings: Settings) -> None:
    """Bring the database up to date; only this account can read new files."""
    path = sqlite_path(settings.database_url)
    if path:
        make_private(list_database_files(path))
    if applied := await migrate(settings.database_url):
        # Of an empty database, `set_up` or the command says what there is to know.
        engine = "sqlite" if path else "postgres"
        is_new = applied[0] == find_oldest(engine).title
        about: dict[str, Any] = {"applied": len(applied), "newest": applied[-1]}
        if is_new:
            get_logger().debug("migrated", **about)
        else:
            get_logger().info("migrated", **about)


async def _hold_key_and_release(key_id: bytes, connection: asyncpg.Connection) -> None:
    await hold_release(find_newest("postgres"), connection)
    await hold_key(key_id, connection)


async def _ensure_keys(directory: DataDirectory, database_url: str) -> tuple[bytes, ...]:
    """Return the master keys. The first is created, unless the database has secrets already."""
    if not directory.master_key.exists():
        key_id = await find_key_of(partial(fetch_once, database_url))
        if key_id is not None:
            raise refuse_new_key(directory, key_id, database_url)
    return directory.ensure_master_keys()


@contextlib.asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Engine]:
    """Bring the database up to date, open it, and close it behind the caller."""
    await prepare_database(settings)
    async with _open(settings) as engine:
        yield engine


@contextlib.asynccontextmanager
async def _open(
    settings: Settings,
    on_broken: Callable[[str], None] = lambda _message: None,
    on_connect: OnConnect | None = None,
    writer: Child | None = None,
) -> AsyncIterator[Engine]:
    engine = await open_engine(
        settings.database_url,
        waiting_limit=settings.write_waiting,
        batch_limit=settings.write_batch,
        on_broken=on_broken,
        on_connect=on_connect,
        writer=writer,
    )
    try:
        yield engine
    finally:
        await engine.close()
