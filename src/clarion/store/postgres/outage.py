"""Logs when PostgreSQL stops answering, and when it answers again."""

from __future__ import annotations

import asyncpg

from clarion.errors import ClarionError
from clarion.store.postgres.address import name_host
from clarion.system.connection_faults import describe_fault
from clarion.telemetry.outages import QUIET_S, Outage

# The classes of SQLSTATE whose messages are about the server and its connections, not about data:
# connection, authorisation, unknown database, resources, intervention by the operator.
_ABOUT_SERVER = ("08", "28", "3D", "53", "57")


class DatabaseOutage:
    """The outage of one database: it ends when the check of the connection succeeds."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._host = name_host(url)
        self._outage = Outage(
            "database_unavailable",
            "database_available",
            quiet_s=QUIET_S,
            is_shared=True,
            host=self._host,
        )

    def note(self, error: Exception) -> None:
        """Record what failed because the database did not answer as it should."""
        cause = error.__cause__ if isinstance(error, ClarionError) and error.__cause__ else error
        self._outage.begin(describe(cause, self._host))

    def end(self) -> None:
        """Record that it answers."""
        self._outage.end()


def describe(error: BaseException, host: str) -> str:
    """Return why the database could not be used, without any value of a row."""
    if isinstance(error, ClarionError):
        return error.detail
    kind = type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        is_about_server = (error.sqlstate or "")[:2] in _ABOUT_SERVER
        said = " ".join(str(error).split()) if is_about_server else "PostgreSQL failed"
        return f"{said[0].upper()}{said[1:]} ({kind})"
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return f"The connection to {host} was lost ({kind})"
    return describe_fault(error, host)
