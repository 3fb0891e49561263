"""The URL of Redis or Valkey: one server, or some servers of a Cluster."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from clarion.errors import StartError

PORT = 6379
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)(:(?P<port>[0-9]{1,5}))?")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SHAPE = "must be a URL like redis://HOST:PORT/NUMBER"
_HOSTS_LIMIT = 64


class ServerAddress(NamedTuple):
    """Where a server listens. A socket of the file system has its path as host, and port 0."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """How to reach Redis."""

    servers: tuple[ServerAddress, ...]
    number: int = 0
    username: str = "default"
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


def parse_address(url: str) -> RedisAddress:
    """Parse a URL; `StartError` if it is not one."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False))
        user, _, hosts = parts.netloc.rpartition("@")
        username, _, password = user.partition(":")
        path = parts.path.strip("/")
        is_file = parts.scheme == "unix"
        address = RedisAddress(
            servers=(ServerAddress(parts.path, 0),) if is_file else _parse_hosts(hosts),
            number=_parse_number(options.pop("db", "" if is_file else path) or "0"),
            username=unquote(username) or "default",
            password=unquote(password),
            tls=_parse_tls(options) if parts.scheme == "rediss" else None,
        )
    except ValueError as error:
        raise StartError(f"--redis: {error}.") from error
    if options:
        raise StartError(f"--redis: the option {min(options)} is not known.")
    return address


async def find_exposed(address: RedisAddress) -> str | None:
    """Return a public host that is used without TLS, or None."""
    if address.tls is not None:
        return None
    loop = asyncio.get_running_loop()
    for host, port in address.servers:
        if port:  # not a socket file
            found = await loop.getaddrinfo(host, port)
            if any(ipaddress.ip_address(each[4][0]).is_global for each in found):
                return host
    return None


def _parse_hosts(text: str) -> tuple[ServerAddress, ...]:
    found = [_HOST.fullmatch(each) for each in text.split(",")]
    servers = [
        ServerAddress(each["host"].strip("[]"), int(each["port"] or PORT)) for each in found if each
    ]
    if len(servers) < len(found) or not all(0 < each.port < 1 << 16 for each in servers):
        raise ValueError(_SHAPE)
    if len(servers) > _HOSTS_LIMIT:
        raise ValueError(f"names more than {_HOSTS_LIMIT} servers; a few of a Cluster are enough")
    return tuple(servers)


def _parse_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text):
        raise ValueError(_SHAPE)
    return int(text)


def _parse_tls(options: dict[str, str]) -> ssl.SSLContext:
    """Take the options of TLS, under the names that redis-py has for them."""
    try:
        context = ssl.create_default_context(cafile=options.pop("ssl_ca_certs", None))
        certificate, key = options.pop("ssl_certfile", None), options.pop("ssl_keyfile", None)
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ValueError(
            f"the certificates of the URL cannot be read ({error.strerror})"
        ) from error
    is_required = options.pop("ssl_cert_reqs", "required")
    if is_required not in {"required", "none"}:
        raise ValueError("ssl_cert_reqs must be required or none")
    checks_names = _BOOLEANS.get(options.pop("ssl_check_hostname", "true").lower())
    if checks_names is None:
        raise ValueError("ssl_check_hostname must be true or false")
    context.check_hostname = checks_names and is_required == "required"
    if is_required == "none":
        context.verify_mode = ssl.CERT_NONE
    return context
