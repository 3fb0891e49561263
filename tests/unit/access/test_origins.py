"""The origins that an app allows: what is one, and what is not the same as one."""

import pytest

from clarion.access.known_apps import KNOWN_MS, KnownApps
from clarion.access.model import ANY_ORIGIN
from clarion.access.origins import ORIGINS_LIMIT, AllowedOrigins, check_origins
from clarion.access.sql import Apps
from tests.factories import FixedClock, make_app, make_provider_key

PAGE = "https://app.example.com"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (PAGE, PAGE),
        ("HTTPS://App.Example.COM", PAGE),
        ("https://app.example.com:443", PAGE),
        ("http://app.example.com:80", "http://app.example.com"),
        ("http://app.example.com:443", "http://app.example.com:443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("capacitor://localhost", "capacitor://localhost"),
        (ANY_ORIGIN, ANY_ORIGIN),
    ],
)
def test_an_origin_is_stored_as_browsers_send_it(given: str, stored: str) -> None:
    assert check_origins([given, given]) == (stored,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "app.example.com",
        "https://",
        f"{PAGE}/",
        f"{PAGE}/path",
        f"{PAGE}?query",
        f"{PAGE}#part",
        "https://ana@app.example.com",
        "https://*.example.com",
        "https://app.example.com:port",
        "https://app.example.com:123456",
        "https://app example.com",
        "https://app.example.com\n",
        "https://äpp.example.com",
        "https://" + "x" * 300,
        "**",
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must have origins like"):
        check_origins([text])


def test_there_is_a_limit() -> None:
    check_origins([f"https://a{n}.example" for n in range(ORIGINS_LIMIT)])
    with pytest.raises(ValueError, match="at most 50"):
        check_origins([f"https://a{n}.example" for n in range(ORIGINS_LIMIT + 1)])


@pytest.fixture
def origins(known_apps: KnownApps, clock: FixedClock) -> AllowedOrigins:
    return AllowedOrigins(known_apps, clock)


async def test_only_the_same_origin_of_the_same_app_is_allowed(
    origins: AllowedOrigins, apps: Apps
) -> None:
    app, other = make_app(allowed_origins=(PAGE,)), make_app(allowed_origins=("http://b.example",))
    for each in (app, other):
        await apps.create(each, make_provider_key(each))
    assert await origins.is_allowed(app.id, PAGE)
    for origin in (
        "null",
        "",
        "*",
        f"{PAGE}.",
        f"{PAGE}:443",
        f"{PAGE}.evil.example",
        PAGE.upper(),
    ):
        assert not await origins.is_allowed(app.id, origin)
    assert not await origins.is_allowed(other.id, PAGE)
    assert not await origins.is_allowed("nobody", PAGE)


async def test_a_star_allows_all_and_an_empty_list_none(
    origins: AllowedOrigins, apps: Apps
) -> None:
    everyone, nobody = make_app(allowed_origins=(ANY_ORIGIN,)), make_app()
    for each in (everyone, nobody):
        await apps.create(each, make_provider_key(each))
    assert await origins.is_allowed(everyone.id, PAGE)
    assert not await origins.is_allowed(nobody.id, PAGE)


async def test_a_change_is_seen_within_two_seconds(
    origins: AllowedOrigins, apps: Apps, clock: FixedClock
) -> None:
    app = make_app(allowed_origins=(PAGE,))
    await apps.create(app, make_provider_key(app))
    assert await origins.is_allowed(app.id, PAGE)
    await apps.update(app.id, allowed_origins=())
    clock.advance(KNOWN_MS - 1)
    assert await origins.is_allowed(app.id, PAGE), "from the cache"
    clock.advance(1)
    assert not await origins.is_allowed(app.id, PAGE)
