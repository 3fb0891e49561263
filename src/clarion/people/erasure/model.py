"""An erasure: what it searches for, its progress, and the receipt that is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from clarion.push.model import OwnedDevice


class ErasureStatus(StrEnum):
    """How far an erasure is."""

    RUNNING = "running"
    # All is erased. A second pass removes rows that were being written at the same time.
    SETTLING = "settling"
    DONE = "done"


class ErasureCause(StrEnum):
    """Why a user was erased."""

    REQUEST = "request"
    RETENTION = "retention"  # the user was deleted long enough ago


class Subject(msgspec.Struct, frozen=True, array_like=True):
    """Whom an erasure is about. It is stored sealed, and only until the erasure is done."""

    user_id: str
    devices: tuple[OwnedDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A tombstone and receipt. `counts` are the rows that were removed, by table."""

    app_id: str
    id: str
    user_hash: bytes
    subject: bytes | None = field(repr=False)  # sealed
    cause: ErasureCause
    status: ErasureStatus
    counts: dict[str, int]
    due_at: int
    requested_at: int
    completed_at: int | None = None


def subject_context(app_id: str, erasure_id: str) -> str:
    """Return what the subject of an erasure is sealed for."""
    return f"apps/{app_id}/erasures/{erasure_id}"


def hash_key_context(app_id: str) -> str:
    """Return what the key of an app's user hashes is sealed for."""
    return f"apps/{app_id}/erasure_key"
