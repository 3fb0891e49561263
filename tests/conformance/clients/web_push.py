"""pywebpush, and web-push of npm: both unmodified, pointed at our server over TLS."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import requests
from py_vapid import Vapid01, Vapid02  # type: ignore[import-untyped]
from pywebpush import (  # type: ignore[import-untyped]
    WebPusher,
    WebPushException,
    webpush,
)

from clarion.push.model.vapid import read_base64url, read_private_key, write_public_key
from tests.conformance.clients.node_apn import SOURCE
from tests.node import find_node, install

SUBJECT = "mailto:ops@example.com"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]


class Sender(Protocol):
    """A library that sends to a subscription. A VAPID key is a private key in base64url."""

    def send(
        self, subscription: dict[str, Any], text: str, *, vapid_key: str | None, **options: Any
    ) -> Answer:
        """Send a text; `ttl`, `urgency`, `topic` and `encoding` as the library has them."""
        ...


def public_key_of(vapid_key: str) -> str:
    return write_public_key(read_private_key(vapid_key).public_key())


@dataclass(frozen=True)
class PyWebPush:
    """`pip install pywebpush`."""

    ca_path: Path

    def send(
        self, subscription: dict[str, Any], text: str, *, vapid_key: str | None, **options: Any
    ) -> Answer:
        names = {"urgency": "Urgency", "topic": "Topic"}
        headers = {names[name]: options[name] for name in names if name in options}
        more = {
            "ttl": options.get("ttl", 0),
            "content_encoding": options.get("encoding", "aes128gcm"),
            "headers": headers,
        }
        with requests.Session() as session:
            session.trust_env = False  # certificates of the machine would come first
            session.verify = str(self.ca_path)
            try:
                if vapid_key is None:
                    answer = WebPusher(subscription, session).send(text, **more)
                else:
                    # In the form of the drafts, the key is in another header.
                    is_draft = more["content_encoding"] == "aesgcm"
                    signer = (Vapid01 if is_draft else Vapid02).from_raw(vapid_key.encode())
                    answer = webpush(
                        subscription,
                        text,
                        vapid_private_key=signer,
                        vapid_claims={"sub": SUBJECT},
                        requests_session=session,
                        **more,
                    )
            except WebPushException as error:
                answer = error.response
        assert isinstance(answer, requests.Response)
        return Answer(answer.status_code, answer.headers)


@dataclass(frozen=True)
class NodeWebPush:
    """`npm install web-push`."""

    ca_path: Path

    def send(
        self, subscription: dict[str, Any], text: str, *, vapid_key: str | None, **options: Any
    ) -> Answer:
        names = {"ttl": "TTL", "encoding": "contentEncoding"}
        more = {names.get(name, name): value for name, value in options.items()}
        if vapid_key is not None:
            assert len(read_base64url(vapid_key)) == 32
            more["vapidDetails"] = {
                "subject": SUBJECT,
                "publicKey": public_key_of(vapid_key),
                "privateKey": vapid_key,
            }
        order = {"subscription": subscription, "payload": text, "options": more}
        node = find_node()
        done = subprocess.run(
            [node.node, str(SOURCE / "web_push.js"), str(install(node, SOURCE))],
            input=json.dumps(order),
            env={"NODE_EXTRA_CA_CERTS": str(self.ca_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return Answer(answer["status"], answer["headers"])


SENDERS: dict[str, Callable[[Path], Sender]] = {"pywebpush": PyWebPush, "web-push": NodeWebPush}


async def send(sender: Sender, subscription: str, text: str, **options: Any) -> Answer:
    """Send while the loop runs on."""
    given = {"vapid_key": None} | options
    return await asyncio.to_thread(sender.send, json.loads(subscription), text, **given)
