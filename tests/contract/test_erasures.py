"""The ports of deletion: a user is gone from every table, and nobody else is."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import cycle
from types import MappingProxyType
from typing import Any

import apsw
import msgspec
import pytest

from clarion.access.vault import Vault
from clarion.app.tables import PERSONAL
from clarion.errors import Conflict, EmailTaken, NotFound
from clarion.events.model import (
    AUDIENCES,
    Audience,
    AudienceKind,
    Event,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
)
from clarion.events.sql import naming
from clarion.events.sql.outcomes import SqlOutcomes
from clarion.history.model import Actor, Content, DeliveryStatus
from clarion.history.sql.erasure import erase_notifications
from clarion.people.erasure.api import UserExport
from clarion.people.erasure.eraser import SETTLE_MS, Eraser
from clarion.people.erasure.export import write_export
from clarion.people.erasure.model import ErasureStatus
from clarion.people.erasure.sql.deleted_users import DeletedUsers
from clarion.people.erasure.sql.erasures import Erasures
from clarion.people.erasure.sql.exports import Exports
from clarion.people.sql import Users
from clarion.push.messages import Messages
from clarion.push.model import DeviceDetails, MessageStatus
from clarion.push.sql.devices import Devices
from clarion.store.engine import Engine
from clarion.store.lifecycle.user_rows import ErasedUser
from clarion.store.opening import sqlite_path
from clarion.store.statement import Step, Unit, statement
from tests.contract.conftest import opened
from tests.factories import (
    DAY,
    NOW,
    FixedClock,
    make_device,
    make_message,
    make_user,
    new_app_id,
)
from tests.pipeline import (
    PipelineStore,
    make_delivery,
    make_event,
    make_job,
    make_notification,
)
from tests.planting import find_in_files, find_in_tables, plant
from tests.replacing import replace

MARK, OTHER = "qzmarkedtextqz", "xwothermarkxw"
QUEUED = MessageStatus.QUEUED


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture
def erasures(engine: Engine, clock: FixedClock) -> Erasures:
    return Erasures(engine, Vault(bytes(32)), clock, PERSONAL)


class Received:
    """Who was reported as gone."""

    def __init__(self) -> None:
        self.users: list[tuple[str, str]] = []

    async def __call__(self, app_id: str, user_id: str) -> None:
        self.users.append((app_id, user_id))


@pytest.fixture
def heard() -> Received:
    return Received()


@pytest.fixture
def eraser(engine: Engine, erasures: Erasures, clock: FixedClock, heard: Received) -> Eraser:
    return Eraser(
        deleted=DeletedUsers(engine),
        erasures=erasures,
        clock=clock,
        scrub=engine.scrub,
        on_deleted=heard,
        on_erased=heard,
        kept_days=30,
        wait_s=60,  # on a busy machine it would have to be continued
    )


async def count_rows(engine: Engine, url: str, mark: str) -> int:
    return len(await find_in_tables(engine, url, mark))


async def test_nothing_marked_is_left_of_an_erased_user_and_all_of_others(
    engine: Engine, database_url: str, eraser: Eraser
) -> None:
    await plant(engine, database_url, "app", f"ana-{MARK}", MARK)
    await plant(engine, database_url, "app", f"bob-{OTHER}", OTHER)
    assert len(
        {each.split(".")[0] for each in await find_in_tables(engine, database_url, MARK)}
    ) == len(PERSONAL)
    others = await count_rows(engine, database_url, OTHER)
    receipt = await eraser.erase("app", f"ana-{MARK}")
    assert await find_in_tables(engine, database_url, MARK) == []
    assert await count_rows(engine, database_url, OTHER) == others
    assert receipt.status is ErasureStatus.SETTLING
    # Triggers remove these with the user.
    removed = {"user_attributes", "inactive_users"}
    assert set(receipt.counts) == {each.name for each in PERSONAL} - removed


async def test_the_text_is_gone_from_the_files_of_sqlite(
    engine: Engine, database_url: str, eraser: Eraser
) -> None:
    path = sqlite_path(database_url)
    if path is None:  # what PostgreSQL keeps until its vacuum is in the documentation
        return
    # Rows of others lie between those of the user, and pages are split and joined.
    for part in range(3):
        await plant(engine, database_url, "app", f"bob-{part}", f"{OTHER}{part}", count=100)
        await plant(engine, database_url, f"app-{part}", f"ana-{MARK}", f"{part}-{MARK}", count=100)
    assert find_in_files(path, MARK)
    await eraser.erase("app", "bob-1")
    for part in range(3):
        await eraser.erase(f"app-{part}", f"ana-{MARK}")
    assert find_in_files(path, MARK) == []
    assert find_in_files(path, f"{OTHER}1") == []
    assert find_in_files(path, f"{OTHER}2") != []


async def test_a_deleted_user_is_found_by_nobody_until_restored(
    users: Users, eraser: Eraser, heard: Received
) -> None:
    await users.put(make_user("ana", email="ana@example.com"))
    deleted = await eraser.delete("app", "ana")
    assert deleted.deleted_at == NOW
    assert await users.get("app", "ana") is None
    assert not await users.follow("app", "ana", "news", NOW)
    assert await eraser.deleted.is_deleted("app", "ana")
    with pytest.raises(NotFound):
        await eraser.delete("app", "ana")
    restored = await eraser.restore("app", "ana")
    assert restored.deleted_at is None
    assert await users.get("app", "ana") == restored
    assert heard.users == [("app", "ana")] * 2
    with pytest.raises(NotFound):
        await eraser.restore("app", "ana")


async def test_an_address_is_free_for_others_and_then_refuses_the_restore(
    users: Users, eraser: Eraser
) -> None:
    await users.put(make_user("ana", email="ana@example.com"))
    await eraser.delete("app", "ana")
    await users.put(make_user("eve", email="ANA@example.com"))
    with pytest.raises(EmailTaken) as refused:
        await eraser.restore("app", "ana")
    assert refused.value.faults[0].field == "email"
    assert await users.get("app", "ana") is None


async def test_a_user_can_be_restored_for_thirty_days_and_is_erased_then(
    users: Users, eraser: Eraser, clock: FixedClock
) -> None:
    await users.put(make_user("ana"))
    await users.put(make_user("bob"))
    await eraser.delete("app", "ana")
    clock.advance(30 * DAY)
    assert await eraser.purge(clock.now() - 30 * DAY, 500) == 0
    await eraser.delete("app", "bob")
    clock.advance(1)
    with pytest.raises(NotFound):
        await eraser.restore("app", "ana")
    assert await eraser.purge(clock.now() - 30 * DAY, 500) == 1
    clock.advance(70_000)  # longer than an erasure may take before it is continued
    assert await eraser.run_due(clock.now()) == 1
    assert await eraser.erasures.is_erased("app", "ana")
    assert not await eraser.erasures.is_erased("app", "bob")
    assert (await eraser.restore("app", "bob")).id == "bob"


async def test_erasing_again_returns_the_receipt_and_nobody_unknown_has_one(
    users: Users, eraser: Eraser
) -> None:
    with pytest.raises(NotFound):
        await eraser.erase("app", "ana")
    await users.put(make_user("ana"))
    receipt = await eraser.erase("app", "ana")
    again = await eraser.erase("app", "ana")
    assert again.id == receipt.id
    assert (await eraser.erasures.list("app", after=None, limit=5)).items == (
        await eraser.erasures.get("app", receipt.id),
    )
    assert await eraser.erasures.get("other", receipt.id) is None


async def test_what_is_written_late_is_removed_when_the_erasure_settles(
    engine: Engine, database_url: str, eraser: Eraser, clock: FixedClock
) -> None:
    user_id = f"ana-{MARK}"
    await plant(engine, database_url, "app", user_id, MARK)
    receipt = await eraser.erase("app", user_id)
    await plant(engine, database_url, "app", user_id, MARK)  # as if it had been in flight
    await engine.write(Unit("", (statement("d", "DELETE FROM users").step(),)))
    # A message to a device that this pass cannot find by its row.
    await engine.write(Unit("", (statement("d", "DELETE FROM devices").step(),)))
    assert await eraser.run_due(clock.now()) == 0
    clock.advance(SETTLE_MS)
    assert await eraser.run_due(clock.now()) == 1
    assert await find_in_tables(engine, database_url, MARK) == []
    done = await eraser.erasures.get("app", receipt.id)
    assert done is not None
    assert (done.status, done.subject) == (ErasureStatus.DONE, None)
    assert done.counts["messages"] > receipt.counts["messages"]
    clock.advance(SETTLE_MS)
    assert await eraser.run_due(clock.now()) == 0


async def test_a_user_created_again_is_a_new_one_and_keeps_what_is_theirs(
    users: Users, eraser: Eraser, clock: FixedClock
) -> None:
    await users.put(make_user("ana", name="Old"))
    await eraser.erase("app", "ana")
    assert await eraser.erasures.is_erased("app", "ana")
    await eraser.check_writable("app", "ana")
    await users.put(make_user("ana", name="New"))
    assert not await eraser.erasures.is_erased("app", "ana")
    assert await users.follow("app", "ana", "news", NOW)
    clock.advance(SETTLE_MS)
    assert await eraser.run_due(clock.now()) == 1
    found = await users.get("app", "ana")
    assert found is not None
    assert found.name == "New"
    assert (await users.followed("app", "ana", after=None, limit=5)).items == ("news",)
    assert await eraser.run_due(clock.now() + SETTLE_MS) == 0


async def test_an_interrupted_erasure_goes_on_and_keeps_late_users_out_until_then(
    engine: Engine, database_url: str, eraser: Eraser, clock: FixedClock
) -> None:
    user_id = f"ana-{MARK}"
    await plant(engine, database_url, "app", user_id, MARK)
    begun = await replace(eraser, wait_s=0).erase("app", user_id)
    assert begun.status is ErasureStatus.RUNNING
    with pytest.raises(Conflict):
        await eraser.check_writable("app", user_id)
    assert list(await eraser.find_unwritable("app", ["bob", user_id, "cy"])) == [user_id]
    await eraser.check_writable("app", "bob")
    await eraser.check_writable("other", user_id)
    assert await eraser.run_due(clock.now()) == 1
    assert await find_in_tables(engine, database_url, MARK) == []
    receipt = await eraser.erasures.get("app", begun.id)
    assert receipt is not None
    assert receipt.counts["notifications"] == 3
    await eraser.check_writable("app", user_id)


async def test_the_receipt_counts_all_rows_though_the_files_are_cleared_later(
    engine: Engine, database_url: str, eraser: Eraser
) -> None:
    async def is_busy() -> bool:
        return False

    for app_id, mark in (("app", MARK), ("other", OTHER)):
        await plant(engine, database_url, app_id, "ana", mark)
    begun = await replace(eraser, scrub=is_busy).erase("app", "ana")
    assert begun.status is ErasureStatus.RUNNING
    ended = await eraser.erase("app", "ana")
    assert (ended.id, ended.status) == (begun.id, ErasureStatus.SETTLING)
    assert ended.counts == (await eraser.erase("other", "ana")).counts


async def test_an_erasure_goes_on_though_the_clock_was_set_back(
    engine: Engine, database_url: str, eraser: Eraser, clock: FixedClock
) -> None:
    user_id = f"ana-{MARK}"
    await plant(engine, database_url, "app", user_id, MARK)
    begun = await replace(eraser, wait_s=0).erase("app", user_id)
    assert begun.status is ErasureStatus.RUNNING
    await eraser.erasures.claim_due(clock.now(), clock.now() + 60_000, clock.now() + DAY, 9)
    assert await eraser.run_due(clock.now()) == 0
    assert await eraser.run_due(clock.now() - 3_600_000) == 1
    assert await find_in_tables(engine, database_url, MARK) == []


async def test_two_nodes_can_run_the_same_erasure(
    engine: Engine, other_node: Engine, database_url: str, eraser: Eraser, clock: FixedClock
) -> None:
    vault = Vault(bytes(32))
    other = replace(
        eraser,
        erasures=Erasures(other_node, vault, clock, PERSONAL),
        scrub=other_node.scrub,
    )
    await plant(engine, database_url, "app", f"ana-{MARK}", MARK, count=20)
    await asyncio.gather(eraser.erase("app", f"ana-{MARK}"), other.erase("app", f"ana-{MARK}"))
    assert await find_in_tables(engine, database_url, MARK) == []


async def expand(store: PipelineStore, *users: str) -> tuple[Event, list[Job]]:
    """Store an event for some users, with a claimed job for each."""
    event = make_event(store.app_id, audience=Audience(AudienceKind.USERS, users))
    await store.events.accept([event], [make_job(event, kind=JobKind.EXPAND, pool=AUDIENCES)])
    (job,) = await store.claim()
    children = [make_job(event, id=f"{event.id}/{user}", user_id=user) for user in users]
    assert await store.queue.expand(job, children, None, NOW)
    return event, await store.claim()


async def read_progress(store: PipelineStore, event: Event) -> tuple[int, int, EventStatus]:
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    return found.remaining, found.notification_count, found.status


async def test_an_event_does_not_wait_for_a_recipient_who_was_erased(
    engine: Engine, eraser: Eraser
) -> None:
    store = PipelineStore(engine, new_app_id())
    users = ["ana", "ben", "cid"]
    for user in users:
        await Users(engine).put(make_user(user, app_id=store.app_id))
    event, (of_ana, of_ben, of_cid) = await expand(store, *users)
    assert await store.write(JobOutcome(job=of_ana, final_status=EventStatus.COMPLETED)) == [True]
    for user in ("ana", "ben", "ben"):  # that of Ana is counted already
        await eraser.erase(store.app_id, user)
    assert await read_progress(store, event) == (1, 2, EventStatus.PROCESSING)
    late = JobOutcome(job=of_ben, final_status=EventStatus.COMPLETED)
    assert await store.write(late) == [False]
    assert await store.write(JobOutcome(job=of_cid, final_status=EventStatus.COMPLETED)) == [True]
    assert await read_progress(store, event) == (0, 3, EventStatus.COMPLETED)


async def test_the_last_recipient_who_is_erased_completes_the_event(
    engine: Engine, eraser: Eraser
) -> None:
    store = PipelineStore(engine, new_app_id())
    await Users(engine).put(make_user("ana", app_id=store.app_id))
    event, (of_ana, of_ben) = await expand(store, "ana", "ben")
    await store.write(JobOutcome(job=of_ben, final_status=EventStatus.COMPLETED))
    await eraser.erase(store.app_id, of_ana.user_id)
    assert await read_progress(store, event) == (0, 2, EventStatus.COMPLETED)


@pytest.mark.parametrize("is_together", [False, True])
async def test_a_worker_writes_nothing_of_a_notification_that_is_erased(
    engine: Engine, *, is_together: bool
) -> None:
    """A delivery without its notification would not be found by any later round."""
    store = PipelineStore(engine, new_app_id())
    event, job = await store.claimed()
    added = make_notification(event)
    delivery = make_delivery(added)
    names = {"deliver": f"{added.id}/stub", "held": f"{added.id}/held", "digest": "digest/x"}
    jobs = [make_job(event, id=id_, kind=JobKind(name)) for name, id_ in names.items()]
    stored = JobOutcome(
        job=job,
        final_status=EventStatus.COMPLETED,
        notification=added,
        deliveries=(delivery,),
        jobs=tuple(jobs),
    )
    assert await store.write(stored) == [True]
    claimed = {each.id: each for each in await store.claim()}
    assert set(claimed) == set(names.values())
    late = [
        JobOutcome(job=each, deliveries=(replace(delivery, status=DeliveryStatus.DROPPED),))
        for each in claimed.values()
    ]

    async def write(
        steps: Mapping[str, Step],
        changes: Sequence[Step] = (),
        within: Mapping[str, int] = MappingProxyType({}),
    ) -> int:
        del within
        unit = Unit("ana", (*steps.values(), *changes), store.app_id, is_last=True)
        assert await engine.write(unit) is not None
        return 1

    user = ErasedUser(store.app_id, "ana", NOW)
    erase = erase_notifications(engine, user, write)
    if is_together:
        await asyncio.gather(store.write(*late), erase)
    else:
        await erase
        assert await store.write(*late) == [False] * len(late)
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {}
    assert await store.due_times(names.values()) == {}


async def test_a_recipient_is_counted_once_by_whoever_is_first(
    engine: Engine, other_node: Engine, eraser: Eraser, clock: FixedClock
) -> None:
    """Two nodes erase while a worker writes what it has decided."""
    store, count = PipelineStore(engine, new_app_id()), 20
    other = replace(
        eraser,
        erasures=Erasures(other_node, Vault(bytes(32)), clock, PERSONAL),
        scrub=other_node.scrub,
    )
    await Users(engine).put(make_user("ana", app_id=store.app_id))
    expanded = [await expand(store, "ana", "ben") for _ in range(count)]
    jobs = [job for _, claimed in expanded for job in claimed if job.user_id == "ana"]
    outcomes = SqlOutcomes(other_node)

    async def erase_too() -> None:
        with suppress(NotFound):  # it comes too late
            await other.erase(store.app_id, "ana")

    await asyncio.gather(
        eraser.erase(store.app_id, "ana"),
        erase_too(),
        *(
            outcomes.write([JobOutcome(job=job, final_status=EventStatus.COMPLETED)], NOW)
            for job in jobs
        ),
    )
    found = [await read_progress(store, event) for event, _ in expanded]
    assert found == [(1, 1, EventStatus.PROCESSING)] * count


async def read_export(engine: Engine, app_id: str, user_id: str) -> dict[str, object]:
    parts = write_export(Exports(engine, PERSONAL), app_id, user_id, "now")
    text = b"".join([part async for part in parts])
    read: dict[str, object] = msgspec.json.decode(text)
    return read


async def test_an_export_shows_every_column_that_is_not_omitted(
    engine: Engine, database_url: str, users: Users
) -> None:
    await users.put(make_user("ana", name="Ana", tags=("vip",)))
    exported = await read_export(engine, "app", "ana")
    assert exported["user"]["name"] == "Ana"  # type: ignore[index]
    assert exported["devices"] == exported["notifications"] == []
    await plant(engine, database_url, "app", "bob", MARK, count=450)
    exported = await read_export(engine, "app", "bob")
    assert set(exported) == set(UserExport.__struct_fields__)
    for table in PERSONAL:
        if table.section and table.section not in {"attempts", "deliveries", "user", "inbox"}:
            rows = exported[table.section]
            assert isinstance(rows, list)
            assert set(rows[0]) >= set(table.shown), table.name
    assert len(exported["notifications"]) == len(exported["devices"]) == 450  # type: ignore[arg-type]
    first = exported["notifications"][0]  # type: ignore[index]
    assert first["deliveries"][0]["rule"] == MARK  # part of the notification
    assert len(first["deliveries"]) == 2
    assert len(first["attempts"]) == 1
    assert not any(secret in str(exported) for secret in ("secret_hash", "token_hash", "address"))


async def test_an_export_holds_nothing_of_others(
    engine: Engine, database_url: str, users: Users
) -> None:
    await users.put(make_user("ana"))
    await plant(engine, database_url, "app", "bob", MARK)
    await plant(engine, database_url, "other", "ana", OTHER)
    exported = str(await read_export(engine, "app", "ana"))
    assert MARK not in exported
    assert OTHER not in exported


def by(name: str, **more: object) -> Content:
    return Content(actor=Actor(id=name, name=name.title()), **more)  # type: ignore[arg-type]


async def test_whoever_is_only_named_by_events_can_be_exported_and_erased(
    engine: Engine, eraser: Eraser
) -> None:
    """An app may use an id as actor or target that it never creates as a user."""
    store, exports = PipelineStore(engine, new_app_id()), Exports(engine, PERSONAL)
    event = await store.accept(content=by("zoe", data={"of": "ana"}), dedupe_key="ana:1")
    assert not await exports.exists(store.app_id, "nobody")
    assert await exports.exists(store.app_id, "zoe")
    exported = await read_export(engine, store.app_id, "zoe")
    shown = msgspec.convert(exported["events"], list[dict[str, Any]])[0]
    assert (shown["id"], shown["content"]["actor"]) == (event.id, {"id": "zoe", "name": "Zoe"})
    assert "ana" not in str(shown)  # it is Ana's event
    receipt = await eraser.erase(store.app_id, "zoe")
    assert receipt.counts == {"events": 1}
    assert (await eraser.erase(store.app_id, "zoe")).id == receipt.id
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    assert (found.content.actor, found.content.data) == (None, {"of": "ana"})
    assert not await exports.exists(store.app_id, "zoe")


async def test_an_id_that_waits_in_any_table_is_known(engine: Engine) -> None:
    app_id, exports = new_app_id(), Exports(engine, PERSONAL)
    hours = {"used": 1, "expires_at": NOW}
    add = statement(
        "count",
        "INSERT INTO limit_counts (app_id, id, used, expires_at) VALUES "
        "(:app_id, :id, :used, :expires_at)",
    )
    await engine.write(Unit("", (add.step(app_id=app_id, id="zoe\nx", **hours),)))
    assert await exports.exists(app_id, "zoe")
    assert not await exports.exists(app_id, "zo")


async def test_the_erasure_of_an_actor_leaves_the_segment_of_an_event(
    engine: Engine, eraser: Eraser
) -> None:
    """It is expanded later: without its filter nobody would get it."""
    store = PipelineStore(engine, new_app_id())
    audience = Audience(AudienceKind.SEGMENT, segment="vips", filter="tag = 'vip'")
    event = await store.accept(audience=audience, content=by("zoe"))
    await eraser.erase(store.app_id, "zoe")
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    assert (found.audience, found.content.actor) == (audience, None)


async def test_messages_belong_to_the_user_whom_the_device_had(
    engine: Engine, devices: Devices, messages: Messages, users: Users, eraser: Eraser
) -> None:
    """Ana's phone is Bob's now: of the messages to it, those to Ana are erased, and no other."""
    for user_id in ("ana", "bob"):
        await users.put(make_user(user_id))
    phone = make_device(details=DeviceDetails(user_id="ana"))
    assert await devices.add(phone)
    before, after = NOW * 1000 - 5, NOW * 1000 + 5
    await messages.add(make_message(phone.id, id="ana", sequence=before), QUEUED, None)
    await devices.update("app", phone.id, DeviceDetails(user_id="bob"), NOW)
    await messages.add(make_message(phone.id, id="bob", sequence=after), QUEUED, None)
    exported = await read_export(engine, "app", "ana")
    assert [each["id"] for each in exported["messages"]] == ["ana"]  # type: ignore[attr-defined]
    await eraser.erase("app", "ana")
    assert await list_messages(engine) == ["bob"]
    assert await devices.get("app", phone.id) is not None
    await devices.delete("app", phone.id, NOW + 1)
    await eraser.erase("app", "bob")
    assert await list_messages(engine) == []


async def list_messages(engine: Engine) -> list[str]:
    query = statement("list_messages", "SELECT id FROM messages ORDER BY id")
    return [row[0] for row in await engine.fetch(query)]


async def test_others_write_while_a_large_erasure_runs(
    engine: Engine, database_url: str, users: Users, eraser: Eraser
) -> None:
    """It is cut into small commits, so that nobody waits for all of it."""
    tables = ("notifications", "deliveries", "attempts")
    await plant(engine, database_url, "app", "ana", MARK, count=4_000, tables=tables)
    erasing = asyncio.create_task(replace(eraser, wait_s=60).erase("app", "ana"))
    written = 0
    while not erasing.done():
        await users.put(make_user("bob", name=str(written)))
        written += 1
    assert (await erasing).counts["notifications"] == 4_000
    assert written > 20, "fewer commits than chunks: others waited"


async def test_events_that_name_a_user_are_found_a_few_at_a_time(engine: Engine) -> None:
    """Each may have thousands of recipients: memory must not grow with their number."""
    store = PipelineStore(engine, new_app_id())
    audience = Audience(AudienceKind.USERS, ("ana", "bob"))
    ids = [(await store.accept(audience=audience)).id for _ in range(45)]
    pages = [page async for page in naming.scan(engine.fetch_in_background, store.app_id, "ana")]
    assert sorted(each.event.id for page in pages for each in page) == sorted(ids)
    assert max(map(len, pages)) <= 20


ERASED = 240
COUNTED = ("notifications", "deliveries")


async def test_answers_and_counts_are_those_of_each_user_though_scrubs_end_early(
    migrated_database: str, clock: FixedClock, heard: Received
) -> None:
    """A backup reads the log of SQLite meanwhile: it cannot be emptied, and nobody waits for it."""
    url, users = migrated_database, {f"ana-{n:03}": 1 + n % 7 for n in range(ERASED)}
    async with opened(url) as engine:
        await asyncio.gather(*(plant_some(engine, url, *each) for each in users.items()))
        # Each works on a few at once.
        erasers = [make_hasty(engine, clock, heard) for _ in range(8)]
        pairs = list(zip(cycle(erasers), users, strict=False))
        with closing(apsw.Connection(sqlite_path(url) or "")) as backup:
            backup.execute("BEGIN; SELECT COUNT(*) FROM users")
            begun = await asyncio.gather(*(each.erase("app", user) for each, user in pairs))
        assert {each.status for each in begun} == {ErasureStatus.RUNNING}
        patient = [replace(each, scrub=engine.scrub) for each in erasers]
        pairs = list(zip(cycle(patient), users, strict=False))
        ended = await asyncio.gather(*(each.erase("app", user) for each, user in pairs))
    assert [each.id for each in ended] == [each.id for each in begun]
    assert {each.status for each in ended} == {ErasureStatus.SETTLING}
    # Each notification has a delivery that is a row, and one that is not.
    expected = [
        {"users": 1, "notifications": count, "deliveries": 2 * count} for count in users.values()
    ]
    assert [each.counts for each in begun] == [each.counts for each in ended] == expected


async def plant_some(engine: Engine, url: str, user_id: str, count: int) -> None:
    await Users(engine).put(make_user(user_id))
    await plant(engine, url, "app", user_id, user_id, count, tables=COUNTED)


def make_hasty(engine: Engine, clock: FixedClock, heard: Received) -> Eraser:
    """Return an eraser that gives up each scrub after 1 to 20 ms."""
    limits = cycle(range(1, 21))

    async def scrub() -> bool:
        async with asyncio.timeout(next(limits) / 1_000):
            return await engine.scrub()

    tables = [each for each in PERSONAL if each.name in COUNTED]
    return Eraser(
        deleted=DeletedUsers(engine),
        erasures=Erasures(engine, Vault(bytes(32)), clock, tables),
        clock=clock,
        scrub=scrub,
        on_deleted=heard,
        on_erased=heard,
        kept_days=30,
        wait_s=60,
    )
