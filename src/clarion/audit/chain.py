"""Signatures of entries and links between them, with keys that are made from the master keys.

A signature is the id of its key and an HMAC. An entry's link signs its number, the link before it
and its signature: an entry that is changed, moved, added or removed is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from clarion.audit.model import ChainState, Entry
from clarion.errors import StartError

_KEY_BYTES = 32
_ID_LENGTH = 8  # in hexadecimal digits
_PSEUDONYM_BYTES = 12
# The id of a master key in hexadecimal digits, and the key that was derived from it.
Key = tuple[str, bytes]
_PURPOSE = b"clarion audit log"
_encode = msgspec.json.Encoder().encode


def derive_key(master_key: bytes) -> bytes:
    """Return the key that entries are signed with while this master key is in use."""
    return HKDF(hashes.SHA256(), _KEY_BYTES, None, _PURPOSE).derive(master_key)


def retired_key_context(key_id: str) -> str:
    """Return what the key of a replaced master key is sealed for."""
    return f"audit_keys/{key_id}"


class ChainKeys:
    """Signs with the first key, and verifies with all that are known.

    `reread` returns the keys of the master keys as they are stored now: another process may have
    added one.
    """

    def __init__(
        self, current: Key, *others: Key, reread: Callable[[], Sequence[Key]] | None = None
    ) -> None:
        self._current = current[0]
        self._keys: dict[str, bytes] = dict((current, *others))
        self._reread = reread

    def add(self, key_id: str, key: bytes) -> None:
        """Add the key of a master key that was replaced."""
        self._keys.setdefault(key_id, key)

    def knows(self, signature: str) -> bool:
        """Whether a signature can be verified."""
        key_id = signature[:_ID_LENGTH]
        if key_id not in self._keys and self._reread is not None:
            with contextlib.suppress(StartError):  # the file cannot be read now
                self._keys.update(self._reread())
        return key_id in self._keys

    def sign(self, *content: object) -> str:
        return self._sign(self._current, content)

    def verifies(self, signature: str, *content: object) -> bool:
        """Whether Clarion made this signature for this content; False if its key is unknown."""
        if not self.knows(signature):
            return False
        return hmac.compare_digest(self._sign(signature[:_ID_LENGTH], content), signature)

    def name_user(self, app_id: str, user_id: str) -> str:
        """Return the pseudonym of a user; without the key it reveals nothing about them."""
        return self._name_user(self._current, app_id, user_id)

    def list_names(self, app_id: str, user_id: str) -> Iterator[str]:
        """Yield the pseudonyms that a user had with any of the keys."""
        yield from (self._name_user(key_id, app_id, user_id) for key_id in self._keys)

    def _sign(self, key_id: str, content: object) -> str:
        return key_id + hmac.digest(self._keys[key_id], _encode(content), hashlib.sha256).hex()

    def _name_user(self, key_id: str, app_id: str, user_id: str) -> str:
        content = _encode(("user", app_id, user_id))
        digest = hmac.digest(self._keys[key_id], content, hashlib.sha256)
        return f"u_{digest[:_PSEUDONYM_BYTES].hex()}"


def content_of(entry: Entry) -> tuple[object, ...]:
    """Return what the signature of an entry is about: all of it but its place in the chain."""
    return (
        "entry",
        entry.id,
        entry.app_id,
        entry.created_at,
        entry.actor_kind,
        entry.actor_id,
        entry.action,
        entry.subject,
        entry.target,
        entry.result,
        entry.reason,
        entry.address,
        entry.request_id,
        entry.node,
    )


def make_link(keys: ChainKeys, sequence: int, before: str, entry: Entry) -> str:
    """Return the link of an entry that gets a number and follows another one."""
    return keys.sign("link", sequence, before, entry.signature)


def is_linked(keys: ChainKeys, entry: Entry, before: str) -> bool:
    """Whether an entry follows the one with this link."""
    return keys.verifies(entry.link or "", "link", entry.sequence, before, entry.signature)


def sign_pruned(keys: ChainKeys, sequence: int, link: str) -> str:
    """Return the proof that everything up to an entry was pruned by Clarion."""
    return keys.sign("pruned", sequence, link)


def is_pruned(keys: ChainKeys, state: ChainState) -> bool:
    """Whether the chain was pruned by us, if it was."""
    if not state.pruned_sequence:
        return not state.pruned_link
    return keys.verifies(state.pruned_signature, "pruned", state.pruned_sequence, state.pruned_link)
