"""Every kind of provider with a peer that speaks its protocol, and fails as it is told.

`FAULTS` of a kind says what each fault is over its protocol, and how the attempt that meets it must
end: by the tables in `docs/reference/providers.md`.
"""

import asyncio
import email
import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.policy import default as MAIL_POLICY  # noqa: N812
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs

from tests.faults.sizes import SIZES
from tests.peers import twilio
from tests.peers.authority import Authority
from tests.peers.fcm import PROJECT, FcmPeer, refuse
from tests.peers.http1 import Http1Peer
from tests.peers.http2 import Fault, Http2Peer, Reply, Request
from tests.peers.mail_servers import ScriptedServer
from tests.peers.webhooks import WebhookReceiver
from tests.processes import free_port
from tests.web_push import Browser

RETRY_AFTER_S = 3
# Long enough for peers that share two busy processors.
TIMEOUT_S = SIZES.provider_timeout_s


class Arrival(NamedTuple):
    """A message that a peer has read whole: its id, and when."""

    id: str
    at: float


class Meets(NamedTuple):
    """What a peer does, and the status that the attempt must have.

    `others` is what it may have as well: if a connection is cut under several requests, it depends
    on the moment which of them have an answer.
    """

    action: Any
    status: str
    others: str = ""


# Faults of the listener: they are the same for all kinds.
REFUSED, NOT_ACCEPTED, EXPIRED = "connection refused", "time-out before accepting", "expired"
LISTENERS = {each: Meets(each, "retry") for each in (REFUSED, NOT_ACCEPTED, EXPIRED)}


class Peer(ABC):
    """A provider of one kind, and how an app uses it."""

    kind: ClassVar[str]
    channel: ClassVar[str]
    success: ClassVar[str] = "delivered"
    first_wait_s: ClassVar[float] = 5.0
    FAULTS: ClassVar[Mapping[str, Meets]]

    def __init__(self, authority: Authority, key: str) -> None:
        self.authority = authority
        self.key = key  # of an app of the server, for APNs
        self.port = free_port()
        self._open: AbstractAsyncContextManager[Any] | None = None

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings and secrets of the provider."""

    @property
    @abstractmethod
    def arrivals(self) -> list[Arrival]:
        """The messages that it has read, whatever it answered."""

    @abstractmethod
    def serving(self, tls: ssl.SSLContext) -> AbstractAsyncContextManager[Any]:
        """Listen on its port."""

    @abstractmethod
    def set(self, action: Any) -> None:
        """Meet requests by an action; None: answer them."""

    protocols: ClassVar[list[str]] = ["h2"]

    def provider(self) -> dict[str, Any]:
        return {"kind": self.kind, "timeout_s": TIMEOUT_S, **self.settings()}

    def user(self, number: int) -> dict[str, Any]:
        return {"name": f"User {number}"}

    def device(self, _number: int) -> dict[str, Any] | None:
        return None

    def learn(self, provider: dict[str, Any]) -> None:
        """Take what the answer to the creation of the provider says."""
        assert provider["kind"] == self.kind

    async def start(self, *, expired: bool = False) -> None:
        tls = self.authority.server_context(self.protocols, expired=expired)
        await self._enter(self.serving(tls))

    async def stop(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.__aexit__(None, None, None)

    async def fail(self, meets: Meets) -> None:
        """Begin to fail."""
        if not isinstance(meets.action, str):
            self.set(meets.action)
            return
        await self.stop()
        if meets.action == EXPIRED:
            await self.start(expired=True)
        elif meets.action == NOT_ACCEPTED:
            await self._enter(ignoring(self.port))

    async def heal(self, meets: Meets) -> None:
        """Answer as usual again."""
        if isinstance(meets.action, str):
            await self.stop()
            await self.start()
        self.set(None)

    async def _enter(self, opened: AbstractAsyncContextManager[Any]) -> None:
        await opened.__aenter__()
        self._open = opened


@asynccontextmanager
async def ignoring(port: int) -> AsyncIterator[None]:
    """Listen, and never say a word: no TLS handshake comes to its end."""
    server = await asyncio.start_server(_ignore, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


async def _ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65_536):
        pass
    writer.close()


def refuse_push(status: int, reason: str, **headers: str) -> Reply:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=given, body=json.dumps({"reason": reason}).encode())


LATER = {"retry-after": str(RETRY_AFTER_S)}
# Over HTTP/2 the status comes first, and counts however the body ends.
HTTP2_FAULTS = {
    "time-out after accepting": Meets(Fault.SILENCE, "unknown"),
    "reset mid-body": Meets(Fault.RESET_MID_BODY, "unknown"),
    "reset after the request": Meets(Fault.RESET, "unknown"),
    "GOAWAY": Meets(Fault.GO_AWAY, "retry"),
    "refused stream": Meets(Fault.REFUSED_STREAM, "retry"),
    "half reply": Meets(Fault.HALF_REPLY, "delivered", "unknown"),
    "one byte a second": Meets(Fault.SLOW, "delivered"),
    "garbage": Meets(Fault.GARBAGE, "unknown"),
    "endless reply": Meets(Fault.ENDLESS, "delivered"),
}
HTTP1_FAULTS = {
    "time-out after accepting": Meets(Fault.SILENCE, "unknown"),
    "reset mid-body": Meets(Fault.RESET_MID_BODY, "unknown"),
    "reset after the request": Meets(Fault.RESET, "unknown"),
    "half reply": Meets(Fault.HALF_REPLY, "unknown"),
    "one byte a second": Meets(Fault.SLOW, "unknown"),
    "garbage": Meets(Fault.GARBAGE, "unknown"),
    "endless reply": Meets(Fault.ENDLESS, "delivered"),
}


class _HttpPeer(Peer):
    """A peer over HTTP: `http` has a handler that answers as the real one would."""

    http: Http1Peer | Http2Peer

    def serving(self, tls: ssl.SSLContext) -> AbstractAsyncContextManager[Any]:
        return self.http.serving(tls, self.port)

    def set(self, action: Any) -> None:
        self.http.always = action

    @property
    def arrivals(self) -> list[Arrival]:
        return [Arrival(self.read_id(each), each.at) for each in self.messages]

    @property
    def messages(self) -> list[Request]:
        return self.http.requests

    @abstractmethod
    def read_id(self, request: Request) -> str:
        """Return the id of the message in a request."""


class ApnsPeer(_HttpPeer):
    """Answers as Apple does; a whole Clarion takes its place in `tests/conformance`."""

    kind, channel = "apns", "push"
    FAULTS: ClassVar = {
        "4xx": Meets(refuse_push(400, "BadPriority"), "rejected"),
        "gone": Meets(refuse_push(410, "Unregistered"), "gone"),
        "unauthorised": Meets(refuse_push(403, "InvalidProviderToken"), "misconfigured"),
        # Without a time it would be tried again after 15 minutes.
        "5xx": Meets(refuse_push(503, "ServiceUnavailable", retry_after="5"), "retry"),
        "429": Meets(refuse_push(429, "TooManyRequests", **LATER), "retry"),
        "redirect": Meets(Reply(status=302, headers={"location": "https://127.0.0.1/"}), "retry"),
        **HTTP2_FAULTS,
        **LISTENERS,
    }

    def __init__(self, authority: Authority, key: str) -> None:
        super().__init__(authority, key)
        self.http = Http2Peer(self._take)

    def settings(self) -> dict[str, Any]:
        settings = {
            "base_url": f"https://127.0.0.1:{self.port}",
            "team_id": "TEAM000001",
            "key_id": "KEY0000001",
            "topic": "com.example.app",
            "ca_path": str(self.authority.ca_path),
        }
        return {"settings": settings, "secrets": {"key": self.key}}

    def device(self, number: int) -> dict[str, Any]:
        return {"platform": "ios", "token": f"{number:064x}"}

    def read_id(self, request: Request) -> str:
        return request.headers["apns-id"]

    def _take(self, request: Request) -> Reply:
        assert request.headers["authorization"].startswith("bearer ")
        assert json.loads(request.body)["aps"]
        return Reply(headers={"apns-id": request.headers["apns-id"]})


class GooglePeer(_HttpPeer):
    """FCM, with its token endpoint, which no fault befalls."""

    kind, channel = "fcm", "push"
    FAULTS: ClassVar = {
        "4xx": Meets(refuse(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), "rejected"),
        "gone": Meets(refuse(404, "NOT_FOUND", "UNREGISTERED"), "gone"),
        "unauthorised": Meets(refuse(401, "UNAUTHENTICATED"), "misconfigured"),
        "5xx": Meets(refuse(503, "UNAVAILABLE", "UNAVAILABLE"), "retry"),
        "429": Meets(
            refuse(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", retry_after=str(RETRY_AFTER_S)),
            "retry",
        ),
        "redirect": Meets(Reply(status=302, headers={"location": "https://127.0.0.1/"}), "retry"),
        **HTTP2_FAULTS,
        **LISTENERS,
    }

    def __init__(self, authority: Authority, key: str) -> None:
        super().__init__(authority, key)
        self.fcm = FcmPeer()
        self.fcm.http.port = self.port
        self.fcm.http.spared = frozenset({"/token"})
        self.http = self.fcm.http

    def settings(self) -> dict[str, Any]:
        settings = {
            "base_url": f"https://127.0.0.1:{self.port}",
            "project_id": PROJECT,
            "ca_path": str(self.authority.ca_path),
        }
        return {
            "settings": settings,
            "secrets": {"service_account": self.fcm.service_account()},
        }

    def device(self, number: int) -> dict[str, Any]:
        return {"platform": "android", "token": f"registration-token-{number}"}

    @property
    def messages(self) -> list[Request]:
        return [each for each in self.http.requests if each.path != "/token"]

    def read_id(self, request: Request) -> str:
        found: str = json.loads(request.body)["message"]["data"]["notification_id"]
        return found


class PushServicePeer(_HttpPeer):
    """A push service of browsers; it decrypts what it gets, as the browser would."""

    kind, channel = "webpush", "push"
    FAULTS: ClassVar = {
        "4xx": Meets(Reply(status=400), "rejected"),
        "gone": Meets(Reply(status=410), "gone"),
        "unauthorised": Meets(Reply(status=401), "rejected"),
        "5xx": Meets(Reply(status=503), "retry"),
        "429": Meets(Reply(status=429, headers=LATER), "retry"),
        "redirect": Meets(
            Reply(status=302, headers={"location": "https://127.0.0.1/"}), "rejected"
        ),
        **HTTP2_FAULTS,
        **LISTENERS,
    }

    def __init__(self, authority: Authority, key: str) -> None:
        super().__init__(authority, key)
        self.browser = Browser()
        self.http = Http2Peer(self._take)

    def settings(self) -> dict[str, Any]:
        return {"settings": {"subject": "mailto:ops@example.com"}}

    def device(self, number: int) -> dict[str, Any]:
        endpoint = f"https://127.0.0.1:{self.port}/push/{number}"
        return {
            "platform": "web",
            "subscription": json.loads(self.browser.subscription(endpoint)),
        }

    def read_id(self, request: Request) -> str:
        found: str = json.loads(self.browser.decrypt(request.body))["id"]
        return found

    def _take(self, request: Request) -> Reply:
        assert request.headers["authorization"].startswith("vapid t=")
        return Reply(status=201, headers={"location": f"{request.path}/1"})


class SmsPeer(_HttpPeer):
    """Twilio."""

    kind, channel, success, protocols = "twilio", "sms", "sent", ["http/1.1"]
    FAULTS: ClassVar = {
        "4xx": Meets(twilio.Reply.of_error(400, 21211), "rejected"),
        "gone": Meets(twilio.Reply.of_error(400, 21610), "gone"),
        "unauthorised": Meets(twilio.Reply.of_error(401, 20003), "misconfigured"),
        "5xx": Meets(twilio.Reply.of_error(500, 20500), "retry"),
        "429": Meets(twilio.Reply.of_error(429, 20429, retry_after=str(RETRY_AFTER_S)), "retry"),
        "redirect": Meets(Reply(status=302, headers={"location": "https://127.0.0.1/"}), "retry"),
        # The id of the message is in the body.
        **HTTP1_FAULTS,
        "endless reply": Meets(Fault.ENDLESS, "unknown"),
        **LISTENERS,
    }

    def __init__(self, authority: Authority, key: str) -> None:
        super().__init__(authority, key)
        self.twilio = twilio.Twilio()
        self.http = Http1Peer(self._take)

    def settings(self) -> dict[str, Any]:
        settings = {
            "base_url": f"https://127.0.0.1:{self.port}",
            "account_sid": twilio.ACCOUNT,
            "from": "+15005550006",
        }
        return {"settings": settings, "secrets": {"auth_token": twilio.TOKEN}}

    def user(self, number: int) -> dict[str, Any]:
        return {"phone": f"+4917{number:08}"}

    def set(self, action: Any) -> None:
        super().set(_convert(action) if isinstance(action, twilio.Reply) else action)

    def read_id(self, request: Request) -> str:
        return parse_qs(request.body.decode())["StatusCallback"][0]

    def _take(self, request: Request) -> Reply:
        return _convert(self.twilio.judge(request.path, request.headers, request.body))


def _convert(reply: twilio.Reply) -> Reply:
    return Reply(status=reply.status, headers=dict(reply.headers), body=reply.body)


class WebhookPeer(_HttpPeer):
    """A receiver that verifies signatures by `standardwebhooks`."""

    kind, channel, protocols = "webhook", "webhook", ["http/1.1"]
    FAULTS: ClassVar = {
        "4xx": Meets(Reply(status=400), "retry"),
        "gone": Meets(Reply(status=410), "gone"),
        "unauthorised": Meets(Reply(status=401), "retry"),
        "5xx": Meets(Reply(status=500), "retry"),
        "429": Meets(Reply(status=429, headers=LATER), "retry"),
        "redirect": Meets(Reply(status=302, headers={"location": "https://127.0.0.1/"}), "retry"),
        **HTTP1_FAULTS,
        **LISTENERS,
    }

    def __init__(self, authority: Authority, key: str) -> None:
        super().__init__(authority, key)
        self.receiver = WebhookReceiver()
        self.http = Http1Peer(self._take)

    def settings(self) -> dict[str, Any]:
        return {"settings": {"url": f"https://127.0.0.1:{self.port}/hook"}}

    def learn(self, provider: dict[str, Any]) -> None:
        self.receiver.secret = provider.get("secret") or self.receiver.secret

    def read_id(self, request: Request) -> str:
        return request.headers["webhook-id"]

    def _take(self, request: Request) -> Reply:
        self.receiver.take(request.headers, request.body)
        assert not self.receiver.faults
        return Reply(status=200, body=b"ok")


class MailPeer(Peer):
    """An SMTP server over TLS; the name of an action is a step of the dialogue, and an answer."""

    kind, channel, first_wait_s, protocols = "smtp", "email", 60.0, ["smtp"]
    FAULTS: ClassVar = {
        "4xx": Meets({"END": "451 4.3.0 later"}, "retry"),
        "5xx": Meets({"END": "554 5.7.1 spam"}, "rejected"),
        "gone": Meets({"RCPT": "550 5.1.1 no such user"}, "gone"),
        "unauthorised": Meets({"AUTH": "535 5.7.8 wrong"}, "misconfigured"),
        "GOAWAY": Meets({"MAIL": "421 4.3.2 closing"}, "retry"),
        "time-out after accepting": Meets({"END": "hang"}, "unknown"),
        "reset mid-body": Meets({"DATA": "reset"}, "retry"),
        "reset after the request": Meets({"END": "reset"}, "unknown"),
        "half reply": Meets({"END": "half"}, "unknown"),
        "one byte a second": Meets({"END": "slow"}, "unknown"),
        "slow greeting": Meets({"HELLO": "slow"}, "retry"),
        "garbage": Meets({"END": "hello, world"}, "unknown"),
        "redirect": Meets({"RCPT": "551 user not local; try <bo@example.net>"}, "gone"),
        **LISTENERS,
    }

    def __init__(self, authority: Authority, key: str) -> None:
        super().__init__(authority, key)
        self.server = ScriptedServer(dict(self._USUAL), is_tls=True, port=self.port)

    _USUAL: ClassVar = {"EHLO": "250-mail\r\n250 AUTH PLAIN", "AUTH": "235 2.7.0 yes"}

    def settings(self) -> dict[str, Any]:
        settings = {
            "host": "127.0.0.1",
            "port": self.port,
            "security": "tls",
            "username": "clarion",
            "from": "shop@example.com",
            "ca_path": str(self.authority.ca_path),
        }
        return {"settings": settings, "secrets": {"password": "secret"}}

    def user(self, number: int) -> dict[str, Any]:
        return {"email": f"user{number}@example.com"}

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext) -> AsyncIterator[None]:
        self.server.context = tls
        async with self.server:
            yield

    def set(self, action: Any) -> None:
        self.server.script = {**self._USUAL, **(action or {})}

    async def fail(self, meets: Meets) -> None:
        await super().fail(meets)
        if "AUTH" in meets.action or "HELLO" in meets.action:
            # Who is connected has passed these steps.
            await self.stop()
            await self.start()

    @property
    def arrivals(self) -> list[Arrival]:
        pairs = zip(self.server.messages, self.server.times, strict=True)
        return [Arrival(_read_message_id(body), at) for body, at in pairs]


def _read_message_id(body: bytes) -> str:
    return str(email.message_from_bytes(body, policy=MAIL_POLICY)["message-id"])


PEERS: dict[str, type[Peer]] = {
    each.kind: each
    for each in (ApnsPeer, GooglePeer, PushServicePeer, MailPeer, SmsPeer, WebhookPeer)
}
