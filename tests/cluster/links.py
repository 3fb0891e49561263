"""The network between nodes and their servers, which a test can interrupt.

Where the machine allows it, each node is in a network namespace of its own, with a cable to each
server; packets are then lost as on a real network, without a word to either end. Elsewhere a proxy
stops forwarding.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field

from tests.contract.proxy import Proxy

POSTGRES, REDIS, CLIENTS = "database", "redis", "clients"
SERVERS = (POSTGRES, REDIS)
# Nobody has this hardware address: what is sent to it is lost.
NOBODY = "02:00:00:00:00:99"


@dataclass(kw_only=True)
class Links:
    """The links of each node: a proxy for each server."""

    proxies: list[dict[str, Proxy]]

    @property
    def kind(self) -> str:
        return "fault proxy"

    @property
    def node_flags(self) -> list[dict[str, str]]:
        """The settings by which each node goes over its own links."""
        return [{name: proxy.url for name, proxy in own.items()} for own in self.proxies]

    @property
    def hosts(self) -> list[str]:
        """Where each node listens."""
        return ["127.0.0.1"] * len(self.proxies)

    @property
    def under(self) -> list[list[str]]:
        """The command by which the processes of each node are started."""
        return [[] for _ in self.proxies]

    def interrupt(self, node: int, server: str) -> None:
        """Lose everything that a node and a server send to each other."""
        self.proxies[node][server].freeze()

    def lose_answers(self, node: int, server: str) -> None:
        """Lose what a server sends to a node, but not what the node sends."""
        self.proxies[node][server].freeze_answers()

    async def heal(self) -> None:
        """Let everything pass again."""
        for own in self.proxies:
            for proxy in own.values():
                await proxy.restore()


@dataclass(kw_only=True)
class Cable:
    """Two connected interfaces: one of ours, one inside a namespace."""

    namespace: str
    name: str
    network: str  # the first three bytes of its addresses, and a dot
    first: int
    outside_mac: str = ""
    inside_mac: str = ""

    @property
    def outside(self) -> str:
        return f"{self.network}{self.first + 1}"

    @property
    def inside(self) -> str:
        return f"{self.network}{self.first + 2}"

    def plug(self) -> None:
        ours, theirs = f"{self.name}o", f"{self.name}i"
        run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs)
        run("ip", "link", "set", theirs, "netns", self.namespace)
        run("ip", "addr", "add", f"{self.outside}/30", "dev", ours)
        run("ip", "link", "set", ours, "up")
        self._inside("ip", "addr", "add", f"{self.inside}/30", "dev", theirs)
        self._inside("ip", "link", "set", theirs, "up")
        self.outside_mac = run("cat", f"/sys/class/net/{ours}/address").strip()
        self.inside_mac = self._inside("cat", f"/sys/class/net/{theirs}/address").strip()
        self.send_answers_to(self.inside_mac)
        self.send_requests_to(self.outside_mac)

    def send_answers_to(self, mac: str) -> None:
        """Choose where packets from outside go, as the table of neighbours has it."""
        entry = [self.inside, "lladdr", mac, "dev", f"{self.name}o", "nud", "permanent"]
        run("ip", "neigh", "replace", *entry)

    def send_requests_to(self, mac: str) -> None:
        """Choose where packets from inside go."""
        entry = [self.outside, "lladdr", mac, "dev", f"{self.name}i", "nud", "permanent"]
        self._inside("ip", "neigh", "replace", *entry)

    def heal(self) -> None:
        self.send_answers_to(self.inside_mac)
        self.send_requests_to(self.outside_mac)

    def _inside(self, *command: str) -> str:
        return run("ip", "netns", "exec", self.namespace, *command)


@dataclass(kw_only=True)
class NamespaceLinks(Links):
    """The same, with a namespace for each node and a cable to each server and to its clients."""

    cables: list[dict[str, Cable]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return "network namespaces"

    @property
    def hosts(self) -> list[str]:
        return [own[CLIENTS].inside for own in self.cables]

    @property
    def under(self) -> list[list[str]]:
        return [["ip", "netns", "exec", own[CLIENTS].namespace] for own in self.cables]

    def interrupt(self, node: int, server: str) -> None:
        self.lose_answers(node, server)
        self.cables[node][server].send_requests_to(NOBODY)

    def lose_answers(self, node: int, server: str) -> None:
        self.cables[node][server].send_answers_to(NOBODY)

    async def heal(self) -> None:
        for own in self.cables:
            for cable in own.values():
                cable.heal()


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_namespaces() -> bool:
    """Whether this machine lets us have network namespaces."""
    name = f"clarion-{os.getpid()}-try"
    try:
        with ExitStack() as stack:
            add_namespace(name, stack)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def add_namespace(name: str, stack: ExitStack) -> None:
    run("ip", "netns", "add", name)
    stack.callback(run, "ip", "netns", "del", name)
    run("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")


def lay_cables(nodes: int, stack: ExitStack) -> list[dict[str, Cable]]:
    """Make a namespace for each node, and its cables; a cable goes with its namespace."""
    number = os.getpid()
    network = f"10.{200 + (number >> 8) % 50}.{number % 256}."
    cables: list[dict[str, Cable]] = []
    for node in range(nodes):
        namespace = f"clarion-{number}-{node}"
        add_namespace(namespace, stack)
        own: dict[str, Cable] = {}
        for place, name in enumerate((*SERVERS, CLIENTS)):
            first = 4 * (node * 3 + place)
            short = f"cl{number % 100_000:05}{node}{place}"
            own[name] = Cable(namespace=namespace, name=short, network=network, first=first)
            own[name].plug()
        cables.append(own)
    return cables


@asynccontextmanager
async def open_links(
    urls: dict[str, str], *, in_namespaces: bool, nodes: int = 3
) -> AsyncIterator[Links]:
    """Connect nodes to the servers with these addresses, as long as the context lasts."""
    if POSTGRES in urls:  # it has no TLS, and the addresses of namespaces are not of this machine
        urls = urls | {POSTGRES: f"{urls[POSTGRES]}?sslmode=disable"}
    async with AsyncExitStack() as stack:
        cables = lay_cables(nodes, stack.enter_context(ExitStack())) if in_namespaces else []
        proxies = await _open_proxies(urls, nodes, cables, stack)
        if cables:
            yield NamespaceLinks(proxies=proxies, cables=cables)
        else:
            yield Links(proxies=proxies)


async def _open_proxies(
    urls: dict[str, str], nodes: int, cables: Sequence[dict[str, Cable]], stack: AsyncExitStack
) -> list[dict[str, Proxy]]:
    proxies: list[dict[str, Proxy]] = []
    for node in range(nodes):
        own: dict[str, Proxy] = {}
        for name, url in urls.items():
            host = cables[node][name].outside if cables else "127.0.0.1"
            own[name] = await stack.enter_async_context(Proxy.to(url, host))
        proxies.append(own)
    return proxies
