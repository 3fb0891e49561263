"""All kinds of providers, a line each."""

from __future__ import annotations

from clarion.channels.apns import APNS
from clarion.channels.apprise_bridge import APPRISE
from clarion.channels.fcm import FCM
from clarion.channels.kinds import ProviderKind
from clarion.channels.smtp import SMTP
from clarion.channels.stub import STUB
from clarion.channels.twilio import TWILIO
from clarion.channels.web_push import WEB_PUSH
from clarion.channels.webhook import WEBHOOK

_ALL = (APNS, FCM, WEB_PUSH, SMTP, TWILIO, WEBHOOK, APPRISE, STUB)
KINDS: dict[str, ProviderKind] = {kind.name: kind for kind in _ALL}
