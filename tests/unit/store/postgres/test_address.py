"""Which addresses of PostgreSQL need TLS."""

import pytest

from clarion.errors import StartError
from clarion.store.postgres.address import choose_tls

TLS = {"ssl": "require"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://a:b@127.0.0.1:5432/c",
        "postgresql://a@localhost/c",
        "postgresql://a@[::1]:5432/c",
        "postgresql://127.0.0.9/c",
        "postgresql:///c",
        "postgresql:///c?host=/run/postgresql",
        "postgresql:///c?host=/run/postgresql,127.0.0.1",
    ],
)
def test_this_machine_needs_none(url: str) -> None:
    assert choose_tls(url) == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://a:b@db:5432/c",
        "postgres://a@10.1.2.3/c",
        "postgresql://a@[fd00::1]:5432/c",
        "postgresql://a@127.0.0.1,db/c",
        "postgresql:///c?host=db",
        "postgresql:///c?host=/run/postgresql&host=db",
        # These only look like this machine.
        "postgresql://127.0.0.1@db/c",
        "postgresql://a@127.0.0.1.example.com/c",
        "postgresql://a@localhost.example.com/c",
        "postgresql://a:x@127.0.0.1@db/c",
        "postgresql://a@db/c?application_name=sslmode",
        # The driver takes this for a setting of the server, and not for TLS.
        "postgresql://a@db/c?ssl=disable",
    ],
)
def test_another_machine_needs_it(url: str) -> None:
    assert choose_tls(url) == TLS


@pytest.mark.parametrize("mode", ["disable", "require", "verify-ca", "verify-full"])
def test_what_the_url_says_counts(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "prefer")
    assert choose_tls(f"postgresql://a@db/c?sslmode={mode}") == {}


def test_tls_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert choose_tls("postgresql://a@db/c") == {}


@pytest.mark.parametrize("mode", ["prefer", "allow"])
def test_tls_only_if_the_server_offers_it_is_refused(mode: str) -> None:
    with pytest.raises(StartError, match=f"sslmode={mode}.*sslmode=disable"):
        choose_tls(f"postgresql://a@db/c?sslmode={mode}")
    assert choose_tls(f"postgresql://a@localhost/c?sslmode={mode}") == {}


@pytest.mark.parametrize("mode", ["disable", "prefer", "allow"])
def test_the_environment_turns_tls_off_for_this_machine_only(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", mode)
    with pytest.raises(StartError, match=f"PGSSLMODE={mode}"):
        choose_tls("postgresql://a@db/c")
    assert choose_tls("postgresql:///c") == {}


def test_the_host_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    assert choose_tls("postgresql:///c") == TLS
    assert choose_tls("postgresql://localhost/c") == {}


def test_with_a_service_file_the_url_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name the host, and Clarion does not read it."""
    with pytest.raises(StartError, match="service file"):
        choose_tls("postgresql:///c?service=main")
    assert choose_tls("postgresql:///c?service=main&sslmode=verify-full") == {}
    monkeypatch.setenv("PGSERVICE", "main")
    with pytest.raises(StartError, match="service file"):
        choose_tls("postgresql:///c")
    assert choose_tls("postgresql://a@db/c") == TLS
    assert choose_tls("postgresql://localhost/c") == {}
