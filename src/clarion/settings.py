"""One frozen Settings. Every setting is a flag, an environment variable and a key in a TOML file.

A flag overrides the environment, which overrides the file, which overrides the default. All faults
are reported at once, each with the name of the setting and the allowed values.
"""

from __future__ import annotations

import difflib
import re
import socket
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clarion import setting_types as parse
from clarion.errors import SettingsError
from clarion.setting_types import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import Field

PREFIX = "CLARION_"
# Variables of the test suite are not settings.
TEST_PREFIX = "CLARION_TEST_"


def _setting(
    default: str, parser: Callable[[str], Any], doc: str, *, metavar: str, is_secret: bool = False
) -> Any:
    return field(
        default=parser(default),
        repr=not is_secret,
        metadata={
            "default": default,
            "parse": parser,
            "doc": doc,
            "metavar": metavar,
            "secret": is_secret,
        },
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one server."""

    data: Path = _setting(
        "./data", parse.path, "Directory for the database, keys and certificates.", metavar="DIR"
    )
    listen: Address = _setting(
        "127.0.0.1:8080",
        parse.address,
        "Address for HTTP/1.1 and HTTP/2 without TLS.",
        metavar="HOST:PORT",
    )
    tls_listen: Address | None = _setting(
        "127.0.0.1:8443",
        parse.optional_address,
        "Address for HTTP/2 and HTTP/1.1 over TLS, with the APNs endpoint; `off` for none.",
        metavar="HOST:PORT",
    )
    gateway_listen: Address | None = _setting(
        "127.0.0.1:8081",
        parse.optional_address,
        "Address for WebSocket connections of devices and users; `off` for none.",
        metavar="HOST:PORT",
    )
    gateway_tls_listen: Address | None = _setting(
        "off",
        parse.optional_address,
        "Address for WebSocket connections over TLS; `off` for none.",
        metavar="HOST:PORT",
    )
    roles: frozenset[str] = _setting(
        "api,gateway,worker",
        parse.roles,
        "Roles of this node, separated by commas.",
        metavar="LIST",
    )
    database: str = _setting(
        "",
        parse.database,
        "sqlite:///PATH or postgresql://USER@HOST:PORT/NAME. Empty: `clarion.db` in --data.",
        metavar="URL",
        is_secret=True,
    )
    redis: str = _setting(
        "",
        parse.redis,
        "redis://HOST:PORT/NUMBER of the Redis or Valkey server that nodes share. Empty: none.",
        metavar="URL",
        is_secret=True,
    )
    server_id: str = _setting(
        re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "clarion",
        parse.name,
        "Name of this node in `/health` and in logs.",
        metavar="NAME",
    )
    tls_certificate: Path | None = _setting(
        "",
        parse.optional_path,
        "Certificate chain, PEM. Empty: a development certificate, created in --data.",
        metavar="FILE",
    )
    tls_key: Path | None = _setting(
        "",
        parse.optional_path,
        "Private key of the certificate, PEM in PKCS#8 without a password.",
        metavar="FILE",
    )
    log_level: str = _setting(
        "info",
        parse.choice("debug", "info", "warning", "error"),
        "Lowest level that is logged: debug, info, warning or error.",
        metavar="LEVEL",
    )
    log_format: str = _setting(
        "auto",
        parse.choice("auto", "json", "console"),
        "Format of the log: json, console, or auto (console on a terminal, otherwise json).",
        metavar="FORMAT",
    )
    log_requests: str = _setting(
        "errors",
        parse.choice("none", "errors", "all"),
        "Requests to log: none, errors (status 5xx) or all.",
        metavar="WHICH",
    )
    grace_s: int = _setting(
        "10",
        parse.number(1, 600),
        "How long the server waits for running requests when it stops.",
        metavar="SECONDS",
    )
    max_body_bytes: int = _setting(
        "1048576",
        parse.number(8192, 67_108_864),
        "Maximum size of a request body.",
        metavar="BYTES",
    )
    max_header_bytes: int = _setting(
        "16384",
        parse.number(8192, 1_048_576),
        "Maximum size of the request headers.",
        metavar="BYTES",
    )
    requests_per_minute: int = _setting(
        "60000",
        parse.number(1, 100_000_000),
        "Requests allowed per minute and API key or user; with Redis, across all nodes.",
        metavar="NUMBER",
    )
    device_messages_per_minute: int = _setting(
        "100",
        parse.number(1, 100_000_000),
        "Pushes allowed per minute and device; more are answered TooManyRequests.",
        metavar="NUMBER",
    )
    app_messages_per_minute: int = _setting(
        "1000000",
        parse.number(1, 1_000_000_000),
        "Pushes allowed per minute and app on one node.",
        metavar="NUMBER",
    )
    device_stored: int = _setting(
        "1000",
        parse.number(1, 100_000),
        "Messages stored for an offline device; the oldest with the lowest priority are dropped.",
        metavar="NUMBER",
    )
    user_devices: int = _setting(
        "3",
        parse.number(1, 1000),
        "Devices allowed per user; one more revokes the device that was seen longest ago.",
        metavar="NUMBER",
    )
    low_priority_window_s: int = _setting(
        "30",
        parse.number(5, 3600),
        "How often low-priority messages are sent to connected devices.",
        metavar="SECONDS",
    )
    message_days: int = _setting(
        "30",
        parse.number(1, 3650),
        "How long the history of messages to devices is kept.",
        metavar="DAYS",
    )
    event_days: int = _setting(
        "30",
        parse.number(1, 3650),
        "How long finished events are kept.",
        metavar="DAYS",
    )
    notification_days: int = _setting(
        "90",
        parse.number(1, 3650),
        "How long notifications, their deliveries and attempts are kept.",
        metavar="DAYS",
    )
    device_days: int = _setting(
        "30",
        parse.number(1, 3650),
        "How long revoked and invalidated devices are kept.",
        metavar="DAYS",
    )
    user_streams: int = _setting(
        "20",
        parse.number(1, 10_000),
        "Live streams and sockets that a user may have open on one node.",
        metavar="NUMBER",
    )
    node_streams: int = _setting(
        "10000",
        parse.number(1, 1_000_000),
        "Live streams and sockets that a node keeps open; more are answered 503.",
        metavar="NUMBER",
    )
    category_per_hour: int = _setting(
        "0",
        parse.number(0, 1_000_000),
        "Notifications per user, category and hour; excess ones are held. 0: no limit.",
        metavar="NUMBER",
    )
    user_per_hour: int = _setting(
        "0",
        parse.number(0, 1_000_000),
        "Notifications per user and hour, of all types; excess ones are held. 0: no limit.",
        metavar="NUMBER",
    )
    queue_age_limit_s: int = _setting(
        "60",
        parse.number(1, 86_400),
        "Age of the oldest waiting event at which new events are answered 503.",
        metavar="SECONDS",
    )
    write_waiting: int = _setting(
        "20000",
        parse.number(1, 1_000_000),
        "Writes that may wait for the next commit; more are answered 503.",
        metavar="NUMBER",
    )
    write_batch: int = _setting(
        "1000", parse.number(1, 10_000), "Maximum number of writes in one commit.", metavar="NUMBER"
    )

    @property
    def database_url(self) -> str:
        """The database, by default the file in the data directory."""
        return self.database or f"sqlite:///{self.data / 'clarion.db'}"


def load(
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings; `SettingsError` with all faults at once."""
    faults: list[str] = []
    flags = {name.replace("-", "_"): value for name, value in (flags or {}).items()}
    environment = environment or {}
    config = flags.pop("config", environment.get(PREFIX + "CONFIG", ""))
    texts = _from_file(config, faults) if config else {}
    texts |= _from_environment(environment, faults)
    texts |= _from_flags(flags, faults)
    values = _parse(texts, faults)
    if not faults:
        faults += _find_contradictions(Settings(**values))
    if faults:
        raise SettingsError(faults)
    return Settings(**values)


# A text and its source, as a fault names it.
_Texts = dict[str, tuple[str, str]]


def _from_file(name: str, faults: list[str]) -> _Texts:
    try:
        values = tomllib.loads(Path(name).read_text())
    except OSError as error:
        faults.append(f"--config: cannot read {name}: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"--config: {name} is not valid TOML: {error}")
        return {}
    texts: _Texts = {}
    for key, value in values.items():
        if _is_known(key, f"`{key}` in {name}", faults):
            texts[key] = (_as_text(value), f"`{key}` in {name}")
    return texts


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _from_environment(environment: Mapping[str, str], faults: list[str]) -> _Texts:
    texts: _Texts = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable.startswith(TEST_PREFIX):
            continue
        key = variable.removeprefix(PREFIX).lower()
        if key == "config":
            continue
        if key.endswith("_file") and key.removesuffix("_file") in _by_name():
            _read_secret_file(key.removesuffix("_file"), variable, value, texts, faults)
        elif _is_known(key, variable, faults):
            texts[key] = (value, variable)
    return texts


def _read_secret_file(key: str, variable: str, file: str, texts: _Texts, faults: list[str]) -> None:
    try:
        texts[key] = (Path(file).read_text().strip(), variable)
    except OSError as error:
        faults.append(f"{variable}: cannot read {file}: {error.strerror}")
    except UnicodeDecodeError:
        faults.append(f"{variable}: cannot read {file}: it is not text")


def _from_flags(flags: Mapping[str, str], faults: list[str]) -> _Texts:
    texts: _Texts = {}
    for key, value in flags.items():
        if _is_known(key, flag_of(key), faults):
            texts[key] = (value, flag_of(key))
    return texts


def _is_known(key: str, source: str, faults: list[str]) -> bool:
    if key in _by_name():
        return True
    near = difflib.get_close_matches(key, _by_name(), n=1)
    hint = f"; did you mean {_like_source(source, near[0])}?" if near else ""
    faults.append(f"{source}: there is no such setting{hint}")
    return False


def _like_source(source: str, key: str) -> str:
    if source.startswith("--"):
        return flag_of(key)
    return PREFIX + key.upper() if source.startswith(PREFIX) else f"`{key}`"


def _parse(texts: _Texts, faults: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, (text, source) in texts.items():
        setting = _by_name()[key]
        try:
            values[key] = setting.metadata["parse"](text)
        except parse.Unsuitable as error:
            shown = "" if setting.metadata["secret"] else f", not {text!r}"
            faults.append(f"{source}: must be {error}{shown}")
    return values


def _find_contradictions(settings: Settings) -> list[str]:
    faults = []
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        faults.append("--tls-certificate and --tls-key: give both or neither")
    named = [
        (flag_of(name), getattr(settings, name))
        for name in ("listen", "tls_listen", "gateway_listen", "gateway_tls_listen")
    ]
    seen: list[tuple[str, Address]] = []
    for flag, address in named:
        if address is None:
            continue
        users = [user for user, other in seen if other.overlaps(address)]
        if users:
            faults.append(f"{flag}: {address} is already used by {users[0]}; choose another port")
        seen.append((flag, address))
    return faults


def _by_name() -> dict[str, Field[Any]]:
    return {setting.name: setting for setting in fields(Settings)}


def flag_of(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def describe() -> list[tuple[str, str, str, str, str]]:
    """Return flag, metavar, environment variable, default and meaning of every setting."""
    return [
        (
            flag_of(setting.name),
            setting.metadata["metavar"],
            PREFIX + setting.name.upper(),
            "the host name" if setting.name == "server_id" else setting.metadata["default"],
            setting.metadata["doc"],
        )
        for setting in fields(Settings)
    ]
