"""Provider tokens: signatures as clients make them, ages, what is cached, and for how long."""

import asyncio
import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.access.model import App, ProviderKey
from clarion.access.sql import Apps
from clarion.push.apns.provider_tokens import (
    CONNECTION_IDLE_MS,
    TOKEN_LIFE_MS,
    TOKENS_LIMIT,
    UPDATE_INTERVAL_MS,
    VERIFIED_MS,
    Provider,
    ProviderTokens,
)
from clarion.push.apns.reasons import Reason, Rejected
from clarion.store.statement import Unit, Value, statement
from tests.factories import MINUTE, NOW, make_app, make_provider_key
from tests.recorded_bus import RecordedHub
from tests.replacing import replace
from tests.unit.conftest import MemoryEngine

KEY = ec.derive_private_key(7, ec.SECP256R1())
CLIENT = ("192.0.2.1", 50_000)
# A signature that some client sent may not take part of a second to make in each test.
Claims = dict[str, Any]


def pem(key: Any) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return str(key.public_key().public_bytes(serialization.Encoding.PEM, form).decode())


def encode(part: object) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(head: Claims, body: Claims, key: Any = KEY, *, is_raw: bool = True) -> str:
    signed = f"{encode(head)}.{encode(body)}"
    signature = key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
    if is_raw:
        r, s = decode_dss_signature(signature)
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{signed}.{encode(signature)}"


class Apns:
    """Identifies providers, as the APNs endpoint does."""

    def __init__(self, apps: Apps, engine: MemoryEngine) -> None:
        self.apps = apps
        self.engine = engine
        self.deleted: set[str] = set()
        self.tokens = ProviderTokens(apps, self.deleted)

    async def add_app(self, **changes: Any) -> tuple[App, ProviderKey]:
        app = make_app(**changes)
        key = make_provider_key(app, public_key=pem(KEY))
        await self.apps.create(app, key)
        return app, key

    async def change(self, sql: str, **values: Value) -> None:
        await self.engine.write(Unit("", (statement("change", sql).step(**values),)))

    async def revoke(self, key: ProviderKey) -> None:
        await self.change(
            "UPDATE provider_keys SET revoked_at = :now WHERE key_id = :id", now=NOW, id=key.key_id
        )

    async def identify(
        self, token: str, *, now: int = NOW, client: tuple[str, int] = CLIENT
    ) -> Provider:
        return await self.tokens.identify(f"bearer {token}".encode(), client, now)

    async def refusal(
        self, token: str, *, now: int = NOW, client: tuple[str, int] = CLIENT
    ) -> Reason:
        with pytest.raises(Rejected) as raised:
            await self.identify(token, now=now, client=client)
        return raised.value.reason


def token_of(key: ProviderKey, *, is_raw: bool = True, **claims: Any) -> str:
    head = {"alg": "ES256", "kid": key.key_id}
    return sign(head, {"iss": key.team_id, "iat": NOW // 1000} | claims, is_raw=is_raw)


@pytest.fixture
def apns(apps: Apps, engine: MemoryEngine) -> Apns:
    return Apns(apps, engine)


@pytest.fixture
async def key(apns: Apns) -> ProviderKey:
    return (await apns.add_app())[1]


async def test_the_provider_of_a_deleted_app_is_refused_at_once(
    apns: Apns, key: ProviderKey
) -> None:
    token = token_of(key)
    await apns.identify(token)
    apns.deleted.add(key.app_id)
    assert await apns.refusal(token) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_key_that_has_expired_is_refused_after_five_seconds(
    apns: Apns, key: ProviderKey
) -> None:
    token = token_of(key)
    await apns.change(
        "UPDATE provider_keys SET expires_at = :at WHERE key_id = :id", at=NOW + 1, id=key.key_id
    )
    assert (await apns.identify(token)).app.id == key.app_id
    assert await apns.refusal(token, now=NOW + 5_000) is Reason.INVALID_PROVIDER_TOKEN


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "DER"])
async def test_both_ways_to_write_a_signature_are_right(
    apns: Apns, key: ProviderKey, *, is_raw: bool
) -> None:
    provider = await apns.identify(token_of(key, is_raw=is_raw))
    app = await apns.apps.get(key.app_id)
    assert app is not None
    assert provider == Provider(app, key.key_id, key.team_id, NOW)


@pytest.mark.parametrize("scheme", [b"bearer", b"Bearer", b"BEARER"])
async def test_the_scheme_is_read_in_any_case(apns: Apns, key: ProviderKey, scheme: bytes) -> None:
    assert (
        await apns.tokens.identify(scheme + b" " + token_of(key).encode(), CLIENT, NOW) is not None
    )


@pytest.mark.parametrize("given", [None, b"", b"bearer", b"bearer ", b"bearer   ", b"x"])
async def test_without_a_token_there_is_none(apns: Apns, given: bytes | None) -> None:
    with pytest.raises(Rejected) as raised:
        await apns.tokens.identify(given, CLIENT, NOW)
    assert raised.value.reason is Reason.MISSING_PROVIDER_TOKEN


async def test_another_scheme_is_no_token_of_ours(apns: Apns, key: ProviderKey) -> None:
    with pytest.raises(Rejected) as raised:
        await apns.tokens.identify(b"basic " + token_of(key).encode(), CLIENT, NOW)
    assert raised.value.reason is Reason.INVALID_PROVIDER_TOKEN


@pytest.mark.parametrize("iat", [NOW / 1000, NOW // 1000, NOW / 1000 + 0.284602])
async def test_a_fraction_is_a_time_too(apns: Apns, key: ProviderKey, iat: float) -> None:
    assert (await apns.identify(token_of(key, iat=iat))).issued_at == int(iat * 1000)


@pytest.mark.parametrize("iat", ["1767225600", None, True, [], -1, 1e306, 1e13])
async def test_what_is_no_time_is_refused(apns: Apns, key: ProviderKey, iat: object) -> None:
    assert await apns.refusal(token_of(key, iat=iat)) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_token_lives_an_hour(apns: Apns, key: ProviderKey) -> None:
    token = token_of(key)
    assert await apns.identify(token, now=NOW + TOKEN_LIFE_MS) is not None
    assert await apns.refusal(token, now=NOW + TOKEN_LIFE_MS + 1) is Reason.EXPIRED_PROVIDER_TOKEN


async def test_a_token_of_the_future_is_refused_beyond_an_hour(
    apns: Apns, key: ProviderKey
) -> None:
    token = token_of(key)
    assert await apns.identify(token, now=NOW - TOKEN_LIFE_MS) is not None
    early = NOW - TOKEN_LIFE_MS - 1
    assert await apns.refusal(token, now=early) is Reason.INVALID_PROVIDER_TOKEN


HEADS: dict[str, Claims] = {
    "another algorithm": {"alg": "HS256"},
    "no algorithm": {"alg": "none"},
    "an unknown key": {"kid": "UNKNOWN"},
    "a key id that is no text": {"kid": 7},
}


@pytest.mark.parametrize("change", HEADS.values(), ids=list(HEADS))
async def test_a_wrong_head_is_refused(apns: Apns, key: ProviderKey, change: Claims) -> None:
    head = {"alg": "ES256", "kid": key.key_id} | change
    token = sign(head, {"iss": key.team_id, "iat": NOW // 1000})
    assert await apns.refusal(token) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_token_of_another_team_is_refused(apns: Apns, key: ProviderKey) -> None:
    assert await apns.refusal(token_of(key, iss="TEAM000002")) is Reason.INVALID_PROVIDER_TOKEN


@pytest.mark.parametrize("is_raw", [True, False])
async def test_a_signature_by_another_key_is_refused(
    apns: Apns, key: ProviderKey, *, is_raw: bool
) -> None:
    other = ec.derive_private_key(8, ec.SECP256R1())
    head, body = {"alg": "ES256", "kid": key.key_id}, {"iss": key.team_id, "iat": NOW // 1000}
    token = sign(head, body, other, is_raw=is_raw)
    assert await apns.refusal(token) is Reason.INVALID_PROVIDER_TOKEN


@pytest.mark.parametrize("signature", [b"", b"\x00" * 64, b"\xff" * 64, b"\x30\x06", b"x" * 70])
async def test_what_is_no_signature_is_refused(
    apns: Apns, key: ProviderKey, signature: bytes
) -> None:
    head, body, _ = token_of(key).split(".")
    token = f"{head}.{body}.{encode(signature)}"
    assert await apns.refusal(token) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_key_of_another_algorithm_verifies_nothing(apns: Apns, key: ProviderKey) -> None:
    other = pem(ed25519.Ed25519PrivateKey.generate())
    await apns.change(
        "UPDATE provider_keys SET public_key = :other WHERE key_id = :id",
        other=other,
        id=key.key_id,
    )
    assert await apns.refusal(token_of(key)) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_key_of_an_app_that_is_gone_is_refused(apns: Apns, key: ProviderKey) -> None:
    await apns.change("DELETE FROM apps WHERE id = :id", id=key.app_id)
    assert await apns.refusal(token_of(key)) is Reason.INVALID_PROVIDER_TOKEN


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text() | st.lists(st.binary().map(encode) | st.text(), min_size=3, max_size=3).map(".".join)
)
async def test_any_text_is_refused(apns: Apns, text: str) -> None:
    with pytest.raises(Rejected):
        await apns.tokens.identify(b"bearer " + text.encode(), CLIENT, NOW)


async def test_a_token_is_verified_once(apns: Apns, key: ProviderKey) -> None:
    token = token_of(key)
    await apns.identify(token)
    reads = apns.engine.reads
    for moment in range(0, VERIFIED_MS, VERIFIED_MS // 10):
        await apns.identify(token, now=NOW + moment)
    assert apns.engine.reads == reads


async def test_a_revoked_key_is_refused_within_a_minute(apns: Apns, key: ProviderKey) -> None:
    token = token_of(key)
    await apns.identify(token)
    await apns.revoke(key)
    assert await apns.identify(token, now=NOW + VERIFIED_MS - 1) is not None
    later = NOW + VERIFIED_MS
    assert await apns.refusal(token, now=later) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_clock_that_is_set_back_does_not_prolong_the_cache(
    apns: Apns, key: ProviderKey
) -> None:
    token = token_of(key)
    await apns.identify(token)
    await apns.revoke(key)
    assert await apns.refusal(token, now=NOW - MINUTE) is Reason.INVALID_PROVIDER_TOKEN


async def test_a_token_that_was_refused_is_not_cached(apns: Apns) -> None:
    app = make_app()
    later = make_provider_key(app, public_key=pem(KEY))
    token = token_of(later)
    assert await apns.refusal(token) is Reason.INVALID_PROVIDER_TOKEN
    await apns.apps.create(app, later)
    assert await apns.identify(token) is not None


async def test_what_is_cached_has_a_limit(apns: Apns, key: ProviderKey) -> None:
    provider = await apns.identify(token_of(key))
    for n in range(TOKENS_LIMIT):
        apns.tokens._verified.put(b"%d" % n, (provider, f"{n}"), NOW, 0)
    await apns.identify(token_of(key))
    assert len(apns.tokens._verified) <= TOKENS_LIMIT


async def test_a_connection_may_change_its_token_once_in_20_minutes(
    apns: Apns, key: ProviderKey
) -> None:
    tokens = [token_of(key, iat=NOW // 1000 + n) for n in range(4)]
    await apns.identify(tokens[0])
    await apns.identify(tokens[1], now=NOW + 1)
    assert await apns.refusal(tokens[2], now=NOW + 2) is Reason.TOO_MANY_PROVIDER_TOKEN_UPDATES
    assert await apns.refusal(tokens[0], now=NOW + 3) is Reason.TOO_MANY_PROVIDER_TOKEN_UPDATES
    for moment in range(MINUTE, UPDATE_INTERVAL_MS, MINUTE):
        await apns.identify(tokens[1], now=NOW + moment)
    assert await apns.identify(tokens[3], now=NOW + 1 + UPDATE_INTERVAL_MS) is not None


async def test_each_connection_has_a_token_of_its_own(apns: Apns, key: ProviderKey) -> None:
    for port in range(10):
        token = token_of(key, iat=NOW // 1000 + port)
        assert await apns.identify(token, client=("192.0.2.1", port)) is not None


async def test_a_connection_belongs_to_the_team_of_its_first_push(
    apns: Apns, key: ProviderKey
) -> None:
    _, of_other_team = await apns.add_app(team_id="TEAM000002")
    await apns.identify(token_of(key))
    assert await apns.refusal(token_of(of_other_team)) is Reason.INVALID_PROVIDER_TOKEN
    assert await apns.identify(token_of(key), now=NOW + 1) is not None


async def test_a_connection_belongs_to_the_app_of_its_first_push(
    apns: Apns, key: ProviderKey
) -> None:
    _, of_other_app = await apns.add_app()
    await apns.identify(token_of(key))
    assert await apns.refusal(token_of(of_other_app)) is Reason.UNRELATED_KEY_ID_IN_TOKEN


async def test_another_key_of_the_same_app_may_follow(apns: Apns, key: ProviderKey) -> None:
    second = replace(key, key_id="SECOND0001")
    await apns.change(
        """INSERT INTO provider_keys (key_id, app_id, team_id, public_key, created_at)
        SELECT :id, app_id, team_id, public_key, created_at FROM provider_keys""",
        id=second.key_id,
    )
    await apns.identify(token_of(key))
    assert (await apns.identify(token_of(second))).key_id == "SECOND0001"


async def test_an_address_that_was_quiet_for_a_minute_is_a_new_connection(
    apns: Apns, key: ProviderKey
) -> None:
    _, of_other_team = await apns.add_app(team_id="TEAM000002")
    await apns.identify(token_of(key))
    still = NOW + CONNECTION_IDLE_MS
    assert await apns.refusal(token_of(of_other_team), now=still) is Reason.INVALID_PROVIDER_TOKEN
    assert (
        await apns.identify(token_of(of_other_team), now=still + CONNECTION_IDLE_MS + 1) is not None
    )


async def test_a_refused_token_does_not_bind_a_connection(apns: Apns, key: ProviderKey) -> None:
    await apns.refusal(token_of(key, iss="TEAM000002"))
    await apns.refusal(token_of(key), now=NOW + TOKEN_LIFE_MS + 1)
    assert apns.tokens._connections == {}


async def test_a_key_revoked_on_one_node_is_refused_by_the_others_when_they_are_told(
    apns: Apns, apps: Apps, engine: MemoryEngine
) -> None:
    hub, there = RecordedHub(), Apns(apps, engine)
    apns.tokens.forget.join(hub.join())
    there.tokens.forget.join(hub.join())
    app, key = await apns.add_app()
    token = sign({"alg": "ES256", "kid": key.key_id}, {"iss": app.team_id, "iat": NOW // 1000})
    assert (await there.identify(token)).app.id == app.id
    await apns.revoke(key)
    assert (await there.identify(token)).app.id == app.id  # it is cached
    apns.tokens.forget(key.key_id)
    await asyncio.sleep(0)
    assert await there.refusal(token) is Reason.INVALID_PROVIDER_TOKEN
