"""The flags of the commands that talk to a running server. Read by `cli.py`, so nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

DEVICES_LIMIT = 10_000
SENDS_LIMIT = 100_000

Flag = Annotated[bool, Parameter(negative="")]
Names = Annotated[tuple[str, ...], Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """What `clarion device listen` takes.

    Parameters
    ----------
    topic
        Subscribe to this topic; may be given several times. The device goes on hearing it.
    count
        Listen as so many devices, and show what they get as one line of numbers.
    new
        Register a fresh device instead of coming back as the one of last time.
    token
        Come back as the device with this token; needs --secret.
    secret
        Its secret.
    exit_after
        End when so many messages have arrived.
    json
        Print one JSON object a line, for scripts.
    url
        Where the API is, like http://127.0.0.1:8080.
    gateway_url
        Where the gateway is, like ws://127.0.0.1:8081.
    api_key
        The API key to register with; otherwise that of first-run.json in the data folder.

    """

    topic: Names = ()
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=DEVICES_LIMIT))] = 1
    new: Flag = False
    token: str = ""
    secret: str = ""
    exit_after: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    json: Flag = False
    url: str = ""
    gateway_url: str = ""
    api_key: str = ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SendOptions:
    """What `clarion send` takes.

    Parameters
    ----------
    to
        The token of the device; otherwise the one that `clarion device listen` was last.
    topic
        Send to all who hear this topic instead.
    title
        The title of the alert.
    body
        Its text; the same as writing it without a flag.
    payload
        A file with the whole payload as JSON, or - to read it from the standard input.
    priority
        10 at once, 5 when the device is awake, 1 when it suits. The server takes 10 if not said.
    collapse_id
        Replaces what waits under the same word.
    ttl
        Seconds that it may wait for a device that is away; 0 is one attempt.
    count
        Send it so many times.
    id
        The id of the message, a UUID: the same one again is not sent twice.
    url
        Where the server is, like https://localhost:8443.
    api_key
        The API key for --topic; otherwise that of first-run.json in the data folder.

    """

    to: str = ""
    topic: str = ""
    title: str = ""
    body: str = ""
    payload: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    priority: Literal[10, 5, 1] | None = None
    collapse_id: str = ""
    ttl: Annotated[int | None, Parameter(validator=Number(gte=0))] = None
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=SENDS_LIMIT))] = 1
    id: str = ""
    url: str = ""
    api_key: str = ""
