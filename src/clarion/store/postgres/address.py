"""Where a PostgreSQL server is: whether what is sent there needs TLS."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

_HOST = re.compile(r"\[(?P<v6>[^\]]*)\]|(?P<name>[^:]*)")
_CHOSEN = frozenset({"sslmode", "ssl"})


def choose_tls(url: str) -> dict[str, Any]:
    """Return what to give the driver beside the URL.

    It would use TLS if the server offers it, and else send the password and everything else in
    clear. Beyond this machine only a URL that says so gets that.
    """
    query = parse_qs(urlsplit(url).query)
    is_chosen = "PGSSLMODE" in os.environ or not _CHOSEN.isdisjoint(query)
    if is_chosen or all(map(_is_here, _hosts_of(url, query))):
        return {}
    return {"ssl": "require"}


def _hosts_of(url: str, query: dict[str, list[str]]) -> Iterator[str]:
    named = [urlsplit(url).netloc.rpartition("@")[2], *query.get("host", [])]
    if not any(named):
        named = [os.environ.get("PGHOST", "")]
    for each in ",".join(filter(None, named)).split(","):
        found = _HOST.match(each)
        yield (found["v6"] or found["name"] or "") if found else each


def _is_here(host: str) -> bool:
    """Whether it is a socket file, or an address of this machine alone."""
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
