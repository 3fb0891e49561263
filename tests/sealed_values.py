"""Fills every sealed column with secrets, and reads them again."""

from collections.abc import Mapping

from clarion.access.administrators.model import totp_context
from clarion.access.app_keys import user_key_context
from clarion.access.vault import Vault
from clarion.app.key_rotation import SEALED
from clarion.audit.chain import retired_key_context
from clarion.channels.model import secrets_context
from clarion.idempotency.model import answer_context
from clarion.people.erasure.model import hash_key_context, subject_context
from clarion.push.model import address_context
from clarion.store.engine import Engine
from clarion.store.statement import Row, Statement, Unit, Value, statement
from clarion.store.tables import seal_context

PLANTED = b"planted-secret"
# Values that are planted at once. A rotation adds one more: the key of the audit log that it keeps.
COLUMNS = len(SEALED)
_INSERT_USER_KEY = statement(
    "plant_user_key",
    """INSERT INTO user_keys (app_id, kid, algorithm, key, created_at)
    VALUES (:app_id, 'kid', 'HS256', :sealed, 1)""",
)
_INSERT_ANSWER = statement(
    "plant_answer",
    """INSERT INTO idempotency_keys (app_id, key, fingerprint, answer, created_at, expires_at)
    VALUES (:app_id, :key, :fingerprint, :sealed, 1, 9999999999999)""",
)
_INSERT_PROVIDER = statement(
    "plant_provider",
    """INSERT INTO providers (app_id, channel, name, kind, settings, secrets, position, is_active,
    timeout_s, concurrency, is_sandbox, created_at, updated_at)
    VALUES (:app_id, 'email', :name, 'smtp', '{}', :sealed, 0, 1, 10, 32, 0, 1, 1)""",
)
_INSERT_DEVICE = statement(
    "plant_device",
    """INSERT INTO devices (id, app_id, token_hash, secret_hash, platform, created_at, last_seen_at,
    address) VALUES (:id, :app_id, :token_hash, :token_hash, 'ios', 1, 1, :sealed)""",
)
_INSERT_TOTP = statement(
    "plant_totp",
    """INSERT INTO totp_secrets (administrator_id, state, secret, last_step, created_at)
    VALUES (:administrator_id, 'current', :sealed, 0, 1)""",
)
_INSERT_ERASURE = statement(
    "plant_erasure",
    """INSERT INTO erasures (app_id, id, user_hash, subject, cause, status, counts, due_at,
    requested_at) VALUES (:app_id, 'e', :user_hash, :sealed, 'request', 'running', '{}', 1, 1)""",
)
_INSERT_ERASURE_KEY = statement(
    "plant_erasure_key",
    "INSERT INTO erasure_keys (app_id, key, created_at) VALUES (:app_id, :sealed, 1)",
)
_INSERT_AUDIT_KEY = statement(
    "plant_audit_key",
    "INSERT INTO audit_keys (id, sealed_key, created_at) VALUES (:id, :sealed, 1)",
)
_INSERT_INSTALLATION = statement(
    "plant_installation",
    "INSERT INTO installation (id, slot, seal, created_at) VALUES (:id, :slot, :sealed, 1)",
)
# The first is that of the database itself.
_PLANTED_SLOTS = 2


async def plant(engine: Engine, vault: Vault, count: int, *, first: int = 0) -> None:
    """Add so many values to each sealed column, and a device without an address."""
    for number in range(first, first + count):
        app, secret, unique = f"app-{number}", PLANTED + b"-%d" % number, b"%d" % number
        rows: list[tuple[Statement, Mapping[str, Value], str]] = [
            (_INSERT_USER_KEY, {"app_id": app}, user_key_context(app, "kid")),
            (
                _INSERT_ANSWER,
                {"app_id": app, "key": "k", "fingerprint": unique},
                answer_context(app, "k"),
            ),
            (
                _INSERT_PROVIDER,
                {"app_id": app, "name": "main"},
                secrets_context(app, "email", "main"),
            ),
            (
                _INSERT_DEVICE,
                {"app_id": app, "id": f"device-{number}", "token_hash": unique},
                address_context(app, unique),
            ),
            (
                _INSERT_ERASURE,
                {"app_id": app, "user_hash": unique},
                subject_context(app, "e"),
            ),
            (_INSERT_ERASURE_KEY, {"app_id": app}, hash_key_context(app)),
            (_INSERT_AUDIT_KEY, {"id": f"key-{number}"}, retired_key_context(f"key-{number}")),
            (_INSERT_TOTP, {"administrator_id": app}, totp_context(app)),
            (
                _INSERT_INSTALLATION,
                {"id": f"key-{number}", "slot": _PLANTED_SLOTS + number},
                seal_context(f"key-{number}"),
            ),
        ]
        steps = [
            each.step(**values, sealed=vault.seal(secret, context))
            for each, values, context in rows
        ]
        bare: dict[str, Value] = {
            "app_id": app,
            "id": f"bare-{number}",
            "token_hash": b"bare-" + unique,
        }
        await engine.write(Unit("", (*steps, _INSERT_DEVICE.step(**bare, sealed=None))))


async def read_rows(engine: Engine, table: str) -> list[Row]:
    """Return the fields of the context and the sealed value of each row that has one.

    A rotation adds a key of its own to those of the audit log, and a database has a row that says
    which installation it is: these were not planted.
    """
    (column,) = (each for each in SEALED if each.table == table)
    fields = ", ".join((*column.selected, column.column))
    order = ", ".join(column.key)
    added = "WHERE id LIKE 'key-%'" if table in ("audit_keys", "installation") else ""
    select = statement("read_planted", f"SELECT {fields} FROM {table} {added} ORDER BY {order}")  # noqa: S608 - constants
    return [row for row in await engine.fetch(select) if row[-1] is not None]


async def open_all(engine: Engine, vault: Vault) -> int:
    """Open every value, which must be the one planted; return how many there are."""
    count = 0
    for column in SEALED:
        for row in await read_rows(engine, column.table):
            assert vault.open(row[-1], column.find_context(row)).startswith(PLANTED)
            count += 1
    return count
