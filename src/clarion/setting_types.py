"""The kinds of values that settings have: each a function from text to value.

One that cannot be raises `Wrong` with what it must be, as the end of a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES = frozenset({"api", "gateway", "worker"})
# Who listens here takes the port on every address of the machine.
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        """Write it as it is given."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def meets(self, other: Address) -> bool:
        """Whether the two cannot be listened on at the same time."""
        hosts = {self.host, other.host}
        return self.port == other.port and (len(hosts) == 1 or bool(hosts & EVERYWHERE))


class Wrong(ValueError):
    """What a value should have been, as the end of a sentence that starts with `must be`."""


def path(text: str) -> Path:
    msg = "a path on this machine"
    if "\0" in text:
        raise Wrong(msg)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # the ~ of an account that is not there
        raise Wrong(msg) from error


def optional_path(text: str) -> Path | None:
    return path(text) if text else None


def address(text: str) -> Address:
    match = re.fullmatch(
        r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s\[\]]+)):(?P<port>\d{1,5})", text
    )
    if not match or not 1 <= int(match["port"]) <= 65535:  # noqa: PLR2004 - the range of ports
        msg = "host:port with a port from 1 to 65535, like 127.0.0.1:8080 or [::1]:8080"
        raise Wrong(msg)
    return Address(match["v6"] or match["host"], int(match["port"]))


def optional_address(text: str) -> Address | None:
    return None if text in ("", "off") else address(text)


def roles(text: str) -> frozenset[str]:
    roles = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not roles or not roles <= ROLES:
        msg = "one or more of api, gateway, worker, separated by commas"
        raise Wrong(msg)
    return roles


def database(text: str) -> str:
    if text and not re.match(r"sqlite:///.|postgres(ql)?://.", text):
        msg = "sqlite:///PATH or postgresql://USER@HOST:PORT/NAME"
        raise Wrong(msg)
    return text


def redis(text: str) -> str:
    if text and not re.match(r"(rediss?|unix)://.", text):
        msg = "redis://HOST:PORT/NUMBER, rediss://… for TLS, or empty for none"
        raise Wrong(msg)
    return text


def number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,12}", text) or not low <= int(text) <= high:
            msg = f"a whole number from {low:,} to {high:,}"
            raise Wrong(msg)
        return int(text)

    return parse


def choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            msg = "one of " + ", ".join(words)
            raise Wrong(msg)
        return text

    return parse


def word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        msg = "1 to 64 letters, digits, dots, dashes or underscores"
        raise Wrong(msg)
    return text
