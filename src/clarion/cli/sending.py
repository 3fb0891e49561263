"""`clarion send`: push to a device as an APNs provider does, or to a topic through the API."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jwt
import msgspec

from clarion.cli.calls import Calls, path_part
from clarion.cli.devices.known_devices import read_devices
from clarion.cli.refusals import explain_push_refusal
from clarion.clock import SystemClock
from clarion.errors import CommandFailed, StartError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clarion.cli.installation import Installation
    from clarion.cli.options import SendOptions


@dataclass(frozen=True, slots=True)
class Sent:
    """What the server accepted."""

    id: str
    status: int


class _Accepted(msgspec.Struct):
    id: str


def send(options: SendOptions, text: str, installation: Installation) -> Iterator[Sent]:
    """Send what was asked for, one after the other; `CommandFailed` at the first refusal."""
    _check(options, text)
    payloads = list(_compose(options, text))
    sending = _send_to_topic if options.topic else _send_to_device
    done = 0
    try:
        for sent in sending(options, installation, payloads):
            yield sent
            done += 1
    except CommandFailed as failed:
        if options.count == 1:
            raise
        msg = f"{done} of {options.count} were sent. {failed.detail}"
        raise CommandFailed(msg) from failed


def _check(options: SendOptions, text: str) -> None:
    """Refuse flags that contradict each other."""
    for is_wrong, sentence in (
        (bool(text and options.body), "--body: the text is there already; give it once"),
        (
            bool(options.payload and (text or options.body or options.title)),
            "--payload: is the whole message; leave out the text and --title",
        ),
        (
            not (text or options.body or options.title or options.payload),
            'Say what to send, like: clarion send "Hello"',
        ),
        (bool(options.topic and options.to), "--topic and --to: give one of them"),
        (bool(options.topic and options.id), "--id: a message to a topic gets its id there"),
        (
            bool(options.topic) and options.ttl == 0,
            "--ttl: a message to a topic waits at least 1 second",
        ),
        (options.count > 1 and bool(options.id), "--id: names one message; leave out --count"),
    ):
        if is_wrong:
            raise StartError(sentence)


def _compose(options: SendOptions, text: str) -> Iterator[bytes]:
    """Return the payloads; texts that are sent several times are numbered, to tell them apart."""
    if options.payload:
        yield from [_read_payload(options.payload)] * options.count
        return
    for number in range(1, options.count + 1):
        ending = f" ({number} of {options.count})" if options.count > 1 else ""
        alert = {"title": options.title, "body": (text or options.body) + ending}
        filled = {key: value for key, value in alert.items() if value}
        yield msgspec.json.encode({"aps": {"alert": filled}})


def _read_payload(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        msg = f"--payload: cannot read {source}: {error.strerror}"
        raise StartError(msg) from error


def _send_to_device(
    options: SendOptions, installation: Installation, payloads: list[bytes]
) -> Iterator[Sent]:
    token = options.to or _remembered_token(installation)
    path = f"/3/device/{path_part(token, '--to')}"
    headers = _push_headers(options, installation)
    with Calls(installation.push_url, installation.trust) as calls:
        for payload in payloads:
            answer = calls.ask("POST", path, headers, payload)
            if not answer.is_good or "apns-id" not in answer.headers:
                raise CommandFailed(explain_push_refusal(answer, installation.push_url))
            yield Sent(answer.headers["apns-id"], answer.status)


def _remembered_token(installation: Installation) -> str:
    known = read_devices(installation.device_file)
    if not known:
        msg = (
            "There is no device to send to yet. Be one with `clarion device listen` in another "
            "terminal, or name one with --to TOKEN."
        )
        raise StartError(msg)
    return known[0].token


def _push_headers(options: SendOptions, installation: Installation) -> dict[str, str | bytes]:
    now_s = SystemClock().now() // 1000
    headers: dict[str, str | bytes] = {
        "authorization": f"bearer {make_provider_token(installation, now_s)}",
        "apns-topic": installation.app.bundle_id,
    }
    if not options.payload:
        headers["apns-push-type"] = "alert"
    if options.priority is not None:
        headers["apns-priority"] = str(options.priority)
    if options.collapse_id:
        headers["apns-collapse-id"] = options.collapse_id.encode()
    if options.ttl is not None:
        headers["apns-expiration"] = str(now_s + options.ttl if options.ttl else 0)
    if options.id:
        headers["apns-id"] = options.id
    return headers


def make_provider_token(installation: Installation, now_s: int) -> str:
    """Return the token with which a provider shows who it is, good for an hour."""
    app = installation.app
    claims = {"iss": app.team_id, "iat": now_s}
    try:
        return jwt.encode(claims, installation.provider_key, "ES256", {"kid": app.key_id})
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        msg = f"{app.provider_key_path} does not hold the provider key that `clarion init` made."
        raise StartError(msg) from error


def _send_to_topic(
    options: SendOptions, installation: Installation, payloads: list[bytes]
) -> Iterator[Sent]:
    path = f"/v1/topics/{path_part(options.topic, '--topic')}/messages"
    fields = {
        "priority": options.priority,
        "ttl_s": options.ttl,
        "collapse_id": options.collapse_id or None,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    with Calls(installation.api_url, installation.trust) as calls:
        for payload in payloads:
            body = {"payload": msgspec.Raw(payload), **given}
            key = installation.api_key
            accepted = calls.ask_api("POST", path, api_key=key, body=body, kind=_Accepted)
            yield Sent(accepted.id, 202)
