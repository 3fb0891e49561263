"""Tickets: short-lived, each for one stream or socket, where a client cannot send a header.

A ticket is part of the URL, so it can be used once, within 30 seconds.
"""

from __future__ import annotations

import hashlib

from clarion.access.keys import random_text
from clarion.access.model import Ticket, UserCaller

LIFE_MS = 30_000
PREFIX = "tk_"
_SECRET_LENGTH = 43  # 256 bits


def hash_ticket(text: str) -> bytes:
    """Return the stored form of a ticket. A fast hash is safe: a ticket has 256 random bits."""
    return hashlib.sha256(text.encode(errors="replace")).digest()


def issue_ticket(caller: UserCaller, now: int) -> tuple[Ticket, str]:
    """Return a new ticket of a user and its text, without storing it."""
    text = PREFIX + random_text(_SECRET_LENGTH)
    ticket = Ticket(
        hash=hash_ticket(text),
        app_id=caller.app_id,
        user_id=caller.user_id,
        token_expires_at=caller.expires_at,
        created_at=now,
        expires_at=now + LIFE_MS,
    )
    return ticket, text
