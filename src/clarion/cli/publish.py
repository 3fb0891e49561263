"""`clarion publish`: send a text to the devices and users of a topic."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import msgspec
from cyclopts import Parameter

from clarion.cli.flags import SettingFlags
from clarion.cli.remote_server import ApiOptions, connect_api
from clarion.cli.server_connection import path_part
from clarion.errors import StartError

# More than the server accepts: it says what is too long.
_READ_LIMIT_BYTES = 65_536


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """The options of `clarion publish`, next to the text.

    Parameters
    ----------
    title
        The title. Default: the name of the topic.
    priority
        1 to 5, or min, low, default, high, max or urgent.
    tags
        Tags, separated by commas. Names of emoji, like tada, are shown as emoji.
    click
        The link that opens when the notification is clicked.

    """

    title: str = ""
    priority: str = ""
    tags: str = ""
    click: str = ""


class _Published(msgspec.Struct):
    event_id: str
    message_id: str


def publish(
    topic: str,
    /,
    *message: str,
    options: PublishOptions | None = None,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Publish to a topic.

    Parameters
    ----------
    topic
        The name of the topic, which is created if it does not exist.
    message
        The text. Default: standard input.

    """
    options = options or PublishOptions()
    fields = {
        "message": " ".join(message) if message else _read_input(),
        "title": options.title,
        "priority": options.priority,
        "tags": options.tags,
        "click": options.click,
    }
    body = {name: text for name, text in fields.items() if text}
    path = f"/v1/publish/{path_part(topic, 'TOPIC')}"
    with connect_api(server, settings) as client:
        published = client.request("POST", path, body, returns=_Published)
    print(f"{published.message_id}  accepted, event {published.event_id}")


def _read_input() -> str:
    try:
        return sys.stdin.buffer.read(_READ_LIMIT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise StartError("Standard input: must be text in UTF-8") from error
