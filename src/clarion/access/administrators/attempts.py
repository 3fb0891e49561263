"""How failed sign-ins are counted, and for how long they lead to a lock.

An attempt is counted by its account and address together, by its address, and by its account. The
first two stop guessing from one place, while the account can still be used from another one. The
third stops guessing from many places, which needs many attempts. A browser with a trusted device,
or with the cookie of an expired session of the account, is counted only by that: nobody else can
lock its owner out.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clarion.access.administrators.sql.attempts import Counter, SignInAttempts
from clarion.errors import ClarionError, SignInFailed, TooManyRequests

PER_PAIR = 5
PER_ADDRESS = 30
PER_ACCOUNT = 100
PER_DEVICE = 10
PER_CODE = 10
PER_CODE_EVERYWHERE = 50
_V6_PREFIX = 64


def sign_in_counters(username: str, address: str, known_by: bytes | None) -> tuple[Counter, ...]:
    """Return the counters of an attempt; names that do not exist are counted in the same way.

    `known_by` is the hash of a secret of browsers that have signed in to the account before. Behind
    a TCP proxy all addresses are unknown: then nobody is counted by address.
    """
    account, place = hash_name(username), place_of(address)
    if known_by is not None:
        return (Counter(f"device:{known_by.hex()}", PER_DEVICE),)
    everywhere = Counter(f"account:{account}", PER_ACCOUNT)
    if not place:
        return (everywhere,)
    return (
        Counter(f"account:{account}:{place}", PER_PAIR),
        Counter(f"address:{place}", PER_ADDRESS),
        everywhere,
    )


def second_factor_counters(administrator_id: str, address: str) -> tuple[Counter, ...]:
    """Return the counters of a code. Only someone who knows the password can try a code."""
    everywhere = Counter(f"second_factor:{administrator_id}", PER_CODE_EVERYWHERE)
    if not address:
        return (everywhere,)
    here = Counter(f"second_factor:{administrator_id}:{place_of(address)}", PER_CODE)
    return here, everywhere


def confirmation_counters(session_id: str) -> tuple[Counter, ...]:
    """Return what the password that a session gives again is counted by."""
    return (Counter(f"session:{session_id}", PER_PAIR),)


def hash_name(username: str) -> str:
    """Return the hash under which a name is counted: people type passwords into the name field."""
    return hashlib.sha256(username.lower().encode("utf-8", "surrogatepass")).hexdigest()[:32]


def place_of(address: str) -> str:
    """Return an address, or the network of 64 bits of IPv6: one machine has all of that."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - IPv4
        return str(found)
    return str(ipaddress.ip_network((found, _V6_PREFIX), strict=False))


@asynccontextmanager
async def counted(
    attempts: SignInAttempts, counters: tuple[Counter, ...], now: int
) -> AsyncIterator[None]:
    """Count the attempt of this context; `TooManyRequests` if too many have failed.

    Only `SignInFailed` is a failure. An attempt that the server could not check is not counted.
    """
    await _take(attempts, counters, now)
    try:
        yield
    except SignInFailed:
        raise
    except ClarionError:
        await attempts.take_back(counters)
        raise
    await attempts.succeed(counters)


async def _take(attempts: SignInAttempts, counters: tuple[Counter, ...], now: int) -> None:
    locked_until = await attempts.take(counters, now)
    if locked_until is not None:
        raise TooManyRequests(
            max(1, -(-(locked_until - now) // 1000)),
            "Too many failed attempts. Wait as `Retry-After` says, or use another address or a "
            "trusted device.",
        )
