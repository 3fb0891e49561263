"""User keys and provider keys: which are made, and which are refused."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from clarion.access.app_keys import (
    FIRST_KID,
    check_overlap,
    issue_provider_key,
    issue_user_key,
    user_key_context,
)
from clarion.access.model import UserTokenAlgorithm
from clarion.access.vault import Vault
from clarion.errors import InternalError, InvalidFields
from tests.factories import NOW, make_app

HS256, ES256, EDDSA = UserTokenAlgorithm
P256, P384 = (ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1()))
ED25519, ED448 = ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
Private = (
    ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
    | rsa.RSAPrivateKey
)


def public_pem(key: Private) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def private_pem(key: Private) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def test_a_secret_that_is_made_is_shown_once_and_sealed_for_its_name(vault: Vault) -> None:
    issued = issue_user_key(app_id="app", algorithm=HS256, vault=vault, now=NOW)
    assert issued.secret is not None
    assert len(issued.secret) == 43
    key = issued.key
    assert vault.open(key.key, user_key_context("app", key.kid)) == issued.secret.encode()
    for app_id, kid in (("other", key.kid), ("app", "other"), ("app", FIRST_KID)):
        with pytest.raises(InternalError):
            vault.open(key.key, user_key_context(app_id, kid))
    assert issued.secret not in repr(issued)


def test_a_secret_that_is_given_is_not_shown(vault: Vault) -> None:
    issued = issue_user_key(app_id="app", algorithm=HS256, vault=vault, now=NOW, secret="s" * 32)
    assert issued.secret is None


@pytest.mark.parametrize(
    ("algorithm", "private"), [(ES256, P256), (EDDSA, ED25519)], ids=["ES256", "EdDSA"]
)
def test_a_public_key_is_kept_in_one_form(
    vault: Vault, algorithm: UserTokenAlgorithm, private: Private
) -> None:
    pem = public_pem(private)
    for given in (pem, pem.strip(), pem.replace("\n", "\r\n")):
        issued = issue_user_key(
            app_id="app", algorithm=algorithm, vault=vault, now=NOW, public_key=given
        )
        opened = vault.open(issued.key.key, user_key_context("app", issued.key.kid))
        assert (opened.decode(), issued.secret) == (pem, None)


@pytest.mark.parametrize(
    ("algorithm", "given", "reason"),
    [
        (ES256, public_pem(P384), "must be a key on the curve P-256 for ES256, not on secp384r1"),
        (ES256, public_pem(ED25519), "must be a key on the curve P-256 for ES256"),
        (ES256, public_pem(RSA), "must be a key on the curve P-256 for ES256"),
        (EDDSA, public_pem(P256), "must be an Ed25519 key for EdDSA"),
        (EDDSA, public_pem(ED448), "must be an Ed25519 key for EdDSA"),
        (ES256, private_pem(P256), "is a private key: keep it, and register its public key"),
        (ES256, "", "must be a public key in PEM"),
        (ES256, "x" * 100_000, "must have at most 4096 characters"),
        (ES256, "\ud800", "must be a public key in PEM"),
        (ES256, None, "is required with ES256"),
    ],
)
def test_a_public_key_of_another_kind_is_refused(
    vault: Vault, algorithm: UserTokenAlgorithm, given: str | None, reason: str
) -> None:
    with pytest.raises(InvalidFields, match=f"^public_key: {reason}"):
        issue_user_key(app_id="app", algorithm=algorithm, vault=vault, now=NOW, public_key=given)


@pytest.mark.parametrize("secret", ["", "s" * 31, "s" * 1025, "ä" * 15])
def test_a_weak_secret_is_refused(vault: Vault, secret: str) -> None:
    with pytest.raises(InvalidFields, match="secret: must have 32 to 1024 bytes"):
        issue_user_key(app_id="app", algorithm=HS256, vault=vault, now=NOW, secret=secret)


def test_a_public_key_is_no_secret(vault: Vault) -> None:
    """A key that everybody may know must not become one that signs."""
    with pytest.raises(InvalidFields, match="secret: is a key in PEM"):
        issue_user_key(app_id="app", algorithm=HS256, vault=vault, now=NOW, secret=public_pem(P256))


def test_a_provider_key_is_a_pair_or_a_public_key() -> None:
    app = make_app()
    made = issue_provider_key(app=app, now=NOW)
    assert made.private_key is not None
    private = serialization.load_pem_private_key(made.private_key.encode(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert made.key.public_key == public_pem(private)
    given = issue_provider_key(app=app, now=NOW, key_id="ABCDE12345", public_key=public_pem(P256))
    assert (given.key.key_id, given.private_key) == ("ABCDE12345", None)
    assert made.private_key not in repr(made)


@pytest.mark.parametrize("key_id", ["", "short", "abcde12345", "ABCDE123456", "ABCDE1234\n"])
def test_a_key_id_is_like_apples(key_id: str) -> None:
    with pytest.raises(InvalidFields, match="key_id: must have 10 capital letters"):
        issue_provider_key(app=make_app(), now=NOW, key_id=key_id)


def test_an_overlap_has_a_limit() -> None:
    assert [check_overlap(each) for each in (0, 30 * 24 * 3600)] == [0, 30 * 24 * 3600 * 1000]
    for each in (-1, 30 * 24 * 3600 + 1):
        with pytest.raises(InvalidFields, match="overlap_s: must be from 0"):
            check_overlap(each)
