"""The export of a user: one JSON object, written as it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from clarion.people.erasure.sql.exports import Exports

# A user has one of each; of everything else, a list.
_SINGLE = frozenset({"user", "inbox"})
# Sent at once; the size of an HTTP/2 frame.
PART_BYTES = 16_384
_encode = msgspec.json.Encoder().encode


async def write_export(
    exports: Exports, app_id: str, user_id: str, exported_at: str
) -> AsyncGenerator[bytes, None]:
    """Yield the export of a user in parts."""
    part = bytearray(b'{"user_id":%s,"exported_at":%s' % (_encode(user_id), _encode(exported_at)))
    section = ""
    async for name, item in exports.read(app_id, user_id):
        if name != section:
            part += _end(section) + _begin(name)
            section = name
            part += item or b""
        elif item is not None:
            part += (b"" if part.endswith(b"[") else b",") + item
        if len(part) >= PART_BYTES:
            # The last byte says whether a comma must follow.
            yield bytes(part[:-1])
            del part[:-1]
    yield bytes(part + _end(section) + b"}\n")


def _begin(section: str) -> bytes:
    return b",%s:%s" % (_encode(section), b"" if section in _SINGLE else b"[")


def _end(section: str) -> bytes:
    return b"" if not section or section in _SINGLE else b"]"
