"""Which addresses of PostgreSQL need TLS."""

import pytest

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
    ],
)
def test_another_machine_needs_it(url: str) -> None:
    assert choose_tls(url) == TLS


def test_what_the_url_or_the_environment_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in ("disable", "prefer", "verify-full"):
        assert choose_tls(f"postgresql://a@db/c?sslmode={mode}") == {}
    monkeypatch.setenv("PGSSLMODE", "disable")
    assert choose_tls("postgresql://a@db/c") == {}


def test_the_host_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    assert choose_tls("postgresql:///c") == TLS
    assert choose_tls("postgresql://localhost/c") == {}
