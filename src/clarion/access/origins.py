"""The origins of web pages that an app allows, exactly as browsers send them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from clarion.access.known_apps import KnownApps
from clarion.access.model import ANY_ORIGIN
from clarion.clock import Clock

ORIGINS_LIMIT = 50
_LENGTH = 255
# Apps in a web view have schemes of their own, such as capacitor://localhost.
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://[a-z0-9._-]+(:\d{1,5})?|[a-z]+://\[[0-9a-f:.]+\](:\d{1,5})?"
)
# For the OpenAPI document; capitals make no difference.
ORIGIN = f"^(?:\\*|{_ORIGIN.pattern.replace('a-z', 'A-Za-z').replace('a-f', 'A-Fa-f')})$"
_WRONG = (
    "must have origins like https://app.example.com or http://localhost:3000, without a path, or "
    f"`{ANY_ORIGIN}` for all"
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def check_origins(texts: Sequence[str]) -> tuple[str, ...]:
    """Return origins as browsers send them, each once; `ValueError` says what is wrong."""
    if len(texts) > ORIGINS_LIMIT:
        raise ValueError(f"must have at most {ORIGINS_LIMIT} origins")
    return tuple(dict.fromkeys(map(_check_origin, texts)))


def _check_origin(text: str) -> str:
    if text == ANY_ORIGIN:
        return text
    origin = text.lower()
    if len(text) > _LENGTH or not _ORIGIN.fullmatch(origin):
        raise ValueError(_WRONG)
    try:
        scheme = urlsplit(origin).scheme
    except ValueError as error:  # an address in brackets that is none
        raise ValueError(_WRONG) from error
    return origin.removesuffix(_DEFAULT_PORTS.get(scheme, " "))


@dataclass(frozen=True, slots=True)
class AllowedOrigins:
    """The `Origins` port."""

    apps: KnownApps
    clock: Clock

    async def is_allowed(self, app_id: str, origin: str) -> bool:
        known = await self.apps.find(app_id, self.clock.now())
        if known is None:
            return False
        return ANY_ORIGIN in known.app.allowed_origins or origin in known.app.allowed_origins
