"""All adapters for administrators on one engine."""

from __future__ import annotations

from clarion.access.administrators.port import AdminStores
from clarion.access.administrators.sql.administrators import SqlAdministrators, SqlSetupLinks
from clarion.access.administrators.sql.attempts import SqlAttempts
from clarion.access.administrators.sql.keys import SqlAdminKeys
from clarion.access.administrators.sql.second_factors import SqlSecondFactors
from clarion.access.administrators.sql.sessions import SqlAdminSessions
from clarion.store.engine import Engine


def make_admin_stores(engine: Engine) -> AdminStores:
    return AdminStores(
        accounts=SqlAdministrators(engine),
        links=SqlSetupLinks(engine),
        sessions=SqlAdminSessions(engine),
        factors=SqlSecondFactors(engine),
        keys=SqlAdminKeys(engine),
        attempts=SqlAttempts(engine),
    )
