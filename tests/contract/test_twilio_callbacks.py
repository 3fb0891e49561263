"""Reports of Twilio change deliveries in the store, if their signature is right, and once."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from clarion.catalog.model import Channel
from clarion.channels.model import Provider
from clarion.channels.twilio import build_callback_url
from clarion.channels.twilio_callbacks import BODY_LIMIT_BYTES, TwilioCallbacks, sign
from clarion.errors import BodyTooLarge, Forbidden, MalformedBody, MethodNotAllowed, NotFound
from clarion.events.model import JobOutcome
from clarion.history.model import Delivery, DeliveryStatus
from clarion.history.sql import deliveries
from clarion.history.sql.deliveries import SqlDeliveryReports
from clarion.http.asgi import Request
from clarion.store.engine import Engine
from clarion.store.statement import Unit
from tests.factories import NOW, FixedClock, new_app_id
from tests.peers.twilio import ACCOUNT, TOKEN, sign_text
from tests.peers.twilio import sign as sign_form
from tests.pipeline import PipelineStore, make_delivery, make_notification
from tests.replacing import replace

PUBLIC_URL = "https://clarion.example/notify"
FORM = "application/x-www-form-urlencoded"
NAME = "my sms"
DAY_MS = 24 * 3600 * 1000


class MemoryProviders:
    """What is used here of the `Providers` port."""

    def __init__(self, *providers: Provider) -> None:
        self._by_key = {(each.app_id, each.channel, each.name): each for each in providers}

    async def get(self, app_id: str, channel: Channel, name: str) -> Provider | None:
        return self._by_key.get((app_id, channel, name))


def make_provider(app_id: str, name: str = NAME, **changes: Any) -> Provider:
    values: dict[str, Any] = {
        "app_id": app_id,
        "channel": Channel.SMS,
        "name": name,
        "kind": "twilio",
        "settings": {"account_sid": ACCOUNT, "from": "Clarion"},
        "secrets": {"auth_token": TOKEN},
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Provider(**values | changes)


@dataclass
class Installation:
    """An app with a notification that was sent as a text message."""

    store: PipelineStore
    callbacks: TwilioCallbacks
    clock: FixedClock
    notification_id: str

    @property
    def url(self) -> str:
        return self.url_of(self.notification_id)

    def url_of(self, notification_id: str, name: str = NAME, app_id: str | None = None) -> str:
        app_id = self.store.app_id if app_id is None else app_id
        return build_callback_url(PUBLIC_URL, app_id, name, notification_id)

    async def report(self, status: str, token: str = TOKEN, **more: str) -> int:
        form = {"MessageSid": "SM1", "MessageStatus": status, "To": "+49 170 ü"} | more
        return await self.post(self.url, form, sign_form(self.url, form, token))

    async def post(self, url: str, form: Mapping[str, str], signature: str | None) -> int:
        return await self.ask(url, urlencode(form).encode(), FORM, signature)

    async def ask(
        self, url: str, body: bytes, content_type: str, signature: str | None, method: str = "POST"
    ) -> int:
        headers = [(b"content-type", content_type.encode()), (b"host", b"attacker.example")]
        if signature is not None:
            headers.append((b"x-twilio-signature", signature.encode("latin-1")))
        path, _, query = url.removeprefix(PUBLIC_URL).partition("?")
        scope = {
            "method": method,
            "path": path.replace("%20", " ").replace("%2F", "/"),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("192.0.2.1", 1),
        }

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        request = Request(scope, receive, "r1", None, 1 << 20)
        return (await self.callbacks.answer(request)).status

    async def read(self) -> Delivery:
        found = await self.store.deliveries.find_many(self.store.app_id, [self.notification_id])
        (delivery,) = found[self.notification_id]
        return delivery


@pytest.fixture
async def installed(engine: Engine) -> Installation:
    store = PipelineStore(engine, new_app_id())
    event, job = await store.claimed()
    notification = make_notification(event)
    delivery = make_delivery(
        notification,
        channel=Channel.SMS,
        status=DeliveryStatus.SENT,
        sent_at=NOW - DAY_MS,
        last_attempt_at=NOW,
    )
    assert await store.write(
        JobOutcome(job=job, notification=notification, deliveries=(delivery,))
    ) == [True]
    clock = FixedClock(NOW + 5_000)
    callbacks = TwilioCallbacks(
        providers=MemoryProviders(  # type: ignore[arg-type]
            make_provider(store.app_id),
            make_provider(store.app_id, "bridge", kind="apprise"),
            make_provider("other-app", secrets={"auth_token": "hostile"}),
        ),
        reports=SqlDeliveryReports(engine),
        clock=clock,
        public_url=PUBLIC_URL,
    )
    return Installation(store, callbacks, clock, notification.id)


@pytest.mark.parametrize("status", ["delivered", "read"])
async def test_a_report_confirms_the_delivery(installed: Installation, status: str) -> None:
    assert await installed.report(status) == 204
    delivery = await installed.read()
    assert (delivery.status, delivery.delivered_at) == (DeliveryStatus.DELIVERED, NOW + 5_000)


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"ErrorCode": "30005"}, "30005", "The number is not known."),
        ({"ErrorCode": "39999"}, "39999", "The provider reported that the message did not arrive."),
        ({}, "undelivered", "The provider reported that the message did not arrive."),
        (
            {"ErrorCode": "1\r\n" + "x" * 999},
            "1 " + "x" * 298,
            "The provider reported that the message did not arrive.",
        ),
    ],
)
async def test_a_report_fails_the_delivery(
    installed: Installation, more: dict[str, str], code: str, message: str
) -> None:
    assert await installed.report("undelivered", **more) == 204
    delivery = await installed.read()
    assert (delivery.status, delivery.error_code) == (DeliveryStatus.FAILED, code)
    assert delivery.error_message == message


@pytest.mark.parametrize("status", ["queued", "sending", "sent", "accepted", "", "Delivered"])
async def test_other_reports_change_nothing(installed: Installation, status: str) -> None:
    before = await installed.read()
    assert await installed.report(status) == 204
    assert await installed.read() == before


@pytest.mark.parametrize("first", ["delivered", "failed"])
async def test_the_first_final_report_counts(installed: Installation, first: str) -> None:
    await installed.report(first)
    before = await installed.read()
    for late in ("failed", "undelivered", "delivered", "sent", first):
        assert await installed.report(late, ErrorCode="30008") == 204
    assert await installed.read() == before


@pytest.mark.parametrize("status", ["delivered", "failed"])
async def test_a_report_counts_for_seven_days_after_the_last_attempt(
    installed: Installation, status: str
) -> None:
    """Twilio signs no time: whoever has an old report could send it at any time."""
    installed.clock.milliseconds = NOW + 7 * DAY_MS + 1
    before = await installed.read()
    assert await installed.report(status) == 204
    assert await installed.read() == before
    installed.clock.milliseconds = NOW + 7 * DAY_MS
    assert await installed.report(status) == 204
    assert (await installed.read()).status == status


async def test_a_report_may_come_before_the_outcome_of_the_attempt(
    installed: Installation, engine: Engine
) -> None:
    queued = replace(await installed.read(), status=DeliveryStatus.QUEUED, last_attempt_at=None)
    await engine.write(Unit("ana", (deliveries.put([queued]),), installed.store.app_id))
    installed.clock.milliseconds = NOW + 8 * DAY_MS
    assert await installed.report("delivered") == 204
    assert (await installed.read()).status is DeliveryStatus.DELIVERED


async def test_a_report_of_an_unknown_notification_is_ignored(installed: Installation) -> None:
    url = installed.url_of("0190f000-0000-7000-8000-ffffffffffff")
    form = {"MessageStatus": "delivered"}
    assert await installed.post(url, form, sign_form(url, form)) == 204


async def test_a_wrong_signature_changes_nothing(installed: Installation) -> None:
    form = {"MessageStatus": "delivered"}
    right = sign_form(installed.url, form)
    other = installed.url_of("another")
    before = await installed.read()
    for signature in (None, "", "x", "\xff", right.lower(), right[:-1], sign_form(other, form)):
        with pytest.raises(Forbidden):
            await installed.post(installed.url, form, signature)
    with pytest.raises(Forbidden):
        await installed.post(installed.url, form | {"ErrorCode": "1"}, right)
    with pytest.raises(Forbidden):
        await installed.report("delivered", "hostile")
    assert await installed.read() == before


async def test_another_app_cannot_report(installed: Installation) -> None:
    url = installed.url_of(installed.notification_id, app_id="other-app")
    form = {"MessageStatus": "failed"}
    before = await installed.read()
    assert await installed.post(url, form, sign_form(url, form, "hostile")) == 204
    assert await installed.read() == before


async def test_what_does_not_exist_is_not_found(installed: Installation) -> None:
    form = {"MessageStatus": "delivered"}
    for url in (
        installed.url_of("n", name="other"),
        installed.url_of("n", name="bridge"),
        installed.url_of("n", app_id="nobody"),
        installed.url_of("n" * 129),
        installed.url_of(""),
        f"{installed.url}/more",
        f"{PUBLIC_URL}/callbacks/twilio/",
    ):
        with pytest.raises(NotFound):
            await installed.post(url, form, sign_form(url, form))


async def test_only_post_is_answered(installed: Installation) -> None:
    with pytest.raises(MethodNotAllowed):
        await installed.ask(installed.url, b"", FORM, None, method="GET")


async def test_a_report_in_json_has_the_hash_of_its_body_in_the_url(
    installed: Installation,
) -> None:
    body = json.dumps({"MessageStatus": "undelivered", "ErrorCode": 30006, "x": None}).encode()
    url = f"{installed.url}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    kind = "application/json; charset=utf-8"
    for wrong_url, wrong_body in ((url, body + b" "), (installed.url, body), (f"{url}0", body)):
        with pytest.raises(Forbidden):
            await installed.ask(wrong_url, wrong_body, kind, sign_text(wrong_url))
    assert await installed.ask(url, body, kind, sign_text(url)) == 204
    assert (await installed.read()).error_code == "30006"


async def test_json_cannot_be_passed_off_as_a_form(installed: Installation) -> None:
    """A signature of the bare URL, from another kind of request, is not enough."""
    body = b'{"MessageStatus": "delivered"}'
    for kind in ("application/json", "text/plain", ""):
        with pytest.raises(Forbidden):
            await installed.ask(installed.url, body, kind, sign_text(installed.url))


@pytest.mark.parametrize(
    "body", [b"a=%ff", b"\xff", b"&".join(b"a=%d" % n for n in range(101)), b"a=\x80"]
)
async def test_a_malformed_body_is_refused(installed: Installation, body: bytes) -> None:
    with pytest.raises(MalformedBody):
        await installed.ask(installed.url, body, FORM, "x")


@pytest.mark.parametrize("body", [b"[]", b"{", b'"\xff"', b'{"a":' * 3_000])
async def test_malformed_json_is_refused(installed: Installation, body: bytes) -> None:
    url = f"{installed.url}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    with pytest.raises(MalformedBody):
        await installed.ask(url, body, "application/json", sign_text(url))


async def test_a_large_body_is_refused(installed: Installation) -> None:
    with pytest.raises(BodyTooLarge):
        await installed.ask(installed.url, b"a" * (BODY_LIMIT_BYTES + 1), FORM, "x")


async def test_the_port_of_the_public_url_may_be_signed_or_not(installed: Installation) -> None:
    form = {"MessageStatus": "delivered"}
    with_port = installed.url.replace("clarion.example", "clarion.example:443")
    assert await installed.post(installed.url, form, sign_form(with_port, form)) == 204
    assert (await installed.read()).status is DeliveryStatus.DELIVERED


def test_signatures_are_those_that_twilio_publishes() -> None:
    """From the tests of its own library for Python."""
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    caller = "+14158675309"
    fields = [("CallSid", "CA1234567890ABCDE"), ("Digits", "1234"), ("To", "+18005551212")]
    fields += [("From", caller), ("Caller", caller), ("Caller", caller)]
    assert sign(url, fields, "12345") == b"RSOYDt4T1cUTdK1PDd93/VVr8B8="
    digest = hashlib.sha256(b'{"property": "value", "boolean": true}').hexdigest()
    assert sign(f"{url}&bodySHA256={digest}", [], "12345") == b"a9nBmqA0ju/hNViExpshrM61xv4="


def test_a_name_is_quoted() -> None:
    assert build_callback_url("https://x", "a/b", "c d?", "e") == (
        f"https://x/callbacks/twilio/a%2Fb/{quote('c d?', safe='')}/e"
    )
