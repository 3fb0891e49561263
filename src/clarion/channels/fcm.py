"""Push to Android devices by Firebase Cloud Messaging, HTTP v1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from clarion.catalog.model import Channel, Priority
from clarion.channels.answers import Action, Answer, AnswerTable
from clarion.channels.authorities import find_ca_faults
from clarion.channels.google_tokens import (
    TOKEN_ANSWERS,
    AccessToken,
    AccessTokens,
    ServiceAccount,
    load_rsa_key,
)
from clarion.channels.http_clients import HttpAnswer, ProviderRequest
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import (
    Configuration,
    Delivered,
    Failure,
    Outcome,
    OutgoingMessage,
    Rejected,
    Verified,
)
from clarion.channels.payloads import (
    PAYLOAD_LIMIT_BYTES,
    PushContent,
    collapse_id,
    content_of,
    fit,
)
from clarion.channels.port import SenderContext
from clarion.channels.provider_requests import (
    HTTP_NETWORK,
    clean_text,
    find_url_faults,
    post,
)
from clarion.errors import FieldFault

LONGEST_TTL_S = 4 * 7 * 24 * 3600
# Google asks to wait a minute after a 429 that names no time.
QUOTA_WAIT_S = 60.0
# Of the time for an attempt: what the exchange of an access token may take.
TOKEN_SHARE = 0.5
_URGENT = frozenset({Priority.HIGH, Priority.CRITICAL})
_UNAUTHENTICATED = frozenset({"UNAUTHENTICATED", "401"})
_CODE = re.compile(r"[A-Z_]{1,64}")
_encode = msgspec.json.Encoder().encode
_DRY_RUN = b'{"validate_only":true,"message":{"topic":"test","data":{"test":"1"}}}'

ANSWERS = AnswerTable(
    Answer("200", Action.DELIVERED, "Accepted."),
    Answer("INVALID_ARGUMENT", Action.REJECT, "The token or the message is not valid."),
    Answer("UNREGISTERED", Action.GONE, "The app was removed from the device."),
    # Not `gone`: with the account of a wrong project this would be so for every device. Not
    # `disable`: anybody who registers the token of another project would stop the provider.
    Answer("SENDER_ID_MISMATCH", Action.REJECT, "The token is of another project."),
    # As above: a token of a browser or an iPhone must not stop the pushes to Android.
    Answer("THIRD_PARTY_AUTH_ERROR", Action.REJECT, "Firebase has no key for such a device."),
    Answer("NOT_FOUND", Action.REJECT, "The project does not exist, or something else."),
    Answer("QUOTA_EXCEEDED", Action.RETRY, "Tried again as `Retry-After` says, or in a minute."),
    Answer("UNAVAILABLE", Action.RETRY, "Tried again as `Retry-After` says."),
    Answer("INTERNAL", Action.RETRY, "An error at Google."),
    Answer("UNAUTHENTICATED", Action.DISABLE, "A new access token was refused as well."),
    Answer("PERMISSION_DENIED", Action.DISABLE, "The service account may not send messages."),
    Answer("401", Action.DISABLE, "A new access token was refused as well."),
    Answer("408", Action.RETRY, "The request took too long."),
    Answer("429", Action.RETRY, "Tried again as `Retry-After` says, or in a minute."),
    Answer("4xx without a status", Action.RETRY, "Not from FCM, or an incomplete answer."),
    Answer("4xx", Action.REJECT, "Refused for another reason."),
    Answer("5xx", Action.RETRY, "An error at Google."),
    *TOKEN_ANSWERS,
    *HTTP_NETWORK,
    default=Action.RETRY,
)

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]


class FcmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The project at Firebase."""

    project_id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.:-]{0,98}[a-z0-9]\Z")]
    base_url: Text = "https://fcm.googleapis.com"
    ca_path: Text | None = None


class FcmSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON file of a service account, as a text."""

    service_account: Annotated[str, msgspec.Meta(max_length=16_384)]

    def __repr__(self) -> str:
        return "FcmSecrets(service_account=***)"


class _Detail(msgspec.Struct, rename={"error_code": "errorCode"}):
    error_code: str = ""


class _Error(msgspec.Struct):
    status: str = ""
    message: str = ""
    details: list[_Detail] = []


class _Answer(msgspec.Struct):
    name: str = ""
    error: _Error = msgspec.field(default_factory=_Error)


class _Shown(msgspec.Struct, omit_defaults=True):
    body: str
    title: str | None = None
    image: str | None = None


class _Section(msgspec.Struct):
    """The part of a message that counts for its limit; the values of `data` must be texts."""

    notification: _Shown
    data: dict[str, str]


class _AndroidNotification(msgspec.Struct, omit_defaults=True):
    tag: str | None = None  # a later one with the same tag replaces it on the screen
    sound: str | None = None


class _Android(msgspec.Struct, omit_defaults=True):
    priority: str
    notification: _AndroidNotification
    ttl: str | None = None
    collapse_key: str | None = None


class FcmSender:
    """The `Sender` port for FCM."""

    def __init__(
        self, configuration: Configuration[FcmSettings, FcmSecrets], context: SenderContext
    ) -> None:
        settings = configuration.settings
        self._url = f"{settings.base_url}/v1/projects/{settings.project_id}/messages:send"
        self._ca_path = settings.ca_path
        self._timeout_s = configuration.timeout_s
        self._http = context.http
        self._clock = context.clock
        self._tokens = AccessTokens(
            read_account(configuration.secrets.service_account),
            http=context.http,
            clock=context.clock,
            answers=ANSWERS,
            timeout_s=configuration.timeout_s * TOKEN_SHARE,
            ca_path=settings.ca_path,
        )

    async def send(self, message: OutgoingMessage) -> Outcome:
        token = await self._tokens.get()
        if not isinstance(token, AccessToken):
            return token
        outcome = await self._attempt(message, token)
        if isinstance(outcome, Failure) and outcome.error_code in _UNAUTHENTICATED:
            other = await self._tokens.get(refused=token)
            return await self._attempt(message, other) if isinstance(other, AccessToken) else other
        return outcome

    async def verify(self) -> Verified | Outcome:
        """Get an access token, and have a message checked that is not sent."""
        token = await self._tokens.get()
        if not isinstance(token, AccessToken):
            return token
        outcome = await self._post(_DRY_RUN, token)
        # A rejected payload still proves that the credentials are valid.
        is_allowed = isinstance(outcome, Delivered | Rejected)
        return Verified(response="the account may send") if is_allowed else outcome

    async def close(self) -> None:
        await self._tokens.close()

    async def _attempt(self, message: OutgoingMessage, token: AccessToken) -> Outcome:
        body = build_fcm_message(message, self._clock.now())
        return await self._post(body, token, message.address.value)

    async def _post(self, body: bytes, token: AccessToken, hidden: str = "") -> Outcome:
        request = ProviderRequest(
            url=self._url,
            headers={
                "authorization": f"Bearer {token.text}",
                "content-type": "application/json",
            },
            body=body,
            timeout_s=self._timeout_s,
            ca_path=self._ca_path,
        )
        answer = await post(self._http, request, ANSWERS)
        if not isinstance(answer, HttpAnswer):
            return answer
        return self._judge(answer, hidden=(token.text, hidden))

    def _judge(self, answer: HttpAnswer, hidden: tuple[str, str]) -> Outcome:
        found = answer.read_json(_Answer)
        status, kind = answer.codes
        if answer.status == 200:  # noqa: PLR2004
            return ANSWERS.judge([status], "", response=clean_text(f"200 {found.name}", *hidden))
        details = (each.error_code for each in found.error.details)
        named = [*filter(_CODE.fullmatch, (*details, found.error.status))]
        codes = [*named, status] if named else [status, f"{kind} without a status"]
        wait = answer.read_retry_after(self._clock.now())
        if wait is None and answer.status == 429:  # noqa: PLR2004
            wait = QUOTA_WAIT_S
        return ANSWERS.judge(
            [*codes, kind],
            clean_text(found.error.message, *hidden),
            retry_after=wait,
        )


def build_fcm_message(message: OutgoingMessage, now: int) -> bytes:
    """Return the body of a request. FCM has no message id: `data.notification_id` shows repeats."""
    notification = message.notification
    collapse = collapse_id(message)
    is_quiet = notification.priority is Priority.LOW
    android = _Android(
        priority="HIGH" if notification.priority in _URGENT else "NORMAL",
        ttl=_ttl(notification.expires_at, now),
        collapse_key=collapse,
        notification=_AndroidNotification(collapse, None if is_quiet else "default"),
    )
    section = fit(content_of(message), _encode_section, PAYLOAD_LIMIT_BYTES)
    head = b'{"message":{"token":' + _encode(message.address.value)
    # The section is an object: its members follow without its opening bracket.
    return head + b',"android":' + _encode(android) + b"," + section[1:] + b"}"


def _ttl(expires_at: int | None, now: int) -> str | None:
    if expires_at is None:
        return None
    return f"{min(max(0, (expires_at - now) // 1000), LONGEST_TTL_S)}s"


def _encode_section(content: PushContent) -> bytes:
    data = {
        "notification_id": content.notification_id,
        "event_id": content.event_id,
        "type": content.type,
        "category": content.category,
    }
    if content.deeplink:
        data["deeplink"] = content.deeplink
    if content.count != 1:
        data["count"] = str(content.count)
    if content.data:
        data["data"] = _encode(content.data).decode()
    if content.truncated:
        data["truncated"] = "true"
    return _encode(_Section(_Shown(content.body, content.title, content.image_url), data))


def read_account(text: str) -> ServiceAccount:
    """Return the needed parts of a service account; `ValueError` if it is not one."""
    try:
        return msgspec.json.decode(text, type=ServiceAccount)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _find_faults(settings: FcmSettings, secrets: FcmSecrets) -> Iterator[FieldFault]:
    yield from find_url_faults("settings.base_url", settings.base_url)
    yield from find_ca_faults(settings.ca_path)
    field = "secrets.service_account"
    try:
        account = read_account(secrets.service_account)
    except ValueError:
        reason = "must be the JSON file of a service account, with client_email and private_key"
        yield FieldFault(field, reason)
        return
    yield from find_url_faults(f"{field}.token_uri", account.token_uri, has_path=True)
    try:
        load_rsa_key(account.private_key)
    except ValueError:
        reason = "must be an RSA private key of 2,048 to 4,096 bits as PEM"
        yield FieldFault(f"{field}.private_key", reason)


FCM = ProviderKind(
    name="fcm",
    bound_to=frozenset({"project_id", "base_url", "ca_path"}),
    channels=frozenset({Channel.PUSH}),
    platforms=frozenset({"android"}),
    open=FcmSender,
    answers=ANSWERS,
    settings=FcmSettings,
    secrets=FcmSecrets,
    find_faults=_find_faults,
    verify=FcmSender.verify,
    list_urls=lambda settings: {"settings.base_url": settings.base_url},
)
