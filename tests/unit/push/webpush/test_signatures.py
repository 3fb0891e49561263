"""VAPID: which signatures are accepted, in every spelling, and which are not."""

from contextlib import suppress
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import Forbidden
from clarion.push.model.vapid import read_private_key, write_public_key
from clarion.push.webpush.signatures import VapidSignatures, read_parameter
from tests.factories import DAY, NOW

ORIGIN = "https://push.example:8443"
HOUR_S = 3600
# That of the test vector of RFC 8291, and one more.
KEY = read_private_key("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
OTHER_KEY = read_private_key("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
PUBLIC_KEY = write_public_key(KEY.public_key())


def make_token(key: Any = KEY, algorithm: str = "ES256", **changes: Any) -> str:
    claims = {"aud": ORIGIN, "exp": NOW // 1000 + HOUR_S, "sub": "mailto:a@b.example"} | changes
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(given, key, algorithm=algorithm)


@pytest.fixture
def verifier() -> VapidSignatures:
    return VapidSignatures(f"{ORIGIN}/below")


@pytest.mark.parametrize(
    ("authorization", "crypto_key"),
    [
        (f"vapid t={make_token()},k={PUBLIC_KEY}", ""),
        (f"vapid t={make_token()}, k={PUBLIC_KEY}", ""),
        (f"Vapid k={PUBLIC_KEY} , t={make_token()}, more=1", ""),
        (f'vapid t="{make_token()}", k="{PUBLIC_KEY}="', ""),
        (f"WebPush {make_token()}", f"p256ecdsa={PUBLIC_KEY}"),
        (f"WebPush {make_token()}", f"keyid=a;dh=abc;p256ecdsa={PUBLIC_KEY}"),
        (f"WebPush {make_token()}", f"dh=abc,p256ecdsa={PUBLIC_KEY}"),
        (f"vapid t={make_token(aud=[ORIGIN, 'https://other.example'])}, k={PUBLIC_KEY}", ""),
        (f"vapid t={make_token(exp=NOW / 1000 + 0.5)}, k={PUBLIC_KEY}", ""),
    ],
)
def test_every_spelling_is_read(
    verifier: VapidSignatures, authorization: str, crypto_key: str
) -> None:
    for _ in range(2):  # also when it is cached
        assert verifier.identify(authorization, crypto_key, NOW) == PUBLIC_KEY


@pytest.mark.parametrize("authorization", ["", "Basic YTpi", "Bearer x", "bearer"])
def test_another_scheme_is_no_signature(verifier: VapidSignatures, authorization: str) -> None:
    assert verifier.identify(authorization, "", NOW) is None


@pytest.mark.parametrize(
    "authorization",
    [
        "vapid",
        "vapid t=, k=",
        f"vapid t={make_token()}",
        f"vapid k={PUBLIC_KEY}",
        f"vapid t={make_token()}, k={PUBLIC_KEY[:-4]}",
        f"vapid t={make_token(OTHER_KEY)}, k={PUBLIC_KEY}",
        f"vapid t={make_token()[:-4]}AAAA, k={PUBLIC_KEY}",
        f"vapid t={make_token('x' * 32, 'HS256')}, k={PUBLIC_KEY}",
        f"vapid t={make_token(None, 'none')}, k={PUBLIC_KEY}",
        f"vapid t={make_token(aud='https://push.example')}, k={PUBLIC_KEY}",
        f"vapid t={make_token(aud=ORIGIN + '/')}, k={PUBLIC_KEY}",
        f"vapid t={make_token(aud=None)}, k={PUBLIC_KEY}",
        f"vapid t={make_token(aud={'a': 1})}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=None)}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp='soon')}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=NOW // 1000 - HOUR_S)}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=NOW // 1000 + 25 * HOUR_S)}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=10**400)}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=float('nan'))}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=float('inf'))}, k={PUBLIC_KEY}",
        f"vapid t={make_token(exp=-1)}, k={PUBLIC_KEY}",
        f"WebPush {make_token()}",
    ],
)
def test_what_is_not_signed_for_us_and_now_is_refused(
    verifier: VapidSignatures, authorization: str
) -> None:
    with pytest.raises(Forbidden):
        verifier.identify(authorization, "", NOW)


def test_a_cached_token_expires(verifier: VapidSignatures) -> None:
    authorization = f"vapid t={make_token()}, k={PUBLIC_KEY}"
    assert verifier.identify(authorization, "", NOW) == PUBLIC_KEY
    with pytest.raises(Forbidden, match="expired"):
        verifier.identify(authorization, "", NOW + DAY)
    with pytest.raises(Forbidden, match="24 hours"):
        verifier.identify(authorization, "", NOW - DAY)


def test_the_cache_has_a_limit() -> None:
    verifier = VapidSignatures(ORIGIN, verified_limit=3)
    for number in range(7):
        token = make_token(n=number)
        assert verifier.identify(f"vapid t={token}, k={PUBLIC_KEY}", "", NOW) == PUBLIC_KEY
    assert len(verifier._verified) <= 3


@given(st.text(), st.text())
def test_whatever_is_sent_it_is_read_or_refused(authorization: str, crypto_key: str) -> None:
    verifier = VapidSignatures(ORIGIN)
    for scheme in ("", "vapid ", "vapid t=", "WebPush "):
        with suppress(Forbidden):
            assert verifier.identify(scheme + authorization, crypto_key, NOW) is None


@pytest.mark.parametrize("text", ["dh=a;b=c", "b=c,dh=a", ' dh = "a" '])
def test_a_parameter_is_found(text: str) -> None:
    assert read_parameter(text, "dh") == "a"
    assert read_parameter(text, "salt") is None
