"""Requests in the audit log: which are recorded, with which result, and before the response."""

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

import pytest
from structlog.testing import capture_logs

from clarion.access.model import ALL_SCOPES, AppCaller
from clarion.audit.chain import ChainKeys
from clarion.audit.counted import KINDS_LIMIT
from clarion.audit.model import Act, ActorKind, AuditResult, Entry
from clarion.audit.sql import AuditLog
from clarion.errors import StoreUnavailable
from clarion.http.auditing import (
    ALL_DENIALS_PER_MINUTE,
    DENIALS_PER_MINUTE,
    AuditedFramework,
)
from clarion.http.strangers import Peers
from clarion.nodes.memory import MemoryLimits
from clarion.store.statement import Unit
from tests.factories import FixedClock
from tests.unit.conftest import MemoryEngine

CALLER = AppCaller(app_id="app", key_id="K1", scopes=ALL_SCOPES)
PEERS = Peers((ip_network("10.0.0.0/8"),))
ACTIONS = {"POST /v1/things/{thing}": "thing.create", "GET /v1/things": "thing.export"}


class Handlers:
    """A framework that finds a route, or none, and answers with a status."""

    routes: Sequence[Any] = ()

    def __init__(self, template: str | None, status: int, error: str | None) -> None:
        self._template = template
        self._status = status
        self._error = error

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        if self._template:
            scope["path_template"] = self._template
            scope["path_params"] = {"thing": "t1", "user_id": "ana"}
        if self._error:
            scope["clarion.error"] = self._error
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class BrokenEngine(MemoryEngine):
    async def write(self, unit: Unit) -> Any:
        raise StoreUnavailable(unit.key)


class AwayEngine:
    """An engine that can be away for a while."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self.fetch = engine.fetch
        self.is_away = False

    async def write(self, unit: Unit) -> Any:
        if self.is_away:
            raise StoreUnavailable(unit.key)
        return await self._engine.write(unit)


class Recorded:
    """An audited framework, what it sent, and what it recorded."""

    def __init__(self, engine: MemoryEngine, clock: FixedClock) -> None:
        keys = ChainKeys(("00000000", bytes(32)))
        self.log = AuditLog(engine, keys, clock, "node")  # type: ignore[arg-type]
        self._clock = clock
        self._limits = MemoryLimits(FixedClock())
        self.sent: list[int] = []

    async def ask(
        self,
        method: str = "POST",
        template: str | None = "/v1/things/{thing}",
        status: int = 200,
        error: str | None = None,
        *,
        client: str = "192.0.2.1",
        headers: Sequence[tuple[bytes, bytes]] = (),
        caller: AppCaller | None = CALLER,
    ) -> None:
        framework = Handlers(template, status, error)
        audited = AuditedFramework(framework, self.log, ACTIONS, self._limits, self._clock, PEERS)
        scope = {
            "method": method,
            "scheme": "http",
            "http_version": "1.1",
            "headers": headers,
            "client": (client, 1),
            "clarion.request_id": "r1",
            "clarion.caller": caller,
        }

        async def send(message: Any) -> None:
            self.sent.append(message.get("status", 0))

        await audited(scope, None, send)  # type: ignore[arg-type]

    async def entries(self) -> tuple[Entry, ...]:
        return await self.log.chain.read_waiting("", 1000)


@pytest.fixture
def recorded(engine: MemoryEngine, clock: FixedClock) -> Recorded:
    return Recorded(engine, clock)


async def test_who_what_where_and_the_result_are_recorded(recorded: Recorded) -> None:
    await recorded.ask(status=403, error="forbidden")
    (entry,) = await recorded.entries()
    assert (entry.action, entry.result, entry.reason) == (
        "thing.create",
        AuditResult.DENIED,
        "forbidden",
    )
    assert (entry.app_id, entry.actor_id, entry.address) == ("app", "K1", "192.0.2.1")
    assert (entry.target, entry.request_id) == ({"thing": "t1"}, "r1")
    assert entry.subject is not None
    assert entry.subject.startswith("u_")


@pytest.mark.parametrize(
    ("status", "results"),
    [
        (200, [AuditResult.UNCHANGED]),
        (204, [AuditResult.UNCHANGED]),
        (401, [AuditResult.DENIED]),
        (403, [AuditResult.DENIED]),
        (404, []),
        (409, []),
        (422, []),
        (429, []),
        (500, [AuditResult.FAILED]),
        (503, [AuditResult.FAILED]),
    ],
)
async def test_a_wrong_request_is_not_recorded(
    recorded: Recorded, status: int, results: list[AuditResult]
) -> None:
    await recorded.ask(status=status)
    assert [each.result for each in await recorded.entries()] == results
    assert recorded.sent == [status, 0]


async def test_what_is_not_in_the_table_is_recorded_if_it_may_change_something(
    recorded: Recorded,
) -> None:
    await recorded.ask("PUT", "/v1/new/{thing}")
    await recorded.ask("GET", "/v1/new/{thing}")
    await recorded.ask("GET", "/v1/things")
    await recorded.ask("POST", None, status=403)
    actions = [each.action for each in await recorded.entries()]
    assert actions == ["PUT /v1/new/{thing}", "thing.export"]


async def test_denied_requests_of_a_caller_are_recorded_up_to_a_limit(
    recorded: Recorded, clock: FixedClock
) -> None:
    for _ in range(DENIALS_PER_MINUTE + 5):
        await recorded.ask(status=403)
    assert len(await recorded.entries()) == DENIALS_PER_MINUTE
    clock.advance(60_000)
    await recorded.ask(status=403)
    assert len(await recorded.entries()) == DENIALS_PER_MINUTE + 1


async def summaries(recorded: Recorded) -> list[tuple[str, str, str | None]]:
    return [
        (each.result.value, each.actor_id, each.target["count"])
        for each in await recorded.entries()
        if each.reason == "summary"
    ]


async def test_what_gets_no_entry_is_counted_in_one(recorded: Recorded, clock: FixedClock) -> None:
    for _ in range(DENIALS_PER_MINUTE + 5):
        await recorded.ask(status=403)
    for _ in range(7):  # errors of the server are limited, too: strangers can cause them
        await recorded.ask(status=503)
    await recorded.log.record_counted()
    assert await summaries(recorded) == []  # the minute is not over
    clock.advance(60_000)
    await recorded.log.record_counted()
    await recorded.log.record_counted()
    assert await summaries(recorded) == [("denied", "K1", "5"), ("failed", "K1", "7")]
    assert len(await recorded.entries()) == DENIALS_PER_MINUTE + 2


async def test_strangers_cannot_fill_the_log_from_many_addresses(recorded: Recorded) -> None:
    for number in range(ALL_DENIALS_PER_MINUTE + 9):
        await recorded.ask(status=401, client=f"192.0.2.{number}", caller=None)
    await recorded.ask(status=403)  # a caller is limited apart
    await recorded.log.record_counted(is_last=True)
    assert await summaries(recorded) == [("denied", "", "9")]
    assert len(await recorded.entries()) == ALL_DENIALS_PER_MINUTE + 2


async def test_one_client_of_a_proxy_does_not_hide_another(recorded: Recorded) -> None:
    for address in [b"192.0.2.1"] * (DENIALS_PER_MINUTE + 1) + [b"192.0.2.2"]:
        forwarded = [(b"x-forwarded-for", address)]
        await recorded.ask(status=401, client="10.0.0.1", headers=forwarded, caller=None)
    assert (await recorded.entries())[-1].address == "192.0.2.2"


async def test_what_cannot_be_recorded_now_is_recorded_later(
    engine: MemoryEngine, clock: FixedClock
) -> None:
    store = AwayEngine(engine)
    recorded = Recorded(store, clock)  # type: ignore[arg-type]
    for _ in range(DENIALS_PER_MINUTE + 5):
        await recorded.ask(status=403)
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        await recorded.log.record_counted(is_last=True)
    store.is_away = False
    await recorded.log.record_counted(is_last=True)
    assert await summaries(recorded) == [("denied", "K1", "5")]


async def test_kinds_of_acts_beyond_a_limit_are_counted_together(recorded: Recorded) -> None:
    for number in range(KINDS_LIMIT + 5):
        act = Act(action=f"thing.{number}", actor_kind=ActorKind.NOBODY)
        recorded.log.count(act, AuditResult.DENIED)
    await recorded.log.record_counted(is_last=True)
    counts = {each.action: each.target["count"] for each in await recorded.entries()}
    assert (len(counts), counts["any"]) == (KINDS_LIMIT + 1, "5")


async def test_a_success_that_cannot_be_recorded_is_not_answered(clock: FixedClock) -> None:
    recorded = Recorded(BrokenEngine.__new__(BrokenEngine), clock)
    with capture_logs() as logs, pytest.raises(StoreUnavailable):
        await recorded.ask("GET", "/v1/things")
    assert recorded.sent == []
    assert [each["event"] for each in logs] == ["audit_failed"]


async def test_a_refusal_is_answered_in_any_case(clock: FixedClock) -> None:
    recorded = Recorded(BrokenEngine.__new__(BrokenEngine), clock)
    with capture_logs():
        await recorded.ask(status=403)
    assert recorded.sent == [403, 0]
