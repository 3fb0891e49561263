"""All kinds of providers, a line each."""

from __future__ import annotations

from clarion.channels.kinds import Kind
from clarion.channels.stub import STUB

KINDS: dict[str, Kind] = {kind.name: kind for kind in (STUB,)}
