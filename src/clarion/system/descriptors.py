"""File descriptors: each connection needs one, and so does everything that the store opens."""

from __future__ import annotations

import contextlib
import resource

import msgspec

# Kept for the store, Redis, providers, files and the log: clients cannot take them.
RESERVE = 256
# Held open, and released when no other is left.
HELD = 160
# Connections that wait to be accepted, while descriptors are few: fewer than are held.
FEW_WAITING = 128
# Below this limit, a few hundred clients fill the server.
LOW = 4_096
# HTTP needs no more; the rest is for the gateway, where devices stay connected.
_HTTP_CONNECTIONS = 40_000
# More is of no use to one process.
_MOST = 1_048_576
ADVICE = "raise it by `ulimit -n 65536`, or by LimitNOFILE=65536 in the systemd unit"


class Shares(msgspec.Struct, frozen=True):
    """How many connections the listeners may hold, so that the reserve stays free."""

    http: int  # on all HTTP listeners together
    gateway: int  # on all WebSocket listeners together


def get_limit() -> int:
    """Return how many descriptors this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def raise_limit() -> int:
    """Allow this process as many descriptors as the system lets it have, and return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if wanted > get_limit():
        # macOS states no limit, and then refuses to set it so high.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return get_limit()


def share(limit: int) -> Shares:
    """Share the descriptors: a quarter for HTTP, the rest for devices, which stay connected."""
    free = max(64, limit - RESERVE - HELD)
    http = min(_HTTP_CONNECTIONS, free // 4)
    return Shares(http, free - http)
