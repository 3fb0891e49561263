"""Parsers of the values of settings.

A text that is not valid raises `Unsuitable` with what it must be, as the end of a sentence.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROLES = frozenset({"api", "gateway", "worker"})
# A listener here takes the port on every address of the machine.
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on


@dataclass(frozen=True, slots=True)
class ListenAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def overlaps(self, other: ListenAddress) -> bool:
        """Whether only one of the two can be listened on."""
        hosts = {self.host, other.host}
        return self.port == other.port and (len(hosts) == 1 or bool(hosts & WILDCARDS))


class Unsuitable(ValueError):
    """What a value must be, as the end of a sentence that starts with `must be`."""


def path(text: str) -> Path:
    try:
        found = Path(text).expanduser()
    except RuntimeError:  # the ~ of an account that does not exist
        found = None
    if found is None or "\0" in text:
        raise Unsuitable("a path on this machine")
    return found


def optional_path(text: str) -> Path | None:
    return path(text) if text else None


def file_or_off(text: str) -> str:
    return text if text in ("", "off") else str(path(text))


def address(text: str) -> ListenAddress:
    match = re.fullmatch(
        r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s\[\]]+)):(?P<port>\d{1,5})", text
    )
    if not match or not 1 <= int(match["port"]) <= 65535:  # noqa: PLR2004 - the range of ports
        raise Unsuitable("host:port with a port from 1 to 65535, like 127.0.0.1:8080 or [::1]:8080")
    return ListenAddress(match["v6"] or match["host"], int(match["port"]))


def optional_address(text: str) -> ListenAddress | None:
    return None if text in ("", "off") else address(text)


def roles(text: str) -> frozenset[str]:
    roles = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not roles or not roles <= ROLES:
        raise Unsuitable("one or more of api, gateway, worker, separated by commas")
    return roles


def schemes(text: str) -> frozenset[str]:
    found = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if not all(re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) for scheme in found):
        raise Unsuitable("URL schemes separated by commas, like javascript,data")
    return found


def number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,12}", text) or not low <= int(text) <= high:
            raise Unsuitable(f"a whole number from {low:,} to {high:,}")
        return int(text)

    return parse


def number_or_auto(low: int, high: int) -> Callable[[str], int | None]:
    parse_number = number(low, high)

    def parse(text: str) -> int | None:
        try:
            return None if text == "auto" else parse_number(text)
        except Unsuitable as error:
            raise Unsuitable(f"auto, or {error}") from None

    return parse


def choice(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise Unsuitable("one of " + ", ".join(values))
        return text

    return parse


def _matching(pattern: str, meaning: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text, re.DOTALL):
            raise Unsuitable(meaning)
        return text

    return parse


database = _matching(
    r"((sqlite:///|postgres(ql)?://).+)?", "sqlite:///PATH or postgresql://USER@HOST:PORT/NAME"
)
redis = _matching(
    r"((rediss?|unix)://.+)?", "redis://HOST:PORT/NUMBER, rediss://… for TLS, or empty for none"
)
name = _matching(r"[A-Za-z0-9._-]{1,64}", "1 to 64 letters, digits, dots, hyphens or underscores")

account = _matching(r"([a-z_][a-z0-9_.-]{0,31})?", "the name of an account, like clarion")


def public_url(text: str) -> str:
    if text and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text):
        raise Unsuitable(
            "an http:// or https:// URL without a query, like https://push.example.com"
        )
    return text.rstrip("/")


def networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise Unsuitable("networks like 10.0.0.0/8 or fd00::/8, separated by commas") from error
