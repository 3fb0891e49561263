"""The encryption of Web Push, by the test vector of RFC 8291, and which subscriptions are valid."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.channels.web_push_encryption import (
    PLAIN_LIMIT_BYTES,
    encrypt,
    read_subscription,
)
from clarion.push.model.vapid import read_base64url, read_private_key, write_base64url
from tests.web_push import Browser

# RFC 8291, appendix A.
PLAIN = b"When I grow up, I want to be a watermelon"
SENDER_KEY = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
RECEIVER_KEY = (
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6T"
    "lzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy"
    "4a-fN"
)


def make_subscription(**changes: Any) -> str:
    given = {"endpoint": "https://push.example/x", "p256dh": RECEIVER_KEY, "auth": AUTH} | changes
    endpoint = given.pop("endpoint")
    return json.dumps({"endpoint": endpoint, "keys": given})


def test_it_is_as_the_rfc_has_it() -> None:
    to = read_subscription(make_subscription())
    key, salt = read_private_key(SENDER_KEY), read_base64url(SALT)
    assert encrypt(PLAIN, to, key=key, salt=salt) == read_base64url(BODY)


@given(st.binary(max_size=PLAIN_LIMIT_BYTES))
def test_the_receiver_decrypts_what_was_encrypted(plain: bytes) -> None:
    browser = Browser()
    to = read_subscription(browser.subscription("https://push.example/x"))
    body = encrypt(plain, to)
    assert browser.decrypt(body) == plain
    assert len(body) == len(plain) + 103


def test_the_largest_message_has_the_size_that_every_service_takes() -> None:
    to = read_subscription(make_subscription())
    assert len(encrypt(b"x" * PLAIN_LIMIT_BYTES, to)) == 4096
    with pytest.raises(ValueError, match="3,993"):
        encrypt(b"x" * (PLAIN_LIMIT_BYTES + 1), to)


def test_no_two_messages_are_encrypted_alike() -> None:
    to = read_subscription(make_subscription())
    assert encrypt(PLAIN, to) != encrypt(PLAIN, to)


@pytest.mark.parametrize(
    "subscription",
    [
        make_subscription(),
        make_subscription(auth=AUTH + "=="),
        make_subscription(endpoint="https://push.example:8443/a?b=c"),
        make_subscription(endpoint="http://127.0.0.1:8080/push/x"),
        make_subscription(endpoint="http://localhost/push/x"),
    ],
)
def test_a_subscription_is_valid(subscription: str) -> None:
    read = read_subscription(subscription)
    assert read.endpoint == json.loads(subscription)["endpoint"]


@pytest.mark.parametrize(
    ("subscription", "reason"),
    [
        ("", "must be a JSON object"),
        ("[" * 4_000, "must be a JSON object"),
        (make_subscription() + " " * 4_096, "must have at most 4,096"),
        ('{"endpoint": "https://push.example/x"}', "must be a JSON object"),
        (make_subscription(endpoint="http://push.example/x"), "endpoint must .* https://"),
        (make_subscription(endpoint="http://127.0.0.1.example/x"), "endpoint must .* https://"),
        (make_subscription(endpoint="ftp://push.example/x"), "endpoint must .* https://"),
        (make_subscription(endpoint="https://"), "endpoint must"),
        (make_subscription(endpoint="https://a:b@push.example/x"), "endpoint must not"),
        (make_subscription(endpoint="https://push.example:99999/x"), "endpoint must be a URL"),
        (make_subscription(endpoint="https://[::1"), "endpoint must be a URL"),
        (make_subscription(endpoint="https://push.example/a b"), "endpoint must have"),
        (make_subscription(endpoint="https://push.example/a\r\nb"), "endpoint must have"),
        (make_subscription(endpoint="https://push.example/é"), "endpoint must have"),
        (make_subscription(endpoint="https://p.example/" + "x" * 1000), "endpoint must have"),
        (make_subscription(p256dh="AAAA"), "keys.p256dh must be 65 bytes"),
        (make_subscription(p256dh="!" * 87), "keys.p256dh must be base64url"),
        (make_subscription(p256dh="B" + "A" * 86), "keys.p256dh must be a point"),
        (make_subscription(p256dh=write_base64url(b"\x02" + b"x" * 64)), "keys.p256dh must"),
        (make_subscription(auth="AAAA"), "keys.auth must be 16 bytes"),
        (make_subscription(auth="?"), "keys.auth must be base64url"),
        (make_subscription(auth="A" * 5), "keys.auth must be"),
    ],
)
def test_what_is_wrong_with_a_subscription_is_said(subscription: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_subscription(subscription)


@given(st.text() | st.builds(make_subscription, p256dh=st.text(), auth=st.text()))
def test_whatever_is_registered_it_is_valid_or_refused(text: str) -> None:
    try:
        read_subscription(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either is right
