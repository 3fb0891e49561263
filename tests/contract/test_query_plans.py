"""No statement of the store reads a big table from end to end, on either engine.

All statements of the modules named `sql` are checked; a new one needs no entry here.
"""

import importlib
import pkgutil
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

import clarion
from clarion.app.tables import PERSONAL
from clarion.events.model import NEVER
from clarion.store.engine import Engine
from clarion.store.opening import migrate, sqlite_path
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import Statement, Unit, Value, statement
from clarion.store.table import Owner
from tests.contract.conftest import nothing_left, opened
from tests.factories import DAY, NOW
from tests.replacing import replace
from tests.statements import list_of_tables

BIG = {
    "admin_sessions",
    "analytics",
    "api_keys",
    "attempts",
    "audit_entries",
    "categories",
    "dedupes",
    "deliveries",
    "topics",
    "devices",
    "erasures",
    "events",
    "feedback",
    "follows",
    "former_device_users",
    "idempotency_keys",
    "inboxes",
    "jobs",
    "limit_counts",
    "messages",
    "notification_types",
    "notifications",
    "provider_keys",
    "push_endpoints",
    "sign_in_attempts",
    "subscriptions",
    "templates",
    "tickets",
    "topic_messages",
    "segments",
    "inactive_users",
    "user_attributes",
    "user_tags",
    "user_keys",
    "trusted_devices",
    "users",
}
# What may read a big table whole, and why.
ALLOWED = {
    "count_devices": "counts the devices of an app; read where nobody waits for it",
    "count_jobs": "counts the jobs of all apps; read where nobody waits for it",
    "count_messages_by_status": "counts the messages of an app; read where nobody waits for it",
    "forget_sign_in_attempts": "run by an operator who resets an account; an hour of failures",
    "count_subscribers": "counts the subscriptions of an app; read where nobody waits for it",
    "find_personal_jobs": "an erasure reads the queue whole: an index would cost every job",
    "show_personal_jobs": "as above, for an export",
    "find_personal_tickets": "an erasure reads all tickets, which live for seconds",
    "show_personal_tickets": "as above, for an export",
}
# What may read many rows for each that it finds, and why.
COSTLY = {
    "count_pending_messages": "counts up to its limit; read where nobody waits for it",
    "count_versions": "counts the templates of an app, of which it may have so many",
    "find_personal_subscriptions": "an erasure reads those of the app; nobody waits for it",
    "find_subscriptions": "for several nodes: on PostgreSQL, which has statistics",
    "insert_provider_keys": "counts the keys of an app, of which it may have so many",
    "insert_user_keys": "as above",
    "find_type_of_category": "reads the types of an app, of which it may have so many",
    "list_templates_of_type": "reads the templates of a type, of which an app may have so many",
    "measure_types": "adds up the types of an app, of which it may have so many",
    "prune_provider_keys": "reads the keys of an app, which are few",
    "prune_user_keys": "as above",
    "put_category": "counts the categories of an app, of which it may have so many",
    "put_segment": "as above, for segments",
    "select_deliveries_without_job": "checks each delivery of a range; nobody waits for it",
    "select_events_naming_user": "an erasure looks for a user in the text of events",
    "select_messages_of_notifications": "an erasure reads those of the app; nobody waits for it",
    "select_running_erasures": "reads what is being erased, which is little",
    **{
        f"{verb}_personal_{table}": "an erasure or export reads those of the app, which end soon"
        for verb in ("find", "show")
        for table in ("dedupes", "feedback", "limit_counts")
    },
}
# Instructions of SQLite. A row that is passed over takes five or more, and each app has 150 rows.
STEPS_LIMIT, STEPS_PER_ROW, COUNTED_STEPS = 500, 100, 5
APPS, DEVICES, TOPICS = 20, 3_000, 200
# Every parameter by name. What a statement finds with them is a small part of its table.
VALUES: dict[str, Value] = {
    "address": b"sealed",
    "administrator_id": "administrator-7",
    "app_roles": "{}",
    "code_hash": b"code",
    "confirmed_at": NOW,
    "disabled_at": None,
    "forgotten": NOW,
    "has_mfa": 0,
    "is_operator": 0,
    "kept": "",
    "last_step": 1,
    "lower": "name",
    "mfa_at": None,
    "networks": "[]",
    "password_changed_at": None,
    "pattern": "account:7%",
    "salt": b"salt",
    "secret": b"sealed",
    "state": "current",
    "step": 5,
    "threshold": 5,
    "user_agent": "text",
    "after": "",
    "answer": b"answer",
    "app_id": "app-7",
    "before": NOW * 1000,
    "updated_before": NOW,
    "before_event": "event-2",
    "before_id": "m1",
    "capability_hash": b"e-7",
    "bundle_id": "com.example.new",
    "collapse_id": "c7",
    "connected_at": NOW,
    "created_at": NOW,
    "cursor": 5,
    "device_id": "device-7",
    "expires_at": NOW + DAY,
    "fingerprint": b"fingerprint",
    "id": "device-7",
    "is_broadcast_channel": 0,
    "is_by_app": 0,
    "is_open": 0,
    "is_stored": 1,
    "keep": 5,
    "storage_policy": -1,
    "key": "key-7",
    "known": "{}",
    "key_id": "KEY-7",
    "last_seen_at": NOW,
    "least": 5,
    "limit": 100,
    "node_id": "node",
    "now": NOW,
    "password_hash": "hash",
    "payload": b"{}",
    "platform": "ios",
    "priority": 10,
    "proof": b"secret",
    "public_key": "key",
    "reason": "reason",
    "revoked_at": None,
    "role": "admin",
    "scopes": "*",
    "secret_hash": b"secret",
    "sequence": NOW * 1000,
    "since": NOW * 1000,
    "status": "queued",
    "team_id": "TEAM",
    "token_hash": b"token-7",
    "topic": "topic-7",
    "messages": '{"m7": 0}',
    "own_category": "own-7",
    "description": None,
    "default_channels": "[]",
    "user_can_disable": 1,
    "trace": None,
    "topics": msgspec.json.encode({"topic-7": 0}).decode(),
    "user_id": "user-7",
    "algorithm": "HS256",
    "allowed_origins": "[]",
    **dict.fromkeys(["user_per_hour", "category_per_hour"], 20),
    "ends_at": NOW,
    "hash": b"t-7",
    "kid": "kid-7",
    "last_used_at": None,
    "new_id": "new",
    "replaced_by": None,
    "token_expires_at": None,
    "username": "name",
    "vapid_key": None,
    "attributes": "{}",
    "body": "text",
    "category": "social",
    "channel": "email",
    "definition": "{}",
    "email": "a@example.com",
    "email_key": "7@example.com",
    "filter": "attributes.n > 1",
    **dict.fromkeys(["consent", "metadata", "profile", "keys"], "{}"),
    **dict.fromkeys(["deleted_at", "last_login_at"], None),
    "ids": '{"user-7": null, "user-9": null}',
    "phone": "+4915112345678",
    "preferences": "{}",
    "subject": "text",
    "tag": "tag-7",
    "tags": "[]",
    "type": "TYPE_7",
    "unread": 0,
    "updated_at": NOW,
    "variables": "[]",
    "version": 5,
    "started_at": NOW,
    "seen_at": NOW,
    "settings": "{}",
    "secrets": b"sealed",
    "position": 0,
    "is_active": 1,
    "is_sandbox": 0,
    "disabled_reason": None,
    **dict.fromkeys(["timeout_s", "concurrency", "daily_cap", "cap"], 10),
    **dict.fromkeys(["app_version", "label", "language", "model", "name", "os_version"], "x"),
    "timezone": "UTC",
    **dict.fromkeys(["audience", "content", "error", "error_code", "error_message"], "{}"),
    **dict.fromkeys(["folded_into", "provider_response", "provider", "rule", "title"], "x"),
    **dict.fromkeys(["is_shown", "notification_count", "retry_count"], 1),
    **dict.fromkeys(["dismissed_at", "read_at"], NOW),
    "last_error": None,
    **dict.fromkeys(["attempt_count", "count", "end", "found", "is_dead", "lane", "number"], 1),
    **dict.fromkeys(["remaining", "expected_count", "token", "tries", "was_shown"], 1),
    **dict.fromkeys(["attempted_at", "decided_at", "delivered_at", "last_attempt_at"], NOW),
    **dict.fromkeys(["due_at", "scheduled_at", "sent_at", "until"], NOW),
    **dict.fromkeys(["invalidated_at", "invalidation_reason"], None),
    "by_ms": -1,
    "last": "~",
    "dedupe_key": "key-7",
    "digest": "digest-7",
    "event_id": "event-7",
    "expected_holder": "n-7",
    "kind": "decide",
    "notification_id": "n-7",
    "past_decisions": "[]",
    "pool": "",
    **dict.fromkeys(["action", "actor_id", "actor_kind", "subject", "target"], "x-7"),
    **dict.fromkeys(["result", "request_id", "node", "signature", "link"], "x-7"),
    "sealed_key": b"sealed",
    "name_end": "y",
    "after_name": "",
    "user_ids": '{"user-7": null, "user-9": null}',
    **dict.fromkeys(["at", "counted_until", "first", "settled_until"], NOW),
    **dict.fromkeys(["expected_turn", "turn", "value"], 1),
    **dict.fromkeys(["has_channel", "has_label", "has_platform", "has_type"], 1),
    "first_id": "n-1",
    "first_sequence": NOW * 1000 - 20,
    "last_id": "n-2",
    "last_sequence": NOW * 1000,
    "metric": "events",
}
VALUES |= {
    **{
        f"after_{name}": ""
        for name in ("id", "tag", "term", "topic", "channel", "device_id", "key")
    },
    **dict.fromkeys(["after_number", "after_invalidated_at", "after_until"], -1),
    **dict.fromkeys(["after_token_hash", "after_hash"], b""),
    **dict.fromkeys(["known_audience", "known_content", "counts"], "{}"),
    "ended_deliveries": "[]",
    "cause": "request",
    "completed_at": NOW,
    "hash": b"hash-7",
    "length": 7,
    "pattern": '%"user-7"%',
    "prefix": "user-7\n",
    "requested_at": NOW,
    "term": "text.plan",
    "upto": "event-8",
    "user_hash": b"hash-7",
}
# Parameters that have another meaning in some statements.
OWN_VALUES: dict[str, dict[str, Value]] = {
    "beat_node": {"version": "1.0"},
    **{
        name: {"since": NOW + 10, "until": NOW + 12}
        for name in (
            "count_delivered_deliveries",
            "count_dismissals",
            "count_ended_messages",
            "count_first_clicks",
            "count_first_reads",
            "count_sent_deliveries",
            "count_unsuccessful_deliveries",
        )
    },
    # One notification: for a ninth of them, reading all may look as good.
    "count_new_decisions": {"first_id": "n-1", "last_id": "n-10"},
    "count_new_events": {"first_id": "event-1", "last_id": "event-1a"},
    "count_new_notifications": {"first_id": "n-1", "last_id": "n-10"},
    "prune_analytics": {"step": "minute"},
    "read_analytics": {"since": NOW, "until": NOW + 5, "step": "minute"},
    "select_old_analytics": {"before": NOW + 5, "step": "minute"},
    "add_analytics": {"step": "minute"},
    "delete_analytics_of_app": {"step": "minute"},
    "add_erasure": {"subject": b"sealed"},
    "add_erasure_key": {"key": b"sealed"},
    "delete_ended_tickets": {"hash": b"t-7"},
    "list_erasures": {"before": "erasure-2"},
    "set_erasure_subject": {"subject": b"sealed"},
    "insert_user_keys": {"key": b"key"},
    "insert_admin_session": {"address": "192.0.2.7"},
    "rehash_administrator_password": {"before": "hash"},
    "list_events": {"before": "event-2"},
    "list_events_by_status": {"before": "event-2", "status": "failed"},
    "insert_audit_entry": {"address": "192.0.2.1", "sequence": None},
    "move_beginning_of_audit_chain": {"after": 5},
    "move_end_of_audit_chain": {"after": 5, "before": "link"},
    "prune_audit_entries": {"after": 5, "sequence": 10},
    "select_audit_entries": {"after": 5},
    "list_newest_failed_notifications": {"before_id": "n-2"},
    "list_newest_notifications_of_user": {"before_id": "n-2"},
    "list_users_by_creation": {"since": NOW, "before": NOW + 200},
    "list_users_by_last_seen": {"since": NOW, "before": NOW + 200},
    "list_users_by_status": {"status": "inactive"},
    "prune_topic": {"before": NOW + 200},
    "select_deleted_topics": {"before": NOW + 200},
    "select_old_events": {"before": "event-2"},
    "find_ended_feedback": {"before": NOW + 200},
    "select_old_notifications": {"before": "n-2"},
}


def status_of(n: int) -> str:
    """Return the status of an erasure: few are not done."""
    return ("running", "settling")[n % 2] if n % 300 < 2 else "done"


def is_planned(each: Statement) -> bool:
    """Whether the program runs a statement that is made from a declaration.

    Only rows of notifications are deleted by their owner; of some tables an export shows nothing.
    """
    name = each.name.removeprefix("erase_all_").removeprefix("show_personal_")
    table = {table.name: table for table in PERSONAL}.get(name)
    if each.name.startswith("erase_all_"):
        return table is not None and table.owner is Owner.NOTIFICATION
    return not each.name.startswith("show_") or bool(table and table.section)


def find_statements() -> Iterator[Statement]:
    yield from (each for each in list_of_tables() if is_planned(each))
    for module in pkgutil.walk_packages(clarion.__path__, "clarion."):
        if not re.search(r"\.sql(\.|$)", module.name):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            several = value.values() if isinstance(value, dict) else (value,)
            several = value if isinstance(value, tuple) else several
            yield from (each for each in several if isinstance(each, Statement))


STATEMENTS = {each.name: each for each in find_statements()}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[tuple[Value, ...]]]:
    """Return the rows of all tables: most messages are finished, a few wait."""
    devices = [(f"device-{n}", f"app-{n % APPS}", n) for n in range(DEVICES)]
    return {
        "devices": [
            (
                i,
                a,
                b"t-%d" % n,
                b"",
                "ios",
                f"user-{n % 900}",
                *[None] * 6,
                NOW,
                NOW,
                *[None] * 3,
                "{}",
                None,
            )
            for i, a, n in devices
        ],
        "messages": [message_row(i, a, n, k) for i, a, n in devices for k in range(5)],
        "feedback": [(a, NOW + n, b"token-%d" % n, "revoked") for _, a, n in devices],
        "subscriptions": [
            (i, f"topic-{(n + k) % TOPICS}", a, 0, NOW, 0) for i, a, n in devices for k in range(5)
        ],
        "push_endpoints": [
            (i, f"endpoint-{n}", a, f"user-{n % 900}", b"e-%d" % n, None, None, NOW)
            for i, a, n in devices
        ],
        "api_keys": [(i, a, "", "*", b"", NOW, *[None] * 4) for i, a, _ in devices],
        "provider_keys": [(f"KEY-{n}", a, "TEAM", "key", NOW, None, None) for _, a, n in devices],
        "user_keys": [(a, f"kid-{n}", "HS256", b"key", NOW, None, None) for _, a, n in devices],
        "analytics": [
            (a, "events", "minute", NOW + n, "TYPE", "", "", f"{n}", 1) for _, a, n in devices
        ],
        "tickets": [(b"t-%d" % n, a, f"user-{n}", None, NOW, NOW + n) for _, a, n in devices],
        "idempotency_keys": [
            (a, f"key-{n}", b"", b"", NOW, NOW + n, f"user-{n}" if n % 2 else None)
            for _, a, n in devices
        ],
        "inactive_users": [(a, f"gone-{n}") for _, a, n in devices],
        "user_attributes": [(a, f"user-{n}", "text.plan", f"{n}", 0.0) for _, a, n in devices],
        "former_device_users": [
            (a, f"user-{n}", f"device-{n}", b"t-%d" % n, 0, NOW * 1000 + n) for _, a, n in devices
        ],
        "erasures": [
            (
                a,
                f"erasure-{n}",
                b"hash-%d" % n,
                None,
                "request",
                status_of(n),
                "{}",
                NOW + n,
                NOW,
                NOW,
            )
            for _, a, n in devices
        ],
        "topics": [
            (f"app-{n % APPS}", f"topic-{n}", 0, -1, 20, NOW, None if n % 50 else NOW + n, 0)
            for n in range(TOPICS * 10)
        ],
        "topic_messages": [
            (f"app-{n % APPS}", f"topic-{n}", k, f"{k}", b"{}", 10, f"c{k}", NOW, NOW + n * k)
            for n in range(TOPICS)
            for k in range(20)
        ],
        "inboxes": [(a, f"user-{n}", 1, 5) for _, a, n in devices],
        "notifications": [notification_row(a, n, k) for _, a, n in devices for k in range(5)],
        "users": [user_row(a, n) for _, a, n in devices],
        "segments": [(a, f"segment-{n}", "", NOW, NOW) for _, a, n in devices],
        "user_tags": [(a, f"tag-{n % TOPICS}", f"user-{n}") for _, a, n in devices],
        "admin_sessions": [
            (i, f"administrator-{n}", b"s-%d" % n, NOW, NOW, NOW + DAY + n, None, NOW, "", "")
            for i, _, n in devices
        ],
        "sign_in_attempts": [(f"key-{n}", 1, NOW + n, 0) for _, _, n in devices],
        "trusted_devices": [
            (b"t-%d" % n, f"administrator-{n}", NOW, NOW + DAY + n) for _, _, n in devices
        ],
        "follows": [(a, f"topic-{n % TOPICS}", f"user-{n}", NOW) for _, a, n in devices],
        "notification_types": [(a, f"TYPE_{n}", "{}", NOW, NOW, f"own-{n}") for _, a, n in devices],
        "categories": [(a, f"own-{n}", "Own", None, "[]", 1, NOW, NOW) for _, a, n in devices],
        "audit_entries": [audit_row(a, n) for _, a, n in devices],
        "templates": [
            (a, f"TYPE_{n % 100}", "email", "en", n, None, "text", "[]", NOW) for _, a, n in devices
        ],
        **pipeline_rows(),
    }


def pipeline_rows() -> dict[str, list[tuple[Value, ...]]]:
    """Return the rows of the pipeline's tables: few jobs are due, held or dead."""
    # So many and so long that an index is cheaper than reading all of them.
    many = [(f"app-{n % APPS}", n) for n in range(DEVICES * 4)]
    numbers = many[:DEVICES]
    return {
        "events": [event_row(a, n) for a, n in numbers],
        "jobs": [job_row(a, n) for a, n in many],
        "deliveries": [delivery_row(a, n) for a, n in many],
        "attempts": [
            (f"n-{n}", "stub", 1, "", "retry", *[None] * 3, NOW + n, None) for _, n in numbers
        ],
        "dedupes": [(a, f"key-{n}", f"user-{n}", f"n-{n}", NOW + n) for a, n in numbers],
        "limit_counts": [(a, f"limit-{n}", 1, NOW + n) for a, n in numbers],
    }


def audit_row(app_id: str, n: int) -> tuple[Value, ...]:
    """Return an entry of the audit log; few wait to be linked."""
    done = (f"x-{n % 50}", f"x-{n % 300}", "{}", "done", None, None, None, "node", "signature")
    place = (None, None) if n % 500 == 0 else (n, "link")
    return (f"device-{n}", app_id, NOW * 1000 + n, "api_key", f"x-{n % 70}", *done, *place)


def event_row(app_id: str, n: int) -> tuple[Value, ...]:
    status = "failed" if n % 100 == 0 else "completed"
    said = ("TYPE_7", "{}", "{}", 1, None, status, 0, None, 0, 1, None, None)
    return (app_id, f"event-{n}", *said, NOW, NOW, None)


def job_row(app_id: str, n: int) -> tuple[Value, ...]:
    lane = -1 if n % 500 == 0 else n % 4
    kind = ("decide", "deliver", "held", "digest")[n % 4]
    due_at = NEVER if n % 200 in {2, 3} else NOW + n
    ids = (f"event-{n}", f"user-{n}")
    return (f"job-{n}", lane, due_at, 0, 0, kind, app_id, *ids, "x" * 500, "", "node")


def delivery_row(app_id: str, n: int) -> tuple[Value, ...]:
    status, digest = ("collected", f"digest-{n}") if n % 50 == 0 else ("delivered", None)
    status = "failed" if n % 500 == 1 else status
    decided = (status, "reason", "rule", None, "[]" + " " * 500, digest, 1, 1)
    return (f"n-{n}", "stub", app_id, f"user-{n}", *decided, *[None] * 6, NOW)


def user_row(app_id: str, n: int) -> tuple[Value, ...]:
    email, status = f"{n}@example.com", "active" if n % 3 else "inactive"
    given = (None, email, None, "en", "UTC", status, "[]", "{}", "{}")
    groups = ("{}", "{}", "{}")
    return (app_id, f"user-{n}", *given, NOW + n, NOW, 1, *groups, None, NOW + n, None, email)


def notification_row(app_id: str, n: int, k: int) -> tuple[Value, ...]:
    """Return one of five notifications of a user: the last is unread, another is dismissed."""
    said = ("event", "TYPE_7", "social", 1, None, "text", "{}", 1, 1, None, k + 1)
    ends = (NOW if k < 4 else None, NOW + n if k == 2 else None, None, NOW)
    id_ = f"n-{n}-{k}" if k else f"n-{n}"
    return (app_id, f"user-{n}", id_, *said, *ends, NOW + n, NOW + n, "[]")


def message_row(device_id: str, app_id: str, n: int, k: int) -> tuple[Value, ...]:
    status, reason = ("queued", None) if n % 25 == k == 0 else ("delivered", "acknowledged")
    sequence = NOW * 1000 - n * 10 - k
    ends = (status, reason, NOW, NOW + DAY + n, NOW)
    said = (b"{}" * 50, 10, f"c{n % 50}", 1)
    of_notification = f"n-{n}" if k == 1 else None
    return (device_id, f"m{k}", app_id, sequence, *said, *ends, of_notification, None)


@pytest.fixture
async def database(
    database_url: str, rows: dict[str, list[tuple[Value, ...]]]
) -> AsyncIterator[str]:
    """The address of a filled database."""
    await migrate(database_url)
    async with nothing_left(), opened(database_url) as engine:
        await fill(engine, rows)
        yield database_url


async def fill(engine: Engine, rows: dict[str, list[tuple[Value, ...]]]) -> None:
    for table, values in rows.items():
        marks = ", ".join(f":c{n}" for n in range(len(values[0])))
        insert = statement(f"fill_{table}", f"INSERT INTO {table} VALUES ({marks})")  # noqa: S608
        await engine.write(Unit("", (insert.many(values),)))


async def explain_on_sqlite(engine: Engine, each: Statement) -> Iterator[str]:
    """Return the big tables that are read whole; SQLite says SCAN then, and SEARCH otherwise."""
    plan = await engine.fetch(explaining(each, "EXPLAIN QUERY PLAN"), **values_of(each))
    scanned = (re.match(r"SCAN (\w+)", row[3]) for row in plan)
    return (match[1] for match in scanned if match and match[1] in BIG)


async def explain_on_postgres(engine: Engine, each: Statement) -> Iterator[str]:
    """Return the big tables that are read whole, with these values."""
    ((plan,),) = await engine.fetch(explaining(each, "EXPLAIN (FORMAT JSON)"), **values_of(each))
    return scans(msgspec.json.decode(plan)[0]["Plan"])


def scans(node: dict[str, Any]) -> Iterator[str]:
    """Walk a plan of PostgreSQL. An index without a condition is read whole, too."""
    kind, table = node["Node Type"], node.get("Relation Name")
    is_search = kind in ("Bitmap Heap Scan", "ModifyTable") or "Index Cond" in node
    if table in BIG and not is_search:
        yield table
    for child in node.get("Plans", ()):
        yield from scans(child)


def explaining(each: Statement, verb: str) -> Statement:
    return replace(each, text=f"{verb} {each.text}", returns_rows=True)


def values_of(each: Statement) -> dict[str, Value]:
    values = VALUES | OWN_VALUES.get(each.name, {})
    return {name: values[name] for name in each.names}


Explain = Callable[[Engine, Statement], Awaitable[Iterator[str]]]


async def check_all(engine: Engine, explain: Explain) -> None:
    found = {name: sorted(await explain(engine, each)) for name, each in STATEMENTS.items()}
    whole = {name: tables for name, tables in found.items() if tables}
    assert whole.keys() <= ALLOWED.keys(), whole


async def test_no_statement_reads_a_big_table_whole(database: str) -> None:
    explain = explain_on_sqlite if sqlite_path(database) else explain_on_postgres
    async with opened(database) as engine:
        if explain is explain_on_sqlite:
            await check_all(engine, explain)  # without statistics
        await engine.write(Unit("", (statement("analyze", "ANALYZE").step(),)))
        await check_all(engine, explain)


def count_steps(connection: apsw.Connection, each: Statement) -> tuple[int, int]:
    """Return the instructions that a statement takes, and the rows that it finds or changes."""
    ran, before = 0, connection.total_changes()

    def count() -> bool:
        nonlocal ran
        ran += COUNTED_STEPS
        return False

    connection.set_progress_handler(count, COUNTED_STEPS)
    found = connection.execute(each.text, each.bind(**values_of(each))).fetchall()
    connection.set_progress_handler(None)
    return ran, max(len(found), connection.total_changes() - before)


async def test_no_statement_passes_over_many_rows(
    migrated_database: str, rows: dict[str, list[tuple[Value, ...]]]
) -> None:
    """An index that leads to all rows of an app is no better than none, if there is one app."""
    async with nothing_left(), opened(migrated_database) as engine:
        await fill(engine, rows)
    connection = open_connection(sqlite_path(migrated_database) or "")
    excess = {}
    for name, each in STATEMENTS.items():
        with suppress(apsw.ConstraintError), connection:
            steps, count = count_steps(connection, each)
            if steps > STEPS_LIMIT + STEPS_PER_ROW * count:
                excess[name] = (steps, count)
            raise apsw.ConstraintError  # rolls back
    connection.close()
    assert excess.keys() - ALLOWED.keys() == COSTLY.keys(), excess


@pytest.fixture
async def connection(
    emptied_database: str, rows: dict[str, list[tuple[Value, ...]]]
) -> AsyncIterator[asyncpg.Connection]:
    await migrate(emptied_database)
    connection = await asyncpg.connect(emptied_database)
    for table, values in rows.items():
        await connection.copy_records_to_table(table, records=values)
    await connection.execute("ANALYZE; SET plan_cache_mode = force_generic_plan; SET jit = off")
    yield connection
    await connection.close()


# After five runs PostgreSQL may plan a prepared statement for any values, once and for all.
async def test_no_plan_for_any_values_reads_a_big_table_whole(
    connection: asyncpg.Connection,
) -> None:
    whole = {}
    for name, each in STATEMENTS.items():
        await connection.execute(f"PREPARE checked AS {each.text}")
        given = ", ".join(literal(value) for value in values_of(each).values())
        call = f"checked({given})" if given else "checked"
        plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {call}")
        await connection.execute("DEALLOCATE checked")
        if tables := sorted(scans(msgspec.json.decode(plan)[0]["Plan"])):
            whole[name] = tables
    assert whole.keys() <= ALLOWED.keys(), whole


def literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"'\\x{value.hex()}'"
        case str():
            return f"'{value}'"
        case _:
            return str(value)


def test_the_statements_are_found() -> None:
    assert {"add_message", "publish", "select_api_key", "claim_idempotency_key"} <= set(STATEMENTS)
    assert set(ALLOWED) | set(OWN_VALUES) <= set(STATEMENTS)


def test_a_given_bound_is_named_before_the_condition_of_an_index() -> None:
    """SQLite begins to read an index at the first lower bound: if that is 0, it reads all of it."""
    late = re.compile(r"\b(\w+) > 0\b.*\b\1 >=? \$\d", re.DOTALL)
    assert {name for name, each in STATEMENTS.items() if late.search(each.text)} == set()


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT COUNT(*) FROM messages", ["messages"]),
        ("SELECT id FROM devices WHERE label = 'x'", ["devices"]),
        ("DELETE FROM topic_messages WHERE payload = 'x'", ["topic_messages"]),
        ("SELECT id FROM messages ORDER BY app_id, sequence LIMIT 5", ["messages"]),
        ("SELECT id FROM devices WHERE id = 'device-7'", []),
    ],
)
async def test_a_full_scan_is_noticed(database: str, sql: str, tables: list[str]) -> None:
    explain = explain_on_sqlite if sqlite_path(database) else explain_on_postgres
    async with opened(database) as engine:
        await engine.write(Unit("", (statement("analyze", "ANALYZE").step(),)))
        assert list(await explain(engine, statement("scanning", sql))) == tables
