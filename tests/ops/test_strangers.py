"""Strangers behind the proxies of `ops/proxies` see nothing that is for operators.

Nothing in these configurations names what is hidden: Clarion refuses, however it is asked.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.docs.pages import read_blocks
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.ops.operations import OPS
from tests.ops.proxies import NAME, PROXIES, Answer, Ask, Headers, Proxy, list_ways, run_proxy

pytestmark = pytest.mark.timeout(300)

FOR_OPERATORS = ("/metrics", "/docs", "/openapi.json", "/demo")
FOR_ADMINISTRATORS = ("/admin",)
PLAIN = {"HTTP/1.1", "HTTP/1.0"}
REFUSED = {403, 404}
# Requests that are no HTTP, which a proxy refuses as such and never passes on: `#` and zero are in
# no target, a path of HTTP/2 begins with a slash, and the host of an absolute target is `Host`.
NO_HTTP = {"fragment", "zero", "absolute", "absolute here", "absolute TLS"}

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda path: path,
    "slash": lambda path: path + "/",
    "two slashes": lambda path: path + "//",
    "double": lambda path: "/" + path,
    "triple": lambda path: "//" + path,
    "query": lambda path: path + "?x=1",
    "fragment": lambda path: path + "#x",
    "first letter": lambda path: f"/%{ord(path[1]):02x}{path[2:]}",
    "last letter": lambda path: f"{path[:-1]}%{ord(path[-1]):02X}",
    "every letter": lambda path: "/" + "".join(f"%{ord(letter):02x}" for letter in path[1:]),
    "twice": lambda path: f"/%25{ord(path[1]):02x}{path[2:]}",
    "encoded slash": lambda path: "/%2f" + path[1:],
    "slash at the end": lambda path: path + "%2f",
    "zero": lambda path: path + "%00",
    "dot": lambda path: "/." + path,
    "dots": lambda path: "/v1/.." + path,
    "encoded dots": lambda path: "/v1/%2e%2e" + path,
    "dots in ready": lambda path: "/ready/.." + path,
    "dots of the socket": lambda path: "/v1/gateway/.." + path,
    "back slash": lambda path: "/v1/..\\" + path[1:],
    "capitals": lambda path: path.upper(),
    "semicolon": lambda path: path + ";x",
    "semicolon within": lambda path: "/v1/..;" + path,
    "absolute": lambda path: f"http://{NAME}{path}",
    "absolute here": lambda path: f"http://localhost{path}",
    "absolute TLS": lambda path: f"https://127.0.0.1{path}",
}
HERE = ("Host", "localhost")
HEADERS: dict[str, Headers] = {
    "none": (),
    "localhost": (HERE,),
    "loopback": (("Host", "127.0.0.1:8080"),),
    "loopback 6": (("Host", "[::1]:8080"),),
    "for": (("X-Forwarded-For", "127.0.0.1"),),
    "for and host": (("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", "localhost"), HERE),
    "proto": (("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Proto", "https")),
    "forwarded": (("Forwarded", "for=127.0.0.1;host=localhost;proto=https"),),
    "real": (("X-Real-IP", "127.0.0.1"), HERE),
    "empty": (("X-Forwarded-For", ""), ("X-Forwarded-Proto", ""), HERE),
    # A proxy removes what this names: not what it adds itself.
    "hop by hop": (("Connection", "close, X-Forwarded-For, X-Forwarded-Proto, Via"), HERE),
    "underscores": (("X_Forwarded_For", "127.0.0.1"), ("X_Forwarded_Proto", "https"), HERE),
    "another target": (("X-Original-URL", "/ready"), ("X-Rewrite-URL", "/metrics"), HERE),
}
# The samples for containers open these pages to whoever connects without a proxy.
SETTINGS = {
    "local": {"demo": "on"},
    "direct": {"metrics_and_docs": "direct", "trusted_proxies": "127.0.0.0/8", "demo": "on"},
}


@pytest.fixture(scope="module", params=SETTINGS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("server"), **SETTINGS[request.param])
    installation.initialise()
    with installation:
        yield installation


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, server: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    with run_proxy(request.param, tmp_path_factory.mktemp("proxy"), server) as proxy:
        yield proxy


def is_refused(answer: Answer, spelling: str) -> bool:
    """Whether the answer is 403 or 404; or 400 of the proxy itself, for what is no HTTP."""
    if answer.status == 400:
        return spelling in NO_HTTP and not answer.is_from_clarion
    return answer.status in REFUSED


def list_tries(paths: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return each spelling without and with a forged host, and all headers with the plain path."""
    tries = [*itertools.product(SPELLINGS, ("none", "localhost")), *(("plain", x) for x in HEADERS)]
    return [(path, *each) for path in paths for each in dict.fromkeys(tries)]


def find_seen(ways: dict[str, Ask], paths: Sequence[str]) -> dict[str, int]:
    """Return the status of each request that was not refused."""
    return {
        f"{way}, {path}: {spelling}, headers {headers}": answer.status
        for path, spelling, headers in list_tries(paths)
        for way, ask in ways.items()
        if not is_refused(answer := ask(SPELLINGS[spelling](path), HEADERS[headers]), spelling)
    }


def test_what_is_for_operators_is_hidden_however_it_is_asked_for(proxy: Proxy) -> None:
    assert find_seen(list_ways(proxy), FOR_OPERATORS) == {}
    assert len(list_tries(FOR_OPERATORS)) > 200


def test_the_dashboard_is_not_there_without_tls(proxy: Proxy) -> None:
    ways = {way: ask for way, ask in list_ways(proxy).items() if way in PLAIN}
    assert find_seen(ways, FOR_ADMINISTRATORS) == {}
    assert set(ways) == PLAIN


def test_the_table_reaches_the_server(proxy: Proxy) -> None:
    """It would prove nothing if the proxies answered all of it themselves.

    Caddy does without TLS, but it listens.
    """
    for way, ask in list_ways(proxy).items():
        ready, answer = ask("/ready", ()), ask("/metrics", ())
        refuses_plain = way in PLAIN and ready.headers.get("server") == "Caddy"
        assert ready.status == (403 if refuses_plain else 200), way
        assert answer.is_from_clarion is not refuses_plain, way


def test_clients_of_a_proxy_with_tls_are_told_to_use_it_next_time(
    proxy: Proxy, server: Installation
) -> None:
    """Only if the proxy is one of `--trusted-proxies`: others say what they like."""
    is_trusted = "trusted_proxies" in server.flags
    for way, ask in list_ways(proxy).items():
        for path in ("/ready", "/v1/keys", "/admin/sign-in"):
            answer = ask(path, (("X-Forwarded-Proto", "https"),) if way in PLAIN else ())
            is_sent = is_trusted and way in {"HTTP/1.1 over TLS", "HTTP/2 over TLS"}
            assert ("strict-transport-security" in answer.headers) is is_sent, (way, path)


def test_operators_on_the_machine_see_it(server: Installation) -> None:
    asker = Asker(server.port)
    assert {asker.get(path).status for path in FOR_OPERATORS} == {200}


def test_the_page_shows_the_configuration_of_nginx() -> None:
    blocks = read_blocks("docs/how-to/behind-a-proxy.md")
    shown = [each.text for each in blocks if each.title == "clarion.conf"]
    assert shown == [(OPS / "proxies" / "nginx.conf").read_text()]
