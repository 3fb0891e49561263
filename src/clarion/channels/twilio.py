"""Text messages over the Messages API of Twilio, or of a service that is compatible with it.

The API has no idempotency key: an attempt without an answer that is repeated may arrive twice.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from clarion.catalog.model import Channel
from clarion.catalog.model.sms_segments import SEGMENTS_LIMIT, SmsSegments, count_segments
from clarion.channels.answers import NETWORK, Action, Answer, AnswerTable
from clarion.channels.http_clients import HttpAnswer, ProviderRequest
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import Configuration, Outcome, OutgoingMessage, Rejected, Verified
from clarion.channels.port import SenderContext
from clarion.channels.provider_requests import post
from clarion.channels.targets import split
from clarion.errors import FieldFault

CALLBACKS_PREFIX = "/callbacks/twilio/"
NO_RECIPIENT = "21604"
_TEXT_LIMIT = 300
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}", re.ASCII)
_SENDER = re.compile(r"[A-Za-z0-9 ]{1,11}", re.ASCII)
_SERVICE = re.compile(r"MG[A-Za-z0-9]{1,62}", re.ASCII)
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{1,256}", re.ASCII)
_SID = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_ACCEPTED_BELOW = 300

# Only what no recipient can cause disables a provider: otherwise a user with a strange number
# could turn off the text messages of all.
ANSWERS = AnswerTable(
    Answer("accepted", Action.SENT, "The message has an id; its delivery is reported later."),
    Answer(
        "no_reports",
        Action.DELIVERED,
        "As `accepted`, if this server has no public URL for reports.",
    ),
    Answer("no_id", Action.SAME_PROVIDER, "A success without the id of the message."),
    Answer("bad_number", Action.REJECT, "The user's number is not in the format +491701234567."),
    Answer("too_long", Action.REJECT, f"The text takes more than {SEGMENTS_LIMIT} segments."),
    Answer("target_refused", Action.DISABLE, "`base_url` leads to a private address."),
    Answer("20003", Action.DISABLE, "The account or the token is wrong."),
    Answer("20005", Action.DISABLE, "The account is not active."),
    Answer("20008", Action.DISABLE, "Test credentials cannot be used here."),
    Answer("20404", Action.DISABLE, "The account does not exist."),
    Answer("20429", Action.RETRY, "Too many requests."),
    Answer("21211", Action.REJECT, "The user's number is not valid."),
    Answer("21212", Action.DISABLE, "`from` is not valid."),
    Answer("21217", Action.REJECT, "The user's number is not valid."),
    Answer("21265", Action.REJECT, "The user's number is a short code."),
    Answer("21408", Action.REJECT, "The account may not send to the region of the number."),
    Answer("21602", Action.REJECT, "The text is empty."),
    Answer("21603", Action.DISABLE, "`from` is missing."),
    Answer(NO_RECIPIENT, Action.REJECT, "The user's number is missing."),
    Answer("21606", Action.DISABLE, "`from` is not a number of the account that can send."),
    Answer("21609", Action.DISABLE, "The public URL of this server is not valid."),
    Answer("21610", Action.GONE, "The user has unsubscribed by replying STOP: opted out."),
    Answer("21611", Action.RETRY, "The queue of `from` is full."),
    Answer("21612", Action.REJECT, "The number cannot be reached from `from`."),
    Answer("21614", Action.GONE, "The number is not one of a mobile phone."),
    Answer("21617", Action.REJECT, "The text is too long."),
    Answer("21660", Action.DISABLE, "`from` belongs to another account."),
    Answer("21701", Action.DISABLE, "The messaging service of `from` does not exist."),
    Answer("21703", Action.DISABLE, "The messaging service of `from` has no numbers."),
    Answer("21705", Action.DISABLE, "The messaging service of `from` is not valid."),
    Answer("30001", Action.RETRY, "The queue is full."),
    Answer("30002", Action.DISABLE, "The account is suspended."),
    Answer("30003", Action.REJECT, "The phone cannot be reached: it is off, or has no network."),
    Answer("30004", Action.REJECT, "The message was blocked by the carrier or the user."),
    Answer("30005", Action.GONE, "The number is not known."),
    Answer("30006", Action.GONE, "The number is a landline, or its carrier cannot be reached."),
    Answer("30007", Action.REJECT, "The carrier filtered the message."),
    Answer("30008", Action.RETRY, "An unknown error at the carrier."),
    Answer("30022", Action.RETRY, "Too many messages for the carrier."),
    Answer("30034", Action.REJECT, "`from` is not registered with the carrier of the number."),
    Answer("401", Action.DISABLE, "The account or the token is wrong."),
    Answer("404", Action.DISABLE, "`base_url` or `account_sid` is wrong."),
    Answer("408", Action.RETRY, "The request took too long."),
    Answer("429", Action.RETRY, "Too many requests; `Retry-After` is honoured."),
    Answer("3xx", Action.RETRY, "A redirect, which is not followed."),
    Answer("4xx", Action.REJECT, "Any other error of the request."),
    Answer("5xx", Action.RETRY, "An error of the provider."),
    *NETWORK,
    default=Action.RETRY,
)
_MEANINGS = {row.code: row.meaning for row in ANSWERS.rows}


class TwilioSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`from` is a phone number, the name of a sender, or the id of a messaging service."""

    account_sid: str
    sender: str = msgspec.field(name="from")
    base_url: str = "https://api.twilio.com"


class TwilioSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`auth_token` also signs the reports."""

    auth_token: str


class _Reply(msgspec.Struct):
    """What we read of a response: that of a message, or of an error, which has `code`."""

    sid: str | None = None
    code: int | None = None
    message: str | None = None
    error_code: int | None = None
    error_message: str | None = None


class TwilioSender:
    """The `Sender` port."""

    def __init__(
        self, configuration: Configuration[TwilioSettings, TwilioSecrets], context: SenderContext
    ) -> None:
        settings, self._context = configuration.settings, context
        self._app_id, self._name = configuration.app_id, configuration.name
        self._timeout_s = configuration.timeout_s
        account = settings.account_sid
        base = settings.base_url.rstrip("/")
        self._url = f"{base}/2010-04-01/Accounts/{account}/Messages.json"
        self._has_reports = _can_report(context.public_url, base)
        is_service = _SERVICE.fullmatch(settings.sender)
        self._sender = ("MessagingServiceSid" if is_service else "From", settings.sender)
        credentials = f"{account}:{configuration.secrets.auth_token}".encode()
        self._headers = {
            "authorization": f"Basic {b64encode(credentials).decode()}",
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }

    async def send(self, message: OutgoingMessage) -> Outcome:
        if not _PHONE.fullmatch(message.address.value):
            return _judge("bad_number")
        segments = count_segments(message.body)
        if segments.count > SEGMENTS_LIMIT:
            return ANSWERS.judge(("too_long",), f"the text takes {segments}, {_MOST}")
        # Twilio ignores the key; a compatible service may honour it.
        headers = {**self._headers, "idempotency-key": message.id}
        return await self._post(headers, self._encode(message), segments)

    async def verify(self) -> Verified | Outcome:
        """Request a message without a recipient: Twilio checks the account and its token first."""
        form = urlencode({self._sender[0]: self._sender[1], "Body": "test"})
        outcome = await self._post(self._headers, form.encode(), count_segments("test"))
        is_known = isinstance(outcome, Rejected) and outcome.error_code == NO_RECIPIENT
        return Verified(response="account and token accepted") if is_known else outcome

    async def _post(self, headers: dict[str, str], form: bytes, segments: SmsSegments) -> Outcome:
        request = ProviderRequest(self._url, headers, form, self._timeout_s)
        answer = await post(self._context.http, request, ANSWERS)
        return self._read(answer, segments) if isinstance(answer, HttpAnswer) else answer

    async def close(self) -> None:
        """Do nothing: the connections are shared."""

    def _encode(self, message: OutgoingMessage) -> bytes:
        form = {
            "To": message.address.value,
            self._sender[0]: self._sender[1],
            "Body": message.body,
        }
        if self._has_reports:
            form["StatusCallback"] = build_callback_url(
                self._context.public_url, self._app_id, self._name, message.notification.id
            )
        # A lone surrogate has no UTF-8.
        return urlencode(form, errors="replace").encode()

    def _read(self, answer: HttpAnswer, segments: SmsSegments) -> Outcome:
        reply = answer.read_json(_Reply)
        if answer.status < _ACCEPTED_BELOW and reply.error_code is None:
            return self._accept(reply.sid, segments)
        code = reply.error_code if reply.code is None else reply.code
        status = answer.codes
        codes = status if code is None else (str(code), *status)
        after = answer.read_retry_after(self._context.clock.now())
        said = reply.message or reply.error_message or f"HTTP status {answer.status}"
        return ANSWERS.judge(codes, clean(said), retry_after=after)

    def _accept(self, sid: str | None, segments: SmsSegments) -> Outcome:
        if sid is None or not _SID.fullmatch(sid):
            return _judge("no_id")
        code = "accepted" if self._has_reports else "no_reports"
        return ANSWERS.judge((code,), "", response=f"{sid}: {segments}")


_MOST = f"at most {SEGMENTS_LIMIT} can be sent"


def _judge(code: str) -> Outcome:
    return ANSWERS.judge((code,), _MEANINGS[code])


def explain(code: str) -> str:
    """Return what an error code of Twilio means."""
    return _MEANINGS.get(code, "The provider reported that the message did not arrive.")


def clean(text: str) -> str:
    """Return a text of the provider, short and without control characters."""
    return _CONTROLS.sub(" ", text)[:_TEXT_LIMIT]


def build_callback_url(public_url: str, app_id: str, name: str, notification_id: str) -> str:
    """Return the URL at which the provider reports the outcome of a message."""
    parts = (quote(each, safe="") for each in (app_id, name, notification_id))
    return f"{public_url}{CALLBACKS_PREFIX}{'/'.join(parts)}"


def _can_report(public_url: str, base_url: str) -> bool:
    """Whether the provider can call us. Twilio refuses messages whose reports go to a local URL."""
    here = urlsplit(public_url).hostname
    return here is not None and (
        not _is_private(here) or _is_private(urlsplit(base_url).hostname or "")
    )


def _find_faults(settings: TwilioSettings, secrets: TwilioSecrets) -> Iterator[FieldFault]:
    if not _ACCOUNT.fullmatch(settings.account_sid):
        yield FieldFault("settings.account_sid", "must have 1 to 64 letters, digits or _ -")
    if not any(each.fullmatch(settings.sender) for each in (_PHONE, _SENDER, _SERVICE)):
        reason = (
            "must be a phone number like +15005550006, a name of 1 to 11 letters, digits and "
            "spaces, or the id of a messaging service, which starts with MG"
        )
        yield FieldFault("settings.from", reason)
    if not _TOKEN.fullmatch(secrets.auth_token):
        reason = "must have 1 to 256 printable ASCII characters, without spaces"
        yield FieldFault("secrets.auth_token", reason)
    if not _is_base_url(settings.base_url):
        reason = (
            "must be an https: URL without password, query and fragment; http: is possible for "
            "a private address only"
        )
        yield FieldFault("settings.base_url", reason)


def _is_base_url(url: str) -> bool:
    """Whether credentials can be sent there."""
    try:
        scheme, host, _port = split(url)
    except ValueError:
        return False
    parts = urlsplit(url)
    is_plain = not parts.query and not parts.fragment and re.fullmatch(r"[!-~]{1,500}", url)
    return bool(is_plain) and (scheme == "https" or _is_private(host))


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost"


TWILIO = ProviderKind(
    name="twilio",
    bound_to=frozenset({"account_sid", "base_url"}),
    channels=frozenset({Channel.SMS}),
    open=TwilioSender,
    answers=ANSWERS,
    settings=TwilioSettings,
    secrets=TwilioSecrets,
    find_faults=_find_faults,
    verify=TwilioSender.verify,
)
