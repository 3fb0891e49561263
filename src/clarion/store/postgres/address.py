"""The address of a PostgreSQL server, and whether connections to it need TLS."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from clarion.errors import StartError

_HOST = re.compile(r"\[(?P<v6>[^\]]*)\]|(?P<name>[^:]*)")
# With these, the driver gives the password and all data to a server that offers no TLS.
_WITHOUT_TLS = frozenset({"disable", "allow", "prefer"})
_REFUSED = (
    "--database: {} could send the password and all data in clear to a PostgreSQL on another "
    "machine that offers no TLS. Use ?sslmode=verify-full or require at the end of the URL; or, in "
    "a network that is trusted, ?sslmode=disable."
)
_UNKNOWN = (
    "--database: a service file may name another machine. Say in the URL whether it needs TLS, "
    "like ?sslmode=verify-full."
)


def name_host(url: str) -> str:
    """Return host and port as they are configured, without user and password."""
    query = parse_qs(urlsplit(url).query)
    named = [urlsplit(url).netloc.rpartition("@")[2], *query.get("host", [])]
    return next(filter(None, (*named, os.environ.get("PGHOST"))), "this machine")


def choose_tls(url: str) -> dict[str, Any]:
    """Return the options for the driver that are not in the URL.

    For another machine TLS is required unless the URL has `disable`; `StartError` if the URL or
    `PGSSLMODE` would fall back to no TLS.
    """
    query = parse_qs(urlsplit(url).query)
    hosts = _hosts_of(url, query)
    if hosts and all(map(_is_here, hosts)):
        return {}
    chosen = query.get("sslmode", [""])[-1]
    if chosen == "disable":
        return {}
    mode = chosen or os.environ.get("PGSSLMODE")
    if mode in _WITHOUT_TLS:
        raise StartError(_REFUSED.format(f"sslmode={mode}" if chosen else f"PGSSLMODE={mode}"))
    if not mode and not hosts:
        raise StartError(_UNKNOWN)
    return {} if mode else {"ssl": "require"}


def _hosts_of(url: str, query: dict[str, list[str]]) -> Sequence[str]:
    """Return the hosts; none if a service file of PostgreSQL may name them."""
    named = [urlsplit(url).netloc.rpartition("@")[2], *query.get("host", [])]
    if not any(named):
        if "service" in query or "PGSERVICE" in os.environ:
            return ()
        named = [os.environ.get("PGHOST", "")]
    return [_name_of(each) for each in ",".join(filter(None, named)).split(",")]


def _name_of(host: str) -> str:
    """Return a host without its port."""
    found = _HOST.match(host)
    return (found["v6"] or found["name"] or "") if found else host


def _is_here(host: str) -> bool:
    """Whether it is a socket file, or an address of this machine alone."""
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
