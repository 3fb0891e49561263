"""The kinds of providers, a line each. A new kind is a file with its sender, and a line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from clarion.catalog.model import Channel
from clarion.channels.answers import Action, AnswerTable
from clarion.channels.model import Address, Configuration, Outcome, Verified
from clarion.channels.port import Sender, SenderContext
from clarion.errors import FieldFault
from clarion.people.model import User


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No settings, or no secrets."""


class ProviderKind(msgspec.Struct, frozen=True, kw_only=True):
    """Everything common to the providers of a kind.

    `settings` and `secrets` are the types of the API. `find_faults` checks what types cannot
    express. `complete` adds secrets that Clarion creates if they are not given; those named in
    `shown_once` are returned when the provider is created. `describe` returns the values that a
    `GET` shows in addition to the settings. `list_urls` returns the fields with URLs that the guard
    of targets must allow, and `takes` whether it sends messages of a notification type.
    """

    name: str
    channels: frozenset[Channel]
    open: Callable[[Configuration[Any, Any], SenderContext], Sender]
    answers: AnswerTable
    settings: type[msgspec.Struct] = Nothing
    secrets: type[msgspec.Struct] = Nothing
    platforms: frozenset[str] = frozenset()  # of the devices that it reaches, for push
    find_faults: Callable[[Any, Any], Iterable[FieldFault]] = lambda _settings, _secrets: ()
    complete: Callable[[dict[str, str]], dict[str, str]] = lambda secrets: secrets
    # From the old secrets, the given ones and the time: the secrets to store.
    rotate: Callable[[dict[str, str], dict[str, str], int], dict[str, str]] = (
        lambda old, given, _now: old | given
    )
    describe: Callable[[Any, Any], dict[str, str]] = lambda _settings, _secrets: {}
    list_urls: Callable[[Any], Mapping[str, str]] = lambda _settings: {}
    takes: Callable[[Any, str], bool] = lambda _settings, _type: True
    shown_once: frozenset[str] = frozenset()
    # The settings that say who gets the secrets. If one changes, they must be given again.
    bound_to: frozenset[str] = frozenset()
    needs_address: bool = True  # False: the settings or secrets say where messages go
    # Of the address: what fails together. Users choose the servers of their browsers, and one that
    # fails must not stop the others.
    find_circuit: Callable[[Address], str] = lambda _address: ""
    # Of the sender: try the credentials without sending. None: the protocol has no way to.
    verify: Callable[[Any], Awaitable[Verified | Outcome]] | None = None
    is_watched: bool = True  # whether failures open the circuit breaker


NO_ANSWERS = AnswerTable(default=Action.RETRY)


def find_address(channel: Channel, user: User) -> str | None:
    """Return the address that a user has for a channel without devices."""
    match channel:
        case Channel.EMAIL:
            return user.email
        case Channel.SMS:
            return user.phone
        case Channel.STUB:
            stub = user.attributes.get("stub")
            return stub if isinstance(stub, str) else None
        case _:
            return None
