"""All kinds of providers, a line each."""

from __future__ import annotations

from clarion.channels.apns import APNS
from clarion.channels.apprise_bridge import APPRISE
from clarion.channels.fcm import FCM
from clarion.channels.kinds import Kind
from clarion.channels.stub import STUB
from clarion.channels.twilio import TWILIO
from clarion.channels.webhook import WEBHOOK

KINDS: dict[str, Kind] = {kind.name: kind for kind in (APNS, FCM, TWILIO, WEBHOOK, APPRISE, STUB)}
