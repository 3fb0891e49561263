"""Tokens of end users: what lets a user in, and every way in which it must not."""

import base64
import hmac
import json
import math
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.access import user_tokens
from clarion.access.app_keys import FIRST_KID, user_key_context
from clarion.access.known_apps import KNOWN_MS, KnownApps
from clarion.access.model import App, UserCaller, UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys, Apps
from clarion.access.user_tokens import CACHED_LENGTH, LEEWAY_S, TRIES_LIMIT, UserTokens
from clarion.access.vault import Vault
from clarion.errors import Unauthenticated
from tests.factories import NOW, make_app, make_provider_key
from tests.replacing import replace

SECRET = "s" * 43
NOW_S = NOW // 1000
DAY_S = 24 * 3600
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def public_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.fixture
def tokens(known_apps: KnownApps) -> UserTokens:
    return UserTokens(known_apps)


def make_sealed(
    app: App, vault: Vault, algorithm: UserTokenAlgorithm, key: bytes, kid: str = FIRST_KID
) -> UserKey:
    sealed = vault.seal(key, user_key_context(app.id, kid))
    return UserKey(app_id=app.id, kid=kid, algorithm=algorithm, key=sealed, created_at=NOW)


async def add_app(apps: Apps, vault: Vault, algorithm: UserTokenAlgorithm, key: bytes) -> App:
    app = make_app()
    await apps.create(app, make_provider_key(app), make_sealed(app, vault, algorithm, key))
    return app


@pytest.fixture
async def app(apps: Apps, vault: Vault) -> App:
    return await add_app(apps, vault, UserTokenAlgorithm.HS256, SECRET.encode())


@pytest.fixture
async def ec_app(apps: Apps, vault: Vault) -> App:
    return await add_app(apps, vault, UserTokenAlgorithm.ES256, public_pem(EC_KEY))


@pytest.fixture
async def ed_app(apps: Apps, vault: Vault) -> App:
    return await add_app(apps, vault, UserTokenAlgorithm.EDDSA, public_pem(ED_KEY))


def claims(app: App, **changes: Any) -> dict[str, Any]:
    """Return good claims with some changed; None takes one out."""
    values = {"sub": "ana", "aud": app.id, "exp": NOW_S + 60} | changes
    return {name: value for name, value in values.items() if value is not None}


def sign(payload: dict[str, Any], headers: dict[str, Any] | None = None) -> str:
    return jwt.encode(payload, SECRET, algorithm="HS256", headers=headers)


def encode_part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def sign_by_hand(payload: dict[str, Any], key: bytes) -> str:
    """Sign with HS256 what the library would refuse to sign."""
    signed = f"{encode_part({'alg': 'HS256', 'typ': 'JWT'})}.{encode_part(payload)}"
    return f"{signed}.{encode_part(hmac.digest(key, signed.encode(), 'sha256'))}"


async def refusal(tokens: UserTokens, token: str, now: int = NOW) -> str:
    with pytest.raises(Unauthenticated) as raised:
        await tokens.verify(token, now)
    return raised.value.detail


async def test_a_good_token_says_who_the_user_is(tokens: UserTokens, app: App) -> None:
    caller = await tokens.verify(sign(claims(app)), NOW)
    assert caller == UserCaller(app_id=app.id, user_id="ana")


@pytest.mark.parametrize(
    ("expires", "end"),
    [
        (NOW_S + 60, NOW + 90_000),
        (NOW_S + 60.5, NOW + 90_000),
        (NOW_S + DAY_S + LEEWAY_S, NOW + (DAY_S + 2 * LEEWAY_S) * 1000),
    ],
)
async def test_a_token_has_an_end(tokens: UserTokens, app: App, expires: float, end: int) -> None:
    caller = await tokens.verify(sign_by_hand(claims(app, exp=expires), SECRET.encode()), NOW)
    assert caller.expires_at == end


@pytest.mark.parametrize("expires", [NOW_S + DAY_S + LEEWAY_S + 1, 1e300, 10**30])
async def test_a_token_that_is_valid_for_longer_than_a_day_is_refused(
    tokens: UserTokens, app: App, expires: float
) -> None:
    token = sign_by_hand(claims(app, exp=expires), SECRET.encode())
    with pytest.raises(Unauthenticated, match="at most 24 hours ahead"):
        await tokens.verify(token, NOW)
    longer = UserTokens(tokens.apps, max_hours=25)
    if expires < NOW_S + 25 * 3600:
        assert (await longer.verify(token, NOW)).user_id == "ana"


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("nested", [b"[" * 20_000, b'{"a":' * 20_000, b'{"aud":' + b"[" * 20_000])
async def test_a_token_nested_without_end_is_refused(
    tokens: UserTokens, app: App, part: int, nested: bytes
) -> None:
    parts = jwt.encode(claims(app), SECRET).split(".")
    parts[part] = base64.urlsafe_b64encode(nested).rstrip(b"=").decode()
    with pytest.raises(Unauthenticated):
        await tokens.verify(".".join(parts), NOW)


async def test_an_app_may_sign_with_es256(tokens: UserTokens, ec_app: App) -> None:
    token = jwt.encode(claims(ec_app), EC_KEY, algorithm="ES256")
    assert (await tokens.verify(token, NOW)).app_id == ec_app.id


async def test_an_app_may_sign_with_eddsa(tokens: UserTokens, ed_app: App) -> None:
    token = jwt.encode(claims(ed_app), ED_KEY, algorithm="EdDSA")
    assert (await tokens.verify(token, NOW)).app_id == ed_app.id


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 0, [], ["HS256"], {}])
async def test_a_token_without_a_signature_is_refused(
    tokens: UserTokens, app: App, alg: object
) -> None:
    assert await refusal(tokens, unsigned({"alg": alg, "typ": "JWT"}, claims(app)))


async def test_the_public_key_does_not_serve_as_a_shared_secret(
    tokens: UserTokens, ec_app: App
) -> None:
    """The classic confusion: a public key is no secret, so HS256 with it proves nothing."""
    token = sign_by_hand(claims(ec_app), public_pem(EC_KEY))
    assert "signed with ES256" in await refusal(tokens, token)


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
async def test_another_algorithm_of_the_same_kind_is_refused(
    tokens: UserTokens, app: App, algorithm: str
) -> None:
    token = jwt.encode(claims(app), SECRET * 2, algorithm=algorithm)
    assert "signed with HS256" in await refusal(tokens, token)


async def test_a_token_with_another_key_is_refused(tokens: UserTokens, app: App) -> None:
    token = jwt.encode(claims(app), "x" * 43, algorithm="HS256")
    assert "signature does not match" in await refusal(tokens, token)


async def test_a_token_that_names_another_app_is_refused(
    tokens: UserTokens, app: App, ec_app: App
) -> None:
    """Signed by one app, for another: its users must not get in there."""
    assert app.id != ec_app.id
    assert "signed with ES256" in await refusal(tokens, sign(claims(ec_app)))


@pytest.mark.parametrize("header", ["jku", "x5u", "jwk", "x5c"])
async def test_keys_that_a_token_brings_along_are_ignored(
    tokens: UserTokens, app: App, header: str
) -> None:
    own = {"kty": "oct", "k": encode_part(b"x" * 43)}
    value = {"jwk": own, "x5c": ["x"]}.get(header, "https://evil.example/k")
    good = sign(claims(app), {header: value})
    assert (await tokens.verify(good, NOW)).user_id == "ana"
    bad = jwt.encode(claims(app), "x" * 43, algorithm="HS256", headers={header: value})
    assert "signature does not match" in await refusal(tokens, bad)


async def test_a_token_for_an_unknown_app_is_refused(tokens: UserTokens, app: App) -> None:
    detail = await refusal(tokens, sign(claims(app, aud="nobody")))
    assert detail == "The `aud` of the user token is not the id of an app on this server."


@pytest.mark.parametrize("audience", [["a"], [], 7, {"a": 1}, True])
async def test_the_audience_must_be_one_string(
    tokens: UserTokens, app: App, audience: object
) -> None:
    for aud in (audience, [app.id]):
        assert "`aud` of the user token must be one string" in await refusal(
            tokens, sign(claims(app, aud=aud))
        )


@pytest.mark.parametrize("missing", ["sub", "exp"])
async def test_a_missing_claim_is_named(tokens: UserTokens, app: App, missing: str) -> None:
    assert f"`{missing}` is missing" in await refusal(tokens, sign(claims(app, **{missing: None})))


async def test_a_token_without_an_audience_is_refused(tokens: UserTokens, app: App) -> None:
    assert "`aud` of the user token must be one string" in await refusal(
        tokens, sign(claims(app, aud=None))
    )


async def test_a_token_ends_at_its_time_and_a_little_later(tokens: UserTokens, app: App) -> None:
    token = sign(claims(app, exp=NOW_S))
    assert (await tokens.verify(token, NOW + LEEWAY_S * 1000 - 1)).user_id == "ana"
    assert await refusal(tokens, token, NOW + LEEWAY_S * 1000) == "The user token has expired."


async def test_a_token_begins_at_its_time_and_a_little_earlier(
    tokens: UserTokens, app: App
) -> None:
    token = sign(claims(app, nbf=NOW_S + LEEWAY_S))
    assert (await tokens.verify(token, NOW)).user_id == "ana"
    assert await refusal(tokens, token, NOW - 1) == "The user token is not valid yet."


@pytest.mark.parametrize("moment", [math.nan, math.inf, "soon", [1], {}, True, "9999999999"])
@pytest.mark.parametrize("claim", ["exp", "nbf"])
async def test_a_time_that_is_no_number_is_refused(
    tokens: UserTokens, app: App, claim: str, moment: object
) -> None:
    token = sign_by_hand(claims(app, **{claim: moment}), SECRET.encode())
    assert "must be seconds since 1970" in await refusal(tokens, token)


async def test_a_fraction_of_a_second_is_a_time(tokens: UserTokens, app: App) -> None:
    assert (await tokens.verify(sign(claims(app, exp=NOW_S + 0.5)), NOW)).user_id == "ana"


@pytest.mark.parametrize("iat", [NOW_S + 1000, "x", None])
async def test_when_a_token_was_made_does_not_matter(
    tokens: UserTokens, app: App, iat: object
) -> None:
    assert (
        await tokens.verify(sign_by_hand(claims(app, iat=iat), SECRET.encode()), NOW)
    ).user_id == "ana"


@pytest.mark.parametrize(
    "subject", ["", "x" * 129, 7, ["ana"], True, "a\0b", "\ud800", "a b", "a/b", "ñ🚀"]
)
async def test_the_subject_must_be_a_user_id(tokens: UserTokens, app: App, subject: object) -> None:
    token = sign_by_hand(claims(app, sub=subject), SECRET.encode())
    assert "`sub` is not a user id: it must have 1 to 128" in await refusal(tokens, token)


@pytest.mark.parametrize("subject", ["x" * 128, "ana@example.com", "auth0|7:a=b+c~d"])
async def test_a_user_id_is_taken_as_it_is(tokens: UserTokens, app: App, subject: str) -> None:
    assert (await tokens.verify(sign(claims(app, sub=subject)), NOW)).user_id == subject


def unsigned(header: object, payload: object) -> str:
    return f"{encode_part(header)}.{encode_part(payload)}."


HS256 = {"alg": "HS256"}
NESTED = b"[" * 6_000


NO_TOKENS = {
    "nothing": "",
    "one part": "x",
    "two parts": "a.b",
    "three parts": "a.b.c",
    "five parts": "....",
    "other letters": "é.é.é",
    "a nested header": unsigned(NESTED, {}),
    "nested claims": unsigned(HS256, NESTED),
    "claims that are a list": unsigned(HS256, [1]),
    "half a character": unsigned(HS256, {"aud": "\ud800"}),
    "a zero character": unsigned(HS256, {"aud": "a\0b"}),
    "a detached payload": unsigned(HS256 | {"b64": False}, {"aud": "a"}),
    "an endless number": unsigned(HS256, b'{"aud": ' + b"1" * 5_000 + b"}"),
}


@pytest.mark.parametrize("token", NO_TOKENS.values(), ids=list(NO_TOKENS))
async def test_what_is_no_token_is_refused_in_order(tokens: UserTokens, token: str) -> None:
    assert await refusal(tokens, token)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.dictionaries(
        st.sampled_from(["alg", "typ", "kid", "crit", "b64"]), st.none() | st.text()
    ),
    payload=st.dictionaries(
        st.sampled_from(["sub", "aud", "exp", "nbf"]),
        st.none() | st.text() | st.floats() | st.lists(st.text(), max_size=2),
    ),
    signature=st.binary(max_size=40),
)
async def test_no_token_made_by_chance_gets_in(
    tokens: UserTokens, app: App, header: dict[str, Any], payload: dict[str, Any], signature: bytes
) -> None:
    payload = payload | {"aud": app.id} if "exp" in payload else payload
    await refusal(tokens, ".".join(map(encode_part, (header, payload, signature))))


# Several keys, and tokens that name one.

HS256_, ES256, EDDSA = UserTokenAlgorithm
OTHER_SECRET = "o" * 43


@pytest.fixture
async def rich_app(app: App, vault: Vault, user_keys: AppKeys[UserKey]) -> App:
    """The app with a key of each algorithm, and a second secret."""
    for key in (
        make_sealed(app, vault, HS256_, OTHER_SECRET.encode(), "second"),
        make_sealed(app, vault, ES256, public_pem(EC_KEY), "ec"),
        make_sealed(app, vault, EDDSA, public_pem(ED_KEY), "ed"),
    ):
        assert await user_keys.add(key, NOW)
    return app


@pytest.mark.parametrize("kid", [None, "own"])
@pytest.mark.parametrize(
    ("algorithm", "key", "own"),
    [
        ("HS256", SECRET, FIRST_KID),
        ("HS256", OTHER_SECRET, "second"),
        ("ES256", EC_KEY, "ec"),
        ("EdDSA", ED_KEY, "ed"),
    ],
)
async def test_a_token_of_any_of_the_keys_is_valid_with_and_without_its_kid(
    tokens: UserTokens, rich_app: App, algorithm: str, key: Any, own: str, kid: str | None
) -> None:
    headers = {"kid": own} if kid else None
    token = jwt.encode(claims(rich_app), key, algorithm, headers=headers)
    assert (await tokens.verify(token, NOW)).user_id == "ana"


@pytest.mark.parametrize(
    "kid",
    [
        "nobody",
        "",
        " first",
        "FIRST",
        "../../etc/passwd",
        "/dev/null",
        "first' OR '1'='1",
        "first\0",
        "' UNION SELECT 'x",
        "x" * 10_000,
    ],
)
async def test_a_kid_that_is_none_of_the_apps_is_refused(
    tokens: UserTokens, rich_app: App, kid: str
) -> None:
    detail = await refusal(tokens, sign(claims(rich_app), {"kid": kid}))
    assert detail == "The `kid` of the user token is not that of a key of the app."


@pytest.mark.parametrize("kid", [7, True, ["first"], {"first": 1}])
async def test_a_kid_that_is_no_text_is_refused(
    tokens: UserTokens, rich_app: App, kid: object
) -> None:
    header, body = encode_part({"alg": "HS256", "kid": kid}), encode_part(claims(rich_app))
    signature = hmac.digest(SECRET.encode(), f"{header}.{body}".encode(), "sha256")
    assert await refusal(tokens, f"{header}.{body}.{encode_part(signature)}")


async def test_the_kid_of_another_app_is_refused(
    tokens: UserTokens, apps: Apps, vault: Vault, rich_app: App
) -> None:
    """Signed rightly by the other app, for a user of this one."""
    other = make_app()
    key = make_sealed(other, vault, HS256_, b"e" * 43, "evil")
    await apps.create(other, make_provider_key(other), key)
    for headers in ({"kid": "evil"}, {"kid": FIRST_KID}, None):
        token = jwt.encode(claims(rich_app), "e" * 43, "HS256", headers=headers)
        assert await refusal(tokens, token)


@pytest.mark.parametrize(("kid", "pem"), [("ec", EC_KEY), ("ed", ED_KEY), (None, EC_KEY)])
async def test_no_public_key_serves_as_a_secret_though_the_app_has_secrets_too(
    tokens: UserTokens, rich_app: App, kid: str | None, pem: Any
) -> None:
    header = {"alg": "HS256", "typ": "JWT"} | ({"kid": kid} if kid else {})
    signed = f"{encode_part(header)}.{encode_part(claims(rich_app))}"
    for key in (public_pem(pem), public_pem(pem).strip()):
        signature = hmac.digest(key, signed.encode(), "sha256")
        assert await refusal(tokens, f"{signed}.{encode_part(signature)}")


@pytest.mark.parametrize(("kid", "algorithm"), [("ec", "EdDSA"), ("ed", "ES256")])
async def test_a_kid_with_the_algorithm_of_another_key_is_refused(
    tokens: UserTokens, rich_app: App, kid: str, algorithm: str
) -> None:
    key = EC_KEY if algorithm == "ES256" else ED_KEY
    token = jwt.encode(claims(rich_app), key, algorithm, headers={"kid": kid})
    assert "it must be signed with" in await refusal(tokens, token)


@pytest.mark.parametrize("crit", [["exp"], ["b64"], [], "exp", None])
async def test_a_token_with_critical_headers_is_refused(
    tokens: UserTokens, app: App, crit: object
) -> None:
    header, body = encode_part({"alg": "HS256", "crit": crit}), encode_part(claims(app))
    signature = hmac.digest(SECRET.encode(), f"{header}.{body}".encode(), "sha256")
    assert await refusal(tokens, f"{header}.{body}.{encode_part(signature)}")


@pytest.mark.parametrize("kind", ["secevent+jwt", "dpop+jwt", "JWE"])
async def test_a_token_made_for_another_purpose_is_refused(
    tokens: UserTokens, app: App, kind: str
) -> None:
    assert "`typ`" in await refusal(tokens, sign(claims(app), {"typ": kind}))


async def test_a_revoked_key_is_refused_within_two_seconds(
    tokens: UserTokens, rich_app: App, user_keys: AppKeys[UserKey]
) -> None:
    token = jwt.encode(claims(rich_app), OTHER_SECRET, "HS256")
    assert (await tokens.verify(token, NOW)).user_id == "ana"
    assert await user_keys.revoke(rich_app.id, "second", NOW)
    assert "signature does not match" in await refusal(tokens, token, NOW + KNOWN_MS)
    named = jwt.encode(claims(rich_app), OTHER_SECRET, "HS256", headers={"kid": "second"})
    assert "`kid`" in await refusal(tokens, named, NOW + KNOWN_MS)
    assert (await tokens.verify(sign(claims(rich_app)), NOW + KNOWN_MS)).user_id == "ana"


async def test_a_rotated_key_is_valid_until_the_overlap_ends(
    tokens: UserTokens, app: App, vault: Vault, user_keys: AppKeys[UserKey]
) -> None:
    new = make_sealed(app, vault, HS256_, OTHER_SECRET.encode(), "new")
    assert await user_keys.rotate(FIRST_KID, new, now=NOW, ends_at=NOW + 10_000)
    old_token, new_token = sign(claims(app)), jwt.encode(claims(app), OTHER_SECRET, "HS256")
    for token in (old_token, new_token):
        assert (await tokens.verify(token, NOW + 9_999)).user_id == "ana"
    assert "signature does not match" in await refusal(tokens, old_token, NOW + 12_000)
    assert (await tokens.verify(new_token, NOW + 12_000)).user_id == "ana"


async def test_the_tokens_of_a_deleted_app_are_refused(
    tokens: UserTokens, apps: Apps, app: App
) -> None:
    token = sign(claims(app))
    assert (await tokens.verify(token, NOW)).user_id == "ana"
    await apps.delete(app.id, NOW)
    assert "not the id of an app" in await refusal(tokens, token, NOW + KNOWN_MS)


async def test_a_token_without_a_kid_is_tried_with_few_keys(
    tokens: UserTokens, app: App, vault: Vault, user_keys: AppKeys[UserKey]
) -> None:
    for number in range(TRIES_LIMIT):
        secret = b"%d" % number * 43
        newer = make_sealed(app, vault, HS256_, secret, f"k{number}")
        assert await user_keys.add(replace(newer, created_at=NOW + 1), NOW + 1)
    assert "signature does not match" in await refusal(tokens, sign(claims(app)))
    named = sign(claims(app), {"kid": FIRST_KID})
    assert (await tokens.verify(named, NOW)).user_id == "ana"


async def test_the_refusal_does_not_show_the_token(tokens: UserTokens, app: App) -> None:
    token = jwt.encode(claims(app, sub="hunter2"), "x" * 43, algorithm="HS256")
    detail = await refusal(tokens, token)
    assert "hunter2" not in detail
    assert token not in detail


# Signatures are verified once.


async def test_a_token_that_was_verified_still_ends(tokens: UserTokens, app: App) -> None:
    token = sign(claims(app))
    first = await tokens.verify(token, NOW)
    assert await tokens.verify(token, NOW + 1) == first
    with pytest.raises(Unauthenticated, match="expired"):
        await tokens.verify(token, NOW + (60 + LEEWAY_S) * 1000)
    # A clock that is set back makes it too long-lived, or not valid yet.
    with pytest.raises(Unauthenticated, match="hours ahead"):
        await tokens.verify(token, NOW - DAY_S * 1000)


async def test_a_token_that_was_verified_ends_with_its_key(
    tokens: UserTokens, app: App, user_keys: AppKeys[UserKey]
) -> None:
    token = sign(claims(app))
    assert (await tokens.verify(token, NOW)).user_id == "ana"
    await user_keys.revoke(app.id, FIRST_KID, NOW)
    tokens.apps.forget(app.id)
    with pytest.raises(Unauthenticated):
        await tokens.verify(token, NOW + 1)


async def test_another_key_of_the_same_name_does_not_take_its_tokens(
    tokens: UserTokens, app: App
) -> None:
    token = sign(claims(app))
    assert (await tokens.verify(token, NOW)).user_id == "ana"
    known = await tokens.apps.find(app.id, NOW)
    assert known is not None
    known.keys[FIRST_KID] = replace(known.keys[FIRST_KID], key=b"t" * 43)
    with pytest.raises(Unauthenticated, match="signature"):
        await tokens.verify(token, NOW)


async def test_only_good_tokens_are_kept_and_few_of_them(
    tokens: UserTokens, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_tokens, "CACHED_TOKENS", 3)
    for number in range(9):
        await tokens.verify(sign(claims(app, sub=f"user-{number}")), NOW)
        assert len(tokens._signed) <= 3
    kept = dict(tokens._signed)
    assert [each.claims["sub"] for each in kept.values()] == ["user-6", "user-7", "user-8"]
    long = sign(claims(app, more="x" * CACHED_LENGTH))
    assert (await tokens.verify(long, NOW)).user_id == "ana"
    for bad in (sign(claims(app)) + "x", jwt.encode(claims(app), "t" * 43, algorithm="HS256")):
        with pytest.raises(Unauthenticated):
            await tokens.verify(bad, NOW)
    assert tokens._signed == kept
