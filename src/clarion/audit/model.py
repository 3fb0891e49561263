"""Acts, the entries that record them, and the state of the chain that they form."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

# The longest text of an entry. What a caller sends can be longer, as in a path.
TEXT_LENGTH = 200


class ActorKind(StrEnum):
    """Who acted, and what `actor_id` is."""

    API_KEY = "api_key"  # the id of the key
    ADMINISTRATOR = "administrator"  # the id of the account
    USER = "user"  # the pseudonym of the user
    COMMAND = "command"  # the account of the operating system that ran `clarion`
    NOBODY = "nobody"  # not signed in


class AuditResult(StrEnum):
    """What became of an act."""

    DONE = "done"  # it took effect
    UNCHANGED = "unchanged"  # it succeeded, and nothing had to be stored
    DENIED = "denied"  # the caller may not do it, or could not sign in
    FAILED = "failed"  # the server could not do it; a part may have taken effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An action of a caller or command, before its result is known.

    `user_id` is the user it is about: only a pseudonym made from it is stored.
    """

    action: str
    actor_kind: ActorKind
    actor_id: str = ""
    app_id: str = ""
    user_id: str | None = None
    target: dict[str, str] = field(default_factory=dict)
    address: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The record of an act. `sequence` and `link` are None until it is in the chain."""

    id: str
    app_id: str  # empty: of the installation
    created_at: int
    actor_kind: ActorKind
    actor_id: str
    action: str
    subject: str | None  # the pseudonym of the user it is about
    target: dict[str, str]  # ids and names of what it is about
    result: AuditResult
    reason: str | None  # the code of the error
    address: str | None
    request_id: str | None
    node: str
    signature: str
    sequence: int | None = None
    link: str | None = None


class ChainState(msgspec.Struct, frozen=True, kw_only=True):
    """The last entry of the chain, and the last pruned one; zero without one."""

    sequence: int = 0
    link: str = ""
    pruned_sequence: int = 0
    pruned_link: str = ""
    pruned_signature: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVerification:
    """What was verified, and the first fault if there is one."""

    first: int = 0
    last: int = 0
    link: str = ""
    waiting: int = 0
    fault: str | None = None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list. None: all. `user_id` needs `app_id`; `until` is excluded."""

    app_id: str | None = None
    action: str | None = None
    actor_id: str | None = None
    user_id: str | None = None
    since: int = 0
    until: int | None = None
