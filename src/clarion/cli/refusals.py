"""Why a push was refused, in words for people. Apple's words for the same are in `Reason`."""

from __future__ import annotations

import msgspec

from clarion.cli.calls import Answer
from clarion.push.apns.reasons import Reason

_WORDS: dict[str, str] = {
    Reason.BAD_COLLAPSE_ID: "--collapse-id must have 1 to 64 bytes.",
    Reason.BAD_DEVICE_TOKEN: "No device has this token. "
    "`clarion device listen` shows the token of the device that it is.",
    Reason.BAD_MESSAGE_ID: "--id must be a UUID, like 01890a5d-ac96-774b-bcce-b302099a8057.",
    Reason.BAD_PRIORITY: "--priority must be 10, 5 or 1.",
    Reason.DEVICE_TOKEN_NOT_FOR_TOPIC: "The device with this token is of another app.",
    Reason.EXPIRED_PROVIDER_TOKEN: "The provider token has expired. "
    "Is the clock of this machine right?",
    Reason.EXPIRED_TOKEN: "The device's token has expired.",
    Reason.INTERNAL_SERVER_ERROR: "Something went wrong on the server; its log says what.",
    Reason.INVALID_PROVIDER_TOKEN: "The server does not know the app's provider key. "
    "Is first-run.json of this server, and the clock of this machine right?",
    Reason.MISSING_DEVICE_TOKEN: "Say to which device: --to TOKEN.",
    Reason.PAYLOAD_EMPTY: "The payload must be a JSON object with something in it.",
    Reason.PAYLOAD_TOO_LARGE: "The payload is too large: 4,096 bytes are the most.",
    Reason.SERVICE_UNAVAILABLE: "The server could not store it now; nothing was sent.",
    Reason.SHUTDOWN: "The server is stopping; nothing was sent.",
    Reason.TOO_MANY_REQUESTS: "This device, or this app, has had its messages for this minute.",
    Reason.TOPIC_DISALLOWED: "The provider key is of another app.",
    Reason.UNREGISTERED: "The device was revoked or deleted. "
    "`clarion device listen --new` registers a fresh one.",
}


class _Refusal(msgspec.Struct):
    reason: str


def explain_push_refusal(answer: Answer, url: str) -> str:
    """Return in a sentence why the APNs door refused, with Apple's word behind it."""
    try:
        reason = msgspec.json.decode(answer.body, type=_Refusal).reason
    except msgspec.DecodeError:
        return f"{url} answers {answer.status}, but not as Clarion's APNs door does."
    words = _WORDS.get(reason, "The server refused it.")
    wait_s = answer.headers.get("retry-after")
    again = f" Try again in {wait_s} s." if wait_s else ""
    return f"{words}{again} ({answer.status} {reason})"
