"""All stores for administrators on one engine."""

from __future__ import annotations

from typing import NamedTuple

from clarion.access.administrators.sql.administrators import Administrators, SetupLinks
from clarion.access.administrators.sql.attempts import SignInAttempts
from clarion.access.administrators.sql.keys import AdminKeys
from clarion.access.administrators.sql.second_factors import SecondFactors
from clarion.access.administrators.sql.sessions import AdminSessions
from clarion.store.engine import Engine


class AdminStores(NamedTuple):
    """What is stored about administrators, and how they sign in."""

    accounts: Administrators
    links: SetupLinks
    sessions: AdminSessions
    factors: SecondFactors
    keys: AdminKeys
    attempts: SignInAttempts


def make_admin_stores(engine: Engine) -> AdminStores:
    return AdminStores(
        accounts=Administrators(engine),
        links=SetupLinks(engine),
        sessions=AdminSessions(engine),
        factors=SecondFactors(engine),
        keys=AdminKeys(engine),
        attempts=SignInAttempts(engine),
    )
