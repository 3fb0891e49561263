"""Credentials of providers are tried without sending: by `clarion doctor`, and over the API."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.checklist import read_checklist
from tests.e2e.installation import Installation
from tests.faults.channels.cells import World, running
from tests.faults.channels.peers import ApnsPeer, GooglePeer, SmsPeer, refuse_push
from tests.peers import twilio
from tests.peers.fcm import refuse
from tests.peers.http2 import Fault
from tests.peers.mail_servers import PASSWORD, USERNAME, Authority, MailServer

NO_PROVIDERS = "0 active"


@dataclass
class Trials:
    """A server with a provider of each kind, and the peers of those that have credentials."""

    world: World
    app: Asker
    mail: MailServer
    apns: ApnsPeer
    google: GooglePeer
    sms: SmsPeer

    async def put(self, path: str, body: dict[str, Any]) -> None:
        answer = await asyncio.to_thread(self.app.ask, "PUT", f"/v1/providers/{path}", body)
        assert answer.status in {200, 201}, answer.body

    async def put_mail(self, password: str) -> None:
        settings = {
            "host": "localhost",
            "port": self.mail.port,
            "username": USERNAME,
            "from": "shop@example.com",
            "ca_path": self.mail.authority.ca_path,
        }
        body = {"kind": "smtp", "settings": settings, "secrets": {"password": password}}
        await self.put("email/main", body)

    async def test(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        path = f"/v1/providers/{path}/test"
        answer = await asyncio.to_thread(self.app.post, path, body or {})
        assert answer.status == 200, answer.body
        result: dict[str, Any] = answer.json
        return result

    async def consult_doctor(self) -> tuple[int, str, str]:
        """Return its exit code, and the state and detail that it found for providers."""
        installation = self.world.installation
        run = installation.run
        done = await asyncio.to_thread(run, "doctor", allow_private_targets="127.0.0.0/8")
        return done.returncode, *read_checklist(done)["providers"]

    @property
    def messages(self) -> list[object]:
        return [*self.mail.envelopes, *self.google.fcm.messages, *self.sms.twilio.accepted]


@pytest.fixture
async def trials(tmp_path: Path) -> AsyncIterator[Trials]:
    authority = Authority(tmp_path / "mail")
    async with running(tmp_path, 1) as world, MailServer(authority) as mail:
        peers = [world.make_peer(kind) for kind in ("apns", "fcm", "twilio")]
        for peer in peers:
            await peer.start()
        app = Asker(world.installation.port, world.apps.pop().api_key)
        apns, google, sms = peers
        assert isinstance(apns, ApnsPeer)
        assert isinstance(google, GooglePeer)
        assert isinstance(sms, SmsPeer)
        made = Trials(world, app, mail, apns, google, sms)
        apns.set(refuse_push(400, "BadDeviceToken"))
        await made.put_mail(PASSWORD)
        for path, peer in (("push/apple", apns), ("push/google", google), ("sms/main", sms)):
            await made.put(path, peer.provider() | {"timeout_s": 10})
        try:
            yield made
        finally:
            for peer in peers:
                await peer.stop()


async def test_credentials_are_tried_and_nothing_is_sent(trials: Trials) -> None:
    for path in ("email/main", "push/apple", "push/google", "sms/main"):
        result = await trials.test(path)
        assert result["outcome"] == "verified", (path, result)
    code, state, detail = await trials.consult_doctor()
    assert (code, state, detail) == (0, "ok", "4 active; 4 accept their credentials")
    assert trials.messages == []
    # The one push went to a token that no device has.
    assert {each.path for each in trials.apns.http.requests} == {f"/3/device/{'0' * 64}"}


async def test_wrong_credentials_are_named(trials: Trials) -> None:
    await trials.put_mail("wrong")
    trials.apns.set(refuse_push(403, "InvalidProviderToken"))
    trials.google.set(refuse(403, "PERMISSION_DENIED"))
    trials.sms.set(twilio.Reply.of_error(401, 20003))
    codes = {}
    for path in ("email/main", "push/apple", "push/google", "sms/main"):
        result = await trials.test(path)
        assert result["outcome"] == "misconfigured", (path, result)
        codes[path] = result["error_code"]
        # In words, and what the provider answered beside.
        assert " " in result["error_message"].partition(" (")[0], result
    assert codes == {
        "email/main": "535",
        "push/apple": "403 InvalidProviderToken",
        "push/google": "PERMISSION_DENIED",
        "sms/main": "20003",
    }
    code, state, detail = await trials.consult_doctor()
    assert (code, state) == (1, "fault")
    assert all(f"{path} of app" in detail and codes[path] in detail for path in codes)
    assert trials.messages == []


async def test_what_cannot_be_tried_is_said(trials: Trials) -> None:
    await trials.put("webhook/crm", {"kind": "webhook", "settings": {"url": "https://127.0.0.1/"}})
    await trials.put("push/web", {"kind": "webpush", "settings": {"subject": "mailto:a@b.example"}})
    await trials.sms.stop()
    result = await trials.test("sms/main")
    assert (result["outcome"], result["error_code"]) == ("failed", "not_connected")
    assert result["error_message"].endswith(" refused the connection (ECONNREFUSED)")
    code, state, detail = await trials.consult_doctor()
    assert (code, state) == (0, "note")
    assert " refused the connection (ECONNREFUSED)" in detail
    assert "sms/main of app" in detail
    assert "not_connected" in detail
    assert "3 accept their credentials" in detail
    assert "not tried, since that would send something: webhook, webpush" in detail
    path = "/v1/providers/push/web/test"
    answer = await asyncio.to_thread(trials.app.post, path, {})
    assert (answer.status, answer.fields) == (422, ["to"])


@pytest.mark.rest("waits until it is given up")
async def test_a_server_that_hangs_does_not_hold_the_doctor(trials: Trials) -> None:
    trials.apns.set(Fault.SILENCE)
    trials.sms.set(Fault.ENDLESS)
    async with asyncio.timeout(60):
        code, state, detail = await trials.consult_doctor()
    assert (code, state) == (0, "note")
    assert "push/apple of app" in detail
    assert "sms/main of app" in detail


async def test_without_the_key_of_its_secrets_the_doctor_says_so(trials: Trials) -> None:
    path = trials.world.installation.data / "master.key"
    right = path.read_bytes()
    path.write_bytes(b"x" * 32)
    try:
        code, state, detail = await trials.consult_doctor()
    finally:
        path.write_bytes(right)
    assert (code, state) == (1, "fault")
    assert "key" in detail


def test_without_providers_there_is_nothing_to_try(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.initialise()
    done = installation.run("doctor")
    assert NO_PROVIDERS in done.stdout
