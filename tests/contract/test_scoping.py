"""Every statement uses the rows of one app only, or is named here with a reason.

What belongs to apps is read from the schema of both engines. The statements are all that the
program has, those that are made when they are needed included.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from clarion.store.engine import Engine
from clarion.store.opening import sqlite_path
from clarion.store.statement import statement
from tests.scoping import find_unscoped

ROOT = Path(__file__).resolve().parents[2]
# They have no `app_id`, and belong to an app by the row that they are about.
BY_ANOTHER_ROW = {"attempts": "notification_id"}
# They belong to the installation.
OF_ALL = {
    "admin_keys",
    "admin_links",
    "admin_sessions",
    "administrators",
    "analytics_progress",
    "apps",
    "audit_chain",
    "audit_keys",
    "leader",
    "copied_tables",
    "installation",
    "migrations",
    "nodes",
    "recovery_codes",
    "retired_keys",
    "sign_in_attempts",
    "totp_secrets",
    "trusted_devices",
}
SQLITE_COLUMNS = statement(
    "list_columns_of_sqlite",
    """SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'""",
)
POSTGRES_COLUMNS = statement(
    "list_columns_of_postgres",
    """SELECT table_name::text, column_name::text FROM information_schema.columns
    WHERE table_schema = 'public'""",
)


class Excepted(NamedTuple):
    """Statements that may do without the app, and the columns that take its place, if any do."""

    reason: str
    columns: tuple[str, ...]
    names: frozenset[str]


def by(reason: str, columns: str, names: str) -> Excepted:
    return Excepted(reason, tuple(columns.split()), frozenset(names.split()))


# The ids are UUIDs that the server made. A caller's own text is one of them only after it was found
# for the app: `test_access_matrix.py` tries every operation with the ids of another app.
EXCEPTIONS = (
    by(
        "By the id of a device that was found for its app, in the same unit or before.",
        "device_id id notification_id",
        """acknowledge_message add_feedback add_message add_push_endpoint advance_cursor
        cancel_message collapse_messages collapse_messages_of_notifications confirm_attempt
        count_waiting_messages delete_device delete_push_endpoints_of_device
        delete_push_endpoints_of_others delete_subscriptions_left_behind
        delete_subscriptions_of_device delete_subscriptions_of_former_user
        end_deliveries_before_collapse end_deliveries_left_behind end_deliveries_of_former_user
        end_delivery_before_failure end_waiting_deliveries expire_message fail_message
        fail_messages_left_behind fail_messages_of_former_user fail_waiting_messages
        find_devices_with_waiting_messages prune_message
        remember_user_of_device_changed remember_user_of_device_deleted
        remember_user_of_device_left select_devices_of_subject select_subscriptions
        select_waiting_messages subscribe touch_device trim_messages unsubscribe count_subscribers
        """,
    ),
    by(
        "By the id of a notification or event that was found for its app, in the same unit or"
        " before.",
        "notification_id event_id id",
        """add_attempt cancel_event delete_attempts
        delete_deliveries delete_event end_delivery
        list_attempts list_attempts_of_channel put_delivery reopen_held
        replay_jobs wake_held_of_event
        find_personal_attempts erase_attempts erase_all_attempts show_personal_attempts
        find_personal_deliveries erase_deliveries erase_all_deliveries show_personal_deliveries""",
    ),
    by(
        "By the id of a job, which this process has claimed or makes; ids hold that of the event.",
        "id event_id",
        """add_or_hasten_job claim_jobs delete_dead_job end_job make_dead_letter renew_claim
        reschedule_job retry_job select_dead_jobs""",
    ),
    by(
        "Authentication: finds the app of a credential, by its id or the hash of its secret.",
        "id key_id hash token_hash capability_hash",
        """authenticate_device find_push_endpoint redeem_ticket select_api_key select_provider_key
        select_ticket touch_api_key""",
    ),
    by(
        "Housekeeping and queues: goes over all apps, and shows nothing to any of them.",
        "",
        """count_delivered_deliveries count_dismissals count_ended_messages count_first_clicks
        count_deliveries_behind_dead_letters count_first_reads count_jobs count_pending_messages
        count_new_decisions count_new_messages count_new_notifications count_sent_deliveries
        count_unsuccessful_deliveries
        delete_orphaned_job list_deleted_users
        list_inactive_users select_analytics_of_minute select_old_analytics
        move_due_jobs move_waiting_jobs select_chunk_of_jobs select_jobs_between
        select_deleted_topics select_deliveries_without_job select_due_erasures
        select_events_without_job find_ended_dedupes
        find_ended_idempotency_keys find_ended_limit_counts select_expired_messages
        find_ended_tickets select_expired_topic_messages select_old_devices
        find_ended_feedback select_old_former_device_users select_old_notifications
        select_oldest_jobs select_open_erasures select_orphaned_jobs""",
    ),
    by(
        "The audit log: one chain of all apps, verified and pruned as a whole; listed without an"
        " app for administrators with a role for all.",
        "",
        """link_audit_entry list_audit_entries_by list_audit_entries_by_action
        list_audit_entries_by_action_actor_id list_audit_entries_by_actor_id prune_audit_entries
        select_audit_entries select_waiting_audit_entries""",
    ),
    by(
        "`clarion doctor`, for whoever runs the server.",
        "",
        "select_providers_for_doctor select_disabled_providers_for_doctor",
    ),
)


@cache
def statements() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.statements"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture
async def owned(engine: Engine, database_url: str) -> set[str]:
    """The tables that belong to apps, by the schema."""
    query = SQLITE_COLUMNS if sqlite_path(database_url) else POSTGRES_COLUMNS
    columns = await engine.fetch(query)
    with_app = {table for table, column in columns if column == "app_id"}
    tables = {table for table, _ in columns}
    assert tables - with_app - OF_ALL == set(BY_ANOTHER_ROW), "does it belong to an app?"
    return with_app | set(BY_ANOTHER_ROW)


async def test_every_statement_is_within_one_app_or_has_a_reason(owned: set[str]) -> None:
    excepted = {name for each in EXCEPTIONS for name in each.names}
    unscoped = {
        name: tables
        for name, text in statements().items()
        if (tables := find_unscoped(text, owned)) and name.partition(" ")[0] not in excepted
    }
    assert unscoped == {}, "add `app_id = :app_id`, or a reason to EXCEPTIONS"


async def test_exceptions_are_needed_and_use_what_they_name(owned: set[str]) -> None:
    texts = {name.partition(" ")[0]: text for name, text in statements().items()}
    needless = {
        name
        for each in EXCEPTIONS
        for name in each.names
        if name not in texts or not find_unscoped(texts[name], owned)
    }
    assert needless == set(), "they are gone, or use the app now"
    wrong = {
        name: tables
        for each in EXCEPTIONS
        if each.columns
        for name in each.names
        if (tables := find_unscoped(texts[name], owned, ("app_id", *each.columns)))
    }
    assert wrong == {}


def test_what_apps_send_is_a_parameter() -> None:
    """The filters that the statements of segments are made from hold this word."""
    assert [text for text in statements().values() if "planted" in text] == []


OWNED = {"users", "devices", "messages"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT id FROM users WHERE app_id = $1 AND id = $2", []),
        ("SELECT id FROM users WHERE id = $1", ["users"]),
        ("SELECT id FROM users WHERE app_id = $1 OR id = $2", ["users"]),
        ("SELECT id FROM users WHERE (app_id = $1 OR id = $2)", ["users"]),
        ("SELECT id FROM users WHERE app_id <> $1", ["users"]),
        ("SELECT id FROM users WHERE app_id = app_id", ["users"]),
        ("SELECT id FROM users WHERE (app_id, id) = ($1, $2)", []),
        ("SELECT id FROM users WHERE (app_id, id) > ($1, $2)", ["users"]),
        ("SELECT u.id FROM users u JOIN devices d ON d.app_id = u.app_id WHERE u.app_id = $1", []),
        ("SELECT u.id FROM users u JOIN devices d ON d.id = u.id WHERE u.app_id = $1", ["devices"]),
        ("SELECT 1 FROM users u, devices d WHERE u.app_id = d.app_id", ["users", "devices"]),
        (
            "DELETE FROM users WHERE app_id = $1 AND id IN (SELECT user_id FROM devices)",
            ["devices"],
        ),
        (
            (
                "DELETE FROM users WHERE app_id = $1 AND EXISTS (SELECT 1 FROM devices d"
                " WHERE d.app_id = users.app_id)"
            ),
            [],
        ),
        ("DELETE FROM users", ["users"]),
        ("UPDATE users SET name = $1 WHERE id = $2", ["users"]),
        ("UPDATE users SET app_id = $1 WHERE id = $2", ["users"]),
        ("INSERT INTO users (app_id, id) VALUES ($1, $2)", []),
        ("INSERT INTO users (id) VALUES ($1)", ["users"]),
        (
            "INSERT INTO users (app_id, id) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET a = $3",
            ["ON CONFLICT"],
        ),
        (
            (
                "INSERT INTO users (app_id, id) VALUES ($1, $2) ON CONFLICT (app_id, id)"
                " DO UPDATE SET name = $3"
            ),
            [],
        ),
        (
            "INSERT INTO users (app_id, id) SELECT app_id, id FROM devices WHERE id = $1",
            ["devices"],
        ),
        ("SELECT 1 FROM users WHERE app_id = $1 UNION SELECT 1 FROM devices", ["devices"]),
        ("SELECT 1 FROM apps WHERE id = $1", []),
    ],
)
def test_the_check_tells_scoped_from_unscoped(text: str, expected: list[str]) -> None:
    assert find_unscoped(text, OWNED) == expected
