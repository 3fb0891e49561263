"""One frozen Settings. Every setting is a flag, a line in a TOML file and an environment variable.

The last of these that names it wins: default, file, environment, flag. All faults are reported at
once, each with the name of the setting and what would be right.
"""

from __future__ import annotations

import difflib
import re
import socket
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clarion import setting_types as kinds
from clarion.errors import SettingsError
from clarion.setting_types import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import Field

PREFIX = "CLARION_"
# Variables of the test suite; they are no settings and not taken for misspelt ones.
TEST_PREFIX = "CLARION_TEST_"


def _setting(
    default: str, parse: Callable[[str], Any], doc: str, *, metavar: str, is_secret: bool = False
) -> Any:
    return field(
        default=parse(default),
        repr=not is_secret,
        metadata={
            "default": default,
            "parse": parse,
            "doc": doc,
            "metavar": metavar,
            "secret": is_secret,
        },
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    data: Path = _setting(
        "./data", kinds.path, "Folder for the database, keys and certificates.", metavar="DIR"
    )
    listen: Address = _setting(
        "127.0.0.1:8080", kinds.address, "Plain HTTP/1.1 and HTTP/2.", metavar="HOST:PORT"
    )
    tls_listen: Address | None = _setting(
        "127.0.0.1:8443",
        kinds.optional_address,
        "HTTP/2 and HTTP/1.1 over TLS, the APNs door among them; `off` for none.",
        metavar="HOST:PORT",
    )
    gateway_listen: Address | None = _setting(
        "127.0.0.1:8081",
        kinds.optional_address,
        "WebSocket connections of devices and users; `off` for none.",
        metavar="HOST:PORT",
    )
    gateway_tls_listen: Address | None = _setting(
        "off", kinds.optional_address, "The same over TLS; `off` for none.", metavar="HOST:PORT"
    )
    roles: frozenset[str] = _setting(
        "api,gateway,worker", kinds.roles, "What this node does.", metavar="LIST"
    )
    database: str = _setting(
        "",
        kinds.database,
        "sqlite:///PATH or postgresql://USER@HOST:PORT/NAME. Empty: `clarion.db` in --data.",
        metavar="URL",
        is_secret=True,
    )
    redis: str = _setting(
        "",
        kinds.redis,
        "redis://HOST:PORT/NUMBER of a Redis or Valkey server, for several nodes. Empty: none.",
        metavar="URL",
        is_secret=True,
    )
    server_id: str = _setting(
        re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "clarion",
        kinds.word,
        "The name of this node in health answers and logs.",
        metavar="NAME",
    )
    tls_certificate: Path | None = _setting(
        "",
        kinds.optional_path,
        "Certificate chain as PEM. Empty: a development certificate made in the data folder.",
        metavar="FILE",
    )
    tls_key: Path | None = _setting(
        "",
        kinds.optional_path,
        "Its private key, PEM in PKCS#8 without a password.",
        metavar="FILE",
    )
    log_level: str = _setting(
        "info",
        kinds.choice("debug", "info", "warning", "error"),
        "The least that is logged.",
        metavar="LEVEL",
    )
    log_format: str = _setting(
        "auto",
        kinds.choice("auto", "json", "console"),
        "`auto` is `console` on a terminal and `json` elsewhere.",
        metavar="FORMAT",
    )
    log_requests: str = _setting(
        "errors",
        kinds.choice("none", "errors", "all"),
        "Which requests are logged: none, those answered 5xx, or all.",
        metavar="WHICH",
    )
    grace_s: int = _setting(
        "10",
        kinds.number(1, 600),
        "How long a stop waits for requests under way.",
        metavar="SECONDS",
    )
    max_body_bytes: int = _setting(
        "1048576", kinds.number(8192, 67_108_864), "Largest request body.", metavar="BYTES"
    )
    max_header_bytes: int = _setting(
        "16384", kinds.number(8192, 1_048_576), "Largest set of request headers.", metavar="BYTES"
    )
    requests_per_minute: int = _setting(
        "60000",
        kinds.number(1, 100_000_000),
        "Requests that one API key or user may make in a minute; with Redis, on all nodes.",
        metavar="NUMBER",
    )
    device_messages_per_minute: int = _setting(
        "100",
        kinds.number(1, 100_000_000),
        "Pushes that one device may be sent in a minute; more are answered TooManyRequests.",
        metavar="NUMBER",
    )
    app_messages_per_minute: int = _setting(
        "1000000",
        kinds.number(1, 1_000_000_000),
        "Pushes that one app may send in a minute through one node.",
        metavar="NUMBER",
    )
    device_stored: int = _setting(
        "1000",
        kinds.number(1, 100_000),
        "Messages kept for one device that is away; the oldest of the lowest priority go first.",
        metavar="NUMBER",
    )
    user_devices: int = _setting(
        "3",
        kinds.number(1, 1000),
        "Devices that one user may have; one more revokes the one that was seen longest ago.",
        metavar="NUMBER",
    )
    low_priority_window_s: int = _setting(
        "30",
        kinds.number(5, 3600),
        "How often messages of low priority are handed to devices that are connected.",
        metavar="SECONDS",
    )
    message_days: int = _setting(
        "30",
        kinds.number(1, 3650),
        "How long the history of messages to devices is kept.",
        metavar="DAYS",
    )
    event_days: int = _setting(
        "30",
        kinds.number(1, 3650),
        "How long events that are over are kept.",
        metavar="DAYS",
    )
    notification_days: int = _setting(
        "90",
        kinds.number(1, 3650),
        "How long notifications, their deliveries and attempts are kept.",
        metavar="DAYS",
    )
    device_days: int = _setting(
        "30",
        kinds.number(1, 3650),
        "How long devices that were revoked or invalidated are kept.",
        metavar="DAYS",
    )
    user_streams: int = _setting(
        "20",
        kinds.number(1, 10_000),
        "Live streams and sockets that one user may have open at a time on one node.",
        metavar="NUMBER",
    )
    node_streams: int = _setting(
        "10000",
        kinds.number(1, 1_000_000),
        "Live streams and sockets of users that one node holds open; more are answered 503.",
        metavar="NUMBER",
    )
    category_per_hour: int = _setting(
        "0",
        kinds.number(0, 1_000_000),
        "Notifications of one category that a person gets in an hour; more wait. 0: no limit.",
        metavar="NUMBER",
    )
    user_per_hour: int = _setting(
        "0",
        kinds.number(0, 1_000_000),
        "Notifications that a person gets in an hour, of all types; more wait. 0: no limit.",
        metavar="NUMBER",
    )
    queue_age_limit_s: int = _setting(
        "60",
        kinds.number(1, 86_400),
        "How old waiting work may get before more events are answered 503.",
        metavar="SECONDS",
    )
    write_waiting: int = _setting(
        "20000",
        kinds.number(1, 1_000_000),
        "Writes that may wait for the next commit; what comes beyond is answered 503.",
        metavar="NUMBER",
    )
    write_batch: int = _setting(
        "1000", kinds.number(1, 10_000), "Most writes in one commit.", metavar="NUMBER"
    )

    @property
    def database_url(self) -> str:
        """The database, with the default filled in."""
        return self.database or f"sqlite:///{self.data / 'clarion.db'}"


def load(
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Build the settings; `SettingsError` with all faults at once."""
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


# A text and where it came from, in the words of the person who wrote it.
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
    hint = f"; did you mean {_in_manner_of(source, near[0])}?" if near else ""
    faults.append(f"{source}: there is no such setting{hint}")
    return False


def _in_manner_of(source: str, key: str) -> str:
    if source.startswith("--"):
        return flag_of(key)
    return PREFIX + key.upper() if source.startswith(PREFIX) else f"`{key}`"


def _parse(texts: _Texts, faults: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, (text, source) in texts.items():
        setting = _by_name()[key]
        try:
            values[key] = setting.metadata["parse"](text)
        except kinds.Wrong as wrong:
            shown = "" if setting.metadata["secret"] else f", not {text!r}"
            faults.append(f"{source}: must be {wrong}{shown}")
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
        takers = [taker for taker, other in seen if other.meets(address)]
        if takers:
            faults.append(f"{flag}: {address} is taken by {takers[0]}; choose another port")
        seen.append((flag, address))
    return faults


def _by_name() -> dict[str, Field[Any]]:
    return {setting.name: setting for setting in fields(Settings)}


def flag_of(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def describe() -> list[tuple[str, str, str, str, str]]:
    """Return flag, what it takes, environment variable, default and meaning of every setting."""
    return [
        (
            flag_of(setting.name),
            setting.metadata["metavar"],
            PREFIX + setting.name.upper(),
            "the host's name" if setting.name == "server_id" else setting.metadata["default"],
            setting.metadata["doc"],
        )
        for setting in fields(Settings)
    ]
