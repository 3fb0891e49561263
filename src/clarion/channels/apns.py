"""Push to Apple's devices by APNs. Another Clarion can take the place of Apple."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import jwt
import msgspec
import uuid_utils
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from clarion.catalog.model import Channel
from clarion.channels.answers import Action, Answer, AnswerTable
from clarion.channels.authorities import find_ca_faults
from clarion.channels.http_clients import HttpAnswer, HttpClients, ProviderRequest
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import Configuration, Failure, Outcome, OutgoingMessage, Verified
from clarion.channels.payloads import apns_priority, build_push_payload, collapse_id
from clarion.channels.port import SenderContext
from clarion.channels.provider_requests import (
    HTTP_NETWORK,
    clean_text,
    find_url_faults,
    post,
)
from clarion.clock import LATEST_MS, Clock, to_rfc3339
from clarion.errors import FieldFault

# Apple refuses a token after an hour, and one that changes more than once in 20 minutes.
TOKEN_RENEWED_MS = 45 * 60 * 1000
# The clock of this machine may be corrected a little; beyond that a token is not used any more.
TOKEN_AHEAD_MS = 60_000
# If Apple calls a younger token than this expired, a new one would be refused as well.
TOKEN_SETTLED_MS = 60_000
# The wait that Apple asks for after an error of its own.
ERROR_WAIT_S = 900.0
TOKEN_UPDATE_WAIT_S = 1200.0
BAD_DEVICE_TOKEN = "400 BadDeviceToken"  # noqa: S105
NO_DEVICE = "0" * 64
_NO_SUCH_DEVICE = frozenset({BAD_DEVICE_TOKEN, "410 Unregistered", "410 ExpiredToken"})
EXPIRED_PROVIDER_TOKEN = "403 ExpiredProviderToken"  # noqa: S105
TOKEN_UPDATES = "429 TooManyProviderTokenUpdates"  # noqa: S105
UNNAMED = "4xx without a reason"
_IDS = uuid_utils.UUID("8a1d4f0e-5d0b-5c55-9d52-6c1a5f6f0c11")
# Apple names no length.
_DEVICE_TOKEN = re.compile(r"[0-9A-Fa-f]{2,512}")
_REASON = re.compile(r"[A-Za-z]{1,64}")
_P256_PEM_LIMIT = 2_000

ANSWERS = AnswerTable(
    Answer("200", Action.DELIVERED, "Accepted."),
    Answer(BAD_DEVICE_TOKEN, Action.GONE, "No token, or one of the other environment."),
    # It may be right for another app of the same team: our topic can be wrong as well as the token.
    Answer("400 DeviceTokenNotForTopic", Action.REJECT, "The token is of another app."),
    Answer("400 BadTopic", Action.DISABLE, "`topic` is not valid."),
    Answer("400 MissingTopic", Action.DISABLE, "`topic` is missing."),
    Answer("400 TopicDisallowed", Action.DISABLE, "The key may not push to `topic`."),
    Answer("400 IdleTimeout", Action.RETRY, "The connection was idle for too long."),
    Answer("400 BadCollapseId", Action.REJECT, "The collapse id is too long."),
    Answer("400 BadExpirationDate", Action.REJECT, "The expiration is not valid."),
    Answer("400 BadMessageId", Action.REJECT, "The `apns-id` is not valid."),
    Answer("400 BadPriority", Action.REJECT, "The priority is not valid."),
    Answer("400 DuplicateHeaders", Action.REJECT, "A header was repeated."),
    Answer("400 InvalidPushType", Action.REJECT, "The push type is not valid."),
    Answer("400 MissingDeviceToken", Action.REJECT, "The path has no token."),
    Answer("400 PayloadEmpty", Action.REJECT, "The payload is empty."),
    Answer(EXPIRED_PROVIDER_TOKEN, Action.RETRY, "The provider token is too old: it is renewed."),
    Answer("403 InvalidProviderToken", Action.DISABLE, "The key, key id or team id is wrong."),
    Answer("403 MissingProviderToken", Action.DISABLE, "The provider token is missing."),
    Answer("403 BadCertificate", Action.DISABLE, "The certificate is not valid."),
    Answer("403 BadCertificateEnvironment", Action.DISABLE, "It is of the other environment."),
    Answer(
        "403 BadEnvironmentKeyIdInToken", Action.DISABLE, "The key is of the other environment."
    ),
    Answer("403 BadEnvironmentKeyInToken", Action.DISABLE, "The key is of the other environment."),
    Answer("403 UnrelatedKeyIdInToken", Action.RETRY, "The connection began with another key."),
    Answer("403 Forbidden", Action.DISABLE, "The key may not do this."),
    Answer("404 BadPath", Action.DISABLE, "`base_url` is not that of a push service."),
    Answer("405 MethodNotAllowed", Action.DISABLE, "`base_url` is not that of a push service."),
    Answer("410", Action.GONE, "The device token is no longer valid."),
    Answer("410 ExpiredToken", Action.GONE, "The device token has expired."),
    Answer("410 Unregistered", Action.GONE, "The app was removed from the device."),
    Answer("413", Action.REJECT, "The payload is too large."),
    Answer(TOKEN_UPDATES, Action.RETRY, "Tried again after 20 minutes."),
    Answer("429", Action.RETRY, "Too many requests, for this device or at all."),
    Answer(UNNAMED, Action.RETRY, "Not from a push service, or an incomplete answer."),
    Answer("4xx", Action.REJECT, "Refused for another reason."),
    Answer("5xx", Action.RETRY, "Tried again after 15 minutes, or as `Retry-After` says."),
    *HTTP_NETWORK,
    default=Action.RETRY,
)

AppleId = Annotated[str, msgspec.Meta(pattern=r"^[A-Z0-9]{10}\Z")]
Topic = Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+\Z")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]


class ApnsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The team, the key and the app, as Apple names them; `topic` is the bundle id."""

    team_id: AppleId
    key_id: AppleId
    topic: Topic
    base_url: Text = "https://api.push.apple.com"
    ca_path: Text | None = None


class ApnsSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file with the ending .p8 that Apple made."""

    key: Annotated[str, msgspec.Meta(max_length=_P256_PEM_LIMIT)]

    def __repr__(self) -> str:
        return "ApnsSecrets(key=***)"


class _Refusal(msgspec.Struct):
    reason: str = ""
    timestamp: int | None = None


class ProviderToken:
    """The JWT that authenticates requests: signed once, and renewed after 45 minutes."""

    def __init__(self, settings: ApnsSettings, key: str, clock: Clock) -> None:
        self._settings = settings
        self._key = _load_key(key)
        self._clock = clock
        self._text = ""
        self._issued_at = self._signed_at = 0

    def get(self) -> str:
        """Return the token. It is renewed when it is old, and when the clock was set back."""
        age = self._clock.now() - self._issued_at
        if not self._text or not -TOKEN_AHEAD_MS <= age < TOKEN_RENEWED_MS:
            self._sign()
        return self._text

    def replace(self, refused: str) -> str | None:
        """Return a new token for one that Apple refused as expired.

        None if that one was signed just now: then the clock of this machine is wrong.
        """
        if self._text == refused:
            if self._clock.monotonic() - self._signed_at < TOKEN_SETTLED_MS:
                return None
            self._sign()
        return self._text

    def _sign(self) -> None:
        self._issued_at, self._signed_at = self._clock.now(), self._clock.monotonic()
        claims = {"iss": self._settings.team_id, "iat": self._issued_at // 1000}
        self._text = jwt.encode(claims, self._key, "ES256", {"kid": self._settings.key_id})


class ApnsSender:
    """The `Sender` port for APNs."""

    def __init__(
        self, configuration: Configuration[ApnsSettings, ApnsSecrets], context: SenderContext
    ) -> None:
        self._settings = configuration.settings
        self._timeout_s = configuration.timeout_s
        self._clock = context.clock
        # Connections of its own: Apple binds one to the team and key of its first push, and refuses
        # the tokens of others on it.
        self._http = HttpClients(context.http.targets)
        self._token = ProviderToken(self._settings, configuration.secrets.key, self._clock)
        self._path = f"{self._settings.base_url}/3/device/"

    async def send(self, message: OutgoingMessage) -> Outcome:
        if not _DEVICE_TOKEN.fullmatch(message.address.value):
            return ANSWERS.judge([BAD_DEVICE_TOKEN], "the token is not hexadecimal")
        token = self._token.get()
        outcome = await self._attempt(message, token)
        if isinstance(outcome, Failure) and outcome.error_code == EXPIRED_PROVIDER_TOKEN:
            other = self._token.replace(token)
            outcome = await self._attempt(message, other) if other else outcome
        return outcome

    async def verify(self) -> Verified | Outcome:
        """Push to a token that no device has: Apple looks at the key and the topic first."""
        headers = self._sign(self._token.get())
        outcome = await self._post(NO_DEVICE, headers, b'{"aps":{"alert":"test"}}')
        if isinstance(outcome, Failure) and outcome.error_code in _NO_SUCH_DEVICE:
            return Verified(response="key and topic accepted")
        return outcome

    async def close(self) -> None:
        await self._http.close()

    async def _attempt(self, message: OutgoingMessage, token: str) -> Outcome:
        headers, body = self._headers(message, token), build_push_payload(message)
        return await self._post(message.address.value, headers, body)

    async def _post(self, device: str, headers: dict[str, str], body: bytes) -> Outcome:
        request = ProviderRequest(
            url=self._path + device,
            headers=headers,
            body=body,
            timeout_s=self._timeout_s,
            ca_path=self._settings.ca_path,
            empty_status=200,
        )
        answer = await post(self._http, request, ANSWERS)
        return self._judge(answer) if isinstance(answer, HttpAnswer) else answer

    def _sign(self, token: str) -> dict[str, str]:
        return {
            "authorization": f"bearer {token}",
            "apns-topic": self._settings.topic,
            "apns-push-type": "alert",
        }

    def _headers(self, message: OutgoingMessage, token: str) -> dict[str, str]:
        headers = {
            **self._sign(token),
            "apns-priority": str(apns_priority(message.notification.priority)),
            "apns-id": str(uuid_utils.uuid5(_IDS, message.id)),
        }
        if message.notification.expires_at is not None:
            headers["apns-expiration"] = str(message.notification.expires_at // 1000)
        if collapse := collapse_id(message):
            headers["apns-collapse-id"] = collapse
        return headers

    def _judge(self, answer: HttpAnswer) -> Outcome:
        status, kind = answer.codes
        if answer.status == 200:  # noqa: PLR2004
            apns_id = answer.header("apns-id") or ""
            return ANSWERS.judge([status], "", response=clean_text(f"200 {apns_id}"))
        refusal = _read_refusal(answer)
        reason = f"{status} {refusal.reason}"
        named = (
            (reason, status, kind) if refusal.reason else (status, f"{kind} without a reason", kind)
        )
        return ANSWERS.judge(named, _explain(refusal), retry_after=self._wait(answer, reason))

    def _wait(self, answer: HttpAnswer, reason: str) -> float | None:
        wait_s = answer.read_retry_after(self._clock.now())
        if wait_s is not None:
            return wait_s
        if reason == TOKEN_UPDATES:
            return TOKEN_UPDATE_WAIT_S
        return ERROR_WAIT_S if answer.status >= 500 else None  # noqa: PLR2004


def _read_refusal(answer: HttpAnswer) -> _Refusal:
    """Return why a push was refused; a reason that Apple cannot have written is left out."""
    refusal = answer.read_json(_Refusal)
    return refusal if _REASON.fullmatch(refusal.reason) else _Refusal()


def _explain(refusal: _Refusal) -> str:
    if not refusal.reason:
        return "no reason was given"
    if refusal.timestamp is None or not 0 < refusal.timestamp <= LATEST_MS:
        return refusal.reason
    return f"{refusal.reason} since {to_rfc3339(refusal.timestamp)}"


def _load_key(text: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(text.encode(), None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("the key cannot be read") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the key is not one for ES256")  # noqa: TRY004
    return key


def _find_faults(settings: ApnsSettings, secrets: ApnsSecrets) -> Iterator[FieldFault]:
    yield from find_url_faults("settings.base_url", settings.base_url)
    yield from find_ca_faults(settings.ca_path)
    try:
        _load_key(secrets.key)
    except ValueError:
        yield FieldFault("secrets.key", "must be a P-256 private key as PEM: the .p8 file of Apple")


APNS = ProviderKind(
    name="apns",
    bound_to=frozenset({"team_id", "key_id", "base_url", "ca_path"}),
    channels=frozenset({Channel.PUSH}),
    platforms=frozenset({"ios"}),
    open=ApnsSender,
    answers=ANSWERS,
    settings=ApnsSettings,
    secrets=ApnsSecrets,
    find_faults=_find_faults,
    verify=ApnsSender.verify,
    list_urls=lambda settings: {"settings.base_url": settings.base_url},
)
