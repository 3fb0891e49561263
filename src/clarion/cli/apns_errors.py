"""Explains why a push was refused, for each of Apple's reasons."""

from __future__ import annotations

import msgspec

from clarion.client import Answer
from clarion.push.apns.reasons import Reason

_EXPLANATIONS: dict[str, str] = {
    Reason.BAD_COLLAPSE_ID: "--collapse-id must have 1 to 64 bytes.",
    Reason.BAD_DEVICE_TOKEN: "No device of this app has this token. "
    "`clarion device listen` shows the token of its device.",
    Reason.BAD_MESSAGE_ID: "--id must be a UUID, like 01890a5d-ac96-774b-bcce-b302099a8057.",
    Reason.BAD_PRIORITY: "--priority must be 10, 5 or 1.",
    Reason.EXPIRED_PROVIDER_TOKEN: "The provider token has expired. "
    "Check the clock of this machine.",
    Reason.EXPIRED_TOKEN: "The device token has expired.",
    Reason.INTERNAL_SERVER_ERROR: "The server failed; see its log.",
    Reason.INVALID_PROVIDER_TOKEN: "The server rejected the provider token. Check that "
    "first-run.json belongs to this server, and that the clock of this machine is right.",
    Reason.MISSING_DEVICE_TOKEN: "Give the token of a device with --to TOKEN.",
    Reason.PAYLOAD_EMPTY: "The payload must be a JSON object that is not empty.",
    Reason.PAYLOAD_TOO_LARGE: "The payload is larger than 4,096 bytes.",
    Reason.SERVICE_UNAVAILABLE: "The server cannot store the message now; nothing was sent.",
    Reason.SHUTDOWN: "The server is stopping; nothing was sent.",
    Reason.TOO_MANY_REQUESTS: "The device or the app has reached its limit for this minute.",
    Reason.TOPIC_DISALLOWED: "The provider key belongs to another app.",
    Reason.UNREGISTERED: "The device was revoked or deleted. "
    "`clarion device listen --new` registers a new one.",
}


class _Refusal(msgspec.Struct):
    reason: str


def explain_refusal(answer: Answer, url: str) -> str:
    """Return a sentence that says why the push was refused, and Apple's reason."""
    try:
        reason = msgspec.json.decode(answer.body, type=_Refusal).reason
    except msgspec.DecodeError:
        return f"{url} responded {answer.status}, but not like an APNs endpoint."
    explanation = _EXPLANATIONS.get(reason, "The server refused the push.")
    wait_s = answer.headers.get("retry-after")
    retry = f" Try again in {wait_s} s." if wait_s else ""
    return f"{explanation}{retry} ({answer.status} {reason})"
