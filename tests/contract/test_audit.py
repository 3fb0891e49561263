"""The contract of `AuditLog` and `Chain`: entries join the unit of the change, in one chain."""

import asyncio
from collections.abc import Callable

import pytest

from clarion.access.sql import Keys
from clarion.audit.chain import ChainKeys
from clarion.audit.model import Act, ActorKind, AuditResult, ChainState, Entry, Filter
from clarion.audit.sql import AuditLog, Chain
from clarion.audit.verification import verify_chain
from clarion.errors import Conflict, InvalidFields
from clarion.store.engine import Engine
from clarion.store.statement import Unit, Value, statement
from tests.factories import DAY, NOW, FixedClock, make_key, make_once
from tests.replacing import replace

KEY = ("0a0b0c0d", b"k" * 32)
NEWER = ("11111111", b"n" * 32)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def log(engine: Engine, clock: FixedClock) -> AuditLog:
    return AuditLog(engine, ChainKeys(KEY), clock, "node-1")


@pytest.fixture
def chain(engine: Engine) -> Chain:
    return Chain(engine.fetch)


def act(action: str = "key.create", **changes: object) -> Act:
    made = Act(
        action=action,
        actor_kind=ActorKind.API_KEY,
        actor_id="K1",
        app_id="app",
        target={"key_id": "K2"},
        address="192.0.2.1",
        request_id="r1",
    )
    return replace(made, **changes)


def find(made: Act | None) -> Callable[[], Act | None]:
    return lambda: made


async def run(engine: Engine, sql: str, **values: Value) -> None:
    """Change the store as somebody does who has the password of the database."""
    await engine.write(Unit("", (statement("attack", sql).step(**values),)))


async def fill(log: AuditLog, count: int, **changes: object) -> None:
    for number in range(count):
        await log.write(act(f"action.{number}", **changes), AuditResult.DONE)
    assert await log.link_waiting() == count


async def all_entries(chain: Chain) -> tuple[Entry, ...]:
    return await chain.read(0, 1000)


async def test_an_entry_is_stored_with_the_change(log: AuditLog, keys: Keys, chain: Chain) -> None:
    key = make_key("app")
    with log.record(find(act())) as recording:
        log.describe(key_id=key.id)
        await keys.create(key)
        await recording.finish(AuditResult.DONE)
    assert await log.link_waiting() == 1
    (entry,) = await all_entries(chain)
    assert (entry.sequence, entry.action, entry.result) == (1, "key.create", AuditResult.DONE)
    assert (entry.actor_kind, entry.actor_id, entry.app_id) == (ActorKind.API_KEY, "K1", "app")
    assert (entry.address, entry.request_id, entry.node) == ("192.0.2.1", "r1", "node-1")
    assert (entry.target, entry.created_at) == ({"key_id": key.id}, NOW)


async def test_a_change_that_is_refused_leaves_no_entry(
    log: AuditLog, keys: Keys, chain: Chain
) -> None:
    key = make_key("app")
    await keys.create(key)
    with log.record(find(act())), pytest.raises(Conflict):
        await keys.create(key)
    assert await chain.read_waiting("", 10) == ()


async def test_one_entry_for_several_writes_and_none_for_what_is_not_recorded(
    log: AuditLog, keys: Keys, chain: Chain
) -> None:
    with log.record(find(act())) as recording:
        await asyncio.gather(*(keys.create(make_key("app")) for _ in range(5)))
        await recording.finish(AuditResult.DONE)
    with log.record(find(None)) as recording:
        await keys.create(make_key("app"))
        await recording.finish(AuditResult.DONE)
    await keys.create(make_key("app"))
    assert len(await chain.read_waiting("", 10)) == 1


async def test_a_replayed_request_is_recorded_as_unchanged(
    log: AuditLog, keys: Keys, chain: Chain
) -> None:
    for _ in range(2):
        with log.record(find(act())) as recording:
            await keys.create(make_key("app"), make_once("app"))
            await recording.finish(AuditResult.DONE)
    await log.link_waiting()
    assert [each.result for each in await all_entries(chain)] == [
        AuditResult.DONE,
        AuditResult.UNCHANGED,
    ]


async def test_a_failure_after_the_write_is_recorded_too(
    log: AuditLog, keys: Keys, chain: Chain
) -> None:
    with log.record(find(act())) as recording:
        await keys.create(make_key("app"))
        await recording.finish(AuditResult.FAILED, "unavailable")
    await log.link_waiting()
    found = [(each.result, each.reason) for each in await all_entries(chain)]
    assert found == [(AuditResult.DONE, None), (AuditResult.FAILED, "unavailable")]


async def test_what_a_task_writes_after_its_act_has_no_entry(
    log: AuditLog, keys: Keys, chain: Chain
) -> None:
    go = asyncio.Event()

    async def write_later() -> None:
        await go.wait()
        await keys.create(make_key("app"))

    with log.record(find(act())):
        later = asyncio.create_task(write_later())
        await asyncio.sleep(0)
    go.set()
    await later
    assert await chain.read_waiting("", 10) == ()


async def test_the_rows_of_a_unit_are_its_own(log: AuditLog, keys: Keys) -> None:
    key = make_key("app")
    await keys.create(key)
    with log.record(find(act("key.revoke"))):
        revoked = await keys.revoke("app", key.id, NOW)
    assert revoked is not None
    assert revoked.id == key.id


async def test_users_are_named_by_pseudonyms_and_found_by_their_ids(
    log: AuditLog, engine: Engine, chain: Chain, clock: FixedClock
) -> None:
    await log.write(act(user_id="ana@example.com"), AuditResult.DONE)
    newer = AuditLog(engine, ChainKeys(NEWER, KEY), clock, "node-1")
    clock.advance(1)
    await newer.write(
        act(user_id="ana@example.com", actor_kind=ActorKind.USER, actor_id="ana@example.com"),
        AuditResult.DONE,
    )
    await newer.write(act(user_id="bob"), AuditResult.DONE)
    await newer.link_waiting()
    assert "ana" not in repr(await all_entries(chain))
    found = await newer.list(Filter(app_id="app", user_id="ana@example.com"), after=None, limit=9)
    assert [each.created_at for each in found.items] == [NOW + 1, NOW]
    other = await newer.list(Filter(app_id="other", user_id="ana@example.com"), after=None, limit=9)
    assert other.items == ()


async def test_entries_are_listed_newest_first_by_app_action_actor_and_time(
    log: AuditLog, clock: FixedClock
) -> None:
    for number in range(6):
        await log.write(
            act(f"a.{number % 2}", app_id=f"app-{number % 3}", actor_id=f"K{number // 3}"),
            AuditResult.DONE,
        )
        clock.advance(1000)
    await log.link_waiting()

    async def times(**wanted: object) -> list[int]:
        page = await log.list(Filter(**wanted), after=None, limit=9)  # type: ignore[arg-type]
        return [(each.created_at - NOW) // 1000 for each in page.items]

    assert await times() == [5, 4, 3, 2, 1, 0]
    assert await times(app_id="app-1") == [4, 1]
    assert await times(action="a.1") == [5, 3, 1]
    assert await times(actor_id="K0") == [2, 1, 0]
    assert await times(app_id="app-1", action="a.1", actor_id="K0") == [1]
    assert await times(since=NOW + 2000, until=NOW + 4000) == [3, 2]


async def test_pages_hold_every_entry_once(log: AuditLog) -> None:
    await fill(log, 7)
    seen: list[str] = []
    after: str | None = None
    while True:
        page = await log.list(Filter(app_id="app"), after=after, limit=3)
        seen += [each.id for each in page.items]
        after = page.next
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 7
    with pytest.raises(InvalidFields):
        await log.list(Filter(), after="x", limit=3)


async def test_entries_are_listed_when_they_are_in_the_chain(log: AuditLog) -> None:
    await log.write(act(), AuditResult.DENIED, "forbidden")
    assert (await log.list(Filter(), after=None, limit=9)).items == ()
    await log.link_waiting()
    (entry,) = (await log.list(Filter(), after=None, limit=9)).items
    assert (entry.result, entry.reason) == (AuditResult.DENIED, "forbidden")


class _Held(Chain):
    """Holds whoever reads a batch of waiting entries, after the read, until it is released."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.fetch)
        self.has_read, self.released = asyncio.Event(), asyncio.Event()

    async def read_waiting(self, after: str, limit: int) -> tuple[Entry, ...]:
        found = await super().read_waiting(after, limit)
        if limit > 1 and not self.has_read.is_set():
            self.has_read.set()
            await self.released.wait()
        return found


async def test_what_another_node_has_not_read_is_linked_though_that_node_was_faster(
    engine: Engine, log: AuditLog
) -> None:
    """Whoever lists the entries after an act sees it, whatever other nodes link meanwhile."""
    other = AuditLog(engine, ChainKeys(KEY), FixedClock(), "node-2")
    other.chain, log.chain = theirs, ours = _Held(engine), _Held(engine)
    await log.write(act("action.0"), AuditResult.DONE)
    linking = asyncio.create_task(other.link_waiting())
    await theirs.has_read.wait()
    await log.write(act("action.1"), AuditResult.DONE)
    mine = asyncio.create_task(log.link_waiting())
    await ours.has_read.wait()
    theirs.released.set()
    assert await linking == 1
    ours.released.set()
    assert await mine == 1
    listed = await log.list(Filter(), after=None, limit=10)
    assert {each.action for each in listed.items} == {"action.0", "action.1"}


async def test_nodes_that_link_at_once_make_one_chain(
    log: AuditLog, other_node: Engine, chain: Chain, clock: FixedClock
) -> None:
    other = AuditLog(other_node, ChainKeys(KEY), clock, "node-2")
    count = 40

    async def work(each: AuditLog) -> None:
        for number in range(count):
            await each.write(act(f"action.{number}"), AuditResult.DONE)
            await each.link_waiting()

    await asyncio.gather(work(log), work(other))
    while await log.link_waiting():
        pass
    verified = await verify_chain(chain, ChainKeys(KEY))
    assert (verified.fault, verified.last, verified.waiting) == (None, 2 * count, 0)
    assert {each.node for each in await all_entries(chain)} == {"node-1", "node-2"}


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        ("UPDATE audit_entries SET action = 'x' WHERE sequence = 3", "entry 3 (x) was changed"),
        (
            "UPDATE audit_entries SET result = 'denied' WHERE sequence = 1",
            "entry 1 (action.0) was changed",
        ),
        ("DELETE FROM audit_entries WHERE sequence = 3", "entry 3 is missing"),
        ("DELETE FROM audit_entries WHERE sequence <= 2", "entries 1 to 2 are missing"),
        ("DELETE FROM audit_entries WHERE sequence >= 4", "entries 4 to 5 are missing"),
        ("DELETE FROM audit_entries", "entries 1 to 5 are missing"),
        (
            (
                "UPDATE audit_entries SET sequence = CASE sequence WHEN 2 THEN 30 ELSE 20 END"
                " WHERE sequence IN (2, 3);"
            ),
            "entries 2 to 3 are missing",
        ),
        (
            (
                "UPDATE audit_entries SET signature = (SELECT signature FROM audit_entries"
                " WHERE sequence = 1) WHERE sequence = 2"
            ),
            "entry 2 (action.1) was changed",
        ),
        (
            "UPDATE audit_chain SET link = (SELECT link FROM audit_entries WHERE sequence = 2)",
            "the end of the chain, entry 5, was changed",
        ),
        (
            (
                "UPDATE audit_chain SET pruned_sequence = 2, pruned_link ="
                " (SELECT link FROM audit_entries WHERE sequence = 2)"
            ),
            "the beginning of the chain, entry 2, is not signed",
        ),
    ],
)
async def test_whatever_is_changed_or_removed_is_found(
    engine: Engine, log: AuditLog, chain: Chain, attack: str, fault: str
) -> None:
    await fill(log, 5)
    assert (await verify_chain(chain, ChainKeys(KEY))).fault is None
    await run(engine, attack.rstrip(";"))
    assert (await verify_chain(chain, ChainKeys(KEY))).fault == fault


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        ("UPDATE audit_entries SET action = 'x' WHERE sequence = 1", None),
        ("UPDATE audit_entries SET action = 'x' WHERE sequence = 5", "entry 5 (x) was changed"),
        ("DELETE FROM audit_entries WHERE sequence = 4", "entry 4 is missing"),
        ("DELETE FROM audit_entries WHERE sequence >= 4", "entries 4 to 5 are missing"),
        (
            "DELETE FROM audit_entries WHERE sequence = 3",
            "entry 4 (action.3) does not follow the entry before it",
        ),
    ],
)
async def test_the_newest_entries_can_be_verified_alone(
    engine: Engine, log: AuditLog, attack: str, fault: str | None
) -> None:
    await fill(log, 5)
    await run(engine, attack)
    verified = await log.verify_newest(2)
    assert (verified.first, verified.fault) == (4, fault)


async def test_more_than_there_are_can_be_verified(log: AuditLog) -> None:
    assert (await log.verify_newest(10)).fault is None
    await fill(log, 3)
    verified = await log.verify_newest(10)
    assert (verified.first, verified.last, verified.fault) == (1, 3, None)


async def test_an_entry_that_somebody_else_adds_is_not_linked_and_is_found(
    engine: Engine, log: AuditLog, chain: Chain, clock: FixedClock
) -> None:
    await fill(log, 2)
    stranger = AuditLog(engine, ChainKeys((KEY[0], b"x" * 32)), clock, "node-1")
    await stranger.write(act(), AuditResult.DONE)
    assert await log.link_waiting() == 0
    await log.write(act("action.after"), AuditResult.DONE)
    assert await log.link_waiting() == 1
    fault = (await verify_chain(chain, ChainKeys(KEY))).fault
    assert fault is not None
    assert fault.endswith("was not written by Clarion")


async def test_a_copied_entry_is_found(engine: Engine, log: AuditLog, chain: Chain) -> None:
    """An entry with a valid signature gets no second place in the chain."""
    await fill(log, 3)
    await run(
        engine,
        "UPDATE audit_entries SET link = (SELECT link FROM audit_entries WHERE sequence = 1)"
        " WHERE sequence = 2",
    )
    fault = (await verify_chain(chain, ChainKeys(KEY))).fault
    assert fault == "entry 2 (action.1) does not follow the entry before it"


async def test_the_chain_goes_on_with_another_key(
    engine: Engine, log: AuditLog, chain: Chain, clock: FixedClock
) -> None:
    await fill(log, 2)
    await log.write(act("action.between"), AuditResult.DONE)
    newer = AuditLog(engine, ChainKeys(NEWER, KEY), clock, "node-1")
    assert await newer.link_waiting() == 1
    await newer.write(act("action.last"), AuditResult.DONE)
    assert await newer.link_waiting() == 1
    assert (await verify_chain(chain, ChainKeys(NEWER, KEY))).fault is None
    fault = (await verify_chain(chain, ChainKeys(NEWER))).fault
    assert fault is not None
    assert fault.startswith(f"entry 1 was signed with the key {KEY[0]}, which is neither")


async def test_a_pruned_chain_can_be_verified(
    log: AuditLog, chain: Chain, clock: FixedClock
) -> None:
    await fill(log, 4)
    clock.advance(DAY)
    await fill(log, 3)
    assert await log.prune(NOW, 100) == 0
    assert await log.prune(NOW + 1, 3) == 3
    assert await log.prune(NOW + 1, 3) == 1
    assert await log.prune(NOW + 1, 3) == 0
    verified = await verify_chain(chain, ChainKeys(KEY))
    assert (verified.fault, verified.first, verified.last) == (None, 5, 7)
    assert await log.prune(NOW + 2 * DAY, 100) == 3
    await fill(log, 1)
    assert (await verify_chain(chain, ChainKeys(KEY))).fault is None
    assert [each.sequence for each in await all_entries(chain)] == [8]


async def test_an_entry_from_the_future_does_not_stop_pruning(
    log: AuditLog, clock: FixedClock, chain: Chain
) -> None:
    clock.advance(1000 * DAY)
    await fill(log, 1)
    clock.advance(-1000 * DAY)
    await fill(log, 2)
    assert await log.prune(NOW + 1, 100) == 3
    assert (await chain.get_state()).pruned_sequence == 3


async def test_an_empty_chain_is_whole(chain: Chain) -> None:
    assert await chain.get_state() == ChainState()
    assert (await verify_chain(chain, ChainKeys(KEY))).fault is None
