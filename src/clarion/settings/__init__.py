"""One frozen Settings. Every setting is a flag, an environment variable and a key in a TOML file.

A flag overrides the environment, which overrides the file, which overrides the default. All faults
are reported at once, each with the name of the setting and the allowed values. An unknown variable
is no fault: for a service named `clarion`, Kubernetes sets `CLARION_PORT` and others.
"""

from __future__ import annotations

import difflib
import re
import socket
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network
from itertools import chain
from pathlib import Path
from typing import Any

from clarion.errors import SettingsError
from clarion.fields import REFUSED_SCHEMES
from clarion.settings import types as parse
from clarion.settings.types import ListenAddress
from clarion.system.cores import count_cores

PREFIX = "CLARION_"
# Variables of the test suite are not settings.
TEST_PREFIX = "CLARION_TEST_"
# What it sets for a service whose name begins with `clarion`; no setting has such a name.
_OF_KUBERNETES = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_\d+_\w+)?$")
# Each opens a dozen connections; a PostgreSQL server allows a hundred by default.
_AUTO_PROCESSES = 8


def _setting(
    default: str, parser: Callable[[str], Any], metavar: str, doc: str, *, is_secret: bool = False
) -> Any:
    about = {"default": default, "parse": parser, "metavar": metavar, "doc": doc}
    return field(
        default=parser(default), repr=not is_secret, metadata={**about, "secret": is_secret}
    )


def _number(default: int, low: int, high: int, doc: str) -> Any:
    return _setting(str(default), parse.number(low, high), "NUMBER", doc)


def _address(default: str, doc: str) -> Any:
    return _setting(default, parse.optional_address, "HOST:PORT", f"{doc}; `off` for none.")


def _choice(default: str, others: str, metavar: str, doc: str) -> Any:
    return _setting(default, parse.choice(default, *others.split()), metavar, doc)


def _file(doc: str) -> Any:
    return _setting("", parse.optional_path, "FILE", doc)


def _networks(doc: str) -> Any:
    return _setting("", parse.networks, "LIST", doc)


def _url(parser: Callable[[str], str], doc: str) -> Any:
    """Return a setting that is secret, because a URL may contain a password."""
    return _setting("", parser, "URL", doc, is_secret=True)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one server."""

    data: Path = _setting(
        "./data", parse.path, "DIR", "Directory for the database, keys and certificates."
    )
    listen: ListenAddress = _setting(
        "127.0.0.1:8080", parse.address, "HOST:PORT", "HTTP/1.1 and HTTP/2 without TLS."
    )
    tls_listen: ListenAddress | None = _address(
        "127.0.0.1:8443", "HTTP/2 and HTTP/1.1 over TLS, with the APNs endpoint"
    )
    gateway_listen: ListenAddress | None = _address(
        "127.0.0.1:8081", "WebSocket connections of devices and users"
    )
    gateway_tls_listen: ListenAddress | None = _address("off", "WebSocket connections over TLS")
    roles: frozenset[str] = _setting(
        "api,gateway,worker", parse.roles, "LIST", "Roles of this node, separated by commas."
    )
    processes: int | None = _setting(
        "auto",
        parse.number_or_auto(1, 64),
        "NUMBER",
        "Processes on this machine, which share the listeners; each is a node. `auto`: 1 with "
        "SQLite, or if the system is not Linux; otherwise one for each processor, 8 at most.",
    )
    database: str = _url(
        parse.database,
        "sqlite:///PATH or postgresql://USER@HOST:PORT/NAME. Empty: `clarion.db` in --data.",
    )
    redis: str = _url(
        parse.redis,
        "redis://HOST:PORT/NUMBER of the Redis or Valkey that nodes share: a server, or several "
        "of a Cluster, separated by commas; rediss:// for TLS. Empty: none.",
    )
    server_id: str = _setting(
        re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "clarion",
        parse.name,
        "NAME",
        "Name of this node in `/health` and in logs.",
    )
    tls_certificate: Path | None = _file(
        "Certificate chain, PEM. Empty: a development certificate, created in --data."
    )
    tls_key: Path | None = _file("Private key, PEM in PKCS#8 without a password.")
    user: str = _setting(
        "",
        parse.account,
        "NAME",
        "Account that a server started by root runs as. It needs the data directory and the key, "
        "and cannot listen on ports below 1024. Empty: the account that starts it.",
    )
    log_level: str = _choice(
        "info", "debug warning error", "LEVEL", "Minimum level: debug, info, warning or error."
    )
    log_format: str = _choice(
        "auto", "json console", "FORMAT", "json, console, or auto (console on a terminal)."
    )
    log_requests: str = _choice(
        "errors", "none all", "WHICH", "Requests to log: none, errors (status 5xx) or all."
    )
    metrics_and_docs: str = _choice(
        "local",
        "direct public off",
        "WHO",
        "Who can read /metrics, /docs and /openapi.json: local (from this machine over --listen, "
        "if that is a loopback address, and not through a proxy), direct (from anywhere over "
        "--listen, but not through a proxy), public or off. Others get 404.",
    )
    demo: str = _choice(
        "off",
        "on",
        "WHETHER",
        "on: serve the page /demo, on which two users of the demo app notify each other, only to "
        "this machine. Needs SQLite.",
    )
    clock: str = _choice(
        "system",
        "test",
        "WHICH",
        "system; or test, a clock that `POST /v1/test/clock` moves ahead, for your own tests: only "
        "with SQLite, and in a data directory that is used only for tests.",
    )
    grace_s: int = _number(10, 1, 600, "How long a stop waits for running requests.")
    drain_s: int = _number(
        0,
        0,
        600,
        "How long a stopping server still serves requests while `/ready` answers 503, so that load "
        "balancers notice.",
    )
    max_body_bytes: int = _number(1_048_576, 8192, 67_108_864, "Maximum size of a request body.")
    max_header_bytes: int = _number(16_384, 8192, 1_048_576, "Maximum size of the request headers.")
    address_connections: int = _number(
        1000,
        1,
        1_000_000,
        "HTTP connections from one address (an IPv6 /64 network counts as one) to one node; more "
        "are closed. Connections from this machine do not count. Raise it for a proxy on another "
        "machine.",
    )
    requests_per_minute: int = _number(
        60_000, 1, 100_000_000, "Requests per minute and API key; with Redis, on all nodes."
    )
    app_requests_per_minute: int = _number(
        120_000, 1, 100_000_000, "Requests per minute and app, of all its keys and users together."
    )
    user_requests_per_minute: int = _number(
        600, 1, 100_000_000, "Requests per minute and user, by all user tokens of the user."
    )
    admin_requests_per_minute: int = _number(
        1200, 1, 100_000_000, "Requests per minute and administrator, by sessions and keys."
    )
    admin_idle_minutes: int = _number(
        30, 1, 1440, "How long a session of an administrator lasts without a request."
    )
    admin_session_hours: int = _number(
        12, 1, 720, "How long a session of an administrator lasts at most."
    )
    admin_mfa: str = _choice(
        "admin",
        "all off",
        "WHO",
        "Who needs a second factor to sign in: admin (accounts with the role admin), all or off.",
    )
    admin_networks: tuple[IPv4Network | IPv6Network, ...] = _networks(
        "Networks from which administrators may sign in, like 10.0.0.0/8, separated by commas. A "
        "proxy in them lets in all of its clients, unless --trusted-proxies names it. Empty: all."
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = _networks(
        "Networks of proxies, separated by commas. Over --listen, their X-Forwarded-For and "
        "X-Forwarded-Proto are believed; over --tls-listen they are TCP proxies, and addresses of "
        "clients are unknown. A proxy that is not listed is taken for the client. Empty: none."
    )
    proxy_protocol: str = _choice(
        "off",
        "on",
        "WHETHER",
        "on: the proxies of --trusted-proxies are TCP proxies also over --listen, and begin each "
        "connection with a header of the PROXY protocol, version 2, which names the client.",
    )
    user_token_hours: int = _number(
        24,
        1,
        87_600,
        "How far ahead the `exp` of a user token may be; a later one is answered 401.",
    )
    refused_schemes: frozenset[str] = _setting(
        ",".join(REFUSED_SCHEMES),
        parse.schemes,
        "LIST",
        "URL schemes that a `deeplink` must not have, separated by commas.",
    )
    public_url: str = _setting(
        "",
        parse.public_url,
        "URL",
        "URL at which this installation is reached from outside, for links in emails, status "
        "callbacks and Web Push endpoints. Empty: http:// and the address of --listen.",
    )
    allow_private_targets: tuple[IPv4Network | IPv6Network, ...] = _networks(
        "Private networks that webhooks and Web Push may call, like 10.0.0.0/8, separated by "
        "commas. Empty: none."
    )
    device_messages_per_minute: int = _number(
        100, 1, 100_000_000, "Pushes per minute and device; more are answered TooManyRequests."
    )
    app_messages_per_minute: int = _number(
        1_000_000, 1, 1_000_000_000, "Pushes per minute and app on one node."
    )
    app_template_cpu_s: int = _number(
        20, 1, 60, "Processor seconds per minute for the templates and schemas of an app."
    )
    device_stored: int = _number(
        1000, 1, 100_000, "Stored messages per device; more replace the oldest of lowest priority."
    )
    user_devices: int = _number(
        3, 1, 1000, "Devices per user; one more revokes the one seen longest ago."
    )
    low_priority_window_s: int = _number(
        30, 5, 3600, "How often low-priority messages are sent to connected devices."
    )
    message_days: int = _number(30, 1, 3650, "How long the history of messages to devices is kept.")
    event_days: int = _number(30, 1, 3650, "How long finished events are kept.")
    notification_days: int = _number(
        90, 1, 3650, "How long notifications, their deliveries and attempts are kept."
    )
    device_days: int = _number(30, 1, 3650, "How long revoked and invalidated devices are kept.")
    deleted_user_days: int = _number(
        30, 1, 3650, "How long deleted users can be restored; then they are erased."
    )
    audit_days: int = _number(365, 1, 36_500, "How long entries of the audit log are kept.")
    audit_log: str = _setting(
        "",
        parse.file_or_off,
        "FILE",
        "File that the audit log is copied to, as lines of JSON; `off` for none. Empty: "
        "`audit.log` in --data.",
    )
    user_streams: int = _number(
        20, 1, 10_000, "Live streams and sockets of one user on one node; more are answered 429."
    )
    node_streams: int = _number(
        10_000, 1, 1_000_000, "Live streams and sockets open on one node; more are answered 503."
    )
    address_sockets: int = _number(
        500,
        1,
        2000,
        "Unauthenticated WebSocket connections from one address; one more closes the oldest. "
        "Behind a reverse proxy, which is one address: 2000.",
    )
    app_devices_connected: int = _number(
        100_000,
        1,
        10_000_000,
        "Devices of one app connected to one node; more are closed with 4429.",
    )
    device_failures: int = _number(
        5,
        0,
        1_000,
        "Failed connections of a device in a row before it is refused for 15 to 30 seconds; 0 for "
        "never.",
    )
    category_per_hour: int = _number(
        0,
        0,
        1_000_000,
        "Notifications per user, category and hour, unless the app has its own limit; more are "
        "held. 0: no limit.",
    )
    user_per_hour: int = _number(
        0,
        0,
        1_000_000,
        "Notifications per user and hour, unless the app has its own limit; more are held. "
        "0: no limit.",
    )
    queue_age_limit_s: int = _number(
        60, 1, 86_400, "Age of an app's oldest due job at which its new events are answered 429."
    )
    app_waiting: int = _number(
        1_000_000,
        1000,
        1_000_000_000,
        "Jobs of one app that may wait, scheduled ones included; more events are answered 429.",
    )
    write_waiting: int = _number(
        20_000,
        1,
        1_000_000,
        "Writes that may wait for a commit, of one app half of them; more are answered 503.",
    )
    write_batch: int = _number(1000, 1, 10_000, "Maximum number of writes in one commit.")

    @property
    def database_url(self) -> str:
        """The database, by default the file in the data directory."""
        return self.database or f"sqlite:///{self.data / 'clarion.db'}"

    @property
    def process_count(self) -> int:
        """How many processes to run."""
        if self.processes is not None:
            return self.processes
        return min(count_cores(), _AUTO_PROCESSES) if self._can_share() else 1

    def _can_share(self) -> bool:
        return sys.platform == "linux" and not self.database_url.startswith("sqlite:")

    @property
    def audit_log_path(self) -> Path | None:
        """The file of the audit log, by default in the data directory; None if it is off."""
        if self.audit_log == "off":
            return None
        return Path(self.audit_log) if self.audit_log else self.data / "audit.log"

    @property
    def external_url(self) -> str:
        """The URL of this installation, without a slash at the end."""
        return self.public_url or f"http://{self.listen}"

    @property
    def addresses(self) -> list[tuple[str, ListenAddress]]:
        """The flag and the address of every listener that is not off."""
        names = ("listen", "tls_listen", "gateway_listen", "gateway_tls_listen")
        return [(flag_of(name), at) for name in names if (at := getattr(self, name)) is not None]


_BY_NAME = {setting.name: setting for setting in fields(Settings)}
# The unit of a number is the last word of its name.
_UNITS = {"s": "SECONDS", "bytes": "BYTES", "days": "DAYS"}
# The name of a setting, where its value is from (as a fault names it), and the value.
_Given = tuple[str, str, str]


def load(
    flags: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings; `SettingsError` with all faults at once."""
    faults: list[str] = []
    flags = {name.replace("-", "_"): value for name, value in (flags or {}).items()}
    environment = environment or {}
    config = flags.pop("config", environment.get(PREFIX + "CONFIG", ""))
    given = chain(
        _from_file(config, faults) if config else (),
        _from_environment(environment, faults),
        ((key, flag_of(key), value) for key, value in flags.items()),
    )
    values = _parse(given, faults)
    if not faults:
        faults += _find_contradictions(Settings(**values))
    if faults:
        raise SettingsError(faults)
    return Settings(**values)


def _from_file(name: str, faults: list[str]) -> Iterator[_Given]:
    try:
        values = tomllib.loads(Path(name).read_text())
    except OSError as error:
        faults.append(f"--config: cannot read {name}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"--config: {name} is not valid TOML: {error}")
    else:
        for key, value in values.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            yield key, f"`{key}` in {name}", text


def _from_environment(environment: Mapping[str, str], faults: list[str]) -> Iterator[_Given]:
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable.startswith(TEST_PREFIX):
            continue
        key = variable.removeprefix(PREFIX).lower()
        if key.endswith("_file") and key.removesuffix("_file") in _BY_NAME:
            yield from _from_secret_file(key.removesuffix("_file"), variable, value, faults)
        elif key in _BY_NAME:
            yield key, variable, value


def _from_secret_file(key: str, variable: str, file: str, faults: list[str]) -> Iterator[_Given]:
    try:
        yield key, variable, Path(file).read_text().strip()
    except OSError as error:
        faults.append(f"{variable}: cannot read {file}: {error.strerror}")
    except UnicodeDecodeError:
        faults.append(f"{variable}: cannot read {file}: it is not text")


def _parse(given: Iterable[_Given], faults: list[str]) -> dict[str, Any]:
    """Return the values by name; of several sources, the last one counts."""
    known = {key: (source, text) for key, source, text in given if _is_known(key, source, faults)}
    values: dict[str, Any] = {}
    for key, (source, text) in known.items():
        about = _BY_NAME[key].metadata
        try:
            values[key] = about["parse"](text)
        except parse.Unsuitable as error:
            shown = "" if about["secret"] else f", not {text!r}"
            faults.append(f"{source}: must be {error}{shown}")
    return values


def find_unknown(environment: Mapping[str, str]) -> list[str]:
    """Return variables that look like settings but are not, for a warning."""
    return [
        _explain_unknown(key, variable)
        for variable in sorted(environment)
        if variable.startswith(PREFIX) and not variable.startswith(TEST_PREFIX)
        for key in [variable.removeprefix(PREFIX).lower()]
        if key.removesuffix("_file") not in (*_BY_NAME, "config")
        and not _OF_KUBERNETES.search(variable)
    ]


def _is_known(key: str, source: str, faults: list[str]) -> bool:
    if key in _BY_NAME:
        return True
    faults.append(_explain_unknown(key, source))
    return False


def _explain_unknown(key: str, source: str) -> str:
    near = difflib.get_close_matches(key, _BY_NAME, n=1)
    hint = f"; did you mean {_like_source(source, near[0])}?" if near else ""
    return f"{source}: there is no such setting{hint}"


def _like_source(source: str, key: str) -> str:
    if source.startswith("--"):
        return flag_of(key)
    return PREFIX + key.upper() if source.startswith(PREFIX) else f"`{key}`"


def _find_contradictions(settings: Settings) -> list[str]:
    faults = []
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        faults.append("--tls-certificate and --tls-key: give both or neither")
    if settings.proxy_protocol == "on" and not settings.trusted_proxies:
        faults.append("--proxy-protocol on: name the proxies with --trusted-proxies")
    is_alone = settings.database_url.startswith("sqlite:") and not settings.redis
    if settings.clock == "test" and not (is_alone and "worker" in settings.roles):
        faults.append("--clock test: needs SQLite, no --redis, and the role worker")
    if settings.process_count > 1 and sys.platform != "linux":
        faults.append("--processes: several need Linux; give 1")
    elif settings.process_count > 1 and settings.database_url.startswith("sqlite:"):
        faults.append(
            "--processes: a SQLite database is used by one process; give 1, or a PostgreSQL "
            "database with --database"
        )
    addresses = settings.addresses
    for position, (flag, address) in enumerate(addresses):
        users = [user for user, other in addresses[:position] if other.overlaps(address)]
        if users:
            faults.append(f"{flag}: {address} is already used by {users[0]}; choose another port")
    return faults


def flag_of(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def describe() -> list[tuple[str, str, str, str, str]]:
    """Return flag, metavar, environment variable, default and meaning of every setting."""
    return [
        (
            flag_of(setting.name),
            _UNITS.get(setting.name.rsplit("_", 1)[-1], setting.metadata["metavar"]),
            PREFIX + setting.name.upper(),
            "the host name" if setting.name == "server_id" else setting.metadata["default"],
            setting.metadata["doc"],
        )
        for setting in fields(Settings)
    ]
