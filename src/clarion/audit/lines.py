"""Entries as lines of JSON: in the file, and as the command line prints them."""

from __future__ import annotations

import msgspec

from clarion.audit.model import Entry
from clarion.clock import to_rfc3339

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


def write_line(entry: Entry) -> bytes:
    """Return an entry as a line; the time is in it twice, once for people."""
    fields = msgspec.to_builtins(entry)
    return _encode({"time": to_rfc3339(entry.created_at), **fields}) + b"\n"


def read_line(line: bytes) -> Entry | None:
    """Return the entry of a line; None if it is not one, as when a crash cut it off."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
