"""The URL of Redis: what it may say, and what is refused by name."""

import ssl
from pathlib import Path

import pytest

from clarion.errors import StartError
from clarion.nodes.redis.address import ServerAddress, find_exposed, parse_address
from clarion.nodes.redis.client import slot_of
from tests.peers.authority import Authority


def test_an_address_has_a_host_a_port_and_a_number() -> None:
    address = parse_address("redis://cache.example.com:6380/3")
    assert address.servers == (ServerAddress("cache.example.com", 6380),)
    assert (address.number, address.username, address.password) == (3, "default", "")
    assert address.tls is None


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("redis://a", [("a", 6379)]),
        ("redis://a:1,b:2,c", [("a", 1), ("b", 2), ("c", 6379)]),
        ("redis://[::1]:7000,[fd00::2]", [("::1", 7000), ("fd00::2", 6379)]),
        ("redis://user:pass@a:1,b:2/0", [("a", 1), ("b", 2)]),
        ("unix:///run/redis.sock?db=2", [("/run/redis.sock", 0)]),
    ],
)
def test_one_or_several_servers_are_named(url: str, servers: list[tuple[str, int]]) -> None:
    assert list(parse_address(url).servers) == servers


def test_a_password_may_have_any_characters_and_is_not_shown() -> None:
    address = parse_address("redis://app:p%40ss%3Aword@a")
    assert (address.username, address.password) == ("app", "p@ss:word")
    assert "p@ss" not in repr(address)
    assert parse_address("redis://:secret@a").username == "default"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://", "redis://HOST:PORT/NUMBER"),
        ("redis://a:port", "redis://HOST:PORT/NUMBER"),
        ("redis://a:70000", "redis://HOST:PORT/NUMBER"),
        ("redis://a,,b", "redis://HOST:PORT/NUMBER"),
        ("redis://a/first", "redis://HOST:PORT/NUMBER"),
        ("redis://a?db=-1", "redis://HOST:PORT/NUMBER"),
        ("redis://a?max_connections=5", "max_connections"),
        ("redis://a?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("rediss://a?ssl_ca_certs=/does/not/exist.pem", "certificate"),
        ("rediss://a?ssl_cert_reqs=perhaps", "ssl_cert_reqs"),
        ("rediss://a?ssl_check_hostname=perhaps", "ssl_check_hostname"),
        ("redis://" + ",".join(["a"] * 65), "64"),
    ],
)
def test_what_is_wrong_is_named(url: str, word: str) -> None:
    with pytest.raises(StartError) as raised:
        parse_address(url)
    assert raised.value.detail.startswith("--redis: ")
    assert word in raised.value.detail


def test_the_server_is_verified_unless_that_is_turned_off(tmp_path: Path) -> None:
    ca = Authority.create(tmp_path).ca_path
    strict = parse_address(f"rediss://a?ssl_ca_certs={ca}").tls
    assert strict is not None
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    nameless = parse_address(f"rediss://a?ssl_ca_certs={ca}&ssl_check_hostname=false").tls
    assert nameless is not None
    assert (nameless.verify_mode, nameless.check_hostname) == (ssl.CERT_REQUIRED, False)
    lax = parse_address("rediss://a?ssl_cert_reqs=none").tls
    assert lax is not None
    assert lax.verify_mode == ssl.CERT_NONE


def test_slots_are_those_of_the_cluster_specification() -> None:
    assert slot_of("123456789") == 0x31C3
    assert slot_of("a:{user1000}.following") == slot_of("{user1000}.followers")
    assert slot_of("foo{}{bar}") != slot_of("{bar}")
    assert slot_of("foo{{bar}}zap") == slot_of("{{bar}")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("redis://127.0.0.1", None),
        ("redis://localhost", None),
        ("redis://10.1.2.3,[fd00::1]:6380,[::1]", None),
        ("redis://100.64.0.1", None),
        ("unix:///run/redis.sock", None),
        ("redis://:secret@9.9.9.9", "9.9.9.9"),
        ("redis://10.1.2.3,[2620:fe::fe]:6380", "2620:fe::fe"),
        ("rediss://9.9.9.9", None),
    ],
)
async def test_a_host_that_is_reached_over_the_internet_without_tls(
    url: str, host: str | None
) -> None:
    assert await find_exposed(parse_address(url)) == host
