"""URLs lead to public addresses, or to networks that the operator allows."""

import asyncio
import threading
from collections.abc import Iterator
from ipaddress import ip_network
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.http import Url

from clarion.channels.targets import TargetRefused, Targets, check_url, sending_app, split

PUBLIC = "93.184.216.34"
PRIVATE_ADDRESSES = [
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "0.1.2.3",
    "10.1.2.3",
    "100.64.0.1",  # shared by a provider's customers
    "100.100.100.200",  # metadata of Alibaba Cloud
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",  # metadata of most clouds
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",  # metadata of Oracle Cloud
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",  # translated
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001:0:7f00:1::",  # Teredo
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:db8::1",
    "2002:7f00:1::",  # 6to4
    "2002:c0a8:1::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of AWS
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
PUBLIC_ADDRESSES = [PUBLIC, "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
# Each would lead to a private host in some reader of URLs, or to another one than it seems to.
BAD_URLS = [
    "",
    "example.com",
    "//example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "javascript:alert(1)",
    "https:example.com",
    "https:/example.com/",
    "https:///example.com/",
    "https://",
    "https://?",
    "https://:80/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://127.0.0.1../",
    "http://127.00.00.01/",
    "http://0/",
    "http://1.2.3/",
    "http://256.256.256.256/",
    "http://99999999999/",
    "http://１２７.0.0.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://127%2e0%2e0%2e1/",
    "http://%31%32%37.0.0.1/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fd00:ec2::254]/",
    "http://[::1",
    "http://::1/",
    "http://[v1.fe]/",
    "http://127.0.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://a.localhost/",
    "http://example.com./",
    "http://example..com/",
    "http://.example.com/",
    "http://-example.com/",
    "http://exa mple.com/",
    "http://bücher.example/",
    "http://lⓞcalhost/",
    "http://exam\u00adple.com/",
    "http://exam%00ple.com/",
    "http://xn--/",
    f"http://{'a' * 64}.com/",
    f"http://{'a.' * 127}com/",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1:80@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http:\\\\example.com\\",
    "http://example.com#@127.0.0.1:1/\\",
    " http://example.com/",
    "http://example.com/ ",
    "http://exam\tple.com/",
    "ht\ntp://example.com/",
    "http://example.com/\r\nX-Evil: 1",
    "http://example.com/\x00",
    "http://example.com/a b",
    "http://example.com:0/",
    "http://example.com:22/",
    "http://example.com:25/",
    "http://example.com:1023/",
    "http://example.com:6379/",
    "http://example.com:11211/",
    "http://example.com:6667/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:8o/",
    "http://example.com:８０/",
    f"http://example.com/{'a' * 2048}",
]
GOOD_URLS = [
    "https://example.com",
    "HTTPS://Example.COM/Path",
    "http://example.com:80/",
    "https://hooks.example.com:8443/a?b=c&d=%20#e",
    "https://xn--bcher-kva.example/",
    "https://under_score.example/",
    "https://a.1a/",
    "https://93.184.216.34/",
    "https://[2606:4700::1111]:443/",
    "https://intranet/",
]


def serving(*answers: list[str]) -> tuple[Targets, Iterator[list[str]]]:
    """Return targets whose name server gives these answers in turn."""
    turn = cycle(answers)
    return Targets(resolver=lambda _host: next(turn), valid_s=0), turn


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_a_private_or_special_address_is_refused(address: str) -> None:
    with pytest.raises(TargetRefused):
        Targets().check(address)


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_a_public_address_is_not_refused(address: str) -> None:
    Targets().check(address)


@pytest.mark.parametrize("url", BAD_URLS)
async def test_a_url_that_could_lead_inside_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^must "):
        check_url(url)
    with pytest.raises(TargetRefused):
        await Targets(
            resolver=lambda host: ["127.0.0.1" if "localhost" in host else PUBLIC]
        ).resolve(url)


@pytest.mark.parametrize("url", GOOD_URLS)
async def test_a_url_that_leads_outside_is_resolved(url: str) -> None:
    targets = Targets(resolver=lambda _host: [PUBLIC])
    assert targets.check_url(url) == url
    (target,) = await targets.resolve(url)
    assert target.host == Url(url).host_str
    assert target.address in {PUBLIC, target.host.strip("[]")}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.com/", "must start with https:// or http:// and a host"),
        ("https://a:b@example.com/", "must have no user name or password"),
        ("https://0x7f.1/", "must have its host written as 127.0.0.1"),
        ("https://10.0.0.1/", "must not lead to a private or reserved address"),
        ("https://localhost/", "must not lead to a private or reserved address"),
        ("https://example.com:22/", "must have port 80, 443 or one from 1024"),
    ],
)
def test_the_reason_names_what_is_wrong(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_url(url)


@pytest.mark.parametrize(
    ("network", "url"),
    [
        ("127.0.0.0/8", "http://127.0.0.1:8000/"),
        ("127.0.0.0/8", "http://localhost:8000/"),
        ("::1/128", "http://[::1]:8000/"),
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("fd00::/8", "http://[fd00::1]/"),
    ],
)
async def test_the_operator_can_allow_networks(network: str, url: str) -> None:
    targets = Targets([ip_network(network)])
    assert targets.check_url(url) == url
    assert await targets.resolve(url.replace("localhost", "127.0.0.1"))
    with pytest.raises(TargetRefused):
        await targets.resolve("http://192.168.0.1/")


def test_an_allowed_network_does_not_allow_it_behind_a_gateway() -> None:
    """NAT64 leads to the loopback address of the gateway, not to that of this machine."""
    with pytest.raises(TargetRefused):
        Targets([ip_network("127.0.0.0/8")]).check("64:ff9b::7f00:1")


@pytest.mark.parametrize("private", PRIVATE_ADDRESSES)
async def test_every_address_of_a_name_is_checked(private: str) -> None:
    for answer in ([PUBLIC, private], [private, PUBLIC], [PUBLIC, PUBLIC, private]):
        targets, _ = serving(answer)
        with pytest.raises(TargetRefused):
            await targets.resolve("https://example.com/")


async def test_a_name_is_resolved_once_for_a_while_and_then_followed() -> None:
    answers = iter([[PUBLIC], ["8.8.8.8"]])
    kept = Targets(resolver=lambda _host: next(answers))
    first = await kept.resolve("https://example.com/")
    assert first == await kept.resolve("https://example.com/")
    followed, _ = serving([PUBLIC], ["8.8.8.8"], ["127.0.0.1"])
    for address in (PUBLIC, "8.8.8.8"):
        assert [each.address for each in await followed.resolve("https://a.com/")] == [address]
    with pytest.raises(TargetRefused):
        await followed.resolve("https://a.com/")


async def test_requests_at_once_share_a_lookup() -> None:
    asked: list[str] = []

    def resolve(host: str) -> list[str]:
        asked.append(host)
        return [PUBLIC]

    targets = Targets(resolver=resolve)
    await asyncio.gather(*(targets.resolve("https://example.com/") for _ in range(50)))
    assert asked == ["example.com"]


async def test_a_name_without_an_address_is_an_error_of_the_network() -> None:
    targets, _ = serving([])
    with pytest.raises(OSError, match="it has no address"):
        await targets.resolve("https://example.com/")


async def test_a_failure_is_forgotten_soon() -> None:
    """Before the first retry of a delivery, even if nobody waited until it failed."""
    go_on = threading.Event()
    answers = iter([[], [PUBLIC]])

    def resolve(_host: str) -> list[str]:
        go_on.wait()
        return next(answers)

    targets = Targets(resolver=resolve)
    waiting = asyncio.ensure_future(targets.resolve("https://example.com/"))
    await asyncio.sleep(0)
    waiting.cancel()
    go_on.set()
    async with asyncio.timeout(20):
        while not await can_resolve(targets):  # noqa: ASYNC110 - time passes, and signals nobody
            await asyncio.sleep(0.1)


async def can_resolve(targets: Targets) -> bool:
    try:
        return bool(await targets.resolve("https://example.com/"))
    except OSError:
        return False


async def test_slow_names_of_one_domain_do_not_delay_others() -> None:
    """Names of one domain may hold a part of the threads; who asks for more is refused."""
    go_on = threading.Event()

    def resolve(host: str) -> list[str]:
        if host.endswith("slow.example"):
            go_on.wait()
        return [PUBLIC]

    targets = Targets(resolver=resolve)
    slow = [
        asyncio.ensure_future(targets.resolve(f"https://n{number}.slow.example/"))
        for number in range(200)
    ]
    try:
        assert await targets.resolve("https://example.com/")
    finally:
        go_on.set()
    results = await asyncio.gather(*slow, return_exceptions=True)
    assert sum(isinstance(each, OSError) for each in results) == 200 - 16


async def test_slow_names_of_one_app_do_not_delay_others() -> None:
    """However many domains it has; the names it asks for beyond its threads wait for their turn."""
    go_on = threading.Event()
    running: list[str] = []

    def resolve(host: str) -> list[str]:
        if host.startswith("slow"):
            running.append(host)
            go_on.wait()
        return [PUBLIC]

    targets = Targets(resolver=resolve)
    sending_app.set("slow")
    slow = [
        asyncio.ensure_future(targets.resolve(f"https://slow{number}.example/"))
        for number in range(200)
    ]
    try:
        await asyncio.sleep(0)
        sending_app.set("other")
        assert await targets.resolve("https://example.com/")
        assert len(running) <= 24
    finally:
        go_on.set()
    results = await asyncio.gather(*slow, return_exceptions=True)
    assert not any(isinstance(each, BaseException) for each in results)


HOSTS = st.text(st.sampled_from("0123456789abcdefxXn.-:[]%@/\\\t。①１L"), min_size=1, max_size=24)


@given(HOSTS)
def test_the_http_client_reads_the_host_that_was_checked(host: str) -> None:
    url = f"http://{host}/"
    try:
        location = split(url)
    except ValueError:
        return
    parsed = Url(url)
    assert (parsed.scheme, parsed.host_str, parsed.port_or_known_default) == location
    assert parsed.domain in {None, location.host}


@given(st.integers(0, 2**32 - 1), st.sampled_from(["{}", "0x{:x}", "0{:o}"]))
def test_a_number_is_no_host(number: int, form: str) -> None:
    with pytest.raises(ValueError, match="must have its host written as"):
        check_url(f"http://{form.format(number)}/")
