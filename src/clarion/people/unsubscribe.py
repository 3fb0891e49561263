"""Links by which the reader of an email turns its type off, without signing in.

The token is encrypted and authenticated (AES-SIV, RFC 5297) with a key derived from the master key:
nobody else can create one, or read the user from it. It does not expire, since an email does not.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from clarion.catalog.model import Channel

PATH = "/unsubscribe/"
# A user id has at most 128 characters, a type 100, in up to four bytes each.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,1400}")
_PURPOSE = b"clarion unsubscribe link"
_KEY_BYTES = 64


class OptOut(NamedTuple):
    """The preference that a link turns off."""

    app_id: str
    user_id: str
    type: str
    channel: Channel


class UnsubscribeLinks:
    """Makes links with the first master key, and reads those made with any of them.

    The same subscription has always the same link. AES-SIV sets no limit
    to the number of links, as AES-GCM would.
    """

    def __init__(self, master_keys: Sequence[bytes], public_url: str) -> None:
        self._ciphers = [AESSIV(_derive(key)) for key in master_keys]
        self._start = f"{public_url}{PATH}"

    def make(self, app_id: str, user_id: str, type_name: str, channel: Channel) -> str:
        text = f"{app_id}\0{user_id}\0{type_name}\0{channel}".encode()
        token = self._ciphers[0].encrypt(text, [_PURPOSE])
        return self._start + base64.urlsafe_b64encode(token).rstrip(b"=").decode()

    def read(self, token: str) -> OptOut | None:
        """Return what the token of a link turns off; None if this server has not made it."""
        if not _TOKEN.fullmatch(token) or len(token) % 4 == 1:
            return None
        sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        for cipher in self._ciphers:
            try:
                parts = cipher.decrypt(sealed, [_PURPOSE]).decode().split("\0")
            except InvalidTag:
                continue
            app_id, user_id, type_name, channel = parts
            return OptOut(app_id, user_id, type_name, Channel(channel))
        return None


def _derive(master_key: bytes) -> bytes:
    return HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=_PURPOSE).derive(master_key)
