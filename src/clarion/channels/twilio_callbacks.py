"""Reports from Twilio on the outcome of messages: verified by their signature, outside `/v1/`.

The path names the app, the provider and the notification; the signature covers it. Twilio signs no
time. So a report counts only while a delivery is queued or sent, and for some days after its last
attempt: one that is late or sent again changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from clarion.catalog.model import Channel
from clarion.channels.port import Providers
from clarion.channels.twilio import CALLBACKS_PREFIX, TWILIO, build_callback_url, clean, explain
from clarion.clock import Clock
from clarion.errors import Forbidden, MalformedBody, MethodNotAllowed, NotFound
from clarion.history.port import DeliveryReports
from clarion.http.asgi import Request, Response, header
from clarion.telemetry.logs import get_logger

# A report has about 20 fields and 500 bytes.
BODY_LIMIT_BYTES = 16 * 1024
FIELDS_LIMIT = 100
# Of each of app id, name and notification id.
_PART_LIMIT = 128
# Wrong signatures that are logged at most: anyone can send one.
_LOG_EVERY_MS = 60_000
# Twilio tries to send a message for 10 hours; the rest is for operators that report late.
REPORTED_FOR_MS = 7 * 24 * 3600 * 1000
_ARRIVED = frozenset({"delivered", "read"})
_FAILED = frozenset({"undelivered", "failed"})
_NO_CODE = "undelivered"
_FORM = "application/x-www-form-urlencoded"
_BODY_HASH = "bodySHA256"
Fields = list[tuple[str, str]]


class TwilioCallbacks:
    """Answers `POST /callbacks/twilio/{app_id}/{name}/{notification_id}`."""

    def __init__(
        self, *, providers: Providers, reports: DeliveryReports, clock: Clock, public_url: str
    ) -> None:
        self._providers = providers
        self._reports = reports
        self._clock = clock
        self._public_url = public_url
        self._logged_at: int | None = None
        self.prefixes = {CALLBACKS_PREFIX: self.answer}

    async def answer(self, request: Request) -> Response:
        """Verify a report and record it; 403 for a wrong signature, 404 for an unknown provider."""
        if request.scope["method"] != "POST":
            raise MethodNotAllowed(["POST"])
        app_id, name, notification_id = _read_path(request.scope["path"])
        body = await request.body(BODY_LIMIT_BYTES)
        provider = await self._providers.get(app_id, Channel.SMS, name)
        if provider is None or provider.kind != TWILIO.name:
            raise NotFound
        url = build_callback_url(self._public_url, app_id, name, notification_id)
        report = _verify(request, body, url, provider.secrets["auth_token"])
        if report is None:
            self._log_refused(app_id, name)
            raise Forbidden("The signature of the report is wrong.")
        await self._record(app_id, notification_id, report)
        return Response(204)

    async def _record(self, app_id: str, notification_id: str, report: dict[str, str]) -> None:
        status, now = report.get("MessageStatus"), self._clock.now()
        since = now - REPORTED_FOR_MS
        if status in _ARRIVED:
            await self._reports.confirm(app_id, notification_id, Channel.SMS, since=since, now=now)
        elif status in _FAILED:
            code = clean(report.get("ErrorCode") or _NO_CODE)
            await self._reports.fail(
                app_id,
                notification_id,
                Channel.SMS,
                error_code=code,
                error_message=explain(code),
                since=since,
                now=now,
            )

    def _log_refused(self, app_id: str, name: str) -> None:
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= _LOG_EVERY_MS:
            self._logged_at = now
            get_logger().warning(
                "callback_refused", app=app_id, provider=name, public_url=self._public_url
            )


def _read_path(path: str) -> tuple[str, str, str]:
    match path.removeprefix(CALLBACKS_PREFIX).split("/"):
        case [app_id, name, notification_id] if all(
            0 < len(each) <= _PART_LIMIT for each in (app_id, name, notification_id)
        ):
            return app_id, name, notification_id
        case _:
            raise NotFound


def _verify(request: Request, body: bytes, url: str, token: str) -> dict[str, str] | None:
    """Return the report, or None if its signature is wrong."""
    given = (header(request.scope, b"x-twilio-signature") or "").encode("latin-1")
    query = request.scope.get("query_string", b"").decode("latin-1")
    url = f"{url}?{query}" if query else url
    content_type = (header(request.scope, b"content-type") or "").partition(";")[0].strip().lower()
    fields = _read_form(body) if content_type == _FORM else []
    is_signed = [hmac.compare_digest(sign(each, fields, token), given) for each in _variants(url)]
    if not any(is_signed):
        return None
    if content_type == _FORM:
        return dict(fields)
    return _read_json(body) if _has_hash(query, body) else None


def sign(url: str, fields: Fields, token: str) -> bytes:
    """Return the signature of a request to a URL with these fields."""
    # A field that occurs twice with the same value counts once, as in Twilio's own libraries.
    text = url + "".join(name + value for name, value in sorted(set(fields)))
    return b64encode(hmac.digest(token.encode(), text.encode(), "sha1"))


def _variants(url: str) -> Iterable[str]:
    """Yield a URL with and without the port: Twilio signs either, depending on the protocol."""
    yield url
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80
    location = host if parts.port else f"{host}:{default}"
    yield urlunsplit(parts._replace(netloc=location))


def _has_hash(query: str, body: bytes) -> bool:
    """Whether the signed URL has the hash of the body."""
    given = dict(_parse(query)).get(_BODY_HASH, "")
    return hmac.compare_digest(hashlib.sha256(body).hexdigest().encode(), given.lower().encode())


def _read_form(body: bytes) -> Fields:
    try:
        return _parse(body.decode("ascii"))
    except UnicodeDecodeError as error:
        raise MalformedBody("The body is not a valid form.") from error


def _parse(text: str) -> Fields:
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_LIMIT)
    except ValueError as error:
        raise MalformedBody("The body is not a valid form.") from error


def _read_json(body: bytes) -> dict[str, str]:
    try:
        fields = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBody from error
    return {name: str(value) for name, value in fields.items() if value is not None}
