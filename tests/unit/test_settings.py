"""Settings: their sources, which one overrides, and how faults are reported."""

import re
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import SettingsError
from clarion.settings import PREFIX, Settings, describe, find_unknown, flag_of, load
from clarion.settings.types import ListenAddress
from clarion.system.cores import count_cores
from tests.replacing import replace

SECRETS = sorted(each.name for each in fields(Settings) if each.metadata["secret"])


def faults_of(
    flags: dict[str, str] | None = None, environment: dict[str, str] | None = None
) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        load(flags, environment)
    return raised.value.faults


def toml(folder: Path, text: str) -> dict[str, str]:
    """Return the flags that name a file with this text."""
    file = folder / "clarion.toml"
    file.write_text(text)
    return {"config": str(file)}


def test_nothing_set_gives_the_defaults() -> None:
    assert load() == Settings()


def test_the_default_database_is_in_the_data_folder() -> None:
    assert load({"data": "/srv/x"}).database_url == "sqlite:////srv/x/clarion.db"
    assert load({"database": "postgresql://a@b/c"}).database_url == "postgresql://a@b/c"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        load().grace_s = 3  # type: ignore[misc]


def test_a_file_beats_the_default(tmp_path: Path) -> None:
    assert load(toml(tmp_path, "grace_s = 3")).grace_s == 3


def test_the_environment_beats_the_file(tmp_path: Path) -> None:
    flags = toml(tmp_path, "grace_s = 3")
    assert load(flags, {"CLARION_GRACE_S": "4"}).grace_s == 4


def test_a_flag_beats_the_environment(tmp_path: Path) -> None:
    flags = toml(tmp_path, "grace_s = 3") | {"grace-s": "5"}
    assert load(flags, {"CLARION_GRACE_S": "4"}).grace_s == 5


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = toml(tmp_path, "grace_s = 3")["config"]
    assert load({}, {"CLARION_CONFIG": file}).grace_s == 3


def test_a_flag_is_written_with_dashes_or_underscores() -> None:
    assert load({"grace-s": "7"}) == load({"grace_s": "7"})


@pytest.mark.parametrize("name", [each.name for each in fields(Settings)])
def test_every_setting_is_a_flag_and_a_variable(name: str) -> None:
    default = dict(zip([each.name for each in fields(Settings)], describe(), strict=True))[name][3]
    text = "node-1" if name == "server_id" else default
    assert load({name: text}) == load({}, {PREFIX + name.upper(): text})


def test_the_file_takes_lists_and_numbers(tmp_path: Path) -> None:
    settings = load(toml(tmp_path, 'roles = ["api", "worker"]\nmax_body_bytes = 9000'))
    assert settings.roles == {"api", "worker"}
    assert settings.max_body_bytes == 9000


def test_other_variables_of_the_environment_are_ignored() -> None:
    assert load({}, {"HOME": "/x", "CLARIONET": "y", "CLARION_TEST_SERVERS": "z"}) == Settings()


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    flags = toml(tmp_path, "grace_s = 0\nnonsense = 1") | {"listen": "nowhere", "roles": "cook"}
    faults = faults_of(flags, {"CLARION_WRITE_BATCH": "many", "CLARION_LOG_LEVEL": "loud"})
    assert [fault.split(":")[0] for fault in faults] == [
        f"`nonsense` in {tmp_path}/clarion.toml",
        f"`grace_s` in {tmp_path}/clarion.toml",
        "CLARION_LOG_LEVEL",
        "CLARION_WRITE_BATCH",
        "--listen",
        "--roles",
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"listen": "8080"}, "host:port"),
        ({"listen": "localhost:0"}, "1 to 65535"),
        ({"listen": "localhost:65536"}, "1 to 65535"),
        ({"tls-listen": "::1:8080"}, "[::1]:8080"),
        ({"gateway-listen": "a b:80"}, "host:port"),
        ({"roles": ""}, "one or more of api, gateway, worker"),
        ({"grace-s": "-1"}, "a whole number from 1 to 600"),
        ({"grace-s": "1.5"}, "a whole number from 1 to 600"),
        ({"max-body-bytes": "8191"}, "from 8,192 to"),
        ({"log-format": "xml"}, "one of auto, json, console"),
        ({"server-id": "a b"}, "1 to 64 letters"),
        ({"database": "mysql://x"}, "sqlite:///PATH or postgresql://"),
        ({"database": "sqlite:///"}, "sqlite:///PATH"),
        ({"redis": "http://x"}, "redis://HOST:PORT/NUMBER"),
    ],
)
def test_a_fault_says_what_would_be_right(flags: dict[str, str], expected: str) -> None:
    (fault,) = faults_of(flags)
    assert fault.startswith(f"--{next(iter(flags))}: must be")
    assert expected in fault


def test_a_fault_shows_the_value_that_was_given() -> None:
    assert faults_of({"log-level": "loud"})[0].endswith("not 'loud'")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (({"lissten": "x"}, {}), "--lissten: there is no such setting; did you mean --listen?"),
        (({"zzz": "x"}, {}), "--zzz: there is no such setting"),
    ],
)
def test_a_misspelt_name_gets_a_hint(
    source: tuple[dict[str, str], dict[str, str]], hint: str
) -> None:
    assert faults_of(*source) == [hint]


def test_an_unknown_variable_is_no_fault_but_is_reported() -> None:
    environment = {"CLARION_DATABSE": "x", "CLARION_ZZZ_FILE": "/nowhere", "CLARION_CONFIG": ""}
    assert load({}, environment) == Settings()
    assert find_unknown({**environment, "CLARION_REDIS_FILE": "x", "CLARION_TEST_X": "y"}) == [
        "CLARION_DATABSE: there is no such setting; did you mean CLARION_DATABASE?",
        "CLARION_ZZZ_FILE: there is no such setting",
    ]


def test_what_kubernetes_sets_for_a_service_is_neither_a_setting_nor_reported() -> None:
    set_for_services = {
        f"CLARION_{service}{variable}": "tcp://10.0.0.1:8080"
        for service in ("", "GATEWAY_", "REDIS_", "DATABASE_")
        for variable in (
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_HTTP",
            "PORT",
            "PORT_8080_TCP",
            "PORT_8080_TCP_PROTO",
            "PORT_8080_TCP_ADDR",
        )
    }
    assert load({}, set_for_services) == Settings()
    assert find_unknown(set_for_services) == []
    names = [each.name for each in fields(Settings)]
    assert not [each for each in names if re.search(r"(^|_)(port|service_host)($|_)", each)]


def test_a_known_variable_must_have_a_valid_value() -> None:
    assert len(faults_of({}, {"CLARION_LISTEN": "tcp://10.0.0.1:8080"})) == 1


def test_a_misspelt_name_in_the_file_gets_a_hint(tmp_path: Path) -> None:
    (fault,) = faults_of(toml(tmp_path, "redsi = 'x'"))
    assert fault.endswith("there is no such setting; did you mean `redis`?")


def test_a_file_that_is_not_there_is_a_fault() -> None:
    assert faults_of({"config": "/no/where.toml"}) == [
        "--config: cannot read /no/where.toml: No such file or directory"
    ]


@pytest.mark.parametrize("content", [b"= what", b"\xff\xfe", b"a = \x00"])
def test_a_file_that_is_no_toml_is_a_fault(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "clarion.toml"
    file.write_bytes(content)
    (fault,) = faults_of({"config": str(file)})
    assert fault.startswith(f"--config: {file} is not valid TOML")


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_may_come_from_a_file(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("redis://u:pw@h/0\n" if name == "redis" else "postgresql://u:pw@h/d\n")
    settings = load({}, {f"CLARION_{name.upper()}_FILE": str(secret)})
    assert getattr(settings, name) == secret.read_text().strip()


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"], ids=["missing", "no text"])
def test_a_secret_file_that_cannot_be_read_is_a_fault(
    tmp_path: Path, content: bytes | None
) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    (fault,) = faults_of({}, {"CLARION_REDIS_FILE": str(secret)})
    assert fault.startswith(f"CLARION_REDIS_FILE: cannot read {secret}: ")


def test_a_flag_beats_a_secret_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("redis://file/0")
    settings = load({"redis": "redis://flag/0"}, {"CLARION_REDIS_FILE": str(secret)})
    assert settings.redis == "redis://flag/0"


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_in_the_repr(name: str) -> None:
    values: dict[str, Any] = {name: "redis://u:hunter2@h"}
    assert "hunter2" not in repr(replace(Settings(), **values))


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_in_a_fault(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2://hunter2@h")
    variable = f"CLARION_{name.upper()}"
    texts = [
        *faults_of({name: "hunter2://hunter2@h"}),
        *faults_of({}, {variable: "hunter2://hunter2@h"}),
        *faults_of({}, {f"{variable}_FILE": str(secret)}),
        *faults_of(toml(tmp_path, f'{name} = "hunter2://hunter2@h"')),
    ]
    assert not [text for text in texts if "hunter2" in text.replace(str(secret), "")]


def test_a_certificate_needs_its_key() -> None:
    assert faults_of({"tls-certificate": "a.pem"}) == [
        "--tls-certificate and --tls-key: give both or neither"
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "[::]"])  # noqa: S104 - never opened
def test_two_listeners_cannot_meet_on_a_port(host: str) -> None:
    (fault,) = faults_of({"listen": "127.0.0.1:9000", "gateway-listen": f"{host}:9000"})
    assert (
        fault == f"--gateway-listen: {host}:9000 is already used by --listen; choose another port"
    )


POSTGRES = {"database": "postgresql://a@b/c"}


def test_a_sqlite_database_is_used_by_one_process() -> None:
    assert load().process_count == 1
    assert load({"processes": "1"}).process_count == 1
    (fault,) = faults_of({"processes": "2"})
    assert fault.startswith("--processes: a SQLite database is used by one process; give 1, or")


def test_with_postgresql_there_are_as_many_processes_as_processors() -> None:
    assert load(POSTGRES).process_count == min(count_cores(), 8)
    assert load({**POSTGRES, "processes": "auto"}).process_count == min(count_cores(), 8)
    assert load({**POSTGRES, "processes": "3"}).process_count == 3


@pytest.mark.parametrize("text", ["0", "65", "some", ""])
def test_processes_are_a_number_or_auto(text: str) -> None:
    (fault,) = faults_of({**POSTGRES, "processes": text})
    expected = "--processes: must be auto, or a whole number from 1 to 64"
    assert fault == f"{expected}, not {text!r}"


def test_two_listeners_may_share_a_port_on_two_addresses() -> None:
    settings = load({"listen": "127.0.0.1:9000", "gateway-listen": "127.0.0.2:9000"})
    assert settings.gateway_listen == ListenAddress("127.0.0.2", 9000)


@pytest.mark.parametrize("text", ["off", ""])
def test_a_listener_can_be_turned_off(text: str) -> None:
    assert load({"tls-listen": text, "gateway-listen": text}).tls_listen is None


@pytest.mark.parametrize("text", ["~nobody-by-this-name/data", "a\0b"])
def test_a_path_that_cannot_be_is_a_fault(text: str) -> None:
    (fault,) = faults_of({"data": text})
    assert fault == f"--data: must be a path on this machine, not {text!r}"


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:65535", "clarion.example:1"])
def test_an_address_is_written_as_it_was_given(text: str) -> None:
    assert str(load({"listen": text}).listen) == text


def test_an_address_of_version_6_loses_its_brackets() -> None:
    assert load({"listen": "[::1]:80"}).listen == ListenAddress("::1", 80)


@given(
    st.dictionaries(
        st.sampled_from([each.name for each in fields(Settings)]) | st.text(max_size=12),
        st.text(max_size=40),
        max_size=6,
    )
)
def test_any_flags_give_settings_or_faults(flags: dict[str, str]) -> None:
    flags.pop("config", None)
    with suppress(SettingsError):
        assert isinstance(load(flags), Settings)


def test_every_setting_has_a_meaning_and_what_it_takes() -> None:
    for flag, metavar, variable, _default, doc in describe():
        assert flag == flag_of(variable.removeprefix(PREFIX).lower())
        assert metavar.isupper()
        assert doc.endswith(".")
