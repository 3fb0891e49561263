"""Fills every sealed column with secrets, and reads them again."""

from collections.abc import Mapping

from clarion.access.administrators.model import totp_context
from clarion.access.user_tokens import user_key_context
from clarion.access.vault import AesVault
from clarion.channels.model import secrets_context
from clarion.http.idempotency import answer_context
from clarion.key_rotation import SEALED
from clarion.push.model import address_context
from clarion.store.engine import Engine
from clarion.store.statement import Row, Statement, Unit, Value, statement

PLANTED = b"planted-secret"
_INSERT_APP = statement(
    "plant_app",
    """INSERT INTO apps (id, name, bundle_id, team_id, user_token_algorithm, user_token_key,
    created_at) VALUES (:id, 'App', :id, 'TEAM', 'HS256', :sealed, 1)""",
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


async def plant(engine: Engine, vault: AesVault, count: int, *, first: int = 0) -> None:
    """Add so many values to each sealed column, and a device without an address."""
    for number in range(first, first + count):
        app, secret, unique = f"app-{number}", PLANTED + b"-%d" % number, b"%d" % number
        rows: list[tuple[Statement, Mapping[str, Value], str]] = [
            (_INSERT_APP, {"id": app}, user_key_context(app)),
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
            (_INSERT_TOTP, {"administrator_id": app}, totp_context(app)),
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
    """Return the fields of the context and the sealed value of each row that has one."""
    (column,) = (each for each in SEALED if each.table == table)
    fields = ", ".join((*column.fields, column.column))
    order = ", ".join(column.key)
    select = statement("read_planted", f"SELECT {fields} FROM {table} ORDER BY {order}")  # noqa: S608 - constants
    return [row for row in await engine.fetch(select) if row[-1] is not None]


async def open_all(engine: Engine, vault: AesVault) -> int:
    """Open every value, which must be the one planted; return how many there are."""
    count = 0
    for column in SEALED:
        for row in await read_rows(engine, column.table):
            assert vault.open(row[-1], column.context(*row[:-1])).startswith(PLANTED)
            count += 1
    return count
