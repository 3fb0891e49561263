"""All kinds of providers, a line each."""

from __future__ import annotations

from clarion.channels.apprise_bridge import APPRISE
from clarion.channels.kinds import Kind
from clarion.channels.stub import STUB
from clarion.channels.twilio import TWILIO

KINDS: dict[str, Kind] = {kind.name: kind for kind in (TWILIO, APPRISE, STUB)}
