"""Provider tokens: what is accepted, what is refused, and what a connection may change."""

import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from tests.conformance.clients.http2 import Http2, Request
from tests.conformance.provider import Provider, encode
from tests.conformance.wire.prepared import PreparedServer, bearer, push

INVALID = (403, "InvalidProviderToken")
HOUR_S = 3600


def now() -> int:
    return int(time.time())


def signed(**changes: Any) -> Callable[[Provider], str]:
    return lambda provider: provider.token(**changes)


def padded(provider: Provider) -> str:
    head, body, signature = provider.token(is_der=True).split(".")
    return ".".join((head, body, signature + "=" * (-len(signature) % 4)))


ACCEPTED = {
    "raw signature": signed(),
    "ASN.1 signature": signed(is_der=True),
    "padding": padded,
    "typ": signed(header={"typ": "JWT"}),
    "more claims": signed(claims={"aud": "anybody", "exp": 1}),
    "iat of a fraction": lambda provider: provider.token(claims={"iat": time.time()}),
    "59 minutes old": lambda provider: provider.token(claims={"iat": now() - 59 * 60}),
    "59 minutes ahead": lambda provider: provider.token(claims={"iat": now() + 59 * 60}),
}


@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED)
async def test_a_good_token_is_accepted(
    prepared: PreparedServer, make: Callable[[Provider], str]
) -> None:
    good = push(prepared.provider, prepared.valid)
    assert (await prepared.ask(good.but(*bearer(make(prepared.provider))))).status == 200


@pytest.mark.parametrize("scheme", ["bearer", "Bearer", "BEARER"])
async def test_the_scheme_may_be_written_in_any_case(prepared: PreparedServer, scheme: str) -> None:
    good = push(prepared.provider, prepared.valid)
    value = f"{scheme} {prepared.provider.token()}"
    assert (await prepared.ask(good.but("authorization", value))).status == 200


def unsigned(provider: Provider) -> str:
    head, body, _ = provider.token(header={"alg": "none"}).split(".")
    return f"{head}.{body}."


def by_public_key(provider: Provider) -> str:
    """The old trick: HS256, keyed with what everybody may know."""
    claims = {"iss": provider.team_id, "iat": now()}
    return jwt.encode(claims, "k" * 32, "HS256", headers={"kid": provider.key_id})


def forged(provider: Provider) -> str:
    """Another's claims under a good signature."""
    head, _, signature = provider.token().split(".")
    return f"{head}.{encode(b'{}')}.{signature}"


def of_zeros(provider: Provider) -> str:
    head, body, _ = provider.token().split(".")
    return f"{head}.{body}.{encode(bytes(64))}"


REFUSED = {
    "iat as text": lambda provider: provider.token(claims={"iat": str(now())}),
    "iat as truth": signed(claims={"iat": True}),
    "no iat": signed(claims={"iat": None}),
    "iat beyond reckoning": signed(claims={"iat": 1e306}),
    "iat below reckoning": signed(claims={"iat": -1e306}),
    "61 minutes ahead": lambda provider: provider.token(claims={"iat": now() + HOUR_S + 60}),
    "another team": signed(claims={"iss": "NOSUCHTEAM"}),
    "no team": signed(claims={"iss": None}),
    "unknown key": signed(header={"kid": "NOSUCHKEY0"}),
    "no key": signed(header={"kid": None}),
    "alg none": signed(header={"alg": "none"}),
    "alg none, unsigned": unsigned,
    "alg HS256": by_public_key,
    "alg ES384": signed(header={"alg": "ES384"}),
    "forged": forged,
    "signature of zeros": of_zeros,
    "two parts": lambda provider: provider.token().rpartition(".")[0],
    "four parts": lambda provider: provider.token() + ".x",
    "no base64": lambda _: "ä.ö.ü",
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
async def test_a_bad_token_is_refused(
    prepared: PreparedServer, make: Callable[[Provider], str]
) -> None:
    good = push(prepared.provider, prepared.valid)
    answer = await prepared.ask(good.but(*bearer(make(prepared.provider))))
    assert answer.refusal == INVALID


async def test_a_token_older_than_an_hour_has_expired(prepared: PreparedServer) -> None:
    old = prepared.provider.token(claims={"iat": now() - HOUR_S - 5})
    answer = await prepared.ask(push(prepared.provider, prepared.valid).but(*bearer(old)))
    assert answer.refusal == (403, "ExpiredProviderToken")


async def test_a_revoked_key_is_refused(prepared: PreparedServer) -> None:
    answer = await prepared.ask(push(prepared.other_apps.revoked, prepared.valid))
    assert answer.refusal == INVALID


async def test_the_key_of_one_team_does_not_sign_for_another(prepared: PreparedServer) -> None:
    claims = {"iss": prepared.other_apps.other.team_id}
    token = prepared.provider.token(claims=claims)
    answer = await prepared.ask(push(prepared.provider, prepared.valid).but(*bearer(token)))
    assert answer.refusal == INVALID


async def test_an_app_may_push_by_any_of_its_keys(prepared: PreparedServer) -> None:
    assert (await prepared.ask(push(prepared.other_apps.second_key, prepared.valid))).status == 200


# On one connection.


def tokens_of(prepared: PreparedServer, count: int) -> list[Request]:
    good = push(prepared.provider, prepared.valid)
    return [good.but(*bearer(prepared.provider.token())) for _ in range(count)]


async def test_a_second_change_within_twenty_minutes_is_too_many(
    prepared: PreparedServer, client: Http2
) -> None:
    first, second, third = tokens_of(prepared, 3)
    asked = [first, first, second, second, third, first, second]
    found = [(await client.ask(request)).refusal for request in asked]
    too_many = (429, "TooManyProviderTokenUpdates")
    ok = (200, None)
    assert found == [ok, ok, ok, ok, too_many, too_many, ok]


async def test_each_connection_counts_for_itself(prepared: PreparedServer) -> None:
    answers = [await prepared.ask(request) for request in tokens_of(prepared, 4)]
    assert {answer.status for answer in answers} == {200}


async def test_a_token_that_is_refused_is_no_change(
    prepared: PreparedServer, client: Http2
) -> None:
    first, second = tokens_of(prepared, 2)
    old = first.but(*bearer(prepared.provider.token(claims={"iat": now() - HOUR_S - 5})))
    found = [(await client.ask(request)).status for request in (first, old, old, second)]
    assert found == [200, 403, 403, 200]


async def test_a_related_key_counts_as_a_change(prepared: PreparedServer, client: Http2) -> None:
    (first,) = tokens_of(prepared, 1)
    related = push(prepared.other_apps.second_key, prepared.valid)
    again = related.but(*bearer(prepared.other_apps.second_key.token()))
    found = [(await client.ask(request)).status for request in (first, related, again)]
    assert found == [200, 200, 429]


async def test_a_connection_keeps_to_the_team_of_its_first_token(
    prepared: PreparedServer, client: Http2
) -> None:
    assert (await client.ask(push(prepared.provider, prepared.valid))).status == 200
    answer = await client.ask(push(prepared.other_apps.other, prepared.theirs))
    assert answer.refusal == INVALID


async def test_a_connection_keeps_to_the_app_of_its_first_token(
    prepared: PreparedServer, client: Http2
) -> None:
    good = push(prepared.provider, prepared.valid)
    assert (await client.ask(good)).status == 200
    answer = await client.ask(push(prepared.other_apps.sibling, prepared.valid))
    assert answer.refusal == (403, "UnrelatedKeyIdInToken")
    assert (await client.ask(good)).status == 200
