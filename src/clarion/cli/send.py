"""`clarion send`: push to a device as an APNs provider, or to a topic through the API."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jwt
import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from clarion.cli.apns_errors import explain_refusal
from clarion.cli.device.credentials import read_devices
from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.remote_server import RemoteServer, find_server
from clarion.cli.server_connection import path_part
from clarion.clock import SystemClock
from clarion.errors import CommandFailed, StartError

COUNT_LIMIT = 100_000


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SendOptions:
    """What `clarion send` takes.

    Parameters
    ----------
    to
        The token of the device. Default: the device of the last `clarion device listen`.
    topic
        Send to all devices that are subscribed to this topic instead.
    title
        The title of the alert.
    body
        The text of the alert, instead of TEXT.
    payload
        A file with the complete payload as JSON, or - for standard input.
    priority
        10: immediately; 5: immediately if the device is in the foreground; 1: later. Default: 10.
    collapse_id
        Replace waiting messages that have the same collapse id.
    ttl
        Seconds to keep the message for a disconnected device; 0: do not keep it.
    count
        Send the message this many times.
    id
        The message id, a UUID. A second message with the same id is not delivered.
    url
        The URL of the server, like https://localhost:8443.
    api_key
        The API key for --topic. Default: the key in first-run.json.

    """

    to: str = ""
    topic: str = ""
    title: str = ""
    body: str = ""
    payload: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    priority: Literal[10, 5, 1] | None = None
    collapse_id: str = ""
    ttl: Annotated[int | None, Parameter(validator=Number(gte=0))] = None
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=COUNT_LIMIT))] = 1
    id: str = ""
    url: str = ""
    api_key: str = ""


class _Accepted(msgspec.Struct):
    id: str


def send(*text: str, options: SendOptions | None = None, **settings: SettingFlags) -> None:
    options = options or SendOptions()
    server = find_server(load_settings(settings), url=options.url, api_key=options.api_key)
    for message_id, status in _send_all(options, " ".join(text), server):
        print(f"{message_id}  {status} accepted", flush=True)


def _send_all(options: SendOptions, text: str, server: RemoteServer) -> Iterator[tuple[str, int]]:
    """Send in order; return the id and status of each. `CommandFailed` at the first refusal."""
    _check(options, text)
    payloads = list(_compose(options, text))
    transmit = _send_to_topic if options.topic else _send_to_device
    done = 0
    try:
        for sent in transmit(options, server, payloads):
            yield sent
            done += 1
    except CommandFailed as failed:
        if options.count == 1:
            raise
        raise CommandFailed(
            f"{done} of {options.count} messages were sent. {failed.detail}"
        ) from failed


def _check(options: SendOptions, text: str) -> None:
    """Refuse flags that contradict each other."""
    payload, topic = options.payload, options.topic
    alert = text or options.body or options.title
    faults = {
        "--body: give the text once, as TEXT or with --body": text and options.body,
        "--payload: is the complete message; leave out the text and --title": payload and alert,
        'Give a text to send, like: clarion send "Hello"': not (alert or payload),
        "--topic and --to: give only one of them": topic and options.to,
        "--id: cannot be used with --topic": topic and options.id,
        "--ttl: must be at least 1 with --topic": topic and options.ttl == 0,
        "--id: cannot be used with --count": options.count > 1 and options.id,
    }
    for sentence, is_wrong in faults.items():
        if is_wrong:
            raise StartError(sentence)


def _compose(options: SendOptions, text: str) -> Iterator[bytes]:
    """Return the payloads; the texts are numbered if there are several."""
    if options.payload:
        yield from [_read_payload(options.payload)] * options.count
        return
    for number in range(1, options.count + 1):
        suffix = f" ({number} of {options.count})" if options.count > 1 else ""
        alert = {"title": options.title, "body": (text or options.body) + suffix}
        filled = {key: value for key, value in alert.items() if value}
        yield msgspec.json.encode({"aps": {"alert": filled}})


def _read_payload(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise StartError(f"--payload: cannot read {source}: {error.strerror}") from error


def _send_to_device(
    options: SendOptions, server: RemoteServer, payloads: list[bytes]
) -> Iterator[tuple[str, int]]:
    token = options.to or _saved_token(server)
    path = f"/3/device/{path_part(token, '--to')}"
    headers = _push_headers(options, server)
    with server.connect_push() as client:
        for payload in payloads:
            answer = client.call("POST", path, payload, headers=headers)
            if not answer.is_success or "apns-id" not in answer.headers:
                raise CommandFailed(explain_refusal(answer, server.push_url))
            yield answer.headers["apns-id"], answer.status


def _saved_token(server: RemoteServer) -> str:
    devices = read_devices(server.device_file)
    if not devices:
        raise StartError(
            "There is no device to send to yet. Start one with `clarion device listen` in "
            "another terminal, or give a token with --to TOKEN."
        )
    return devices[0].token


def _push_headers(options: SendOptions, server: RemoteServer) -> dict[str, str]:
    now_s = SystemClock().now() // 1000
    expires_at = now_s + options.ttl if options.ttl else options.ttl
    headers: dict[str, str] = {
        "authorization": f"bearer {_sign_provider_token(server, now_s)}",
        "apns-topic": server.app.bundle_id,
        "apns-push-type": "" if options.payload else "alert",
        "apns-priority": "" if options.priority is None else str(options.priority),
        "apns-collapse-id": options.collapse_id,
        "apns-expiration": "" if expires_at is None else str(expires_at),
        "apns-id": options.id,
    }
    return {name: value for name, value in headers.items() if value}


def _sign_provider_token(server: RemoteServer, now_s: int) -> str:
    claims = {"iss": server.app.team_id, "iat": now_s}
    try:
        return jwt.encode(claims, server.provider_key, "ES256", {"kid": server.app.key_id})
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise StartError(
            f"{server.app.provider_key_path} is not the provider key that `clarion init` made."
        ) from error


def _send_to_topic(
    options: SendOptions, server: RemoteServer, payloads: list[bytes]
) -> Iterator[tuple[str, int]]:
    path = f"/v1/topics/{path_part(options.topic, '--topic')}/messages"
    fields = {
        "priority": options.priority,
        "ttl_s": options.ttl,
        "collapse_id": options.collapse_id or None,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    with server.connect_api() as client:
        for payload in payloads:
            body = {"payload": msgspec.Raw(payload), **given}
            accepted = client.request("POST", path, body, returns=_Accepted)
            yield accepted.id, 202
