"""Version 2 of the PROXY protocol: how a TCP proxy says for whom it connects."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from enum import IntEnum

import msgspec

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD = struct.Struct("!12sBBH")
# With the certificate of a client, senders may add some hundred bytes.
_LONGEST = 4_096
_LOCAL, _PROXY = 0x20, 0x21
_TCP_4, _TCP_6 = 0x11, 0x21
_ENDS = {_TCP_4: struct.Struct("!4s4sHH"), _TCP_6: struct.Struct("!16s16sHH")}
_ADDED = struct.Struct("!BH")
_TLS = 0x20
_TLS_FROM_CLIENT = 0x01


class Broken(IntEnum):
    """Why a header cannot be read."""

    NO_HEADER = 0
    NOT_TCP = 1
    TOO_LONG = 2


class ProxyHeader(msgspec.Struct, frozen=True):
    """What a proxy says of a connection; without a client it speaks for itself."""

    size: int
    client: tuple[str, str] | None = None
    is_over_tls: bool = False


def read_header(data: bytes) -> ProxyHeader | Broken | None:
    """Return the header at the beginning of a connection; None if it is not complete."""
    if not _SIGNATURE.startswith(data[: len(_SIGNATURE)]):
        return Broken.NO_HEADER
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    if command not in {_LOCAL, _PROXY}:
        return Broken.NO_HEADER
    if length > _LONGEST:
        return Broken.TOO_LONG
    size = _HEAD.size + length
    if len(data) < size:
        return None
    if command == _LOCAL:
        return ProxyHeader(size)
    return _read_ends(data[_HEAD.size : size], family, size)


def _read_ends(said: bytes, family: int, size: int) -> ProxyHeader | Broken:
    ends = _ENDS.get(family)
    if ends is None or len(said) < ends.size:
        return Broken.NOT_TCP
    source, _, port, _ = ends.unpack_from(said)
    is_over_tls = any(
        kind == _TLS and value[:1] and value[0] & _TLS_FROM_CLIENT
        for kind, value in _read_added(said[ends.size :])
    )
    return ProxyHeader(size, (str(ipaddress.ip_address(source)), str(port)), is_over_tls)


def _read_added(said: bytes) -> Iterator[tuple[int, bytes]]:
    while len(said) >= _ADDED.size:
        kind, length = _ADDED.unpack_from(said)
        said = said[_ADDED.size :]
        yield kind, said[:length]
        said = said[length:]
